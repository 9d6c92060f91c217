"""Footers that were read are known for as long as their files stay the same, and no longer."""

import os
import time
from pathlib import Path

import pytest

from maintenance_assets.errors import UnreadableFileError
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.footer_cache import SETTLED_SECONDS, FooterCache
from maintenance_tests.datasets import Lake, parquet_bytes


def store_of(lake: Lake) -> Store:
    return open_store(lake.url, storage_options=dict(lake.storage_options) or None)


def later() -> float:
    return time.time() + SETTLED_SECONDS + 60


def rows(cache: FooterCache, lake: Lake, now: float, place: str = "lake") -> dict[str, int]:
    """Rows of each file, as the cache finds them."""
    snapshot = cache.discover(place, store_of(lake), now)
    return {file.path.rpartition("/")[2]: file.num_rows for file in snapshot.files}


def spoil(path: Path) -> None:
    """Other bytes, of which a listing shows nothing."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.write(b"x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def two_files(lake: Lake) -> Path:
    """Files of one and of two rows; the path of the first."""
    lake.write("a.parquet", {"n": [1]})
    lake.write("b.parquet", {"n": [1, 2]})
    return Path(lake.path("a.parquet"))


def test_the_footer_of_an_unchanged_file_is_not_read_again(local: Lake) -> None:
    first = two_files(local)
    cache = FooterCache()
    assert rows(cache, local, later()) == {"a.parquet": 1, "b.parquet": 2}
    spoil(first)
    assert rows(cache, local, later()) == {"a.parquet": 1, "b.parquet": 2}


def test_a_file_that_is_young_is_read_again(local: Lake) -> None:
    first = two_files(local)
    cache = FooterCache()
    assert rows(cache, local, time.time()) == {"a.parquet": 1, "b.parquet": 2}
    spoil(first)
    with pytest.raises(UnreadableFileError, match=r"a\.parquet"):
        rows(cache, local, time.time())


def test_changed_new_and_deleted_files_are_seen(lake: Lake) -> None:
    two = parquet_bytes({"n": [1, 2]})
    lake.put("a.parquet", parquet_bytes({"n": [1]}))
    lake.put("b.parquet", two)
    lake.put("c.parquet", two)
    cache = FooterCache()
    assert rows(cache, lake, later()) == {"a.parquet": 1, "b.parquet": 2, "c.parquet": 2}
    lake.put("a.parquet", parquet_bytes({"n": [1, 2, 3]}))
    fs, root = lake._place
    fs.rm_file(f"{root}/b.parquet")
    lake.put("d.parquet", parquet_bytes({"n": [1, 2, 3, 4]}))
    assert rows(cache, lake, later()) == {"a.parquet": 3, "c.parquet": 2, "d.parquet": 4}


def test_a_file_of_the_same_size_in_its_place_is_read(local: Lake) -> None:
    first = two_files(local)
    one, other = parquet_bytes({"n": [7]}), parquet_bytes({"m": [7]})
    assert len(one) == len(other) == first.stat().st_size
    cache = FooterCache()
    rows(cache, local, later())
    status = first.stat()
    replacement = first.with_suffix(".new")
    replacement.write_bytes(other)
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.rename(first)
    files = cache.discover("lake", store_of(local), later()).files
    assert [file.schema.leaf_paths for file in files] == [("m",), ("n",)]


def test_datasets_of_the_same_paths_are_not_mixed_up(local: Lake) -> None:
    first = two_files(local)
    cache = FooterCache()
    rows(cache, local, later(), "here")
    spoil(first)
    with pytest.raises(UnreadableFileError):
        rows(cache, local, later(), "there")


def test_what_was_not_looked_at_for_longest_is_forgotten(local: Lake) -> None:
    # Two files of a row group each are four parts: three datasets of them are one too many.
    cache = FooterCache(most_parts=8)
    firsts = {name: two_files(local.below(name)) for name in ("x", "y", "z")}
    for name in ("x", "y", "x", "z"):
        rows(cache, local.below(name), later(), name)
    for name in ("x", "z"):
        spoil(firsts[name])
        assert rows(cache, local.below(name), later(), name) == {"a.parquet": 1, "b.parquet": 2}
    spoil(firsts["y"])
    with pytest.raises(UnreadableFileError):
        rows(cache, local.below("y"), later(), "y")


def test_a_dataset_that_is_too_large_drives_no_other_out(local: Lake) -> None:
    large, small = local.below("large"), local.below("small")
    two_files(large)
    small.write("a.parquet", {"n": [1]})
    cache = FooterCache(most_parts=3)
    rows(cache, small, later(), "small")
    for _ in range(2):
        assert rows(cache, large, later(), "large") == {"a.parquet": 1, "b.parquet": 2}
    spoil(Path(small.path("a.parquet")))
    assert rows(cache, small, later(), "small") == {"a.parquet": 1}


def test_the_planner_sees_what_came_since_it_last_looked(local: Lake) -> None:
    two_files(local)
    old = time.time() - SETTLED_SECONDS - 60
    for path in Path(local.path("")).glob("*.parquet"):
        os.utime(path, (old, old))
    planner, dataset = MaintenancePlanner(), DatasetConfig(key="trades", path=local.url)
    assert [len(group.files) for group in planner.plan(dataset).groups] == [2]
    local.write("c.parquet", {"n": [1, 2, 3]})
    (group,) = planner.plan(dataset).groups
    assert [file.num_rows for file in group.files] == [1, 2, 3]
