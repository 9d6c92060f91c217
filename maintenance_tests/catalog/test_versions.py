"""Commits, time travel and retention, the same on every database."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from maintenance_assets import (
    CatalogError,
    CommitConflictError,
    IncompleteMaintenanceError,
    Lakehouse,
    UnsupportedDatasetError,
    compact,
)
from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_assets.catalog.writer import CatalogWriter
from maintenance_assets.model.policy import Mode
from maintenance_assets.operations.lake_scan import plan_scan

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("price", pa.float64())])
NOW = timedelta(0)
UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def trades(house: Lakehouse, appends: int = 0, name: str = "trades") -> LakeDataset:
    """A dataset by day, and so many rows in it, each of a commit of its own."""
    dataset = house.create_dataset(name, SCHEMA, partition_by=["day"])
    for number in range(appends):
        dataset.append({"id": [number], "day": ["a"], "price": [number / 2]})
    return dataset


def ids(table: pa.Table) -> list[int]:
    """The ids of a table, in order."""
    return sorted(table.column("id").to_pylist())


def on_disk(dataset: LakeDataset) -> set[str]:
    """Data files below the root of a dataset."""
    root = Path(dataset.path)
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


def vacuum_all(house: Lakehouse) -> int:
    """Delete everything that may go, however young; how many files."""
    return sum(len(r.files) for r in house.vacuum(NOW, dry_run=False, force=True))


def test_each_append_is_a_version(house: Lakehouse) -> None:
    dataset = trades(house)
    result = dataset.append({"id": [1, 2, 3], "day": ["a", "b", "a"], "price": [1.0, None, 3.0]})
    assert (result.version, result.rows, result.operation) == (1, 3, "append")
    assert [(f.num_rows, f.partition) for f in result.files] == [
        (2, {"day": "a"}),
        (1, {"day": "b"}),
    ]
    assert result.files[0].statistics["price"] == {"min": 1.0, "max": 3.0, "null_count": 0}
    assert result.files[1].statistics["price"] == {"min": None, "max": None, "null_count": 1}
    assert all(re.fullmatch(rf"day=[ab]/part-{UUID7}\.parquet", file.path) for file in result.files)
    assert dataset.append({"id": [4], "day": ["a"], "price": [4.0]}).version == 2
    assert ids(dataset.read()) == [1, 2, 3, 4]
    assert dataset.read().schema.equals(SCHEMA, check_metadata=True)


def test_versions_stay_readable_after_rewrites(house: Lakehouse) -> None:
    dataset = trades(house, 4)
    done = dataset.compact()
    assert (done.version, done.to_dict()["after_file_count"]) == (5, 1)
    dataset.append({"id": [9], "day": ["b"], "price": [9.0]})
    assert ids(dataset.read()) == [0, 1, 2, 3, 9]
    assert [ids(dataset.read(version=v)) for v in range(6)] == [
        [],
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]
    assert [len(dataset.files(v)) for v in (4, 5)] == [4, 1]


@pytest.mark.parametrize(("mode", "row_groups"), [("auto", 1), ("encode", 1), ("stitch", 3)])
def test_compaction_copies_or_encodes_as_it_is_told(
    house: Lakehouse, mode: Mode, row_groups: int
) -> None:
    dataset = trades(house, 3)
    done = dataset.compact(mode=mode)
    assert (done.version, done.result and done.result.mode) == (
        4,
        "stitch" if mode == "stitch" else "encode",
    )
    assert [len(file.row_group_rows) for file in dataset.files()] == [row_groups]
    assert ids(dataset.read()) == [0, 1, 2]


def test_what_cannot_be_copied_stays_when_nothing_may_be_decoded(small: Lakehouse) -> None:
    dataset = trades(small, 3)
    with pytest.raises(IncompleteMaintenanceError, match="cannot be stitched"):
        dataset.compact(mode="stitch", compression="snappy")
    assert (dataset.version, len(dataset.files())) == (3, 3)
    with pytest.raises(ValueError, match="Known modes: auto, stitch, encode"):
        dataset.compact(mode="copy")  # type: ignore[arg-type]


def test_options_that_a_method_does_not_have_are_refused_in_its_name(small: Lakehouse) -> None:
    dataset = trades(small, 2)
    data = {"id": [9], "day": ["a"]}
    calls: dict[str, Callable[..., object]] = {
        "append": lambda **options: dataset.append(data, **options),
        "overwrite": lambda **options: dataset.overwrite(data, **options),
        "delete": lambda **options: dataset.delete("id = 0", **options),
        "update": lambda **options: dataset.update("id = 0", {"price": 1}, **options),
        "upsert": lambda **options: dataset.upsert(data, ["id"], **options),
        "status": dataset.status,
        "compact": dataset.compact,
        "optimize": lambda **options: dataset.optimize(["id"], **options),
        "repartition": lambda **options: dataset.repartition([], **options),
    }
    for name, call in calls.items():
        message = rf"^LakeDataset\.{name}\(\) has no option 'filesystem'\. It takes: .*\w$"
        with pytest.raises(TypeError, match=message):
            call(filesystem=None)
    assert (dataset.version, ids(dataset.read())) == (2, [0, 1])


def test_versions_by_time_and_by_tag(house: Lakehouse) -> None:
    dataset = trades(house, 3)
    moment = next(c.committed_at for c in dataset.history() if c.version == 2)
    assert ids(dataset.read(as_of=moment)) == [0, 1]
    assert ids(dataset.read(as_of=(moment - timedelta(microseconds=1)).isoformat())) == [0]
    assert dataset.tag("first", 1) == 1
    assert ids(dataset.read(tag="first")) == [0]
    assert dataset.tag("first") == 3
    assert dataset.tags() == {"first": 3}
    with pytest.raises(CatalogError, match="did not exist yet"):
        dataset.read(as_of=datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(CatalogError, match=r"no tag 'other'. Tags: first"):
        dataset.read(tag="other")
    with pytest.raises(CatalogError, match="no version 99"):
        dataset.read(version=99)
    with pytest.raises(ValueError, match="one of version, as_of and tag"):
        dataset.read(version=1, tag="first")


def test_history_tells_who_and_what(house: Lakehouse) -> None:
    dataset = trades(house)
    dataset.append({"id": [1], "day": ["a"], "price": [1.0]}, author="ann", message="first load")
    dataset.append({"id": [2], "day": ["a"], "price": [2.0]})
    dataset.compact(author="bob")
    newest, _, first, created = dataset.history()
    assert (first.operation, first.author, first.message) == ("append", "ann", "first load")
    assert (first.rows_added, first.total_rows, first.data_change) == (1, 1, True)
    assert (newest.operation, newest.author, newest.data_change) == ("compact", "bob", False)
    assert (newest.files_added, newest.files_removed, newest.total_files) == (1, 2, 1)
    assert (created.version, created.operation) == (0, "create")
    assert newest.committed_at > first.committed_at > created.committed_at


def test_restore_is_a_new_version_with_the_columns_of_then(house: Lakehouse) -> None:
    dataset = trades(house, 2)
    dataset.drop_column("price")
    dataset.overwrite({"id": [7], "day": ["b"]})
    assert dataset.restore(2) == 5
    assert dataset.read().sort_by("id").to_pylist() == [
        {"id": 0, "day": "a", "price": 0.0},
        {"id": 1, "day": "a", "price": 0.5},
    ]
    assert dict(dataset.history()[0].summary) == {"restored_version": 2}
    assert ids(dataset.read(version=4)) == [7]
    assert house.fsck().problems == ()


def test_overwrite_of_everything_and_of_partitions(house: Lakehouse) -> None:
    dataset = trades(house)
    days = {"id": [1, 2, 3], "day": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]}
    dataset.append(days)
    dataset.overwrite({"id": [20], "day": ["b"], "price": [0.0]}, dynamic=True)
    assert ids(dataset.read()) == [1, 3, 20]
    dataset.overwrite({"id": [30], "day": ["c"], "price": [0.0]}, partition_filter={"day": "c"})
    assert ids(dataset.read()) == [1, 20, 30]
    with pytest.raises(ValueError, match="rows outside"):
        dataset.overwrite({"id": [4], "day": ["a"], "price": [0.0]}, partition_filter="day=c")
    dataset.overwrite({"id": [5], "day": ["z"], "price": [0.0]})
    assert ids(dataset.read()) == [5]
    assert ids(dataset.read(version=1)) == [1, 2, 3]
    assert house.fsck().problems == ()


def test_delete_and_update_change_only_what_is_meant(house: Lakehouse) -> None:
    dataset = trades(house)
    rows = {"id": [1, 2, 3, 4], "day": ["a", "a", "b", "b"], "price": [1.0, None, 3.0, 4.0]}
    dataset.append(rows)
    dry = dataset.delete("price > 3.5", dry_run=True)
    assert (dry.rows_deleted, dry.version) == (1, None)
    gone = dataset.delete("price > 2")
    assert (gone.version, gone.rows_deleted, gone.files_removed) == (2, 2, 1)
    assert ids(dataset.read()) == [1, 2]
    changed = dataset.update("price IS NULL", {"price": 7, "day": "c"})
    assert (changed.version, changed.rows_updated) == (3, 1)
    assert dataset.read().sort_by("id").to_pylist() == [
        {"id": 1, "day": "a", "price": 1.0},
        {"id": 2, "day": "c", "price": 7.0},
    ]
    assert dataset.delete("id = 99").version is None
    assert dataset.version == 3


def test_expired_versions_cannot_be_read_and_their_files_go(house: Lakehouse) -> None:
    dataset = trades(house, 4)
    dataset.tag("keep", 2)
    dataset.compact()
    kept = {file.path for version in (2, 5) for file in dataset.files(version)}
    assert house.expire_snapshots(NOW, dry_run=True) == {"trades": (0, 1, 3, 4)}
    assert house.expire_snapshots(NOW) == {"trades": (0, 1, 3, 4)}
    assert [len(r.files) for r in house.vacuum(NOW)] == [2]
    assert len(on_disk(dataset)) == 5
    assert vacuum_all(house) == 2
    assert on_disk(dataset) == kept
    assert ids(dataset.read(tag="keep")) == [0, 1]
    with pytest.raises(CatalogError, match="Version 4 has expired"):
        dataset.read(version=4)
    with pytest.raises((CatalogError, CommitConflictError), match="expired"):
        dataset.restore(4)
    with pytest.raises(CatalogError, match="expired"):
        dataset.tag("late", 4)
    assert vacuum_all(house) == 0
    assert house.fsck().problems == ()


def test_retain_last_and_pins_keep_versions(house: Lakehouse) -> None:
    dataset = trades(house, 4)
    with dataset.pin(1):
        assert house.expire_snapshots(NOW, retain_last=2) == {"trades": (0, 2)}
    assert house.expire_snapshots(NOW, retain_last=2) == {"trades": (1,)}
    assert house.expire_snapshots(timedelta(days=1)) == {"trades": ()}


def test_vacuum_is_careful_by_default(house: Lakehouse) -> None:
    dataset = trades(house, 3)
    dataset.compact()
    house.expire_snapshots(NOW)
    assert [len(r.files) for r in house.vacuum()] == [0]
    assert [len(r.files) for r in house.vacuum(dry_run=False)] == [0]
    with pytest.raises(ValueError, match="force=True"):
        house.vacuum(timedelta(days=1), dry_run=False)
    assert len(on_disk(dataset)) == 4


def test_restoring_a_version_keeps_its_files_from_vacuum(house: Lakehouse) -> None:
    dataset = trades(house, 3)
    dataset.compact()
    dataset.restore(2)
    house.expire_snapshots(NOW)
    assert vacuum_all(house) == 2
    assert ids(dataset.read()) == [0, 1]
    assert house.fsck().problems == ()


def test_fsck_finds_what_is_missing_stray_or_changed(house: Lakehouse) -> None:
    dataset = trades(house, 3)
    first, second, _ = (Path(dataset.path) / file.path for file in dataset.files())
    first.unlink()
    second.write_bytes(b"short")
    (Path(dataset.path) / "day=a" / "copy.parquet").write_bytes(b"x")
    (report,) = house.fsck().reports
    assert report.missing == (f"day=a/{first.name}",)
    assert report.wrong_size == (f"day=a/{second.name}",)
    assert report.stray == ("day=a/copy.parquet",)
    assert len(report.problems) == 3


def test_plain_operations_keep_away_from_a_catalog_dataset(house: Lakehouse) -> None:
    dataset = trades(house, 3)
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        compact(dataset.path)
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        compact(f"{dataset.path}/day=a")
    assert len(on_disk(dataset)) == 3


def test_names_and_places_are_checked(house: Lakehouse, tmp_path: Path) -> None:
    dataset = trades(house, 1)
    remedy = r"Open it with dataset\('trades'\), or take another name"
    with pytest.raises(CatalogError, match=rf"'trades' in the catalog already\. {remedy}"):
        house.create_dataset("trades", SCHEMA, path=tmp_path / "elsewhere")
    with pytest.raises((CatalogError, UnsupportedDatasetError)):
        house.create_dataset("other", SCHEMA, path=dataset.path)
    with pytest.raises((CatalogError, UnsupportedDatasetError)):
        house.create_dataset("other", SCHEMA, path=f"{dataset.path}/day=b")
    with pytest.raises(CatalogError):
        house.create_dataset("other", SCHEMA, path=Path(dataset.path).parent)
    with pytest.raises(CatalogError, match=r"no dataset 'nothing'.*trades"):
        house.dataset("nothing")
    for name in ("", "a/b", "..", ".x", "_x", " x"):
        with pytest.raises(ValueError, match="name"):
            house.create_dataset(name, SCHEMA)
    assert house.datasets() == ("trades",)


@pytest.mark.parametrize("uri", ["mysql://x/y", "sqlite://", "duckdb:///:memory:", "nonsense", 3])
def test_uris_that_are_no_catalog_are_refused(uri: object) -> None:
    with pytest.raises(ValueError, match="catalog_uri"):
        Lakehouse(uri)  # type: ignore[arg-type]


def test_a_version_that_was_vacuumed_under_a_reader_is_not_read_as_empty(house: Lakehouse) -> None:
    dataset = trades(house, 3)
    session = house._session
    seen = session.reader.dataset("trades")
    dataset.compact()
    house.expire_snapshots(NOW)
    vacuum_all(house)
    with pytest.raises(CatalogError, match="Version 3 has expired"):
        plan_scan(session, seen, seen.head)
    with pytest.raises(CatalogError, match="Version 3 has expired"):
        plan_scan(session, seen, seen.head, "id = 1")
    states = iter([seen])
    with pytest.MonkeyPatch.context() as patch:
        original = type(session.reader).dataset
        patch.setattr(
            type(session.reader), "dataset", lambda self, n: next(states, None) or original(self, n)
        )
        assert ids(dataset.read()) == [0, 1, 2]


def test_a_clock_that_is_behind_makes_nothing_look_old(house: Lakehouse) -> None:
    dataset = trades(house, 2)
    session = house._session
    late = CatalogWriter(session.database, clock=lambda: 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(session.writer), "_commit", lambda _, *given: commit_with(late, *given))
        dataset.overwrite({"id": [7], "day": ["a"], "price": [1.0]})
    newest, before, *_ = dataset.history()
    assert newest.committed_at > before.committed_at
    week = timedelta(days=7)
    assert house.expire_snapshots(week) == {"trades": ()}
    house.expire_snapshots(NOW)
    assert [len(r.files) for r in house.vacuum(week)] == [0]
    assert [len(r.files) for r in house.vacuum(NOW)] == [2]


commit_with = CatalogWriter._commit
