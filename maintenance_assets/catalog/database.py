"""One way to talk to SQLite, DuckDB and PostgreSQL: short transactions, tried again when busy."""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, pool, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maintenance_assets.catalog.ducklake import DUCKDB_STORAGE
from maintenance_assets.catalog.file_lock import lock_of
from maintenance_assets.catalog.migrations import STEPS, migrate, schema_version
from maintenance_assets.errors import CatalogBusyError, CatalogError, CommitUnknownError

T = TypeVar("T")

BUSY_SECONDS = 120.0
_WRITE = "catalog_write"
_DRIVERS = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgresql+psycopg"}
_BUSY = ("could not set lock", "conflicting lock", "database is locked", "database is busy")
# DuckDB and PostgreSQL give up one of two transactions that stand in each other's way.
_GIVEN_UP = ("transactioncontext error", "conflict on", "deadlock", "could not serialize")


class Database:
    """A catalog's database, with its tables in place."""

    def __init__(
        self, uri: str, busy_seconds: float = BUSY_SECONDS, *, create: bool = True
    ) -> None:
        self.url = _checked_url(uri)
        self._busy_seconds = busy_seconds
        if not create:
            self._require_file()
        self._engine = _engine(self.url, busy_seconds)
        found = self.read(schema_version)
        if not found and not create:
            raise FileNotFoundError(f"There is no catalog in '{shown(self.url)}'")
        if found != len(STEPS):
            self.write(migrate)

    def _require_file(self) -> None:
        """A database that is a file would otherwise be made by being opened."""
        if self.directory is not None and not os.path.isfile(str(self.url.database)):
            raise FileNotFoundError(f"Catalog '{shown(self.url)}' does not exist")

    @property
    def directory(self) -> str | None:
        """Where the file of the catalog lies; None on a server."""
        path = self.url.database if self.url.drivername in ("sqlite", "duckdb") else None
        return os.path.dirname(path) if path else None

    def identity(self) -> str:
        """What tells this database from a copy of it, however it is addressed."""
        kind = self.url.get_backend_name()
        if kind != "postgresql":
            return f"{kind}:{os.stat(str(self.url.database)).st_ino}"
        return f"{kind}:{self.read(_server_and_database)}"

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run some queries in one transaction."""
        return self._run(work, writes=False)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run a short transaction; `work` may run again if it had to give way to another.

        CommitUnknownError when the database did not answer the COMMIT.
        """
        return self._run(work, writes=True)

    def close(self) -> None:
        """Let go of pooled connections."""
        self._engine.dispose()

    def _run(self, work: Callable[[Connection], T], writes: bool) -> T:
        give_up = time.monotonic() + self._busy_seconds
        pause = 0.002
        while True:
            try:
                with _turn(self.url, self._busy_seconds), self._connection(writes) as connection:
                    return _transact(connection, work)
            except (DBAPIError, PoolTimeout) as error:
                if not _may_try_again(error):
                    raise _named(error) from error
                if time.monotonic() > give_up:
                    raise CatalogBusyError(
                        f"The catalog '{shown(self.url)}' was busy for "
                        f"{self._busy_seconds:.0f} seconds: {_first_line(error)}. Try again"
                    ) from error
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(0.25, pause * 2)

    @contextlib.contextmanager
    def _connection(self, writes: bool) -> Iterator[Connection]:
        engine = self._engine.execution_options(**{_WRITE: writes})
        with engine.connect() as connection:
            yield connection


def _server_and_database(connection: Connection) -> str:
    """Servers number their databases alike, so that a copy may well have the same number."""
    may_ask = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
    server = "SELECT system_identifier FROM pg_control_system()"
    database = "SELECT oid FROM pg_database WHERE datname = current_database()"
    asked = (server, database) if connection.execute(text(may_ask)).scalar_one() else (database,)
    return "/".join(str(connection.execute(text(query)).scalar_one()) for query in asked)


def _transact(connection: Connection, work: Callable[[Connection], T]) -> T:
    transaction = connection.begin()
    try:
        result = work(connection)
    except BaseException:
        # A connection that is gone has rolled back by itself.
        with contextlib.suppress(DBAPIError):
            transaction.rollback()
        raise
    try:
        transaction.commit()
    except DBAPIError as error:
        raise CommitUnknownError(
            f"The database did not confirm the commit: {_first_line(error)}. It may or may not "
            "have happened; no file was deleted"
        ) from error
    return result


def _may_try_again(error: DBAPIError | PoolTimeout) -> bool:
    if isinstance(error, PoolTimeout):
        return True  # all connections are in the hands of other threads
    told = str(error).lower()
    return any(mark in told for mark in (*_BUSY, *_GIVEN_UP))


def _named(error: DBAPIError | PoolTimeout) -> Exception:
    return CatalogError(f"The catalog's database reports: {_first_line(error)}")


def _first_line(error: DBAPIError | PoolTimeout) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]


def shown(url: URL) -> str:
    """The address of a database without user, password and options, which may hold one too."""
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.drivername.partition('+')[0]}://{host.rpartition('@')[2]}/{url.database or ''}"


def _checked_url(uri: str) -> URL:
    if not isinstance(uri, str):
        raise ValueError(f"catalog_uri must be text, got {uri!r}")
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):  # a port that is no number
        # What cannot be taken apart may have a password anywhere: not even the cause is repeated.
        raise ValueError(_EXPECTED.format("something else")) from None
    kind = url.drivername.partition("+")[0]
    if kind not in _DRIVERS:
        raise ValueError(_EXPECTED.format(shown(url)))
    if kind == "postgresql":
        return url.set(drivername=_DRIVERS[kind])
    if not url.database or url.database == ":memory:":
        raise ValueError(f"catalog_uri must name a file, as in '{kind}:///lake/catalog.db'")
    path = os.path.realpath(os.path.expanduser(url.database))
    return url.set(drivername=_DRIVERS[kind], database=path)


_EXPECTED = (
    "catalog_uri must be 'sqlite:///file', 'duckdb:///file' or 'postgresql://user@host/name', "
    "got '{}'"
)


def _engine(url: URL, busy_seconds: float) -> Engine:
    try:
        match url.drivername:
            case "sqlite":
                return _sqlite_engine(url, busy_seconds)
            case "duckdb":
                _make_directory(url)
                settings = {"storage_compatibility_version": DUCKDB_STORAGE}
                return create_engine(
                    url, poolclass=pool.NullPool, connect_args={"config": settings}
                )
            case _:
                return create_engine(url, pool_pre_ping=True)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise CatalogError(
            f"{error}: a catalog in PostgreSQL needs the package psycopg "
            "(pip install 'maintenance-assets[postgres]')"
        ) from error


def _make_directory(url: URL) -> None:
    os.makedirs(os.path.dirname(str(url.database)), exist_ok=True)


def _sqlite_engine(url: URL, busy_seconds: float) -> Engine:
    _make_directory(url)
    engine = create_engine(
        url,
        poolclass=pool.NullPool,
        # Transactions are begun by the event below, not by the driver.
        connect_args={"timeout": busy_seconds, "isolation_level": None},
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        # A confirmed commit must survive a power cut: its files are not kept otherwise.
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITE)
        # A writer that starts as a reader could find itself unable to continue.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _turn(url: URL, seconds: float) -> contextlib.AbstractContextManager[None]:
    """Users of a DuckDB file take turns; servers and SQLite see to that themselves."""
    if url.drivername != "duckdb":
        return contextlib.nullcontext()
    return lock_of(str(url.database)).hold(seconds)
