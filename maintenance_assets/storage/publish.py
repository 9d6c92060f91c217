"""Make staged files visible and take their inputs away: all or nothing, whenever it stops."""

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from maintenance_assets.storage import exchange, local_paths
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.finishing import (
    Outcome,
    clean_run,
    discard,
    finish,
    roll_back,
    take_back,
    without_changed,
)
from maintenance_assets.storage.journal import (
    GroupEntry,
    InputEntry,
    Journal,
    OutputEntry,
    Scope,
    write_journal,
)
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease

PublishMode = Literal["exchange", "ordered", "none"]
Modes = dict[str, PublishMode]
"""How each unit of a journal became visible."""


@dataclass(frozen=True, slots=True)
class Published:
    """What became visible and how; what did not, because inputs changed or access was denied."""

    groups: tuple[GroupEntry, ...]
    mode: PublishMode
    conflicts: tuple[tuple[GroupEntry, str], ...] = ()
    denied: tuple[tuple[GroupEntry, str], ...] = ()

    @classmethod
    def nothing(cls, outcome: Outcome) -> "Published":
        """Everything is as it was."""
        return cls((), "none", tuple(outcome.conflicts), tuple(outcome.denied))


def publish(
    store: Store,
    lease: Lease,
    run_id: str,
    operation: str,
    groups: Sequence[GroupEntry],
    metadata_files: Sequence[str] = (),
    atomic: bool = False,
) -> Published:
    """Publish groups whose staged outputs are complete, verified and durable.

    Each directory stands for itself, or with `atomic` all groups stand or fall together. A group
    may have no inputs (new files, perhaps in a new directory) or no outputs (all rows are gone).
    """
    scope: Scope = "all" if atomic else "directory"
    return _publish(
        store,
        lease,
        Journal(run_id, operation, "prepared", (), scope=scope),
        groups,
        metadata_files,
    )


def publish_tree(
    store: Store,
    lease: Lease,
    run_id: str,
    operation: str,
    inputs: Sequence[InputEntry],
    outputs: Sequence[OutputEntry],
    metadata_files: Sequence[str] = (),
) -> Published:
    """Replace all data files of the root by outputs in other directories, or fill an empty root.

    Where the root can be exchanged, readers see all old or all new files. What others add to the
    old tree meanwhile is carried over, to the same place in the new one.
    """
    if not inputs:
        require_empty_target(store)
    groups = groups_by_directory(inputs, outputs)
    journal = Journal(run_id, operation, "prepared", (), scope="tree")
    return _publish(store, lease, journal, groups, metadata_files)


def groups_by_directory(
    inputs: Sequence[InputEntry], outputs: Sequence[OutputEntry]
) -> tuple[GroupEntry, ...]:
    """What goes and what comes, put together by directory."""
    going: dict[str, list[InputEntry]] = {}
    coming: dict[str, list[OutputEntry]] = {}
    for entry in inputs:
        going.setdefault(posixpath.dirname(entry.path), []).append(entry)
    for output in outputs:
        coming.setdefault(posixpath.dirname(output.final), []).append(output)
    return tuple(
        GroupEntry(directory, tuple(going.get(directory, ())), tuple(coming.get(directory, ())))
        for directory in {**going, **coming}
    )


def require_empty_target(store: Store) -> None:
    """Raise unless nothing but our work directory is at the root."""
    found = sorted(store.children(store.root) - {WORK_DIRECTORY})
    if found:
        raise FileExistsError(
            f"Target '{store.shown}' is not empty: it holds '{found[0]}'. Nothing was written; "
            "give a new or an empty directory."
        )


def _publish(
    store: Store,
    lease: Lease,
    journal: Journal,
    groups: Sequence[GroupEntry],
    metadata_files: Sequence[str],
) -> Published:
    outcome = Outcome()
    unchanged = without_changed(store, groups, outcome)
    if not unchanged or (journal.is_whole and outcome.conflicts):
        clean_run(store, journal.run_id)
        return Published.nothing(outcome)
    # Rows that move should rather be seen twice for a moment than not at all.
    ordered = sorted(unchanged, key=lambda group: bool(group.inputs) and journal.is_whole)
    journal = replace(journal, groups=tuple(ordered))
    lease.ensure_held()
    write_journal(store, journal)
    # A summary file lists the old files; without one, readers list for themselves.
    for path in metadata_files:
        store.delete(path)
    try:
        visible, modes = make_visible(store, journal, outcome)
        spoilt = journal.is_whole and _is_spoilt(store, journal, modes, outcome)
    except BaseException:
        # Whoever is told of an error must not find half of the work, nor all of it.
        if journal.is_whole:
            _give_up(store, journal)
        raise
    if spoilt:
        _give_up(store, journal)
        return Published.nothing(outcome)
    lease.ensure_held()
    journal = replace(visible, state="published")
    write_journal(store, journal)
    if not journal.is_whole:
        journal = _give_up_changed(store, journal, modes, outcome)
    journal = finish(store, journal, lease, outcome)
    mode: PublishMode = "ordered" if "ordered" in modes.values() else "exchange"
    return Published(
        journal.groups,
        mode if journal.groups else "none",
        tuple(outcome.conflicts),
        tuple(outcome.denied),
    )


