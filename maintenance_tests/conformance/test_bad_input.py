"""Wrong arguments and broken data are refused by name before anything is written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from maintenance_assets import compact
from maintenance_assets.errors import (
    IncompleteMaintenanceError,
    MaintenanceError,
    UnreadableFileError,
    UnsupportedDatasetError,
)
from maintenance_tests.datasets import Lake, one_row_files, parquet_bytes

NAN, INFINITY = float("nan"), float("inf")


def everything(lake: Lake) -> tuple[dict[str, str], list[str]]:
    """Hashes of all files and, where there are such things, all directories."""
    folders = [os.path.join(at, name) for at, names, _ in os.walk(lake.url) for name in names]
    return lake.tree(), sorted(folders)


def assert_refused(
    lake: Lake, engine: str, error: type[BaseException], match: str, **options: Any
) -> pytest.ExceptionInfo[BaseException]:
    """The same error from a dry and a real run, and not a byte or directory has changed."""
    before = everything(lake)
    with pytest.raises(error, match=match):
        lake.compact(engine, dry_run=True, **options)
    with pytest.raises(error, match=match) as caught:
        lake.compact(engine, **options)
    assert everything(lake) == before
    assert not any("_maintenance" in name for part in before for name in part)
    return caught


# --- arguments -------------------------------------------------------------------------------

TARGETS = ["target_mb_per_file", "target_rows_per_file", "memory_budget_mb", "max_workers"]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "value",
    [0, -1, -0.5, 0.0, NAN, INFINITY, -INFINITY, True, False, "1", "", b"1", [1], 1j],
    ids=repr,
)
def test_number_that_is_not_above_zero(engine: str, local: Lake, name: str, value: Any) -> None:
    one_row_files(local, 2)
    assert_refused(local, engine, ValueError, f"{name} must be > 0", **{name: value})


@pytest.mark.parametrize("name", ["target_rows_per_file", "max_workers"])
@pytest.mark.parametrize("value", [0.5, 1.5, np.float32(2.5)], ids=repr)
def test_count_that_is_not_whole(engine: str, local: Lake, name: str, value: Any) -> None:
    one_row_files(local, 2)
    assert_refused(local, engine, ValueError, f"{name} must be a whole number", **{name: value})


@pytest.mark.parametrize("name", TARGETS)
def test_bad_number_is_refused_before_any_input_or_output(engine: str, name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=name):
        compact("nowhere://at all", engine=engine, **options)


def test_both_targets_may_be_left_out(engine: str, local: Lake) -> None:
    one_row_files(local, 2)
    local.compact(engine, target_mb_per_file=None, target_rows_per_file=None)
    assert local.column("id") == [0, 1]
    assert len(local.files()) == 1


@pytest.mark.parametrize("value", [np.int64(2), np.float64(2), 2.0], ids=repr)
def test_numbers_of_other_kinds_are_fine(engine: str, local: Lake, value: Any) -> None:
    one_row_files(local, 4)
    local.compact(engine, target_rows_per_file=value)
    assert len(local.files()) == 2


@pytest.mark.parametrize(
    "value", ["lzo", "zip", "", "snappy ", 1, True, ["zstd"], b"zstd"], ids=repr
)
def test_unknown_codec(engine: str, local: Lake, value: Any) -> None:
    one_row_files(local, 2)
    match = "Unknown compression .* Known codecs: brotli, gzip, lz4, none, snappy, zstd"
    assert_refused(local, engine, ValueError, match, compression=value)


@pytest.mark.parametrize("value", ["", "pandas", "PyArrow", None, 1, ["pyarrow"]], ids=repr)
def test_unknown_engine(local: Lake, value: Any) -> None:
    one_row_files(local, 2)
    assert_refused(local, value, ValueError, "Unknown engine .* Known engines: .*pyarrow")


def test_unknown_option_is_refused_by_name(engine: str, local: Lake) -> None:
    one_row_files(local, 2)
    assert_refused(local, engine, TypeError, "target_size", target_size=128)


def test_file_system_of_another_kind(engine: str, local: Lake) -> None:
    one_row_files(local, 2)
    match = "filesystem must be an fsspec or pyarrow file system, got str"
    assert_refused(local, engine, ValueError, match, filesystem="local")


def test_file_system_and_storage_options_together(engine: str, tmp_path: Path) -> None:
    options: Any = {"filesystem": fsspec.filesystem("file"), "storage_options": {"a": 1}}
    with pytest.raises(ValueError, match="filesystem or storage_options, not both"):
        compact(tmp_path, engine=engine, **options)
    assert list(tmp_path.iterdir()) == []


# --- filters ---------------------------------------------------------------------------------

BAD_FILTERS: list[tuple[Any, str]] = [
    ({}, "must name at least one partition"),
    ("", "must name at least one partition"),
    (" ", "must name at least one partition"),
    ("/", "must name at least one partition"),
    (["day=1", ""], "must name at least one partition"),
    ("..", "must stay below the dataset root"),
    ("../other", "must stay below the dataset root"),
    ("day=1/../day=2", "must stay below the dataset root"),
    (["day=1", "a/.."], "must stay below the dataset root"),
    (1, "must be text"),
    (b"day=1", "must be text"),
    ([1], "must be text"),
    ([None], "must be text"),
    ({1: "a"}, "keys must be non-empty text"),
    ({"": "a"}, "keys must be non-empty text"),
    ({"day": 1j}, "'day'"),
    ({"day": {"a": 1}}, "'day'"),
    ({"date": 1}, "Unknown partition key 'date'.*Known keys: day"),
    ({"day": 1, "hour": 2}, "Unknown partition key 'hour'"),
]


@pytest.mark.parametrize(("chosen", "match"), BAD_FILTERS, ids=[str(f) for f, _ in BAD_FILTERS])
def test_filter_that_means_nothing(engine: str, local: Lake, chosen: Any, match: str) -> None:
    one_row_files(local, 2, "day=1")
    assert_refused(local, engine, ValueError, match, partition_filter=chosen)


MISSES: list[Any] = [
    "day=3",
    "day",
    "da",
    "day=",
    "hour=1",
    "part-00000.parquet",
    "day=1/day=2",
    [],
    ["day=3", "day=4"],
    {"day": []},
    {"day": 3},
    {"day": None},
    {"day": [3, "x"]},
]


@pytest.mark.parametrize("chosen", MISSES, ids=str)
def test_filter_that_matches_nothing(engine: str, local: Lake, chosen: Any) -> None:
    for day in (1, 2):
        one_row_files(local, 2, f"day={day}")
    match = "No parquet files found under '.*lake' matching filter .+"
    caught = assert_refused(local, engine, FileNotFoundError, match, partition_filter=chosen)
    assert str(chosen) in str(caught.value)


def test_filter_that_matches_nothing_on_every_store(engine: str, lake: Lake) -> None:
    one_row_files(lake, 2, "day=10")
    match = "No parquet files found under .* matching filter day=1"
    assert_refused(lake, engine, FileNotFoundError, match, partition_filter="day=1")


# --- paths -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", None, 1, b"lake", True, ["lake"]], ids=repr)
def test_path_that_is_none(engine: str, path: Any) -> None:
    with pytest.raises(ValueError, match="path must be"):
        compact(path, engine=engine)


def test_missing_path(engine: str, lake: Lake) -> None:
    one_row_files(lake, 2, "there")
    missing = lake.below("not there")
    before = lake.tree()
    with pytest.raises(FileNotFoundError) as caught:
        missing.compact(engine)
    assert str(caught.value) == f"Dataset path '{missing.url}' does not exist"
    assert lake.tree() == before


def test_missing_path_is_not_made(engine: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        compact(tmp_path / "a" / "b", engine=engine)
    assert list(tmp_path.iterdir()) == []


def test_path_of_a_file(engine: str, lake: Lake) -> None:
    one_row_files(lake, 2)
    file = lake.below("part-00000.parquet")
    before = lake.tree()
    with pytest.raises(UnsupportedDatasetError) as caught:
        file.compact(engine)
    assert str(caught.value).startswith(f"Dataset path '{file.url}' is a file.")
    assert lake.tree() == before


def test_directory_without_files(engine: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        compact(tmp_path, engine=engine)
    assert str(caught.value) == f"No parquet files found under '{tmp_path}'"
    assert list(tmp_path.iterdir()) == []


def test_directory_without_parquet_files(engine: str, lake: Lake) -> None:
    for name in (
        "notes.txt",
        "a.csv",
        "_hidden.parquet",
        ".b.parquet",
        "_tmp/c.parquet",
        "parquet",
    ):
        lake.put(name, b"x")
    assert_refused(lake, engine, FileNotFoundError, "No parquet files found under")


def test_unknown_protocol(engine: str) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        compact("nowhere://bucket/lake", engine=engine)


@pytest.mark.parametrize("path", ["memory://lake/../other", "memory://lake/x/../../y"])
def test_remote_path_that_climbs(engine: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"must not contain '\.\.'"):
        compact(path, engine=engine)


# --- broken files ----------------------------------------------------------------------------

GOOD = parquet_bytes({"id": list(range(100)), "t": ["x" * 50] * 100})
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"P",
    "only a magic": b"PAR1",
    "two magics": b"PAR1PAR1",
    "text": b"this is not parquet, it is text of some length",
    "cut at the end": GOOD[:-1],
    "cut in half": GOOD[: len(GOOD) // 2],
    "cut at the start": GOOD[100:],
    "footer length too big": GOOD[:-8] + b"\xff\xff\xff\x7fPAR1",
    "footer length zero": GOOD[:-8] + b"\x00\x00\x00\x00PAR1",
    "footer of garbage": GOOD[:-108] + b"\xa5" * 100 + GOOD[-8:],
    "encrypted footer": GOOD[:-4] + b"PARE",
    "csv": b"a,b\n1,2\n" * 20,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_file_is_named(engine: str, local: Lake, kind: str) -> None:
    one_row_files(local, 2, "day=1")
    local.put("day=2/bad.parquet", BROKEN[kind])
    bad = local.path("day=2/bad.parquet")
    caught = assert_refused(local, engine, UnreadableFileError, "1 file.* cannot be read")
    assert bad in str(caught.value)
    assert isinstance(caught.value, UnreadableFileError)
    assert [path for path, _ in caught.value.problems] == [bad]
    assert all(reason for _, reason in caught.value.problems)


def test_all_broken_files_are_named_at_once(engine: str, lake: Lake) -> None:
    one_row_files(lake, 2)
    names = [f"day={n}/bad.parquet" for n in range(3)]
    for name, kind in zip(names, ("empty", "cut in half", "text"), strict=True):
        lake.put(name, BROKEN[kind])
    caught = assert_refused(lake, engine, UnreadableFileError, "3 file.* cannot be read")
    assert isinstance(caught.value, UnreadableFileError)
    assert [path for path, _ in caught.value.problems] == [lake.path(name) for name in names]
    assert all(lake.path(name) in str(caught.value) for name in names)


def test_broken_file_outside_the_filter_does_not_matter(engine: str, local: Lake) -> None:
    one_row_files(local, 2, "day=1")
    local.put("day=2/bad.parquet", b"")
    local.compact(engine, partition_filter="day=1")
    assert len(local.files("day=1")) == 1
    assert local.get("day=2/bad.parquet") == b""


def test_broken_file_of_a_hidden_name_does_not_matter(engine: str, local: Lake) -> None:
    one_row_files(local, 2)
    local.put("_bad.parquet", b"")
    local.compact(engine)
    assert local.get("_bad.parquet") == b""
    assert local.column("id") == [0, 1]


def test_broken_page_fails_its_group_only(engine: str, lake: Lake) -> None:
    data = bytearray(parquet_bytes({"id": list(range(1000))}, write_page_checksum=True))
    data[len(data) // 4] ^= 0xFF
    lake.put("day=2/a.parquet", bytes(data))
    one_row_files(lake, 2, "day=2")
    one_row_files(lake, 3, "day=1")
    before = {n: h for n, h in lake.tree().items() if n.startswith("day=2/")}
    with pytest.raises(IncompleteMaintenanceError) as caught:
        lake.compact(engine)
    after = lake.tree()
    assert {n: h for n, h in after.items() if n.startswith("day=2/")} == before
    assert lake.column("id", "day=1") == [0, 1, 2]
    assert len(after) == 4
    (failure,) = caught.value.result.failures
    assert lake.path("day=2/a.parquet") in failure.paths


def test_broken_page_is_named(engine: str, local: Lake) -> None:
    data = bytearray(parquet_bytes({"id": list(range(1000))}, write_page_checksum=True))
    data[len(data) // 4] ^= 0xFF
    local.put("b.parquet", bytes(data))
    one_row_files(local, 2)
    with pytest.raises(IncompleteMaintenanceError) as caught:
        local.compact(engine)
    assert local.path("b.parquet") in caught.value.result.failures[0].reason


# --- what is not a plain directory -----------------------------------------------------------

FORMATS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Spark stream": "_spark_metadata/0",
    "Iceberg": "metadata/v1.metadata.json",
    "Iceberg ": "metadata/version-hint.text",
}


@pytest.mark.parametrize("format_", FORMATS)
def test_table_of_another_format_is_refused(engine: str, lake: Lake, format_: str) -> None:
    one_row_files(lake, 2, "data")
    lake.put(FORMATS[format_], b"{}")
    caught = assert_refused(lake, engine, UnsupportedDatasetError, format_.strip())
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, MaintenanceError)


@pytest.mark.parametrize("format_", FORMATS)
def test_table_of_another_format_below_the_root_is_refused(
    engine: str, local: Lake, format_: str
) -> None:
    one_row_files(local, 2)
    one_row_files(local, 2, "tables/t")
    local.put(f"tables/t/{FORMATS[format_]}", b"{}")
    assert_refused(local, engine, UnsupportedDatasetError, format_.strip())


@pytest.mark.parametrize("format_", FORMATS)
def test_part_of_a_table_of_another_format_is_refused(
    engine: str, local: Lake, format_: str
) -> None:
    one_row_files(local, 2, "data/day=1")
    local.put(FORMATS[format_], b"{}")
    before = everything(local)
    with pytest.raises(UnsupportedDatasetError, match=format_.strip()):
        local.below("data/day=1").compact(engine)
    assert everything(local) == before


def test_filter_does_not_hide_another_format(engine: str, local: Lake) -> None:
    one_row_files(local, 2, "day=1")
    local.put(FORMATS["Delta"], b"{}")
    assert_refused(local, engine, UnsupportedDatasetError, "Delta", partition_filter="day=1")


def link_file(root: Path, outside: Path) -> Path:
    (root / "link.parquet").symlink_to(outside / "part-00000.parquet")
    return root / "link.parquet"


def link_directory(root: Path, outside: Path) -> Path:
    (root / "day=2").symlink_to(outside)
    return root / "day=2"


def link_to_itself(root: Path, outside: Path) -> Path:
    (root / "day=2").symlink_to(root)
    return root / "day=2"


def link_to_nothing(root: Path, outside: Path) -> Path:
    (root / "link.parquet").symlink_to(outside / "gone")
    return root / "link.parquet"


@pytest.mark.parametrize("make", [link_file, link_directory, link_to_itself, link_to_nothing])
def test_link_inside_a_dataset_is_refused(
    engine: str, local: Lake, tmp_path: Path, make: Callable[[Path, Path], Path]
) -> None:
    outside = Lake(str(tmp_path / "outside"))
    one_row_files(local, 2, "day=1")
    one_row_files(outside, 2)
    link = make(Path(local.url), Path(outside.url))
    before = [sorted(os.listdir(at)) for at in (local.url, f"{local.url}/day=1", outside.url)]
    with pytest.raises(UnsupportedDatasetError, match="symbolic link") as caught:
        local.compact(engine)
    assert str(link) in str(caught.value)
    assert link.is_symlink()
    after = [sorted(os.listdir(at)) for at in (local.url, f"{local.url}/day=1", outside.url)]
    assert after == before


def test_dataset_behind_a_link_is_maintained(engine: str, local: Lake, tmp_path: Path) -> None:
    one_row_files(local, 3)
    (tmp_path / "link").symlink_to(local.url)
    compact(tmp_path / "link", engine=engine)
    assert (tmp_path / "link").is_symlink()
    assert local.column("id") == [0, 1, 2]
    assert len(local.files()) == 1


def test_nothing_is_left_after_a_group_fails(engine: str, lake: Lake) -> None:
    lake.write("a.parquet", {"c": [1]})
    lake.write("b.parquet", {"c": pa.array(["t"])})
    before = everything(lake)
    with pytest.raises(IncompleteMaintenanceError):
        lake.compact(engine)
    assert everything(lake) == before


def test_path_with_an_empty_segment_is_refused(engine: str) -> None:
    lake = Lake("memory://twice/a/b")
    one_row_files(lake, 2)
    with pytest.raises(ValueError, match="must not contain '//'"):
        Lake("memory://twice/a//b").compact(engine)
    assert len(lake.files()) == 2


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://user:hunter2@host/missing", FileNotFoundError),
        ("memory://user:hun/ter2@host/missing", FileNotFoundError),
        ("memory://user:hunter2@host/a//b", ValueError),
        ("memory://user:hunter2@host/a/../b", ValueError),
        ("simplecache::memory://user:hunter2@host/a", UnsupportedDatasetError),
    ],
)
def test_password_in_the_path_is_not_shown(engine: str, url: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        Lake(url).compact(engine)
    assert "ter2" not in str(caught.value)
