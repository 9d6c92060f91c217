"""Partition paths and partition filters."""

import time
from datetime import date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maintenance_assets.planning.partitions import (
    HIVE_NULL,
    PartitionFilter,
    PartitionValue,
    check_filter_keys,
    format_partition,
    known_partition_keys,
    parse_partition,
    parse_partition_filter,
)

# What every engine must read from our spelling, and the spelling itself, both by hand.
SPELLED = [
    ("2025-11-04", "2025-11-04"),
    ("01", "01"),
    ("north america", "north america"),
    ("a/b", "a%2Fb"),
    ("a\\b", "a%5Cb"),
    ("..", ".%2E"),
    (".", "%2E"),
    (".hidden", ".hidden"),
    ("_private", "_private"),
    ("Acme Inc.", "Acme Inc%2E"),
    ("padded ", "padded%20"),
    (" padded", " padded"),
    ("100%", "100%25"),
    ("%41", "%2541"),
    ("a=b", "a%3Db"),
    ("a+b", "a+b"),
    ("12:30", "12%3A30"),
    ("line\nbreak", "line%0Abreak"),
    ("tab\t\x7f", "tab%09%7F"),
    ("\x00", "%00"),
    ("é 日本 🦆", "é 日本 🦆"),
    ("'\"", "%27%22"),
    ("*?[]{}^#", "%2A%3F%5B%5D%7B}%5E%23"),
    ("<|>&;,~!@$()", "<|>&;,~!@$()"),
    ("", ""),
]

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
AWKWARD = st.sampled_from([HIVE_NULL, "%5F", "%2", "%zz", "%E9", *(value for value, _ in SPELLED)])
VALUE = st.none() | AWKWARD | TEXT
KEY = (AWKWARD | TEXT).filter(bool)


def parsed(value: object) -> PartitionFilter:
    """Return the filter, which must not be None."""
    result = parse_partition_filter(value)
    assert result is not None
    return result


@given(st.lists(st.tuples(KEY, VALUE), max_size=4))
@example([("k", "")])
@example([("k", HIVE_NULL), ("k2", None)])
@example([(".", "."), ("..", "..")])
def test_format_round_trips_any_values(values: list[tuple[str, str | None]]) -> None:
    directory = format_partition(values)
    assert [(part.key, part.value) for part in parse_partition(directory)] == values


@given(KEY, VALUE)
def test_format_stays_one_visible_segment(key: str, value: str | None) -> None:
    segment = format_partition([(key, value)])
    assert "/" not in segment
    assert "\\" not in segment
    assert "\x00" not in segment
    assert not segment.startswith(".")
    assert not segment.endswith((".", " "))


@given(KEY, VALUE, VALUE)
def test_format_keeps_different_values_apart(key: str, left: str | None, right: str | None) -> None:
    same_path = format_partition([(key, left)]) == format_partition([(key, right)])
    assert same_path == (left == right)


@given(KEY, VALUE)
def test_filter_finds_the_directory_it_was_formatted_from(key: str, value: str | None) -> None:
    directory = format_partition([("outer", "1"), (key, value), ("inner", "2")])
    assert parsed(format_partition([(key, value)])).matches(directory)
    assert parsed({key: value}).matches(directory)


@given(TEXT)
def test_parse_accepts_any_directory(directory: str) -> None:
    assert all(part.raw in directory for part in parse_partition(directory))


@pytest.mark.parametrize(("value", "spelled"), SPELLED)
def test_format_spells_value(value: str, spelled: str) -> None:
    assert format_partition([("k", value)]) == f"k={spelled}"


@pytest.mark.parametrize(("value", "spelled"), [*SPELLED, (None, HIVE_NULL)])
def test_pyarrow_reads_our_spelling_as_the_value(value: str | None, spelled: str) -> None:
    hive = ds.HivePartitioning(pa.schema([("k", pa.string())]), segment_encoding="uri")
    assert ds.get_partition_keys(hive.parse(f"/k={spelled}/x.parquet")) == {"k": value}