def _is_spoilt(store: Store, journal: Journal, modes: Modes, outcome: Outcome) -> bool:
    """Whether one group cannot stand, and with it all of them."""
    without_changed(store, _moved_one_by_one(journal, modes), outcome)
    return bool(outcome.conflicts or outcome.denied)


def _give_up(store: Store, journal: Journal) -> None:
    take_back(store, journal)
    clean_run(store, journal.run_id)


def _moved_one_by_one(journal: Journal, modes: Modes) -> list[GroupEntry]:
    """File by file, an input can change up to the last moment."""
    units = [unit for unit in journal.units if modes.get(unit) == "ordered"]
    return [group for unit in units for group in journal.in_unit(unit)]


def make_visible(store: Store, journal: Journal, outcome: Outcome) -> tuple[Journal, Modes]:
    """Bring the outputs to their places; the journal without what could not be brought there."""
    modes: Modes = {}
    mounted = local_paths.mounted_directories() if store.is_local else frozenset()
    for unit in journal.units:
        groups = journal.in_unit(unit)
        try:
            modes[unit] = _show(store, journal, unit, mounted)
        except _ConflictError as conflict:
            outcome.conflicts += [(group, str(conflict)) for group in groups]
        except PermissionError as error:
            outcome.denied += [(group, f"PermissionError: {error}") for group in groups]
            if not journal.is_whole:
                # One directory that may not be written to must not keep the others waiting.
                roll_back(store, groups, journal)
        if journal.is_whole and unit not in modes:
            break
    kept = tuple(group for unit in modes for group in journal.in_unit(unit))
    return replace(journal, groups=kept), modes


class _ConflictError(Exception):
    """An input changed at the moment of publishing; everything is as it was."""


def _show(store: Store, journal: Journal, unit: str, mounted: local_paths.Mounted) -> PublishMode:
    store.make_partition(store.path(unit))
    free = store.is_local and not local_paths.is_mounted(store.path(unit), mounted)
    if free and _all_staged(store, journal, unit) and _try_swap(store, journal, unit):
        return "exchange"
    _require_deletable(store, journal.in_unit(unit))
    _move_outputs(store, journal.in_unit(unit))
    return "ordered"


def _all_staged(store: Store, journal: Journal, unit: str) -> bool:
    """Recovery may find that some were moved already."""
    staged = (output.staged for group in journal.in_unit(unit) for output in group.outputs)
    return all(store.exists(store.path(path)) for path in staged)


def _try_swap(store: Store, journal: Journal, unit: str) -> bool:
    """Whether the unit was exchanged; if not, it has to be done file by file."""
    swap = exchange.plan_swap(store, journal, unit)
    if not exchange.can_swap(swap) or not exchange.build(store, swap, journal.run_id):
        return False
    if not exchange.exchange(store, swap):
        exchange.undo(store, swap)
        return False
    changed = exchange.changed_inputs(store, swap, journal.in_unit(unit))
    if changed:
        exchange.undo(store, swap)
        raise _ConflictError(
            f"'{changed[0]}' was changed by another writer at the moment of publishing"
        )
    exchange.reconcile(swap, deletions=True)
    return True


def _require_deletable(store: Store, groups: Sequence[GroupEntry]) -> None:
    """Inputs that cannot be taken away afterwards would be there twice."""
    if not store.is_local:
        return
    for directory in {group.directory for group in groups if group.inputs}:
        path = store.path(directory)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(f"files in '{path}' cannot be deleted")


def _move_outputs(store: Store, groups: Sequence[GroupEntry]) -> None:
    for group in groups:
        store.make_partition(store.path(group.directory))
        store.together(partial(_move_output, store), group.outputs)
        store.sync_directory(store.path(group.directory))


def _move_output(store: Store, output: OutputEntry) -> None:
    staged, final = store.path(output.staged), store.path(output.final)
    if store.exists(staged) or not store.exists(final):
        store.move(staged, final)


def _give_up_changed(store: Store, journal: Journal, modes: Modes, outcome: Outcome) -> Journal:
    """Groups whose inputs changed while their outputs were moved are undone."""
    ordered = _moved_one_by_one(journal, modes)
    kept = {*without_changed(store, ordered, outcome)}
    return discard(store, journal, [group for group in ordered if group not in kept])
