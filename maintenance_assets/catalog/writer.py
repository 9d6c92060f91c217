"""Changing the catalog: transactions that end in one short commit, and what is beside them.

The order is always the same: the intent to write a path is recorded before a byte is there; the
commit takes the dataset's row first, so that all that follows sees a dataset that stands still.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.applying import Applied, apply_change
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.inserting import insert_many
from maintenance_assets.catalog.locking import bury, lock_dataset, now_micros
from maintenance_assets.catalog.reader import dataset_state
from maintenance_assets.errors import (
    CatalogBusyError,
    CatalogError,
    CommitUnknownError,
    LeaseLostError,
)
from maintenance_assets.model.lakehouse import Change, DatasetState, Ticket

logger = logging.getLogger(__name__)

LEASE_SECONDS = 600.0
_RESOLVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a transaction."""

    version: int
    committed_before: bool = False
    """The same transaction id had been committed by an earlier call."""


class CatalogWriter:
    """Opens, renews, commits and aborts transactions."""

    def __init__(
        self,
        database: Database,
        lease: timedelta = timedelta(seconds=LEASE_SECONDS),
        clock: Callable[[], int] = now_micros,
    ) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock

    @property
    def lease(self) -> timedelta:
        """How long a transaction lives without being renewed."""
        return self._lease

    def begin(
        self,
        dataset_id: int,
        operation: str,
        txn_id: str,
        owner: str,
        paths: Sequence[str] = (),
    ) -> Ticket:
        """Open a transaction on the newest version, or take over one of the same id.

        Paths that it will write to are recorded together with it.
        """

        def work(connection: Connection) -> Ticket:
            ticket = self._begin(connection, dataset_id, operation, txn_id, owner)
            if ticket.committed_version is None:
                insert_many(connection, t.transaction_file, _rows_of(ticket, paths))
            return ticket

        return self._database.write(work)

    def _begin(
        self, connection: Connection, dataset_id: int, operation: str, txn_id: str, owner: str
    ) -> Ticket:
        head = lock_dataset(connection, dataset_id)["head"]
        found = (
            connection.execute(select(t.transaction).where(_is_txn(dataset_id, txn_id)))
            .mappings()
            .first()
        )
        now = self._clock()
        state = {
            "state": "open",
            "operation": operation,
            "base_version": head,
            "opened_at": now,
            "lease_until": now + self._lease_micros,
            "owner": owner,
        }
        if found is None:
            row = {"dataset_id": dataset_id, "txn_id": txn_id, "fence": 1, **state}
            connection.execute(insert(t.transaction).values(row))
            return Ticket(dataset_id, txn_id, 1, head, operation)
        if found["state"] == "committed":
            if found["operation"] != operation:
                raise CatalogError(
                    f"txn_id '{txn_id}' is that of a {found['operation']}, which is version "
                    f"{found['version']}: this {operation} needs an id of its own. Nothing was "
                    "changed"
                )
            return Ticket(dataset_id, txn_id, found["fence"], head, operation, found["version"])
        # A later call with the same id supersedes the earlier one, which can commit no more.
        fence = found["fence"] + 1
        connection.execute(
            update(t.transaction).where(_is_txn(dataset_id, txn_id)).values(fence=fence, **state)
        )
        return Ticket(dataset_id, txn_id, fence, head, operation)

    def add_intents(self, ticket: Ticket, paths: Iterable[str]) -> None:
        """Record paths before anything is written to them."""
        rows = _rows_of(ticket, paths)

        def work(connection: Connection) -> None:
            self._renew(connection, ticket)
            insert_many(connection, t.transaction_file, rows)

        self._database.write(work)

    def renew(self, ticket: Ticket) -> None:
        """Keep a transaction alive; LeaseLostError when it is not ours any more."""
        self._database.write(lambda connection: self._renew(connection, ticket))

    def _renew(self, connection: Connection, ticket: Ticket) -> None:
        _fence(connection, ticket, lease_until=self._clock() + self._lease_micros)

    def rebase(self, ticket: Ticket) -> tuple[Ticket, DatasetState]:
        """The same transaction, now made from the newest version, and the dataset as it is there.

        Read at one moment: with the columns of a later version, rows would be taken for others.
        """

        def work(connection: Connection) -> tuple[Ticket, DatasetState]:
            state = dataset_state(connection, lock_dataset(connection, ticket.dataset_id)["name"])
            _fence(
                connection,
                ticket,
                base_version=state.head,
                lease_until=self._clock() + self._lease_micros,
            )
            return replace(ticket, base_version=state.head), state

        return self._database.write(work)

    def commit(
        self,
        ticket: Ticket,
        change: Change,
        renewed: Callable[[Ticket], None] = lambda _: None,
    ) -> Committed:
        """Apply a change whole; CommitConflictError, LeaseLostError: not at all.

        CommitUnknownError: the database cannot be asked whether it happened. Whoever goes on after
        an error needs the ticket that `renewed` was told of last.
        """
        give_up = time.monotonic() + _RESOLVE_SECONDS
        current = ticket
        while True:
            try:
                return self._commit(current, change)
            except LeaseLostError:
                # Also raised when the commit was confirmed to a connection that then broke.
                return self._committed_by(current)
            except CommitUnknownError as error:
                logger.warning("asking whether transaction %s is in: %s", ticket.txn_id, error)
                resolved = self._resolve(current, give_up)
                if isinstance(resolved, Committed):
                    return resolved
                current = resolved
                renewed(current)
                if time.monotonic() > give_up:
                    raise CatalogError(
                        f"Transaction '{ticket.txn_id}' could not be committed and is not in: "
                        f"{error.__cause__ or error}. Nothing was changed"
                    ) from error

    def _commit(self, ticket: Ticket, change: Change) -> Committed:
        def work(connection: Connection) -> Applied:
            row = lock_dataset(connection, ticket.dataset_id)
            applied = apply_change(connection, row, ticket, change, self._clock())
            _fence(connection, ticket, state="committed", version=applied.version)
            self._settle_intents(connection, ticket, applied)
            return applied

        return Committed(self._database.write(work).version)

    def _committed_by(self, ticket: Ticket) -> Committed:
        """The version that this very ticket made; LeaseLostError if it made none."""

        def work(connection: Connection) -> Committed:
            row = t.transaction.c
            query = select(row.version).where(
                _is_txn(ticket.dataset_id, ticket.txn_id),
                row.state == "committed",
                row.fence == ticket.fence,
            )
            version = connection.execute(query).scalar()
            if version is None:
                raise _lost(ticket)
            return Committed(version)

        return self._database.read(work)

    def _settle_intents(self, connection: Connection, ticket: Ticket, applied: Applied) -> None:
        """Intents that became files are done with; the others may have left bytes."""
        left = set(_intents(connection, ticket.dataset_id, ticket.txn_id)) - applied.paths
        bury(connection, ticket.dataset_id, left, "unused", self._clock())
        _forget_intents(connection, ticket.dataset_id, ticket.txn_id)

    def _resolve(self, ticket: Ticket, give_up: float) -> Committed | Ticket:
        """What became of a commit that was not confirmed: in, or surely out under a new fence."""

        def work(connection: Connection) -> Committed | Ticket:
            # Waits for the lost commit if the server is still at it.
            lock_dataset(connection, ticket.dataset_id)
            row = (
                connection.execute(
                    select(t.transaction).where(_is_txn(ticket.dataset_id, ticket.txn_id))
                )
                .mappings()
                .one()
            )
            if row["state"] == "committed":
                return Committed(row["version"])
            newer = replace(ticket, fence=ticket.fence + 1)
            _fence(connection, ticket, fence=newer.fence)
            return newer

        while True:
            try:
                return self._database.write(work)
            except (CatalogBusyError, CatalogError, CommitUnknownError) as error:
                if time.monotonic() > give_up:
                    raise CommitUnknownError(
                        f"Transaction '{ticket.txn_id}' may or may not be committed: the "
                        f"catalog's database cannot be asked ({error}). No file was deleted. "
                        "Call again with the same txn_id, or run recover(), once it is back"
                    ) from error
                time.sleep(0.5)

    def abort(self, ticket: Ticket) -> frozenset[str]:
        """Give a transaction up; the paths that may hold bytes nobody needs."""

        def work(connection: Connection) -> frozenset[str]:
            lock_dataset(connection, ticket.dataset_id)
            _fence(connection, ticket, state="aborted")
            return abandon(connection, ticket.dataset_id, ticket.txn_id, self._clock())

        return self._database.write(work)

    @property
    def _lease_micros(self) -> int:
        return self._lease // timedelta(microseconds=1)


