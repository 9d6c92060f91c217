"""What may go: expired versions, dead transactions, and the files that nobody needs any more.

A file is deleted in three steps: it is marked, deleted, and recorded as deleted. Whoever wants to
bring it back finds the mark first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select, update

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.locking import lock_dataset, now_micros
from maintenance_assets.catalog.reader import needed_files
from maintenance_assets.catalog.rows import to_micros, to_moment
from maintenance_assets.catalog.sequence import past_changed
from maintenance_assets.catalog.writer import abandon
from maintenance_assets.errors import CatalogError
from maintenance_assets.model.lakehouse import Tombstone

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Given:
    """A transaction that was given up because its lease had run out."""

    txn_id: str
    operation: str
    owner: str
    paths: int


class CatalogRetention:
    """Tags and pins versions, expires them, gives up dead transactions, marks what may go."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_micros) -> None:
        self._database = database
        self._clock = clock

    def pin(
        self, dataset_id: int, version: int, kind: str, name: str, expires_at: datetime | None
    ) -> None:
        """Keep a version readable under a name; a name that is in use is moved."""

        def work(connection: Connection) -> None:
            lock_dataset(connection, dataset_id)
            _require_readable(connection, dataset_id, version)
            key = _is_pin(dataset_id, kind, name)
            values = {
                "version": version,
                "expires_at": None if expires_at is None else to_micros(expires_at),
            }
            if not connection.execute(update(t.pin).where(key).values(**values)).rowcount:
                row = {"dataset_id": dataset_id, "kind": kind, "name": name, **values}
                connection.execute(insert(t.pin).values(row))

        self._database.write(work)

    def unpin(self, dataset_id: int, kind: str, name: str) -> bool:
        """Drop a name; whether there was one."""

        def work(connection: Connection) -> bool:
            lock_dataset(connection, dataset_id)
            gone = connection.execute(delete(t.pin).where(_is_pin(dataset_id, kind, name)))
            return gone.rowcount == 1

        return self._database.write(work)

    def drop_pins(self, dataset_id: int) -> None:
        """Drop all tags and pins."""

        def work(connection: Connection) -> None:
            lock_dataset(connection, dataset_id)
            connection.execute(delete(t.pin).where(t.pin.c.dataset_id == dataset_id))

        self._database.write(work)

    def expire(
        self, dataset_id: int, older_than: datetime, retain_last: int, dry_run: bool
    ) -> tuple[int, ...]:
        """Versions that nobody can read from now on: older than this, not tagged, not the last."""

        def work(connection: Connection) -> tuple[int, ...]:
            row = lock_dataset(connection, dataset_id)
            _drop_old_pins(connection, dataset_id, self._clock())
            chosen = _expirable(connection, dataset_id, int(row["head"]), older_than, retain_last)
            if chosen and not dry_run:
                past_changed(connection)
                _mark_expired(connection, dataset_id, chosen, self._clock())
            return tuple(chosen)

        return self._database.write(work)

    def give_up_dead(self, dataset_id: int) -> tuple[Given, ...]:
        """Abort transactions whose lease has run out; what they wrote becomes tombstones."""

        def work(connection: Connection) -> tuple[Given, ...]:
            lock_dataset(connection, dataset_id)
            now = self._clock()
            txn = t.transaction.c
            dead = and_(txn.dataset_id == dataset_id, txn.state == "open", txn.lease_until < now)
            rows = connection.execute(select(t.transaction).where(dead)).mappings().all()
            given = []
            for row in rows:
                connection.execute(
                    update(t.transaction)
                    .where(txn.dataset_id == dataset_id, txn.txn_id == row["txn_id"])
                    .values(state="aborted")
                )
                paths = abandon(connection, dataset_id, row["txn_id"], now)
                given.append(Given(row["txn_id"], row["operation"], row["owner"], len(paths)))
            return tuple(given)

        return self._database.write(work)

    def removable(self, dataset_id: int, removed_before: datetime) -> tuple[Tombstone, ...]:
        """Files that vacuum would delete."""

        def work(connection: Connection) -> tuple[Tombstone, ...]:
            return _removable(connection, dataset_id, removed_before)

        return self._database.read(work)

    def mark(self, dataset_id: int, removed_before: datetime) -> tuple[Tombstone, ...]:
        """Mark what may be deleted, once and for all; includes what was marked and not finished."""

        def work(connection: Connection) -> tuple[Tombstone, ...]:
            lock_dataset(connection, dataset_id)
            chosen = _removable(connection, dataset_id, removed_before)
            _set_state(connection, dataset_id, [tomb.path for tomb in chosen], state="deleting")
            return chosen

        return self._database.write(work)

    def mark_aborted(self, dataset_id: int, paths: Sequence[str]) -> tuple[str, ...]:
        """Mark what an aborted transaction left, to be deleted at once."""

        def work(connection: Connection) -> tuple[str, ...]:
            lock_dataset(connection, dataset_id)
            chosen: list[str] = []
            for start in range(0, len(paths), _AT_ONCE):
                query = select(t.tombstone.c.path).where(
                    t.tombstone.c.dataset_id == dataset_id,
                    t.tombstone.c.path.in_(paths[start : start + _AT_ONCE]),
                    t.tombstone.c.reason == "aborted",
                    t.tombstone.c.state == "pending",
                )
                chosen += connection.execute(query).scalars().all()
            _set_state(connection, dataset_id, chosen, state="deleting")
            return tuple(chosen)

        return self._database.write(work)

    def record_deleted(self, dataset_id: int, paths: Sequence[str]) -> None:
        """Note that files are gone, and forget the rows of files that no version needs."""

        def work(connection: Connection) -> None:
            lock_dataset(connection, dataset_id)
            _set_state(connection, dataset_id, paths, state="deleted", deleted_at=self._clock())
            _forget_files(connection, dataset_id, paths)

        self._database.write(work)


