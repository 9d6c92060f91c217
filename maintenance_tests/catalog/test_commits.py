"""The commit protocol: conflicts, leases, repeated and unconfirmed commits."""

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, event, select
from sqlalchemy.exc import OperationalError

from maintenance_assets import (
    CatalogError,
    CommitConflictError,
    CommitUnknownError,
    Lakehouse,
    LeaseLostError,
    SchemaMismatchError,
)
from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_assets.catalog import tables, writer
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.migrations import STEPS, migrate, schema_version
from maintenance_assets.catalog.reader import CatalogReader
from maintenance_assets.catalog.retention import CatalogRetention
from maintenance_assets.catalog.writer import CatalogWriter
from maintenance_assets.operations.lake_session import LakeSession

NOW = timedelta(0)


def numbers(house: Lakehouse, appends: int = 0) -> LakeDataset:
    """A dataset of ids, one commit per row."""
    dataset = house.create_dataset("numbers", {"id": pa.int64()})
    for number in range(appends):
        dataset.append({"id": [number]})
    return dataset


def ids(dataset: LakeDataset) -> list[int]:
    """All ids, in order."""
    return sorted(dataset.read(["id"]).column("id").to_pylist())


def on_disk(dataset: LakeDataset) -> int:
    """How many data files lie in the directory."""
    return len(list(Path(dataset.path).rglob("*.parquet")))


