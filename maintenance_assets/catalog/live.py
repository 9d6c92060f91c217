"""What is alive in a catalog: the files of the newest versions, and those who are at work."""

from collections.abc import Callable

from sqlalchemy import and_, select

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.locking import now_micros
from maintenance_assets.catalog.rows import to_moment
from maintenance_assets.model.lakehouse import LiveFile, OpenTransaction


class CatalogLife:
    """Answers questions of the moment; changes nothing."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_micros) -> None:
        self._database = database
        self._clock = clock

    def files(self, dataset_id: int) -> tuple[LiveFile, ...]:
        """The files of the newest version, and when they came."""
        came_with = and_(
            t.commit.c.dataset_id == t.file.c.dataset_id,
            t.commit.c.version == t.file.c.begin_version,
        )
        query = (
            select(t.file.c.file_id, t.file.c.path, t.file.c.size_bytes, t.commit.c.committed_at)
            .select_from(t.file.outerjoin(t.commit, came_with))
            .where(t.file.c.dataset_id == dataset_id, t.file.c.end_version.is_(None))
        )
        rows = self._database.read(lambda c: c.execute(query).all())
        return tuple(
            LiveFile(number, path, size, None if at is None else to_moment(at))
            for number, path, size, at in rows
        )

    def transactions(self, dataset_id: int) -> tuple[OpenTransaction, ...]:
        """Transactions that are neither committed nor aborted, the oldest first."""
        txn = t.transaction.c
        query = (
            select(txn.txn_id, txn.operation, txn.owner, txn.opened_at, txn.lease_until)
            .where(txn.dataset_id == dataset_id, txn.state == "open")
            .order_by(txn.opened_at)
        )
        rows, now = self._database.read(lambda c: c.execute(query).all()), self._clock()
        return tuple(
            OpenTransaction(name, operation, owner, to_moment(at), lease_until >= now)
            for name, operation, owner, at, lease_until in rows
        )