@pytest.mark.parametrize(
    ("value", "spelled"), [*SPELLED, (None, HIVE_NULL), (HIVE_NULL, "%5F" + HIVE_NULL[1:])]
)
def test_duckdb_reads_our_spelling_as_the_value(
    tmp_path: Path, value: str | None, spelled: str
) -> None:
    directory = tmp_path / f"k={spelled}"
    directory.mkdir()
    pq.write_table(pa.table({"v": [1]}), directory / "x.parquet")
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT k FROM read_parquet(?, hive_partitioning=true, hive_types_autocast=false)",
            [f"{tmp_path}/*/x.parquet"],
        ).fetchall()
    assert rows == [(value,)]


def test_format_null_and_its_text_differ() -> None:
    assert format_partition([("k", None)]) == "k=__HIVE_DEFAULT_PARTITION__"
    assert format_partition([("k", HIVE_NULL)]) == "k=%5F_HIVE_DEFAULT_PARTITION__"


def test_format_nothing_is_the_root() -> None:
    assert format_partition([]) == ""


def test_format_key_is_escaped() -> None:
    assert format_partition([("a:b", "1"), (".c", "2"), ("_d", "3")]) == "a%3Ab=1/%2Ec=2/_d=3"


def test_format_refuses_empty_key() -> None:
    with pytest.raises(ValueError, match="partition key must not be empty"):
        format_partition([("", "1")])


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("", ()),
        ("raw/2024", ()),
        ("=x", ()),
        (
            "date=2025-11-04/region=eu",
            (
                PartitionValue("date", "2025-11-04", "date=2025-11-04"),
                PartitionValue("region", "eu", "region=eu"),
            ),
        ),
        ("raw/m=01/x", (PartitionValue("m", "01", "m=01"),)),
        ("k=a%20b", (PartitionValue("k", "a b", "k=a%20b"),)),
        ("k=a%2fb", (PartitionValue("k", "a/b", "k=a%2fb"),)),
        ("k=%C3%A9", (PartitionValue("k", "é", "k=%C3%A9"),)),
        ("k=%E9", (PartitionValue("k", "%E9", "k=%E9"),)),
        ("k=100%", (PartitionValue("k", "100%", "k=100%"),)),
        ("k=a=b", (PartitionValue("k", "a=b", "k=a=b"),)),
        ("k=", (PartitionValue("k", "", "k="),)),
        (f"k={HIVE_NULL}", (PartitionValue("k", None, f"k={HIVE_NULL}"),)),
        ("a%3Ab=1", (PartitionValue("a:b", "1", "a%3Ab=1"),)),
    ],
)
def test_parse_reads_values(directory: str, expected: tuple[PartitionValue, ...]) -> None:
    assert parse_partition(directory) == expected


@pytest.mark.parametrize(
    ("text", "directory", "expected"),
    [
        ("day=1", "day=1", True),
        ("day=1", "day=10", False),
        ("day=1", "day=01", False),
        ("day=1", "xday=1", False),
        ("day=1", "year=2025/day=1/hour=3", True),
        ("day=1", "raw/day=1", True),
        ("day=1", "", False),
        ("a=1/b=2", "a=1/b=2", True),
        ("a=1/b=2", "x=0/a=1/b=2/c=3", True),
        ("a=1/b=2", "a=1/x=0/b=2", False),
        ("a=1/b=2", "b=2/a=1", False),
        ("a=1/b=2", "a=1", False),
        ("a=1/b=2", "a=1/b=20", False),
        ("raw/a=1", "x/raw/a=1", True),
        ("raw/a=1", "raw/b=2/a=1", False),
        ("/a=1//b=2/", "a=1/b=2", True),
        ("./a=1/./b=2", "a=1/b=2", True),
        ("k=a b", "k=a%20b", True),
        ("k=a%20b", "k=a b", True),
        ("k=a%2fb", "k=a%2Fb", True),
        ("k=a=b", "k=a%3Db", True),
        ("k=100%", "k=100%25", True),
        ("k=100%", "k=100%", True),
        ("k=%E9", "k=%E9", True),
        ("k=..", "k=..", True),
        ("k=", "k=", True),
        ("k=", "k=1", False),
        (f"k={HIVE_NULL}", f"k={HIVE_NULL}", True),
        (f"k={HIVE_NULL}", f"k=%5F{HIVE_NULL[1:]}", False),
        ("raw/2024", "raw/2024", True),
        ("raw/2024", "raw/2024/x", True),
        ("raw/2024", "raw/2024/day=1", True),
        ("raw/2024", "raw/20245", False),
        ("raw/2024", "x/raw/2024", False),
        ("raw/2024", "raw", False),
        ("raw", "", False),
        ("/raw//2024/", "raw/2024", True),
        ("./raw", "raw/2024", True),
        ("north america", "north%20america/x", True),
    ],
)
def test_text_filter_takes_whole_segments(text: str, directory: str, expected: bool) -> None:
    assert parsed(text).matches(directory) is expected


