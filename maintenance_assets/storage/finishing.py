"""The end of a run, one way or the other: inputs go, or outputs go, and the journal last."""

import errno
import logging
import posixpath
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from maintenance_assets.errors import RecoveryError
from maintenance_assets.storage import exchange
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.journal import (
    JOURNAL_NAME,
    GroupEntry,
    InputEntry,
    Journal,
    run_directory,
    write_journal,
)
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease

logger = logging.getLogger(__name__)

T = TypeVar("T")
Dropped = list[tuple[GroupEntry, str]]
_AT_ONCE = 32
"""Requests to a store that is far away: one after the other, each would cost a round trip."""


@dataclass(slots=True)
class Outcome:
    """Groups that fell out on the way, by reason."""

    conflicts: Dropped = field(default_factory=list)
    denied: Dropped = field(default_factory=list)


# -- inputs as they are now --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputState:
    """Inputs of a group that are not what was read."""

    gone: tuple[str, ...]
    changed: tuple[str, ...]


def input_state(store: Store, group: GroupEntry) -> InputState:
    """Compare the inputs of a group with what was read."""
    gone, changed = [], []
    found = _of_each(store, group.inputs, lambda entry: store.stat(store.path(entry.path)))
    for entry, listed in zip(group.inputs, found, strict=True):
        if listed is None:
            gone.append(entry.path)
        elif listed.version != entry.version:
            changed.append(entry.path)
    return InputState(tuple(gone), tuple(changed))


def _of_each(
    store: Store, entries: Sequence[InputEntry], ask: Callable[[InputEntry], T]
) -> list[T]:
    """What a store answers for each input; when this returns or raises, nothing is under way."""
    if store.is_local or len(entries) < 2:
        return [ask(entry) for entry in entries]
    with ThreadPoolExecutor(min(_AT_ONCE, len(entries)), thread_name_prefix="inputs") as pool:
        return list(pool.map(ask, entries))


def without_changed(
    store: Store, groups: Sequence[GroupEntry], outcome: Outcome
) -> list[GroupEntry]:
    """The groups whose inputs are what was read; the others are noted as conflicts."""
    changed = [(group, why) for group in groups if (why := _changed(store, group))]
    outcome.conflicts += changed
    lost = {group for group, _ in changed}
    return [group for group in groups if group not in lost]


def _changed(store: Store, group: GroupEntry) -> str:
    state = input_state(store, group)
    if state.gone:
        return f"'{state.gone[0]}' was deleted by another writer while the group was rewritten"
    if state.changed:
        return f"'{state.changed[0]}' was replaced by another writer while the group was rewritten"
    return ""


# -- forward -----------------------------------------------------------------------------------


def finish(store: Store, journal: Journal, lease: Lease, outcome: Outcome | None = None) -> Journal:
    """Complete a published run: take the inputs away, then the journal."""
    for path in journal.discarded:
        store.delete(store.path(path))
    for unit in journal.units:
        if store.is_local:
            swap = exchange.plan_swap(store, journal, unit)
            if exchange.is_exchanged(swap):
                lease.ensure_held()
                exchange.retire(store, swap)
    # Asked once: a tree is one unit, however many directories it has.
    exchanged = {unit for unit in journal.units if was_exchanged(store, journal, unit)}
    unsure = [group for group in journal.groups if journal.unit_of(group) not in exchanged]
    # Where all stands or falls together, nothing goes before everything is known to be there.
    for group in unsure if journal.is_whole else ():
        _require_outputs(store, journal, group)
    for group in journal.groups:
        lease.ensure_held()
        if not journal.is_whole and journal.unit_of(group) not in exchanged:
            _require_outputs(store, journal, group)
        journal = _take_inputs_away(store, journal, group, outcome or Outcome())
    _require_inputs_gone(store, journal)
    for directory in journal.directories:
        _remove_empty(store, directory)
    clean_run(store, journal.run_id)
    return journal


def discard(store: Store, journal: Journal, lost: Sequence[GroupEntry]) -> Journal:
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
    for group in lost:
        if not group.inputs:
            _remove_empty(store, group.directory)
    return journal


def _take_inputs_away(
    store: Store, journal: Journal, group: GroupEntry, outcome: Outcome
) -> Journal:
    """Delete the inputs of a group; where the first may not be deleted, take the group back."""
    before = input_state(store, group)
    try:
        _delete_inputs(store, group)
    except PermissionError as error:
        if journal.is_whole or input_state(store, group).gone != before.gone or before.gone:
            raise
        outcome.denied.append((group, f"PermissionError: {error}"))
        return discard(store, journal, [group])
    return journal


