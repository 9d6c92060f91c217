"""Partitions stay apart, filters take whole segments, and what is not data stays."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from maintenance_assets import compact, optimize
from maintenance_tests.datasets import Lake, one_row_files

DAYS = ("day=1", "day=10", "day=11", "day=2")


def days(lake: Lake) -> dict[str, str]:
    """Three files in each of several days; returns the hashes."""
    for number, day in enumerate(DAYS):
        one_row_files(lake, 3, day, start=10 * number)
    return lake.tree()


def untouched_days(lake: Lake, before: dict[str, str]) -> set[str]:
    """Days whose files are byte for byte what they were."""
    after = lake.tree()
    return {
        day
        for day in DAYS
        if {n: h for n, h in before.items() if n.startswith(f"{day}/")}
        == {n: h for n, h in after.items() if n.startswith(f"{day}/")}
    }


def test_hive_partitions_stay_apart(engine: str, lake: Lake) -> None:
    days(lake)
    stats = lake.compact(engine).stats
    assert {day: len(lake.files(day)) for day in DAYS} == dict.fromkeys(DAYS, 1)
    assert lake.column("id", "day=10") == [10, 11, 12]
    assert lake.column("id", "day=2") == [30, 31, 32]
    assert (stats.before_file_count, stats.after_file_count) == (12, 4)


FILTERS: list[tuple[Any, set[str]]] = [
    ("day=1", {"day=1"}),
    ("day=1/", {"day=1"}),
    (["day=1", "day=2"], {"day=1", "day=2"}),
    (("day=2",), {"day=2"}),
    (["day=1", "day=1"], {"day=1"}),
    ({"day": 1}, {"day=1"}),
    ({"day": "10"}, {"day=10"}),
    ({"day": [1, "2"]}, {"day=1", "day=2"}),
]


@pytest.mark.parametrize(("chosen", "taken"), FILTERS, ids=[str(f) for f, _ in FILTERS])
def test_filter_takes_whole_segments_only(
    engine: str, local: Lake, chosen: Any, taken: set[str]
) -> None:
    before = days(local)
    stats = local.compact(engine, partition_filter=chosen).stats
    assert untouched_days(local, before) == set(DAYS) - taken
    assert (stats.before_file_count, stats.after_file_count) == (3 * len(taken), len(taken))
    assert sorted(local.column("id", "day=1")) == [0, 1, 2]


def test_day_1_does_not_take_day_10_on_every_store(engine: str, lake: Lake) -> None:
    before = days(lake)
    lake.compact(engine, partition_filter="day=1")
    assert untouched_days(lake, before) == {"day=10", "day=11", "day=2"}
    assert len(lake.files("day=1")) == 1


NESTED: list[tuple[Any, list[str]]] = [
    ("a=1/b=2", ["a=1/b=2"]),
    ("b=2", ["a=1/b=2", "a=2/b=2"]),
    ("a=1", ["a=1/b=1", "a=1/b=2"]),
    ({"a": 1, "b": 2}, ["a=1/b=2"]),
    ({"b": 2}, ["a=1/b=2", "a=2/b=2"]),
    (["a=1/b=1", "a=2"], ["a=1/b=1", "a=2/b=2"]),
]


@pytest.mark.parametrize(("chosen", "taken"), NESTED, ids=[str(f) for f, _ in NESTED])
def test_filter_over_two_levels(engine: str, local: Lake, chosen: Any, taken: list[str]) -> None:
    for directory in ("a=1/b=1", "a=1/b=2", "a=2/b=2"):
        one_row_files(local, 2, directory)
    local.compact(engine, partition_filter=chosen)
    merged = [d for d in ("a=1/b=1", "a=1/b=2", "a=2/b=2") if len(local.files(d)) == 1]
    assert merged == taken


def test_filter_by_plain_directory(engine: str, lake: Lake) -> None:
    for directory in ("raw/2024", "raw/20245", "other/raw/2024"):
        one_row_files(lake, 2, directory)
    lake.compact(engine, partition_filter="raw/2024")
    assert len(lake.files("raw/2024")) == 1
    assert len(lake.files("raw/20245")) == 2
    assert len(lake.files("other/raw/2024")) == 2


@pytest.mark.parametrize(
    "directory",
    [
        "p=__HIVE_DEFAULT_PARTITION__",
        "p=a%2Fb",
        "p=it's",
        "p=with space",
        "p=münchen",
        "p=",
        "p=a=b",
    ],
)
def test_partition_spelling_is_kept(engine: str, lake: Lake, directory: str) -> None:
    one_row_files(lake, 2, directory)
    lake.compact(engine, partition_filter=directory)
    assert lake.only_file().startswith(f"{directory}/compact-")
    assert lake.column("id") == [0, 1]


def test_partition_column_stays_in_the_path_only(engine: str, local: Lake) -> None:
    one_row_files(local, 2, "id2=7")
    local.compact(engine)
    assert local.open(local.only_file()).schema_arrow.names == ["id", "name"]


def test_partition_column_in_path_and_file_stays_in_both(engine: str, local: Lake) -> None:
    for part in range(2):
        local.write(f"day=01/part-{part}.parquet", {"id": [part], "day": ["01"]})
    local.compact(engine)
    assert local.open(local.only_file()).read().to_pydict() == {"id": [0, 1], "day": ["01", "01"]}


OTHERS = {
    "_SUCCESS": b"",
    "_common_metadata": b"summary",
    ".hidden.parquet": b"garbage",
    "_temporary/0/part-0.parquet": b"garbage",
    ".staging/part-0.parquet": b"garbage",
    "day=1/_started.parquet": b"garbage",
    "day=1/.part-9.parquet.swp": b"x",
    "day=1/notes.txt": b"hello",
    "day=1/data.csv": b"a,b",
    "day=1/part.parquet.tmp": b"half",
    "readme.md": b"# data",
}


def test_files_that_leave_a_key_to_the_path_stay_apart_from_those_that_hold_it(
    engine: str, local: Lake
) -> None:
    for number in range(2):
        local.write(f"day=1/path-{number}.parquet", {"id": [number]})
        local.write(f"day=1/both-{number}.parquet", {"id": [10 + number], "day": ["1"]})
    stats = local.compact(engine).stats
    assert (stats.before_file_count, stats.after_file_count) == (4, 2)
    tables = [local.open(name).read().to_pydict() for name in local.files("day=1")]
    assert sorted(tables, key=lambda table: table["id"][0]) == [
        {"id": [0, 1]},
        {"id": [10, 11], "day": ["1", "1"]},
    ]


def test_clustering_keeps_them_apart_as_well_and_only_once(engine: str, local: Lake) -> None:
    for number in range(2):
        local.write(f"day=1/path-{number}.parquet", {"id": [3 - number, number]})
        local.write(f"day=1/both-{number}.parquet", {"id": [13 - number], "day": ["1"]})
    result = optimize(local.url, ["id"], engine=engine)
    assert [(each.files, each.outputs, each.held) for each in result.decisions] == [
        (2, 1, ()),
        (2, 1, ("day",)),
    ]
    tables = [local.open(name).read().to_pydict() for name in local.files("day=1")]
    assert sorted(tables, key=lambda table: table["id"][0]) == [
        {"id": [0, 1, 2, 3]},
        {"id": [12, 13], "day": ["1", "1"]},
    ]
    before = local.tree()
    assert optimize(local.url, ["id"], engine=engine).stats.compacted_file_count == 0
    local.write("day=1/new.parquet", {"id": [20], "day": ["1"]})
    assert optimize(local.url, ["id"], engine=engine).stats.compacted_file_count == 2
    kept = set(before.items()) & set(local.tree().items())
    assert [local.open(name).read().to_pydict() for name, _ in kept] == [{"id": [0, 1, 2, 3]}]


def test_what_is_not_data_stays_untouched(engine: str, lake: Lake) -> None:
    one_row_files(lake, 3, "day=1")
    for name, content in OTHERS.items():
        lake.put(name, content)
    lake.compact(engine)
    assert lake.column("id") == [0, 1, 2]
    assert {name: lake.get(name) for name in OTHERS} == OTHERS
    assert len(lake.tree()) == 1 + len(OTHERS)


def test_stale_summary_file_is_removed(engine: str, lake: Lake) -> None:
    one_row_files(lake, 3, "day=1")
    lake.put("_metadata", b"a summary of files that go away")
    lake.compact(engine)
    assert list(lake.tree()) == lake.files()


def test_summary_file_stays_when_nothing_changes(engine: str, lake: Lake) -> None:
    one_row_files(lake, 1)
    lake.put("_metadata", b"a summary")
    lake.compact(engine)
    assert lake.get("_metadata") == b"a summary"


def test_crc_sidecars_go_with_their_files(engine: str, local: Lake) -> None:
    one_row_files(local, 2, "day=1")
    one_row_files(local, 1, "day=2")
    for name in ("day=1/.part-00000.parquet.crc", "day=1/.part-00001.parquet.crc"):
        local.put(name, b"crc")
    local.put("day=2/.part-00000.parquet.crc", b"crc")
    local.compact(engine)
    crcs = [name for name in local.tree() if name.endswith(".crc")]
    assert crcs == ["day=2/.part-00000.parquet.crc"]


NAMES = [
    "with space",
    "it's",
    'a"b',
    "ünï-日本",
    "100%",
    "a%20b",
    "a#b",
    "a?b",
    "a[b]",
    "a*b",
    "{a}",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_directory_name_works(engine: str, lake: Lake, name: str) -> None:
    odd = lake.below(name)
    lake.put("sibling/part-0.parquet", b"not ours")
    one_row_files(odd, 3)
    odd.compact(engine)
    assert sorted(lake.tree()) == sorted([f"{name}/{odd.only_file()}", "sibling/part-0.parquet"])
    assert odd.column("id") == [0, 1, 2]


SPELLINGS: dict[str, Callable[[str], Any]] = {
    "pathlib": Path,
    "str": str,
    "file url": lambda path: f"file://{path}",
    "trailing slash": lambda path: f"{path}/",
    "double slash": lambda path: str(path).replace("/lake", "//lake"),
    "dot": lambda path: str(path).replace("/lake", "/./lake"),
    "dot dot": lambda path: str(path).replace("/lake", "/x/../lake"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_local_path_works(
    engine: str, local: Lake, tmp_path: Path, spelling: str
) -> None:
    (tmp_path / "x").mkdir()
    one_row_files(local, 3, "day=1")
    result = compact(SPELLINGS[spelling](local.url), engine=engine, partition_filter="day=1")
    assert result.stats.after_file_count == 1
    assert local.column("id") == [0, 1, 2]


@pytest.mark.parametrize("spelling", ["lake", "./lake", "lake/", "./lake//", "../here/lake"])
def test_relative_path_with_a_filter_works(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    lake = Lake(str(here / "lake"))
    one_row_files(lake, 3, "day=1")
    compact(spelling, engine=engine, partition_filter="day=1")
    assert lake.column("id") == [0, 1, 2]
    assert os.listdir(here) == ["lake"]


@pytest.mark.parametrize("suffix", ["/", "//"])
def test_trailing_slashes_of_an_url_work(engine: str, lake: Lake, suffix: str) -> None:
    one_row_files(lake, 3, "day=1")
    Lake(lake.url + suffix, lake.storage_options).compact(engine, partition_filter="day=1")
    assert lake.only_file().startswith("day=1/compact-")
    assert lake.column("id") == [0, 1, 2]


def test_given_filesystem_object_is_used(engine: str, local: Lake) -> None:
    one_row_files(local, 3)
    compact(local.url, engine=engine, filesystem=pa.fs.LocalFileSystem())
    assert local.column("id") == [0, 1, 2]


def test_pandas_range_index_counts_all_rows(engine: str, local: Lake, tmp_path: Path) -> None:
    os.makedirs(local.url)
    pd.DataFrame({"a": [1, 2, 3]}).to_parquet(f"{local.url}/a.parquet")
    pd.DataFrame({"a": [4, 5]}).to_parquet(f"{local.url}/b.parquet")
    local.compact(engine)
    frame = pd.read_parquet(local.path(local.only_file()))
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    assert frame["a"].tolist() == [1, 2, 3, 4, 5]


def test_pandas_named_index_is_kept(engine: str, local: Lake) -> None:
    os.makedirs(local.url)
    for name, keys in (("a", ["x", "y"]), ("b", ["z"])):
        index = pd.Index(keys, name="key")
        pd.DataFrame({"v": range(len(keys))}, index).to_parquet(f"{local.url}/{name}.parquet")
    local.compact(engine)
    frame = pd.read_parquet(local.path(local.only_file()))
    assert (frame.index.name, frame.index.tolist()) == ("key", ["x", "y", "z"])
    assert frame.columns.tolist() == ["v"]


def test_pandas_range_index_of_a_split_file_is_noted(engine: str, local: Lake) -> None:
    os.makedirs(local.url)
    pd.DataFrame({"a": range(8)}, pd.RangeIndex(1000, 1008)).to_parquet(f"{local.url}/a.parquet")
    result = local.compact(engine, target_rows_per_file=4)
    assert any("numbers its rows from 0" in note for note in result.notes)
    assert [pd.read_parquet(local.path(n))["a"].tolist() for n in local.files()] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