@pytest.mark.parametrize("container", [list, tuple, set, frozenset])
def test_list_filter_takes_any_entry(container: type) -> None:
    chosen = parsed(container(["day=1", "a=1/b=2", "raw", "day=1"]))
    directories = ["day=1", "day=10", "day=2", "a=1/b=2", "a=1", "raw/x", "x/raw"]
    assert [d for d in directories if chosen.matches(d)] == ["day=1", "a=1/b=2", "raw/x"]


def test_list_filter_empty_matches_nothing() -> None:
    chosen = parsed([])
    assert not chosen.matches("day=1")
    assert not chosen.matches("")


def test_list_filter_repeated_entry_changes_nothing() -> None:
    assert parsed(["a=1", "a=1"]).rule == parsed(["a=1"]).rule == parsed("./a=1/").rule


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("1", "1", True),
        ("1", "01", False),
        ("01", "1", False),
        ("a b", "a%20b", True),
        ("a%20b", "a%20b", False),
        ("a%20b", "a%2520b", True),
        ("", "", True),
        ("", HIVE_NULL, False),
        (HIVE_NULL, HIVE_NULL, False),
        (HIVE_NULL, "%5F" + HIVE_NULL[1:], True),
        (1, "1", True),
        (1, "01", True),
        (1, "0001", True),
        (1, "10", False),
        (1, "-1", False),
        (1, "1.0", False),
        (1, "true", False),
        (1, "1_", False),
        (1, " 1", False),
        (10, "1_0", False),
        (0, "000", True),
        (-1, "-01", True),
        (1, "", False),
        (1, HIVE_NULL, False),
        (10**30, "0" + "1" + "0" * 30, True),
        (True, "true", True),
        (True, "True", True),
        (True, "TRUE", True),
        (True, "1", False),
        (True, "false", False),
        (False, "False", True),
        (1.5, "1.5", True),
        (1.5, "1.50", True),
        (1.5, "15e-1", True),
        (1.0, "1", True),
        (1.0, "01", True),
        (10.0, "1_0", False),
        (1.5, "x", False),
        (float("inf"), "Infinity", True),
        (float("nan"), "NaN", True),
        (float("nan"), "1.0", False),
        (0.0, "NaN", False),
        (date(2025, 11, 4), "2025-11-04", True),
        (date(2025, 11, 4), "20251104", False),
        (date(2025, 11, 4), "2025-11-05", False),
        (datetime(2025, 11, 4), "2025-11-04", True),
        (datetime(2025, 11, 4), "2025-11-04T00%3A00%3A00", True),
        (datetime(2025, 11, 4), "2025-11-04 00%3A00%3A00", True),
        (datetime(2025, 11, 4, 12, 30), "2025-11-04", False),
        (datetime(2025, 11, 4, 12, 30), "2025-11-04T12:30:00", True),
        (datetime(2025, 11, 4, 12, 30), "2025-11-04%2012%3A30%3A00", True),
        (datetime(2025, 11, 4, 12, 30), "2025-11-04 12:30:00.000000", True),
        (datetime(2025, 11, 4, 12, 30), "2025-11-04 12:3", False),
        (datetime(2025, 11, 4, 12, 30, 0, 500000), "2025-11-04 12:30:00.5", True),
        (datetime(2025, 11, 4, 12, 30, 0, 500000), "2025-11-04T12:30:00.500", True),
        (None, HIVE_NULL, True),
        (None, "", False),
        (None, "None", False),
        (["1", 2], "1", True),
        (["1", 2], "02", True),
        (["1", 2], "01", False),
        ({None, "a"}, HIVE_NULL, True),
        ((True, 2.5), "2.50", True),
        ([], "1", False),
        ([1, 1], "1", True),
    ],
)
def test_dict_filter_compares_by_type(condition: object, value: str, expected: bool) -> None:
    assert parsed({"k": condition}).matches(f"a=0/k={value}/z=9") is expected


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("a=1/b=2", True),
        ("b=2/x=0/a=01", True),
        ("a=1", False),
        ("a=1/b=3", False),
        ("A=1/b=2", False),
        ("", False),
    ],
)
def test_dict_filter_needs_all_keys_at_any_level(directory: str, expected: bool) -> None:
    assert parsed({"a": 1, "b": "2"}).matches(directory) is expected


