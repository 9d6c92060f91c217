"""Resolve what interrupted runs left behind."""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from maintenance_assets.errors import RecoveryError
from maintenance_assets.storage import exchange
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.finishing import (
    Outcome,
    clean_run,
    discard,
    finish,
    input_state,
    roll_back,
    take_back,
    was_exchanged,
)
from maintenance_assets.storage.journal import (
    GroupEntry,
    Journal,
    read_journal,
    run_directory,
    write_journal,
)
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease
from maintenance_assets.storage.local_paths import linked_folder
from maintenance_assets.storage.publish import make_visible

logger = logging.getLogger(__name__)

_RUN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def recover_runs(store: Store, lease: Lease, besides: str = "") -> tuple[str, ...]:
    """Resolve whatever earlier runs left behind; call only while holding the lease."""
    return tuple(
        recover_run(store, lease, run_id) for run_id in leftover_runs(store) if run_id != besides
    )


def recover_run(store: Store, lease: Lease, run_id: str) -> str:
    """Resolve one run; what was done, in words."""
    lease.ensure_held()
    if store.is_local and linked_folder(store.root, (run_directory(run_id),)):
        raise RecoveryError(
            f"'{store.path(run_directory(run_id))}' is a symbolic link. Nothing was touched: "
            "remove the link"
        )
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
        standing = _whole(store, journal) if journal.is_whole else _standing(store, journal)
        roll_back(store, [group for group in journal.groups if group not in standing], journal)
        if not standing:
            clean_run(store, journal.run_id)
            return False
        journal = replace(journal, state="published", groups=standing)
        write_journal(store, journal)
    overtaken = _overtaken(store, journal)
    if overtaken and journal.is_whole:
        overtaken = _all_if_untouched(store, journal, overtaken)
    journal = discard(store, journal, overtaken)
    return bool(finish(store, journal, lease).groups)


def _standing(store: Store, journal: Journal) -> tuple[GroupEntry, ...]:
    """Groups of directories that were exchanged: writers may have built on what they saw."""
    standing: list[GroupEntry] = []
    for unit in journal.units if store.is_local else ():
        groups = journal.in_unit(unit)
        swap = exchange.plan_swap(store, journal, unit)
        if exchange.is_exchanged(swap):
            if not exchange.changed_inputs(store, swap, groups):
                exchange.reconcile(swap, deletions=True)
                standing += groups
        elif exchange.is_successor_live(swap):
            # The retired directory is lost, perhaps since the dataset was moved.
            standing += groups
    return tuple(standing)


def _whole(store: Store, journal: Journal) -> tuple[GroupEntry, ...]:
    """All groups once one of them is visible and the others can follow, else none of them."""
    visible = [unit for unit in journal.units if _is_visible(store, journal, unit)]
    if not visible:
        return ()
    standing = _standing(store, journal)
    complete = all(group in standing for unit in visible for group in journal.in_unit(unit))
    if complete and _bring_the_rest(store, journal, visible):
        return journal.groups
    take_back(store, journal)
    return ()


def _is_visible(store: Store, journal: Journal, unit: str) -> bool:
    if not store.is_local:
        return False
    swap = exchange.plan_swap(store, journal, unit)
    return exchange.is_exchanged(swap) or exchange.is_successor_live(swap)


def _bring_the_rest(store: Store, journal: Journal, visible: Sequence[str]) -> bool:
    """Publish what the interrupted run did not come to; False where an input has changed."""
    units = [unit for unit in journal.units if unit not in visible]
    waiting = tuple(group for unit in units for group in journal.in_unit(unit))
    for unit in units:  # a successor that was being built is begun anew
        exchange.undo(store, exchange.plan_swap(store, journal, unit))
    states = [input_state(store, group) for group in waiting]
    if any(state.gone or state.changed for state in states):
        return False
    outcome = Outcome()
    make_visible(store, replace(journal, groups=waiting), outcome)
    return not (outcome.conflicts or outcome.denied)


def _overtaken(store: Store, journal: Journal) -> list[GroupEntry]:
    """Published groups with an input that a writer replaced before any of them was deleted."""
    overtaken = []
    for group in journal.groups:
        if was_exchanged(store, journal, journal.unit_of(group)):
            continue
        state = input_state(store, group)
        if state.changed and state.gone:
            raise _overtaken_error(store, journal, group, state.changed[0])
        if state.changed:
            overtaken.append(group)
    return overtaken


def _all_if_untouched(
    store: Store, journal: Journal, overtaken: Sequence[GroupEntry]
) -> list[GroupEntry]:
    """Where all stands or falls together, one replaced input takes everything back."""
    for group in journal.groups:
        begun = was_exchanged(store, journal, journal.unit_of(group))
        if begun or input_state(store, group).gone:
            changed = input_state(store, overtaken[0]).changed[0]
            raise _overtaken_error(store, journal, overtaken[0], changed)
    return list(journal.groups)


def _overtaken_error(
    store: Store, journal: Journal, group: GroupEntry, changed: str
) -> RecoveryError:
    kept = f"'{group.outputs[0].final}'" if group.outputs else "no new file"
    return RecoveryError(
        f"Run {journal.run_id} on '{store.shown}' was interrupted while it deleted its inputs, and "
        f"'{changed}' was replaced since. Its old rows are in {kept}. Nothing was deleted: keep "
        f"one of the two, then remove the run's folder under '{WORK_DIRECTORY}'."
    )