def abandon(connection: Connection, dataset_id: int, txn_id: str, now: int) -> frozenset[str]:
    """Turn the intents of a dead transaction into tombstones."""
    paths = frozenset(_intents(connection, dataset_id, txn_id))
    bury(connection, dataset_id, paths, "aborted", now)
    _forget_intents(connection, dataset_id, txn_id)
    return paths


def _intents(connection: Connection, dataset_id: int, txn_id: str) -> list[str]:
    file = t.transaction_file.c
    query = select(file.path).where(file.dataset_id == dataset_id, file.txn_id == txn_id)
    return list(connection.execute(query).scalars())


def _forget_intents(connection: Connection, dataset_id: int, txn_id: str) -> None:
    file = t.transaction_file.c
    connection.execute(
        delete(t.transaction_file).where(file.dataset_id == dataset_id, file.txn_id == txn_id)
    )


def _rows_of(ticket: Ticket, paths: Iterable[str]) -> list[dict[str, Any]]:
    return [
        {"dataset_id": ticket.dataset_id, "txn_id": ticket.txn_id, "path": path} for path in paths
    ]


def _is_txn(dataset_id: int, txn_id: str) -> Any:
    row = t.transaction.c
    return (row.dataset_id == dataset_id) & (row.txn_id == txn_id)


def _fence(connection: Connection, ticket: Ticket, **values: object) -> None:
    """Change a transaction's row, provided that it is still open and still ours."""
    row = t.transaction.c
    changed = connection.execute(
        update(t.transaction)
        .where(
            _is_txn(ticket.dataset_id, ticket.txn_id),
            row.state == "open",
            row.fence == ticket.fence,
        )
        .values(**values)
    )
    if changed.rowcount != 1:
        raise _lost(ticket)


def _lost(ticket: Ticket) -> LeaseLostError:
    return LeaseLostError(
        f"Transaction '{ticket.txn_id}' ({ticket.operation}) is not open any more: it paused "
        "for longer than its lease and was given up, or was started again. Nothing was "
        "committed; run the operation again"
    )