def _require_outputs(store: Store, journal: Journal, group: GroupEntry) -> None:
    """Moved one by one, outputs must all be there before any input goes."""
    for output in group.outputs:
        if not store.exists(store.path(output.final)):
            raise RecoveryError(
                f"Run {journal.run_id} on '{store.shown}' was published, but '{output.final}' is "
                "gone. Nothing was deleted. Restore that file, or, to keep the old files, remove "
                f"the run's other outputs and its folder under '{WORK_DIRECTORY}'."
            )


def was_exchanged(store: Store, journal: Journal, unit: str) -> bool:
    """An exchange brings all outputs at once: one that is missing was taken by a user."""
    return store.is_local and exchange.has_manifest(exchange.plan_swap(store, journal, unit))


def _delete_inputs(store: Store, group: GroupEntry) -> None:
    # The first one alone: where it may not be deleted, nothing has been.
    for entries in (group.inputs[:1], group.inputs[1:]):
        _of_each(store, entries, lambda entry: _delete_input(store, entry))


def _delete_input(store: Store, entry: InputEntry) -> None:
    path = store.path(entry.path)
    listed = store.stat(path)
    if listed is None:
        return
    if listed.version != entry.version:
        logger.warning("'%s' was replaced after publishing; the new file is kept", path)
        return
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
    for unit in journal.units:
        if was_exchanged(store, journal, unit):
            continue
        for group in journal.in_unit(unit):
            _require_group_gone(store, group)


def _require_group_gone(store: Store, group: GroupEntry) -> None:
    names = store.children(store.path(group.directory)) if group.inputs else set()
    for entry in group.inputs:
        if entry.path.rpartition("/")[2] not in names:
            continue
        listed = store.stat(store.path(entry.path))
        if listed is not None and listed.version == entry.version:
            raise RecoveryError(
                f"'{entry.path}' of '{store.shown}' is still there after it was deleted. "
                "Its rows are also in the new files: run recover() until it is gone."
            )


def _remove_empty(store: Store, directory: str) -> None:
    """A directory that lost its last file goes, and those above it that have nothing else."""
    while directory and store.exists(store.path(directory)):
        store.remove_if_empty(store.path(directory))
        if store.exists(store.path(directory)):
            return
        directory = posixpath.dirname(directory)


# -- back --------------------------------------------------------------------------------------


def roll_back(store: Store, groups: Sequence[GroupEntry], journal: Journal) -> None:
    """Undo groups that had not been published."""
    for unit in dict.fromkeys(journal.unit_of(group) for group in groups):
        if store.is_local:
            exchange.undo(store, exchange.plan_swap(store, journal, unit))
    for group in groups:
        _require_inputs(store, journal, group)
        _delete_outputs(store, group)


def take_back(store: Store, journal: Journal) -> None:
    """Undo a run of which a part may be visible, while every input is still to be had."""
    for unit in journal.units:
        _require_untouched(store, journal, unit)
    for unit in journal.units:
        if store.is_local:
            exchange.undo(store, exchange.plan_swap(store, journal, unit))
    for group in journal.groups:
        _delete_outputs(store, group)


def _delete_outputs(store: Store, group: GroupEntry) -> None:
    for output in group.outputs:
        store.delete(store.path(output.final))
    if not group.inputs:
        _remove_empty(store, group.directory)


def _require_untouched(store: Store, journal: Journal, unit: str) -> None:
    """A writer may have built on what it saw: then the old files must not come back."""
    if not store.is_local:
        return
    swap = exchange.plan_swap(store, journal, unit)
    if not exchange.is_exchanged(swap):
        return
    for group in journal.in_unit(unit):
        for output in group.outputs:
            if not store.exists(store.path(output.final)):
                raise RecoveryError(
                    f"Run {journal.run_id} on '{store.shown}' has to be undone, but another writer "
                    f"has taken its new file '{output.final}' away. Nothing was deleted: the old "
                    f"files are in '{swap.other}'. Decide which rows are to stay, then remove the "
                    f"run's folder under '{WORK_DIRECTORY}'."
                )


def _require_inputs(store: Store, journal: Journal, group: GroupEntry) -> None:
    """Outputs may be the only copy left: they go only while every input is in its place."""
    gone = input_state(store, group).gone
    if gone and any(store.exists(store.path(output.final)) for output in group.outputs):
        raise RecoveryError(
            f"Run {journal.run_id} on '{store.shown}' was interrupted. Its input '{gone[0]}' is "
            f"gone while '{group.outputs[0].final}' is there. Nothing was deleted. If the outputs "
            f"are to stay, remove the run's folder under '{WORK_DIRECTORY}' and the inputs that "
            "are left; if not, remove the outputs first."
        )


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