def test_filter_absent_is_none() -> None:
    assert parse_partition_filter(None) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("./day=1/", "./day=1/"),
        (["b=1", "a=1"], "['b=1', 'a=1']"),
        ({"b=1", "a=1"}, "['a=1', 'b=1']"),
        ({"day": 1, "region": "eu"}, "{'day': 1, 'region': 'eu'}"),
    ],
)
def test_filter_shows_what_the_user_wrote(value: object, shown: str) -> None:
    assert str(parsed(value)) == shown


FORM = (
    "partition_filter must be text such as 'date=2025-11-04', a list of such texts or a dict, got "
)
ENTRY = "partition_filter entries must be text such as 'date=2025-11-04', got "
VALUES = " must be text, a number, a bool, a date, None or a list of those, got "


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "partition_filter must name at least one partition, got ''"),
        ("  ", "partition_filter must name at least one partition, got '  '"),
        ("/./", "partition_filter must name at least one partition, got '/./'"),
        (["a=1", ""], "partition_filter must name at least one partition, got ''"),
        ({}, "partition_filter must name at least one partition"),
        ("../a=1", "partition_filter must stay below the dataset root, got '../a=1'"),
        ("raw/..", "partition_filter must stay below the dataset root, got 'raw/..'"),
        (True, FORM + "bool"),
        (1, FORM + "int"),
        (1.5, FORM + "float"),
        (b"a=1", FORM + "bytes"),
        (Path("a=1"), FORM + type(Path()).__name__),
        (iter(["a=1"]), FORM + "list_iterator"),
        ([1], ENTRY + "int"),
        ([None], ENTRY + "NoneType"),
        ({"a=1", 2}, ENTRY + "int"),
        ([{"a": 1}], ENTRY + "dict"),
        ({"": 1}, "partition_filter keys must be non-empty text, got ''"),
        ({1: 1}, "partition_filter keys must be non-empty text, got 1"),
        ({"a": b"1"}, "partition_filter value for 'a'" + VALUES + "bytes"),
        ({"a": {"b": 1}}, "partition_filter value for 'a'" + VALUES + "dict"),
        ({"a": [[1]]}, "partition_filter value for 'a'" + VALUES + "list"),
    ],
)
def test_filter_refuses_what_names_no_partition(value: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_partition_filter(value)
    assert str(error.value) == message


def test_known_keys_are_those_of_all_directories() -> None:
    assert known_partition_keys(["a=1/b=2", "raw/c%3A=3", "", "x"]) == {"a", "b", "c:"}


def test_unknown_key_in_dict_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError) as error:
        check_filter_keys(parsed({"a": 1, "x": 2}), ["b=2/a=1", "a=2"])
    message = "Unknown partition key 'x' in partition_filter. Known keys: a, b"
    assert str(error.value) == message


def test_unknown_key_without_partitions_says_so() -> None:
    with pytest.raises(ValueError, match=r"Known keys: \(none\)$"):
        check_filter_keys(parsed({"x": 2}), ["", "raw"])


@pytest.mark.parametrize("value", ["x=1", ["x=1"], [], {"a": 9}, {"a": 1, "b": 2}])
def test_known_keys_and_text_pass_the_check(value: object) -> None:
    check_filter_keys(parsed(value), ["a=1", "a=2/b=1"])


@pytest.mark.parametrize(
    "value",
    [
        "day=17",
        [f"month={month:02}/day={day}" for month in range(12) for day in range(1000)],
        {"day": [17, 18.0, date(2025, 1, 1)], "region": "a b"},
    ],
    ids=["text", "12000 texts", "dict"],
)
def test_matching_100_000_directories_takes_less_than_a_second(value: object) -> None:
    chosen = parsed(value)
    directories = [f"month={n % 12:02}/day={n // 12}/region=a%20b" for n in range(100_000)]
    start = time.process_time()
    taken = sum(map(chosen.matches, directories))
    assert time.process_time() - start < 1
    assert taken > 0
