"""What a change opens: footers to rule files out, and rows of those alone that can match."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from maintenance_assets import delete, update, upsert
from maintenance_tests.datasets import Lake

DAYS = 10
ROWS = 20_000
FOOTER = 64 * 1024
"""What is read of a file to see its footer; once more when its rows are looked at."""


class CountingFileSystem(AbstractFileSystem):
    """Local files behind a face that is not local, and that counts the bytes it hands out."""

    protocol = "counting"
    root_marker = "/"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._local = LocalFileSystem(auto_mkdir=True)
        self.read: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        return self._local.ls(path, detail=detail)

    def info(self, path: str, **_: Any) -> Any:
        return self._local.info(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        self._local.cp_file(path1, path2)

    def rm_file(self, path: str) -> None:
        self._local.rm_file(path)

    def rmdir(self, path: str) -> None:
        self._local.rmdir(path)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        self.opened[path] += 1
        content = bytes(self._local.cat_file(path, start=start, end=end))
        self.read[path] += len(content)
        return content

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        handle = self._local.open(path, mode, **options)
        return _CountingFile(self, path, handle) if mode == "rb" else handle


class _CountingFile:
    """A file whose reads are counted."""

    def __init__(self, fs: CountingFileSystem, path: str, handle: Any) -> None:
        self._fs = fs
        self._path = path
        self._handle = handle
        fs.opened[path] += 1

    def read(self, *arguments: Any) -> bytes:
        content = bytes(self._handle.read(*arguments))
        self._fs.read[self._path] += len(content)
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def __enter__(self) -> "_CountingFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()


@pytest.fixture
def counting() -> CountingFileSystem:
    return CountingFileSystem()


@pytest.fixture
def days(local: Lake) -> Lake:
    """A file for each day, each with a wide column that does not compress and four row groups."""
    random = np.random.default_rng(7)
    for day in range(DAYS):
        ids = range(day * ROWS, (day + 1) * ROWS)
        table = {
            "id": pa.array(ids),
            "text": [random.bytes(32).hex() for _ in ids],
            "day": pa.array([f"{day:02}"] * ROWS),
        }
        options = {"row_group_size": ROWS // 4, "use_dictionary": ["day"], "data_page_size": 8192}
        local.write(f"day={day:02}/1.parquet", table, **options)
    return local


def in_days(counter: Counter[str]) -> set[str]:
    """The days of which something was counted, apart from staged files."""
    found = {part for path in counter for part in path.split("/") if part.startswith("day=")}
    return {day for day in found if counter.total()}


def test_with_a_filter_no_file_of_another_partition_is_opened(
    days: Lake, counting: CountingFileSystem
) -> None:
    result = delete(days.url, "id % 100 = 0", partition_filter={"day": "07"}, filesystem=counting)
    assert result.stats.rows_deleted == ROWS // 100
    assert in_days(counting.opened) == {"day=07"}


def test_without_a_filter_footers_rule_out_the_other_partitions(
    days: Lake, counting: CountingFileSystem
) -> None:
    result = delete(days.url, "day = '07' AND id % 100 = 0", filesystem=counting)
    assert (result.stats.rows_deleted, result.stats.files_read) == (ROWS // 100, 1)
    for day in range(DAYS):
        read = counting.read[days.path(f"day={day:02}/1.parquet")]
        assert (read > FOOTER) is (day == 7), (day, read)


def test_a_scan_reads_only_the_columns_that_decide(
    days: Lake, counting: CountingFileSystem
) -> None:
    size = Path(days.path("day=07/1.parquet")).stat().st_size
    delete(days.url, "id % 100 = 0 AND day = '07'", filesystem=counting, dry_run=True)
    read = counting.read[days.path("day=07/1.parquet")] - 2 * FOOTER
    assert 0 < read < size / 4


def test_row_groups_are_ruled_out_as_well(days: Lake, counting: CountingFileSystem) -> None:
    path = days.path("day=07/1.parquet")
    where = f"text < '1' AND id < {7 * ROWS + 10}"
    delete(days.url, where, filesystem=counting, dry_run=True)
    some = counting.read[path]
    delete(days.url, "text < '1' AND day = '07'", filesystem=counting, dry_run=True)
    every = counting.read[path] - some
    assert some - 2 * FOOTER < (every - 2 * FOOTER) / 3


def test_an_update_of_one_file_reads_no_other(days: Lake, counting: CountingFileSystem) -> None:
    result = update(days.url, f"id = {3 * ROWS}", {"text": "x"}, filesystem=counting)
    assert (result.stats.rows_updated, result.files_pruned) == (1, DAYS - 1)
    assert {path for path, read in counting.read.items() if read > 2 * FOOTER} == {
        days.path("day=03/1.parquet")
    }


def test_an_upsert_looks_where_its_keys_can_be(days: Lake, counting: CountingFileSystem) -> None:
    new = {"id": [2 * ROWS + 1, 5 * ROWS + 1, 99 * ROWS], "day": ["02", "05", "05"]}
    result = upsert(days.url, {**new, "text": ["a", "b", "c"]}, ["id", "day"], filesystem=counting)
    assert (result.stats.rows_updated, result.stats.rows_inserted) == (2, 1)
    read = {path for path, read in counting.read.items() if read > 2 * FOOTER}
    assert read == {days.path(f"day={day}/1.parquet") for day in ("02", "05")}


def test_the_path_alone_rules_partitions_out(local: Lake, counting: CountingFileSystem) -> None:
    for day in range(4):
        local.write(f"day={day}/1.parquet", {"id": list(range(ROWS))})
    result = delete(local.url, "day = '2' AND id < 5", filesystem=counting)
    assert (result.stats.rows_deleted, result.files_pruned) == (5, 3)
    assert {p for p, read in counting.read.items() if read > FOOTER} == {
        local.path("day=2/1.parquet")
    }