class Meanwhile:
    """Does something when a stream is read: in the middle of somebody's write."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def stream(self, **columns: Any) -> pa.RecordBatchReader:
        """A stream of one batch."""
        batch = pa.record_batch(columns)

        def batches() -> Iterator[pa.RecordBatch]:
            self.work()
            yield batch

        return pa.RecordBatchReader.from_batches(batch.schema, batches())


def test_appends_never_conflict_with_anything(house: Lakehouse) -> None:
    dataset = numbers(house, 3)
    during = Meanwhile(lambda: (dataset.compact(), dataset.delete("id = 0")))
    assert dataset.append(during.stream(id=[7])).version == 6
    assert ids(dataset) == [1, 2, 7]
    assert house.fsck().problems == ()


def test_of_two_rewrites_of_the_same_files_one_wins(house: Lakehouse) -> None:
    dataset = numbers(house, 4)
    once = iter([lambda: dataset.compact()])

    def interfere(progress: Any) -> None:
        if progress.phase == "execute":
            next(once, lambda: None)()

    late = dataset.compact(on_progress=interfere)
    assert late.version is None
    assert late.result is not None
    (conflict,) = late.result.conflicts
    assert len(conflict.paths) == 4
    assert "replaced by another commit" in conflict.reason
    assert (ids(dataset), dataset.version, len(dataset.files())) == ([0, 1, 2, 3], 5, 1)
    assert on_disk(dataset) == 5
    assert house.fsck().problems == ()


def test_a_rewrite_commits_the_groups_that_are_not_in_conflict(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", {"id": "int64", "k": "string"}, partition_by=["k"])
    for number in range(3):
        dataset.append({"id": [number, number], "k": ["a", "b"]})
    once = iter([lambda: dataset.delete("k = 'a' AND id = 1")])

    def interfere(progress: Any) -> None:
        if progress.phase == "execute":
            next(once, lambda: None)()

    done = dataset.compact(on_progress=interfere)
    assert done.version == 5
    assert done.result is not None
    assert len(done.result.conflicts) == 1
    assert len(dataset.files()) == 3
    assert sorted(dataset.read().column("id").to_pylist()) == [0, 0, 1, 2, 2]
    assert small.fsck().problems == ()


def test_a_change_of_rows_sees_rows_that_came_meanwhile(small: Lakehouse) -> None:
    dataset = numbers(small, 2)
    dataset.add_column("x", pa.int64())
    done = threading.Event()
    original = LakeSession.transaction
    appended = []

    @contextmanager
    def interfering(self: LakeSession, state: Any, operation: str, *rest: Any) -> Any:
        with original(self, state, operation, *rest) as transaction:
            if operation == "update" and not done.is_set():
                done.set()
                appended.append(dataset.append({"id": [5]}).version)
            yield transaction

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LakeSession, "transaction", interfering)
        outcome = dataset.update("id >= 0", {"x": 1})
    assert appended == [4]
    assert (outcome.version, outcome.rows_updated) == (5, 3)
    assert dataset.read(["x"]).column("x").to_pylist() == [1, 1, 1]
    assert small.fsck().problems == ()


def test_a_change_that_is_made_anew_goes_by_the_columns_of_the_version_that_it_reads(
    small: Lakehouse,
) -> None:
    """Others add a row, so that it is made anew, and right then give columns other names."""
    dataset = small.create_dataset("d", data={"id": [0, 1], "x": [10, 11], "z": [1, 2]})

    def others() -> None:
        dataset.rename_column("x", "y")
        dataset.add_column("n", pa.int64())

    with (
        once_at(CatalogWriter, "begin", lambda: dataset.append({"id": [2], "x": [12]})),
        once_at(CatalogWriter, "rebase", others),
    ):
        dataset.upsert({"id": [0], "z": [5]}, ["id"])
    assert dataset.read().sort_by("id").to_pydict() == {
        "id": [0, 1, 2],
        "y": [10, 11, 12],
        "z": [5, 2, None],
        "n": [None] * 3,
    }
    assert small.fsck().problems == ()


def test_a_new_layout_takes_no_column_away_that_came_meanwhile(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", data={"id": [0], "k": ["a"]})
    with (
        once_at(CatalogWriter, "begin", lambda: dataset.append({"id": [1], "k": ["b"]})),
        once_at(CatalogWriter, "rebase", lambda: dataset.add_column("n", pa.int64())),
    ):
        dataset.repartition(["k"])
    assert dataset.schema().names == ["id", "k", "n"]
    assert dataset.partition_by == ("k",)


def test_rows_are_put_into_the_directories_of_the_version_that_they_are_read_from(
    small: Lakehouse,
) -> None:
    dataset = small.create_dataset("d", data={"id": [0, 1, 2], "k": ["a", "a", "b"]})
    original = CatalogWriter.begin
    done = threading.Event()

    def late(self: CatalogWriter, dataset_id: int, operation: str, *rest: Any) -> Any:
        if operation == "delete" and not done.is_set():
            done.set()
            dataset.repartition(["k"])
        return original(self, dataset_id, operation, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CatalogWriter, "begin", late)
        assert dataset.delete("id = 0").version == 3
    assert [file.partition for file in dataset.files()] == [(("k", "b"),), (("k", "a"),)]
    dataset.overwrite({"id": [7], "k": ["a"]}, dynamic=True)
    assert ids(dataset) == [2, 7]


@contextmanager
def once_at(owner: Any, method: str, work: Any) -> Iterator[None]:
    """Does something right after a method has been called, the first time."""
    original = getattr(owner, method)
    done = threading.Event()

    def followed(*given: Any, **named: Any) -> Any:
        result = original(*given, **named)
        if not done.is_set():
            done.set()
            work()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, followed)
        yield


def test_two_writers_that_add_the_same_column_get_one(house: Lakehouse) -> None:
    dataset = numbers(house, 1)
    during = Meanwhile(lambda: dataset.append({"id": [1], "x": [10]}))
    dataset.append(during.stream(id=[2], x=[20]))
    assert dataset.read().sort_by("id").to_pydict() == {"id": [0, 1, 2], "x": [None, 10, 20]}
    assert dataset.read(where="x = 20").to_pydict() == {"id": [2], "x": [20]}


def test_data_for_a_column_that_changed_meanwhile_is_fitted_again(small: Lakehouse) -> None:
    dataset = numbers(small, 1)
    dataset.append({"id": [1], "x": [1]})
    during = Meanwhile(lambda: dataset.rename_column("x", "y"))
    with pytest.raises(SchemaMismatchError, match="'x' that the dataset does not have"):
        dataset.append(during.stream(id=[2], x=[2]), merge_schema=False)
    assert on_disk(dataset) == 2
    during = Meanwhile(lambda: dataset.drop_column("y"))
    dataset.append(during.stream(id=[2], y=[2]))
    assert dataset.read().sort_by("id").to_pydict() == {"id": [0, 1, 2], "y": [None, None, 2]}


def test_a_failed_write_leaves_nothing(house: Lakehouse) -> None:
    dataset = numbers(house, 1)

    def fail() -> None:
        raise ConnectionError("the source is gone")

    with pytest.raises(ConnectionError):
        dataset.append(Meanwhile(fail).stream(id=[2]))
    assert (dataset.version, on_disk(dataset)) == (1, 1)
    assert house.fsck().problems == ()


def test_the_same_transaction_id_commits_once(house: Lakehouse) -> None:
    dataset = numbers(house)
    first = dataset.append({"id": [1]}, txn_id="load 1")
    again = dataset.append({"id": [1]}, txn_id="load 1")
    assert (first.version, first.committed_before) == (1, False)
    assert (again.version, again.committed_before, again.rows) == (1, True, 1)
    assert (ids(dataset), on_disk(dataset)) == ([1], 1)


@pytest.mark.parametrize("txn_id", ["../..", ".", "/", "a/../../..", "x" * 300, "é\n'"])
def test_a_transaction_id_may_be_any_text(small: Lakehouse, txn_id: str) -> None:
    """A failed write and a recovery clean up after it, and after nothing else."""
    dataset = numbers(small, 1)
    with pytest.raises(SchemaMismatchError):
        dataset.append({"id": ["x"]}, txn_id=txn_id)
    session = LakeSession.open(f"sqlite:///{small._session.database.url.database}", None, NOW)
    state = session.reader.dataset("numbers")
    session.writer.begin(state.dataset_id, "append", txn_id, "me")
    assert [given.txn_id for given in small.recover()["numbers"]] == [txn_id]
    assert (ids(dataset), on_disk(dataset)) == ([0], 1)
    assert dataset.append({"id": [1]}, txn_id=txn_id).version == 2
    assert small.fsck().problems == ()


def test_a_transaction_id_belongs_to_one_operation(small: Lakehouse) -> None:
    dataset = numbers(small)
    dataset.append({"id": [1]}, txn_id="load")
    with pytest.raises(CatalogError, match="'load' is that of a append, which is version 1"):
        dataset.overwrite({"id": [2]}, txn_id="load")
    assert ids(dataset) == [1]


def test_a_commit_that_is_carried_out_twice_is_one_version(small: Lakehouse) -> None:
    """Closing the connection may fail after the commit: the transaction is then tried again."""
    dataset = numbers(small)
    database = small._session.database
    once = iter([True])

    def twice(work: Any) -> Any:
        result = Database.write(database, work)
        if getattr(result, "version", 0) and next(once, False):
            return Database.write(database, work)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", twice)
        assert dataset.append({"id": [1]}).version == 1
    assert next(once, None) is None
    assert (ids(dataset), on_disk(dataset), dataset.version) == ([1], 1, 1)


def test_a_writer_that_pauses_for_too_long_cannot_commit(catalog_uri: str, tmp_path: Path) -> None:
    with Lakehouse(catalog_uri, tmp_path / "lake") as house:
        dataset = numbers(house, 1)
        session = LakeSession.open(catalog_uri, None, timedelta(seconds=-1))
        state = session.reader.dataset("numbers")
        ticket = session.writer.begin(state.dataset_id, "append", "slow", "me")
        session.writer.add_intents(ticket, ["slow.parquet"])
        stray = Path(dataset.path) / "slow.parquet"
        stray.write_bytes(b"half a file")
        assert house.fsck().problems == ()
        given = house.recover()["numbers"]
        assert [(g.txn_id, g.operation, g.paths) for g in given] == [("slow", "append", 1)]
        with pytest.raises(LeaseLostError, match="not open any more"):
            session.writer.renew(ticket)
        assert house.fsck().problems == ()
        house.vacuum(NOW, dry_run=False, force=True)
        assert not stray.exists()
        assert ids(dataset) == [0]


def test_a_writer_that_was_given_up_takes_away_what_it_wrote_after_vacuum(
    small: Lakehouse,
) -> None:
    dataset = numbers(small, 1)
    session = LakeSession.open(f"sqlite:///{Path(dataset.path).parents[1]}/catalog.db", None, NOW)
    state = session.reader.dataset("numbers")
    with (
        pytest.raises(LeaseLostError),
        session.transaction(state, "append", "late") as transaction,
    ):
        path = Path(transaction.stage(""))
        small.vacuum(NOW, dry_run=False, force=True)
        path.write_bytes(b"too late")
        session.writer.renew(transaction.ticket)
    assert not path.exists()
    assert small.fsck().problems == ()


def test_files_that_vacuum_took_from_a_lost_transaction_are_no_mystery(small: Lakehouse) -> None:
    dataset = numbers(small, 1)
    session = LakeSession.open(f"sqlite:///{small._session.database.url.database}", None, NOW)
    state = session.reader.dataset("numbers")
    with (
        pytest.raises(LeaseLostError, match="paused for longer than its lease"),
        session.transaction(state, "append", "late") as transaction,
    ):
        path = Path(transaction.stage(""))
        path.write_bytes(b"written in time")
        small.vacuum(NOW, dry_run=False, force=True)
        path.read_bytes()
    assert (ids(dataset), on_disk(dataset)) == ([0], 1)


def test_a_second_start_of_a_transaction_shuts_the_first_out(small: Lakehouse) -> None:
    dataset = numbers(small)

    def again() -> None:
        dataset.append({"id": [1]}, txn_id="job")

    with pytest.raises(LeaseLostError):
        dataset.append(Meanwhile(again).stream(id=[1]), txn_id="job")
    assert (ids(dataset), dataset.version) == ([1], 1)
    assert small.fsck().problems == ()


def test_vacuum_spares_what_open_transactions_write_and_read(small: Lakehouse) -> None:
    dataset = numbers(small, 3)
    dataset.compact()
    versions = []

    def clean() -> None:
        small.expire_snapshots(NOW)
        small.vacuum(NOW, dry_run=False, force=True)
        versions.append(on_disk(dataset))

    dataset.append(Meanwhile(clean).stream(id=[9]))
    assert versions == [1]
    assert ids(dataset) == [0, 1, 2, 9]
    assert small.fsck().problems == ()


@pytest.mark.parametrize("reached", [True, False])
def test_an_unconfirmed_commit_is_looked_up_and_nothing_is_deleted(
    catalog_uri: str, tmp_path: Path, reached: bool
) -> None:
    """The connection dies at COMMIT, after or before the server has done it."""
    with Lakehouse(catalog_uri, tmp_path / "lake") as house:
        dataset = numbers(house, 1)
        with broken_commit(house._session.database, reached):
            assert dataset.append({"id": [1]}).version == 2
        assert (ids(dataset), on_disk(dataset)) == ([0, 1], 2)
        assert [c.version for c in dataset.history()] == [2, 1, 0]
        assert house.fsck().problems == ()


@contextmanager
def broken_commit(database: Database, reached: bool, then: Any = lambda: None) -> Iterator[None]:
    """The commit that makes a version loses its connection, once."""
    engine = database._engine
    armed = threading.Event()
    broken = threading.Event()

    def watch(connection: Connection, _: Any, statement: str, *__: Any) -> None:
        if "INSERT INTO lake_commit" in statement and not broken.is_set():
            armed.set()

    def commit(connection: Connection) -> None:
        if not armed.is_set() or broken.is_set():
            return
        broken.set()
        driver: Any = connection.connection.driver_connection
        (driver.commit if reached else driver.rollback)()
        then()
        raise OperationalError("COMMIT", {}, ConnectionError("server closed the connection"))

    event.listen(engine, "before_cursor_execute", watch)
    event.listen(engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", watch)
        event.remove(engine, "commit", commit)
    assert broken.is_set()


def test_a_killed_backend_at_commit_leaves_the_catalog_consistent(
    postgres: str, tmp_path: Path
) -> None:
    """The server ends our connection between the last statement and COMMIT."""
    from maintenance_tests.catalog.conftest import new_database

    with Lakehouse(new_database(postgres), tmp_path / "lake") as house:
        dataset = numbers(house, 1)
        engine = house._session.database._engine
        killed: list[int] = []

        def kill(connection: Connection) -> None:
            if killed or not seen:
                return
            killed.append(connection.connection.driver_connection.info.backend_pid)  # type: ignore[union-attr]
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({killed[0]}, 5000)")

        seen: list[str] = []

        def watch(connection: Connection, _: Any, statement: str, *__: Any) -> None:
            if "INSERT INTO lake_commit" in statement:
                seen.append(statement)

        event.listen(engine, "before_cursor_execute", watch)
        event.listen(engine, "commit", kill)
        assert dataset.append({"id": [1]}).version == 2
        assert len(killed) == 1
        assert ids(dataset) == [0, 1]
        assert house.fsck().problems == ()


def test_an_outcome_that_stays_unknown_deletes_nothing(
    small: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = numbers(small, 1)

    def unknown(*_: Any) -> Any:
        raise CommitUnknownError("cannot be asked")

    monkeypatch.setattr(CatalogWriter, "_commit", unknown)
    monkeypatch.setattr(CatalogWriter, "_resolve", unknown)
    with pytest.raises(CommitUnknownError):
        dataset.append({"id": [1]}, txn_id="maybe")
    monkeypatch.undo()
    assert on_disk(dataset) == 2
    assert small.fsck().problems == ()
    assert dataset.append({"id": [1]}, txn_id="maybe").version == 2
    assert ids(dataset) == [0, 1]


def test_a_change_whose_commit_was_lost_is_made_anew_if_others_were_faster(
    small: Lakehouse,
) -> None:
    dataset = numbers(small, 2)
    database = small._session.database
    with broken_commit(database, False, then=lambda: dataset.append({"id": [7]})):
        assert dataset.delete("id = 0 OR id = 7").rows_deleted == 2
    assert (ids(dataset), dataset.version) == ([1], 4)
    assert small.fsck().problems == ()


def test_an_outcome_stays_unknown_while_others_hold_the_database(
    small: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = numbers(small, 1)
    path = small._session.database.url.database
    monkeypatch.setattr(writer, "_RESOLVE_SECONDS", 0.5)
    database = Database(f"sqlite:///{path}", busy_seconds=0.2)
    parts = CatalogReader(database), CatalogWriter(database), CatalogRetention(database)
    hurried = LakeDataset(LakeSession(database, *parts, {}), "numbers")
    holder = sqlite3.connect(str(path), isolation_level=None)
    held = broken_commit(database, True, then=lambda: holder.execute("BEGIN IMMEDIATE"))
    with held, pytest.raises(CommitUnknownError, match="may or may not be committed"):
        hurried.append({"id": [1]}, txn_id="maybe")
    holder.close()
    assert dataset.append({"id": [1]}, txn_id="maybe").committed_before
    assert (ids(dataset), on_disk(dataset)) == ([0, 1], 2)


def test_a_catalog_of_a_newer_version_is_refused(catalog_uri: str) -> None:
    database = Database(catalog_uri)
    assert database.read(schema_version) == len(STEPS)
    assert database.write(migrate) == len(STEPS)
    seen = []
    steps = (*STEPS, lambda connection: seen.append(schema_version(connection)))
    assert database.write(lambda connection: migrate(connection, steps)) == len(STEPS) + 1
    assert seen == [len(STEPS)]
    database.close()
    with pytest.raises(CatalogError, match="newer version of the package"):
        Database(catalog_uri)


@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked up in /proc")
def test_names_of_files_are_on_disk_before_the_commit(
    small: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = small.create_dataset(
        "d", {"id": "int64", "a": "string", "b": "string"}, partition_by=["a", "b"]
    )
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    dataset.append({"id": [1], "a": ["x"], "b": ["y"]})
    root = dataset.path
    assert {root, f"{root}/a=x", f"{root}/a=x/b=y"} <= set(synced)


def test_a_conflict_is_an_error_that_says_what_happened(small: Lakehouse) -> None:
    dataset = numbers(small, 2)
    session = small._session
    state = session.reader.dataset("numbers")
    from maintenance_assets.model.lakehouse import Change

    with (
        pytest.raises(CommitConflictError, match="2 of the 2 files"),
        session.transaction(state, "delete") as transaction,
    ):
        removed = tuple(file.file_id for file in dataset.files())
        dataset.compact()
        transaction.commit(Change("delete", removed=removed, reads="removed"))


def test_the_path_of_a_first_file_is_recorded_before_it_is_written(house: Lakehouse) -> None:
    dataset = house.create_dataset("plain", {"id": "int64"})
    session = house._session
    state = session.reader.dataset("plain")
    query = select(tables.transaction_file.c.path)

    def recorded() -> list[str]:
        return list(session.database.read(lambda c: c.execute(query).scalars().all()))

    with pytest.raises(ZeroDivisionError), session.transaction(state, "append", "x", [""]) as open_:
        (intent,) = recorded()
        assert open_.stage("") == open_.store.path(intent)
        assert recorded() == [intent]
        raise ZeroDivisionError
    assert recorded() == []
    assert dataset.append({"id": [1]}, txn_id="y").version == 1
    assert dataset.append({"id": [1]}, txn_id="y").version == 1
    assert recorded() == []
    assert dataset.read().num_rows == 1
