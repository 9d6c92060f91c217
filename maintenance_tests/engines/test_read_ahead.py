"""Remote stores are asked as seldom as possible: small files whole, footers by their tail."""

from collections.abc import Iterator
from threading import Barrier
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets import compact
from maintenance_tests.datasets import Lake, one_row_files


class CountingFileSystem(MemoryFileSystem):
    """A memory file system that remembers what is read of whole objects and of parts."""

    protocol = "counting"
    cachable = False
    reads: list[tuple[str, Any, Any]]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.reads = []
        self.opened: list[str] = []

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        """Remembered."""
        self.reads.append((path, start, end))
        return bytes(super().cat_file(path, start=start, end=end, **options))

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Remembered, where it is for reading."""
        if mode == "rb":
            self.opened.append(path)
        return super().open(path, mode, **options)


@pytest.fixture
def counting() -> Iterator[CountingFileSystem]:
    fs = CountingFileSystem()
    yield fs
    if fs.exists("/counted"):
        fs.rm("/counted", recursive=True)


def test_a_small_file_is_read_whole_by_one_request(counting: CountingFileSystem) -> None:
    lake = Lake("memory://counted")
    one_row_files(lake, 40)
    names = [lake.path(name) for name in lake.files()]
    result = compact("/counted", filesystem=counting)
    assert (result.mode, result.stats.after_file_count) == ("encode", 1)
    assert lake.column("id") == list(range(40))
    whole = [path for path, start, _ in counting.reads if start is None and path in names]
    assert sorted(whole) == names
    assert not set(counting.opened) & set(names)


def test_a_copied_file_is_read_by_its_tail_and_in_blocks(counting: CountingFileSystem) -> None:
    lake = Lake("memory://counted")
    rows = 1_500_000
    for part in range(2):
        ids = [n * 7919 % 2**31 for n in range(part * rows, part * rows + rows)]
        lake.write(f"{part}.parquet", {"id": ids}, use_dictionary=False, row_group_size=rows)
    names = [lake.path(name) for name in lake.files()]
    sizes = {lake.path(name): len(lake.get(name)) for name in lake.files()}
    before = lake.column("id")
    assert compact("/counted", filesystem=counting).mode == "stitch"
    assert lake.column("id") == before
    for name in names:
        parts = [(start, end) for path, start, end in counting.reads if path == name]
        # Twice the tail (discovery, stitching), and blocks of 8 MiB that do not overlap.
        blocks = sorted(part for part in parts if part[1] <= sizes[name] - 8)
        tails = [part for part in parts if part[1] == sizes[name]]
        assert len(tails) == 2
        assert len(blocks) == len(set(blocks)) <= -(-sizes[name] // (8 * 1024 * 1024)) + 1


def test_blocks_that_are_copied_are_smaller_where_memory_is_short(
    counting: CountingFileSystem,
) -> None:
    lake = Lake("memory://counted")
    rows = 1_000_000
    for part in range(6):
        ids = [n * 7919 % 2**31 for n in range(part * rows, part * rows + rows)]
        lake.write(f"{part}.parquet", {"id": ids}, use_dictionary=False, row_group_size=rows)
    assert compact("/counted", filesystem=counting, memory_budget_mb=64).mode == "stitch"
    longest = max(end - start for _, start, end in counting.reads if start is not None)
    # Five files are open at a time, with three blocks of each.
    assert 15 * longest <= 32 * 1024 * 1024


class FarFileSystem(CountingFileSystem):
    """Deletes two objects at a time, or none; but the first one alone."""

    protocol = "far"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.deleted: list[str] = []
        self.together = Barrier(2, timeout=10)

    def rm_file(self, path: str) -> None:
        """Wait for another one."""
        if path.rpartition("/")[2].startswith("part-"):
            self.deleted.append(path)
            if len(self.deleted) > 1:
                self.together.wait()
        super().rm_file(path)


def test_inputs_of_a_store_that_is_far_away_are_deleted_together() -> None:
    lake, fs = Lake("memory://far"), FarFileSystem()
    try:
        one_row_files(lake, 5)
        assert compact("/far", filesystem=fs).stats.after_file_count == 1
        assert lake.column("id") == list(range(5))
        assert len(fs.deleted) == 5
    finally:
        fs.rm("/far", recursive=True)


def test_a_footer_that_did_not_change_is_read_once(counting: CountingFileSystem) -> None:
    lake = Lake("memory://counted")
    one_row_files(lake, 3, "day=1")
    one_row_files(lake, 1, "day=2")
    (left,) = (lake.path(name) for name in lake.files("day=2"))
    assert compact("/counted", filesystem=counting).stats.after_file_count == 2
    assert len([path for path, _, _ in counting.reads if path == left]) == 1
