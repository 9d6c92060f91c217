"""Make staged files visible and take their inputs away: all or nothing, whenever it stops."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from maintenance_assets.errors import RecoveryError
from maintenance_assets.storage import exchange
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.journal import (
    GroupEntry,
    Journal,
    read_journal,
    run_directory,
    write_journal,
)
from maintenance_assets.storage.lease import LEASES, WORK_DIRECTORY, Lease

logger = logging.getLogger(__name__)

PublishMode = Literal["exchange", "ordered", "none"]


@dataclass(frozen=True, slots=True)
class Published:
    """What became visible, what did not because its inputs changed, and how."""

    groups: tuple[GroupEntry, ...]
    conflicts: tuple[tuple[GroupEntry, str], ...]
    mode: PublishMode


def publish(
    store: Store,
    lease: Lease,
    run_id: str,
    operation: str,
    groups: Sequence[GroupEntry],
    metadata_files: Sequence[str] = (),
) -> Published:
    """Publish groups whose staged outputs are complete, verified and durable."""
    unchanged, conflicts = _split_conflicts(store, groups)
    if not unchanged:
        clean_run(store, run_id)
        return Published((), tuple(conflicts), "none")
    journal = Journal(run_id, operation, "prepared", tuple(unchanged))
    lease.ensure_held()
    write_journal(store, journal)
    # A summary file lists the old files; without one, readers list for themselves.
    for path in metadata_files:
        store.delete(path)
    journal, late, modes = _make_visible(store, journal)
    lease.ensure_held()
    write_journal(store, replace(journal, state="published"))
    journal, later = _give_up_changed(store, replace(journal, state="published"), modes)
    finish(store, journal)
    mode: PublishMode = "ordered" if "ordered" in modes.values() else "exchange"
    return Published(journal.groups, tuple(conflicts + late + later), mode)


def recover_runs(store: Store) -> tuple[str, ...]:
    """Resolve whatever earlier runs left behind; call only while holding the lease."""
    actions = []
    for run_id in leftover_runs(store):
        journal = read_journal(store, run_id)
        if journal is None:
            clean_run(store, run_id)
            actions.append(f"run {run_id}: removed staged files, nothing had been published")
        elif resolve(store, journal):
            actions.append(f"run {run_id}: completed, the new files are in place")
        else:
            actions.append(f"run {run_id}: rolled back, the old files are in place")
        logger.info("recovered %s: %s", store.shown, actions[-1])
    return tuple(actions)


def leftover_runs(store: Store) -> tuple[str, ...]:
    """Runs that have a work directory: running now, or left behind by a crash."""
    names = store.children(store.path(WORK_DIRECTORY))
    return tuple(sorted(names - {LEASES.rpartition("/")[2]}))


def resolve(store: Store, journal: Journal) -> bool:
    """Complete what readers can already see as a whole, undo the rest; False if nothing stands."""
    if journal.state == "prepared":
        standing = _standing(store, journal)
        _roll_back(store, [group for group in journal.groups if group not in standing], journal)
        if not standing:
            clean_run(store, journal.run_id)
            return False
        journal = replace(journal, state="published", groups=standing)
        write_journal(store, journal)
    finish(store, journal)
    return True


def _standing(store: Store, journal: Journal) -> tuple[GroupEntry, ...]:
    """Groups of directories that were exchanged: writers may have built on what they saw."""
    standing: list[GroupEntry] = []
    for directory in journal.directories if store.is_local else ():
        groups = journal.in_directory(directory)
        swap = exchange.plan_swap(store, journal, directory)
        if exchange.is_exchanged(swap) and not exchange.changed_inputs(store, swap, groups):
            exchange.reconcile(swap, deletions=True)
            standing += groups
    return tuple(standing)


def _roll_back(store: Store, groups: Sequence[GroupEntry], journal: Journal) -> None:
    """Undo groups that had not been published."""
    for directory in dict.fromkeys(group.directory for group in groups):
        if store.is_local:
            exchange.undo(store, exchange.plan_swap(store, journal, directory))
    for group in groups:
        for output in group.outputs:
            store.delete(store.path(output.final))


def finish(store: Store, journal: Journal) -> None:
    """Complete a published run: take the inputs away, then the journal."""
    _require_outputs(store, journal)
    for path in journal.discarded:
        store.delete(store.path(path))
    for directory in journal.directories:
        if store.is_local:
            swap = exchange.plan_swap(store, journal, directory)
            if exchange.is_exchanged(swap):
                exchange.retire(store, swap)
    for group in journal.groups:
        _delete_inputs(store, group)
    clean_run(store, journal.run_id)


def clean_run(store: Store, run_id: str) -> None:
    """Delete a run's staged files and, last of all, its journal."""
    run = store.path(run_directory(run_id))
    journal = f"{run}/journal.json"
    if store.is_local:
        store.remove_if_empty(exchange.workplace(store, run_id))
    for listed in store.find(run):
        if listed.path != journal:
            store.delete(listed.path)
    store.delete(journal)
    store.delete_tree(run)
    store.remove_if_empty(store.path(WORK_DIRECTORY))


