"""Make staged files visible and take their inputs away: all or nothing, whenever it stops."""

import errno
import logging
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from maintenance_assets.errors import RecoveryError
from maintenance_assets.storage import exchange, local_paths
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.journal import (
    JOURNAL_NAME,
    GroupEntry,
    InputEntry,
    Journal,
    OutputEntry,
    read_journal,
    run_directory,
    write_journal,
)
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease

logger = logging.getLogger(__name__)

PublishMode = Literal["exchange", "ordered", "none"]
Dropped = list[tuple[GroupEntry, str]]
Modes = dict[str, PublishMode]
_RUN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Published:
    """What became visible and how; what did not, because inputs changed or access was denied."""

    groups: tuple[GroupEntry, ...]
    mode: PublishMode
    conflicts: tuple[tuple[GroupEntry, str], ...] = ()
    denied: tuple[tuple[GroupEntry, str], ...] = ()


@dataclass(slots=True)
class _Outcome:
    """Groups that fell out on the way, by reason."""

    conflicts: Dropped = field(default_factory=list)
    denied: Dropped = field(default_factory=list)


# -- publishing --------------------------------------------------------------------------------


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

    Each directory stands for itself, or with `atomic` all groups stand or fall together.
    """
    outcome = _Outcome()
    unchanged = _without_changed(store, groups, outcome)
    if not unchanged or (atomic and outcome.conflicts):
        clean_run(store, run_id)
        return Published((), "none", tuple(outcome.conflicts))
    journal = Journal(run_id, operation, "prepared", tuple(unchanged))
    lease.ensure_held()
    write_journal(store, journal)
    # A summary file lists the old files; without one, readers list for themselves.
    for path in metadata_files:
        store.delete(path)
    journal, modes = _make_visible(store, journal, outcome)
    lease.ensure_held()
    journal = replace(journal, state="published")
    write_journal(store, journal)
    journal = _give_up_changed(store, journal, modes, outcome)
    journal = finish(store, journal, lease, outcome)
    mode: PublishMode = "ordered" if "ordered" in modes.values() else "exchange"
    return Published(
        journal.groups,
        mode if journal.groups else "none",
        tuple(outcome.conflicts),
        tuple(outcome.denied),
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
    """Replace all data files of the root by outputs in other directories, or fill an empty root."""
    if not inputs:
        require_empty_target(store)
    groups = groups_by_directory(inputs, outputs)
    return publish(store, lease, run_id, operation, groups, metadata_files, atomic=True)


def groups_by_directory(
    inputs: Sequence[InputEntry], outputs: Sequence[OutputEntry]
) -> tuple[GroupEntry, ...]:
    """What goes and what comes, put together by directory."""
    paths = [*(entry.path for entry in inputs), *(output.final for output in outputs)]
    return tuple(
        GroupEntry(
            directory,
            tuple(i for i in inputs if posixpath.dirname(i.path) == directory),
            tuple(o for o in outputs if posixpath.dirname(o.final) == directory),
        )
        for directory in dict.fromkeys(map(posixpath.dirname, paths))
    )


def require_empty_target(store: Store) -> None:
    """Raise unless nothing but our work directory is at the root."""
    found = sorted(store.children(store.root) - {WORK_DIRECTORY})
    if found:
        raise FileExistsError(
            f"Target '{store.shown}' is not empty: it holds '{found[0]}'. Nothing was written; "
            "give a new or an empty directory."
        )


def _without_changed(
    store: Store, groups: Sequence[GroupEntry], outcome: _Outcome
) -> list[GroupEntry]:
    changed = [(group, why) for group in groups if (why := _changed(store, group))]
    outcome.conflicts += changed
    lost = {group for group, _ in changed}
    return [group for group in groups if group not in lost]


def _changed(store: Store, group: GroupEntry) -> str:
    state = _input_state(store, group)
    if state.gone:
        return f"'{state.gone[0]}' was deleted by another writer while the group was rewritten"
    if state.changed:
        return f"'{state.changed[0]}' was replaced by another writer while the group was rewritten"
    return ""


@dataclass(frozen=True, slots=True)
class _InputState:
    gone: tuple[str, ...]
    changed: tuple[str, ...]


def _input_state(store: Store, group: GroupEntry) -> _InputState:
    gone, changed = [], []
    for entry in group.inputs:
        listed = store.stat(store.path(entry.path))
        if listed is None:
            gone.append(entry.path)
        elif listed.version != entry.version:
            changed.append(entry.path)
    return _InputState(tuple(gone), tuple(changed))


def _make_visible(store: Store, journal: Journal, outcome: _Outcome) -> tuple[Journal, Modes]:
    modes: Modes = {}
    mounted = local_paths.mounted_directories() if store.is_local else frozenset()
    for directory in journal.directories:
        groups = journal.in_directory(directory)
        try:
            store.make_directory(store.path(directory))
            if store.is_local and not _is_mounted(store, directory, mounted):
                swapped = _try_swap(store, journal, directory, groups)
            else:
                swapped = False
            if not swapped:
                _move_outputs(store, groups)
        except _ConflictError as conflict:
            outcome.conflicts += [(group, str(conflict)) for group in groups]
        except PermissionError as error:
            # One directory that may not be written to must not keep the others waiting.
            _roll_back(store, groups, journal)
            outcome.denied += [(group, f"PermissionError: {error}") for group in groups]
        else:
            modes[directory] = "exchange" if swapped else "ordered"
    kept = tuple(group for group in journal.groups if group.directory in modes)
    return replace(journal, groups=kept), modes


class _ConflictError(Exception):
    """An input changed at the moment of publishing; everything is as it was."""


def _is_mounted(store: Store, directory: str, mounted: local_paths.Mounted) -> bool:
    return local_paths.is_mounted(store.path(directory), mounted)


def _try_swap(
    store: Store, journal: Journal, directory: str, groups: tuple[GroupEntry, ...]
) -> bool:
    """Whether the directory was exchanged; if not, it has to be done file by file."""
    swap = exchange.plan_swap(store, journal, directory)
    if not exchange.can_swap(swap) or not exchange.build(store, swap, journal.run_id):
        return False
    if not exchange.exchange(store, swap):
        exchange.undo(store, swap)
        return False
    changed = exchange.changed_inputs(store, swap, groups)
    if changed:
        exchange.undo(store, swap)
        raise _ConflictError(
            f"'{changed[0]}' was changed by another writer at the moment of publishing"
        )
    exchange.reconcile(swap, deletions=True)
    return True


def _move_outputs(store: Store, groups: Sequence[GroupEntry]) -> None:
    for group in groups:
        for output in group.outputs:
            store.move(store.path(output.staged), store.path(output.final))
        store.sync_directory(store.path(group.directory))


def _give_up_changed(store: Store, journal: Journal, modes: Modes, outcome: _Outcome) -> Journal:
    """File by file, an input can change up to the last moment: then its group is undone."""
    ordered = [group for group in journal.groups if modes[group.directory] == "ordered"]
    kept = {*_without_changed(store, ordered, outcome)}
    return _discard(store, journal, [group for group in ordered if group not in kept])


def _discard(store: Store, journal: Journal, lost: Sequence[GroupEntry]) -> Journal:
    """Take back outputs of a published run whose inputs are all still there."""
    if not lost:
        return journal
    finals = tuple(output.final for group in lost for output in group.outputs)
    journal = replace(
        journal,
        groups=tuple(group for group in journal.groups if group not in lost),
        discarded=(*journal.discarded, *finals),
    )
    # Recorded first: a crash in between must not take the inputs of a group without outputs.
    write_journal(store, journal)
    for path in finals:
        store.delete(store.path(path))
    return journal


def finish(
    store: Store, journal: Journal, lease: Lease, outcome: _Outcome | None = None
) -> Journal:
    """Complete a published run: take the inputs away, then the journal."""
    for path in journal.discarded:
        store.delete(store.path(path))
    for directory in journal.directories:
        if store.is_local:
            swap = exchange.plan_swap(store, journal, directory)
            if exchange.is_exchanged(swap):
                lease.ensure_held()
                exchange.retire(store, swap)
    for group in journal.groups:
        lease.ensure_held()
        _require_outputs(store, journal, group)
        journal = _take_inputs_away(store, journal, group, outcome or _Outcome())
    _require_inputs_gone(store, journal)
    for directory in journal.directories:
        if directory:
            store.remove_if_empty(store.path(directory))
    clean_run(store, journal.run_id)
    return journal


def _take_inputs_away(
    store: Store, journal: Journal, group: GroupEntry, outcome: _Outcome
) -> Journal:
    """Delete the inputs of a group; where the first may not be deleted, take the group back."""
    before = _input_state(store, group)
    try:
        _delete_inputs(store, group)
    except PermissionError as error:
        if _input_state(store, group).gone != before.gone or before.gone:
            raise
        outcome.denied.append((group, f"PermissionError: {error}"))
        return _discard(store, journal, [group])
    return journal


def _require_outputs(store: Store, journal: Journal, group: GroupEntry) -> None:
    """Moved one by one, outputs must all be there before any input goes."""
    if _was_exchanged(store, journal, group.directory):
        return
    for output in group.outputs:
        if not store.exists(store.path(output.final)):
            raise RecoveryError(
                f"Run {journal.run_id} on '{store.shown}' was published, but '{output.final}' is "
                "gone. Nothing was deleted. Restore that file, or, to keep the old files, remove "
                f"the run's other outputs and its folder under '{WORK_DIRECTORY}'."
            )


def _was_exchanged(store: Store, journal: Journal, directory: str) -> bool:
    """An exchange brings all outputs at once: one that is missing was taken by a user."""
    return store.is_local and exchange.has_manifest(exchange.plan_swap(store, journal, directory))


def _delete_inputs(store: Store, group: GroupEntry) -> None:
    for entry in group.inputs:
        path = store.path(entry.path)
        listed = store.stat(path)
        if listed is None:
            continue
        if listed.version != entry.version:
            logger.warning("'%s' was replaced after publishing; the new file is kept", path)
            continue
        store.delete(path)
        if store.is_local:
            _delete_sidecar(store, path)


def _delete_sidecar(store: Store, path: str) -> None:
    folder, _, name = path.rpartition("/")
    try:
        store.delete(f"{folder}/.{name}.crc")
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # then there cannot be one
            raise


def _require_inputs_gone(store: Store, journal: Journal) -> None:
    """A store may deny that a file exists and show it again: the journal must outlive that."""
    for directory in {group.directory for group in journal.groups}:
        if _was_exchanged(store, journal, directory):
            continue
        names = store.children(store.path(directory))
        for group in journal.in_directory(directory):
            for entry in group.inputs:
                if entry.path.rpartition("/")[2] not in names:
                    continue
                listed = store.stat(store.path(entry.path))
                if listed is not None and listed.version == entry.version:
                    raise RecoveryError(
                        f"'{entry.path}' of '{store.shown}' is still there after it was deleted. "
                        "Its rows are also in the new files: run recover() until it is gone."
                    )


# -- recovery ----------------------------------------------------------------------------------


def recover_runs(store: Store, lease: Lease, besides: str = "") -> tuple[str, ...]:
    """Resolve whatever earlier runs left behind; call only while holding the lease."""
    return tuple(
        recover_run(store, lease, run_id) for run_id in leftover_runs(store) if run_id != besides
    )


def recover_run(store: Store, lease: Lease, run_id: str) -> str:
    """Resolve one run; what was done, in words."""
    lease.ensure_held()
    journal = read_journal(store, run_id)
    if journal is None:
        clean_run(store, run_id)
        action = "removed staged files, nothing had been published"
    elif resolve(store, journal, lease):
        action = "completed, the new files are in place"
    else:
        action = "rolled back, the old files are in place"
    logger.info("recovered %s: run %s: %s", store.shown, run_id, action)
    return f"run {run_id}: {action}"


def leftover_runs(store: Store) -> tuple[str, ...]:
    """Runs that have a work directory: running now, or left behind by a crash."""
    names = store.children(store.path(WORK_DIRECTORY))
    return tuple(sorted(name for name in names if _RUN.fullmatch(name)))


def resolve(store: Store, journal: Journal, lease: Lease) -> bool:
    """Complete what readers can already see as a whole, undo the rest; False if nothing stands."""
    if journal.state == "prepared":
        standing = _standing(store, journal)
        _roll_back(store, [group for group in journal.groups if group not in standing], journal)
        if not standing:
            clean_run(store, journal.run_id)
            return False
        journal = replace(journal, state="published", groups=standing)
        write_journal(store, journal)
    journal = _discard(store, journal, _overtaken(store, journal))
    return bool(finish(store, journal, lease).groups)


def _standing(store: Store, journal: Journal) -> tuple[GroupEntry, ...]:
    """Groups of directories that were exchanged: writers may have built on what they saw."""
    standing: list[GroupEntry] = []
    for directory in journal.directories if store.is_local else ():
        groups = journal.in_directory(directory)
        swap = exchange.plan_swap(store, journal, directory)
        if exchange.is_exchanged(swap):
            if not exchange.changed_inputs(store, swap, groups):
                exchange.reconcile(swap, deletions=True)
                standing += groups
        elif exchange.is_successor_live(swap):
            # The retired directory is lost, perhaps since the dataset was moved.
            standing += groups
    return tuple(standing)


def _roll_back(store: Store, groups: Sequence[GroupEntry], journal: Journal) -> None:
    """Undo groups that had not been published."""
    for directory in dict.fromkeys(group.directory for group in groups):
        if store.is_local:
            exchange.undo(store, exchange.plan_swap(store, journal, directory))
    for group in groups:
        _require_inputs(store, journal, group)
        for output in group.outputs:
            store.delete(store.path(output.final))


def _require_inputs(store: Store, journal: Journal, group: GroupEntry) -> None:
    """Outputs may be the only copy left: they go only while every input is in its place."""
    gone = _input_state(store, group).gone
    if gone and any(store.exists(store.path(output.final)) for output in group.outputs):
        raise RecoveryError(
            f"Run {journal.run_id} on '{store.shown}' was interrupted. Its input '{gone[0]}' is "
            f"gone while '{group.outputs[0].final}' is there. Nothing was deleted. If the outputs "
            f"are to stay, remove the run's folder under '{WORK_DIRECTORY}' and the inputs that "
            "are left; if not, remove the outputs first."
        )


def _overtaken(store: Store, journal: Journal) -> list[GroupEntry]:
    """Published groups with an input that a writer replaced before any of them was deleted."""
    overtaken = []
    for group in journal.groups:
        if _was_exchanged(store, journal, group.directory):
            continue
        state = _input_state(store, group)
        if state.changed and state.gone:
            raise RecoveryError(
                f"Run {journal.run_id} on '{store.shown}' was interrupted while it deleted its "
                f"inputs, and '{state.changed[0]}' was replaced since. Its old rows are in "
                f"'{group.outputs[0].final}'. Nothing was deleted: keep one of the two, then "
                f"remove the run's folder under '{WORK_DIRECTORY}'."
            )
        if state.changed:
            overtaken.append(group)
    return overtaken


def clean_run(store: Store, run_id: str) -> None:
    """Delete a run's staged files and, last of all, its journal."""
    run = store.path(run_directory(run_id))
    journal = f"{run}/{JOURNAL_NAME}"
    if store.is_local:
        store.remove_if_empty(exchange.workplace(store, run_id))
    for listed in store.find(run):
        if listed.path != journal:
            store.delete(listed.path)
    store.delete(journal)
    store.delete_tree(run)
    store.remove_if_empty(store.path(WORK_DIRECTORY))
