"""Versions expire; files that nobody needs are deleted; the rest is compared with the catalog."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from maintenance_assets.catalog.retention import Given
from maintenance_assets.model.lakehouse import DatasetState, Tombstone
from maintenance_assets.operations.lake_session import (
    WORK_FOLDER,
    LakeSession,
    delete_files,
    read_mark,
    remove_work_folder,
    require_ours,
    why_not_ours,
    work_folder,
    write_mark,
)
from maintenance_assets.storage.filesystems import Listed, Store

logger = logging.getLogger(__name__)

RETENTION = timedelta(days=7)
_HIDDEN = ("_", ".")


# -- retention --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What vacuum deleted, or in a dry run would delete."""

    dataset: str
    dry_run: bool
    files: tuple[Tombstone, ...]
    recovered: tuple[Given, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes of these files, as far as they are known."""
        return sum(tomb.size_bytes or 0 for tomb in self.files)


def vacuum(
    session: LakeSession, state: DatasetState, retention: timedelta, dry_run: bool, force: bool
) -> VacuumResult:
    """Delete files that were removed this long ago and that no readable version needs."""
    if not isinstance(retention, timedelta) or retention < timedelta(0):
        raise ValueError(f"retention must be a timedelta >= 0, got {retention!r}")
    if retention < RETENTION and not (force or dry_run):
        raise ValueError(
            f"retention below {RETENTION.days} days may take files from readers that are at work. "
            "If there are none, say so: force=True, or --force in a shell"
        )
    if dry_run:
        limit = datetime.now(UTC) - retention
        return VacuumResult(state.name, True, session.retention.removable(state.dataset_id, limit))
    store = session.store(state)
    require_ours(session, state, store)
    recovered = recover_dataset(session, state)
    limit = datetime.now(UTC) - retention
    marked = session.retention.mark(state.dataset_id, limit)
    paths = [tomb.path for tomb in marked]
    delete_files(store, paths)
    session.retention.record_deleted(state.dataset_id, paths)
    return VacuumResult(state.name, False, marked, recovered)


def recover_dataset(session: LakeSession, state: DatasetState) -> tuple[Given, ...]:
    """Give up transactions whose lease has run out.

    In a copy of a catalog none is: the other one may still be at work in the directory.
    """
    store = session.store(state)
    problem = why_not_ours(session, state, store)
    if problem is not None:
        logger.warning("%s. No transaction was given up", problem)
        return ()
    given = session.retention.give_up_dead(state.dataset_id)
    for item in given:
        remove_work_folder(store, item.txn_id)
    return given


def restore_mark(session: LakeSession, state: DatasetState, moved: bool = False) -> None:
    """A process that died right after it created a dataset left no mark; or the catalog moved."""
    store = session.store(state)
    mark = read_mark(store)
    same = mark is not None and mark.get("dataset") == state.uid
    if mark is None or (moved and same):
        write_mark(session, store, state.uid, state.name)


def expire(
    session: LakeSession,
    state: DatasetState,
    older_than: timedelta | datetime,
    retain_last: int,
    dry_run: bool,
) -> tuple[int, ...]:
    """Versions that cannot be read from now on."""
    if isinstance(retain_last, bool) or not isinstance(retain_last, int) or retain_last < 1:
        raise ValueError(f"retain_last must be a whole number > 0, got {retain_last!r}")
    moment = datetime.now(UTC) - older_than if isinstance(older_than, timedelta) else older_than
    if not isinstance(moment, datetime):
        raise ValueError(f"older_than must be a timedelta or datetime, got {older_than!r}")
    return session.retention.expire(state.dataset_id, moment, retain_last, dry_run)


# -- checking ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What is not as the catalog says."""

    dataset: str
    missing: tuple[str, ...] = ()
    """Files of a readable version that are not there."""
    stray: tuple[str, ...] = ()
    """Parquet files that the catalog knows nothing of."""
    wrong_size: tuple[str, ...] = ()
    waiting: int = 0
    """Files that vacuum will delete once they are old enough: no problem."""

    @property
    def problems(self) -> tuple[str, ...]:
        """All of it in words."""
        return (
            *(f"'{path}' is missing" for path in self.missing),
            *(f"'{path}' has another size than when it was committed" for path in self.wrong_size),
            *(f"'{path}' is in no version and in no transaction" for path in self.stray),
        )


def fsck(session: LakeSession, state: DatasetState) -> FsckReport:
    """Compare the directory of a dataset with the catalog; nothing is changed."""
    store = session.store(state)
    # Listed before the catalog is read: what appears in between is known to the catalog.
    there = {
        store.relative(listed.path): listed.size_bytes
        for listed in store.find(store.root)
        if is_data(store, listed) or _is_staged(store, listed)
    }
    open_paths = session.reader.open_paths(state.dataset_id)
    staging = tuple(
        f"{work_folder(txn_id)}/" for txn_id in session.reader.open_transactions(state.dataset_id)
    )
    waiting = {
        tomb.path
        for kind in ("pending", "deleting")
        for tomb in session.reader.tombstones(state.dataset_id, kind)
    }
    known = session.reader.known_paths(state.dataset_id)
    missing = [path for path in known if path not in there]
    expected = waiting | open_paths | set(known)
    return FsckReport(
        state.name,
        tuple(sorted(path for path in missing if not store.exists(store.path(path)))),
        tuple(
            sorted(
                path
                for path in there
                if path not in expected
                and not path.startswith(staging)
                and store.exists(store.path(path))
            )
        ),
        tuple(sorted(p for p, size in known.items() if p in there and there[p] != size[0])),
        len(waiting),
    )


def is_data(store: Store, listed: Listed) -> bool:
    """Whether readers of a plain directory would take it for data."""
    parts = store.relative(listed.path).split("/")
    return parts[-1].endswith(".parquet") and not any(p.startswith(_HIDDEN) for p in parts)


def _is_staged(store: Store, listed: Listed) -> bool:
    return store.relative(listed.path).startswith(f"{WORK_FOLDER}/")