def _split_conflicts(
    store: Store, groups: Sequence[GroupEntry]
) -> tuple[list[GroupEntry], list[tuple[GroupEntry, str]]]:
    unchanged: list[GroupEntry] = []
    conflicts: list[tuple[GroupEntry, str]] = []
    for group in groups:
        why = _changed(store, group)
        if why:
            conflicts.append((group, why))
        else:
            unchanged.append(group)
    return unchanged, conflicts


def _changed(store: Store, group: GroupEntry) -> str:
    for entry in group.inputs:
        listed = store.stat(store.path(entry.path))
        if listed is None:
            return f"'{entry.path}' was deleted by another writer while the group was rewritten"
        if listed.version != entry.version:
            return f"'{entry.path}' was replaced by another writer while the group was rewritten"
    return ""


Modes = dict[str, PublishMode]


def _make_visible(
    store: Store, journal: Journal
) -> tuple[Journal, list[tuple[GroupEntry, str]], Modes]:
    conflicts: list[tuple[GroupEntry, str]] = []
    modes: Modes = {}
    dropped: set[str] = set()
    for directory in journal.directories:
        groups = journal.in_directory(directory)
        swapped = store.is_local and _try_swap(store, journal, directory, groups)
        if isinstance(swapped, str):
            conflicts += [(group, swapped) for group in groups]
            dropped.add(directory)
            continue
        modes[directory] = "exchange" if swapped else "ordered"
        if not swapped:
            _move_outputs(store, groups)
    kept = tuple(group for group in journal.groups if group.directory not in dropped)
    return replace(journal, groups=kept), conflicts, modes


def _try_swap(
    store: Store, journal: Journal, directory: str, groups: tuple[GroupEntry, ...]
) -> bool | str:
    """True when exchanged, False when it has to be done file by file, text on a conflict."""
    swap = exchange.plan_swap(store, journal, directory)
    if not exchange.can_swap(swap) or not exchange.build(store, swap, journal.run_id):
        return False
    if not exchange.exchange(store, swap):
        exchange.undo(store, swap)
        return False
    changed = exchange.changed_inputs(store, swap, groups)
    if changed:
        exchange.undo(store, swap)
        return f"'{changed[0]}' was changed by another writer at the moment of publishing"
    exchange.reconcile(swap, deletions=True)
    return True


def _move_outputs(store: Store, groups: Sequence[GroupEntry]) -> None:
    for group in groups:
        for output in group.outputs:
            store.move(store.path(output.staged), store.path(output.final))
        store.sync_directory(store.path(group.directory))


def _give_up_changed(
    store: Store, journal: Journal, modes: Modes
) -> tuple[Journal, list[tuple[GroupEntry, str]]]:
    """File by file, an input can change up to the last moment: then its group is undone."""
    conflicts = [
        (group, why)
        for group in journal.groups
        if modes[group.directory] == "ordered" and (why := _changed(store, group))
    ]
    if not conflicts:
        return journal, []
    lost = {group for group, _ in conflicts}
    journal = replace(
        journal,
        groups=tuple(group for group in journal.groups if group not in lost),
        discarded=tuple(output.final for group in lost for output in group.outputs),
    )
    # Recorded first: a crash in between must not take the inputs of a group without outputs.
    write_journal(store, journal)
    return journal, conflicts


def _require_outputs(store: Store, journal: Journal) -> None:
    """Moved one by one, outputs must all be there before any input goes."""
    missing = [
        output.final
        for group in journal.groups
        if not _was_exchanged(store, journal, group.directory)
        for output in group.outputs
        if not store.exists(store.path(output.final))
    ]
    if missing:
        raise RecoveryError(
            f"Run {journal.run_id} on '{store.shown}' was published, but '{missing[0]}' is gone. "
            "Nothing was deleted. Restore that file, or remove the run's folder under "
            f"'{WORK_DIRECTORY}' to keep the old files."
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
        folder, _, name = path.rpartition("/")
        if store.is_local:
            store.delete(f"{folder}/.{name}.crc")