def _is_pin(dataset_id: int, kind: str, name: str) -> Any:
    return and_(t.pin.c.dataset_id == dataset_id, t.pin.c.kind == kind, t.pin.c.name == name)


def _require_readable(connection: Connection, dataset_id: int, version: int) -> None:
    found = connection.execute(
        select(t.commit.c.expired_at).where(
            t.commit.c.dataset_id == dataset_id, t.commit.c.version == version
        )
    ).first()
    if found is None:
        raise CatalogError(f"There is no version {version}")
    if found.expired_at is not None:
        raise CatalogError(f"Version {version} has expired and cannot be kept any more")


def _drop_old_pins(connection: Connection, dataset_id: int, now: int) -> None:
    connection.execute(
        delete(t.pin).where(t.pin.c.dataset_id == dataset_id, t.pin.c.expires_at < now)
    )


def _expirable(
    connection: Connection, dataset_id: int, head: int, older_than: datetime, retain_last: int
) -> list[int]:
    commit = t.commit.c
    query = (
        select(commit.version, commit.committed_at)
        .where(commit.dataset_id == dataset_id, commit.expired_at.is_(None))
        .order_by(commit.version)
    )
    readable = connection.execute(query).all()
    kept = set(
        connection.execute(
            select(t.pin.c.version).where(t.pin.c.dataset_id == dataset_id)
        ).scalars()
    )
    kept |= {head, *[row.version for row in readable[-retain_last:]]}
    # A version was the newest until the next one came: that is when it began to be old.
    until = [row.committed_at for row in readable[1:]]
    limit = to_micros(older_than)
    return [
        row.version
        for row, replaced_at in zip(readable, until, strict=False)
        if replaced_at <= limit and row.version not in kept
    ]


def _mark_expired(
    connection: Connection, dataset_id: int, versions: Sequence[int], now: int
) -> None:
    for start in range(0, len(versions), _AT_ONCE):
        connection.execute(
            update(t.commit)
            .where(
                t.commit.c.dataset_id == dataset_id,
                t.commit.c.version.in_(versions[start : start + _AT_ONCE]),
            )
            .values(expired_at=now)
        )


def _removable(
    connection: Connection, dataset_id: int, removed_before: datetime
) -> tuple[Tombstone, ...]:
    tomb = t.tombstone.c
    query = (
        select(tomb.path, tomb.removed_at, tomb.reason, tomb.size_bytes)
        .where(
            tomb.dataset_id == dataset_id,
            tomb.state.in_(("pending", "deleting")),
            tomb.removed_at <= to_micros(removed_before),
        )
        .order_by(tomb.path)
    )
    found = connection.execute(query).all()
    if not found:
        return ()
    needed = _needed_paths(connection, dataset_id)
    return tuple(
        Tombstone(row.path, to_moment(row.removed_at), row.reason, row.size_bytes)
        for row in found
        if row.path not in needed
    )


def _needed_paths(connection: Connection, dataset_id: int) -> set[str]:
    files = select(t.file.c.path).where(
        t.file.c.dataset_id == dataset_id, needed_files(connection, dataset_id)
    )
    file = t.transaction_file.c
    intents = select(file.path).where(file.dataset_id == dataset_id)
    found = set(connection.execute(files).scalars())
    found.update(connection.execute(intents).scalars())
    return found


def _set_state(
    connection: Connection, dataset_id: int, paths: Sequence[str], **values: object
) -> None:
    for start in range(0, len(paths), _AT_ONCE):
        connection.execute(
            update(t.tombstone)
            .where(
                t.tombstone.c.dataset_id == dataset_id,
                t.tombstone.c.path.in_(paths[start : start + _AT_ONCE]),
            )
            .values(**values)
        )


_PER_FILE = (t.file_partition, t.file_statistics, t.row_group, t.file)


def _forget_files(connection: Connection, dataset_id: int, paths: Sequence[str]) -> None:
    for start in range(0, len(paths), _AT_ONCE):
        part = paths[start : start + _AT_ONCE]
        query = select(t.file.c.file_id).where(
            t.file.c.dataset_id == dataset_id, t.file.c.path.in_(part)
        )
        ids = list(connection.execute(query).scalars())
        for table in _PER_FILE if ids else ():
            connection.execute(
                delete(table).where(table.c.dataset_id == dataset_id, table.c.file_id.in_(ids))
            )
