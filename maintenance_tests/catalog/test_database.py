"""Transactions of several processes on one database."""

import multiprocessing
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from maintenance_assets import CatalogBusyError
from maintenance_assets.catalog import tables
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.file_lock import lock_of
from maintenance_assets.catalog.locking import lock_catalog

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
COUNTS = 20
SECRET = "s3cr3t"


def count_up(uri: str) -> None:
    """Take so many numbers from a counter, each in a transaction of its own."""
    database = Database(uri)
    for _ in range(COUNTS):
        database.write(lambda connection: lock_catalog(connection, "next_dataset_id"))


def test_no_transaction_of_two_processes_undoes_another(catalog_uri: str) -> None:
    """DuckDB continues from a header that is out of date if only its own lock is relied on."""
    context: Any = multiprocessing.get_context("forkserver")
    processes = [context.Process(target=count_up, args=(catalog_uri,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    query = select(tables.catalog.c.value).where(tables.catalog.c.name == "next_dataset_id")
    database = Database(catalog_uri)
    assert database.read(lambda c: c.execute(query).scalar_one()) == str(3 * COUNTS + 1)


def test_a_duckdb_file_that_stays_busy_is_an_error_that_says_so(tmp_path: Path) -> None:
    uri = f"duckdb:///{tmp_path}/catalog.db"
    database = Database(uri, busy_seconds=0.2)
    with (
        lock_of(str(tmp_path / "catalog.db")).hold(1),
        pytest.raises(CatalogBusyError, match=r"catalog\.db\.lock' was held by others"),
    ):
        database.read(lambda connection: None)
    assert database.read(lambda connection: 1) == 1


def test_an_error_inside_a_transaction_undoes_all_of_it(catalog_uri: str) -> None:
    database = Database(catalog_uri)

    def work(connection: Connection) -> None:
        connection.execute(update(tables.catalog).values(value="changed"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(work)
    query = select(tables.catalog.c.value)
    assert "changed" not in database.read(lambda c: c.execute(query).scalars().all())


def test_threads_wait_for_a_connection_of_the_pool(postgres: str) -> None:
    """As many threads as the pool has connections, and one more."""
    from maintenance_tests.catalog.conftest import new_database

    database = Database(new_database(postgres))
    pool: Any = database._engine.pool
    pool._timeout = 0.05
    held = [database._engine.connect() for _ in range(pool.size() + pool._max_overflow)]
    threading.Timer(0.3, held[0].close).start()
    assert database.read(lambda connection: 1) == 1
    for connection in held[1:]:
        connection.close()
    database.close()


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:{}@host:port/lake",
        "postgresql://me:p@{}:{}@host/lake",
        "mysql://me:{}@host/lake",
        "mysql://me:p@{}@host/lake?password={}",
        "sqlite:/me:{}",
    ],
)
def test_an_address_that_is_refused_does_not_show_its_password(uri: str) -> None:
    address = uri.format(SECRET, SECRET)
    with pytest.raises(ValueError, match="catalog_uri must be") as caught:
        Database(address)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
