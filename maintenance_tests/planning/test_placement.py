"""Which directory a row belongs into, and how values are spelled."""

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.planning.partitions import parse_partition, parse_partition_filter
from maintenance_assets.planning.placement import partition_directories, partition_texts

NULL = "__HIVE_DEFAULT_PARTITION__"


def placed(columns: dict[str, Any]) -> list[str]:
    codes, directories = partition_directories(pa.record_batch(columns), list(columns))
    return [directories[code] for code in codes]


SPELLINGS: list[tuple[Any, list[str | None]]] = [
    (pa.array(["x", "", None, NULL]), ["x", "", None, NULL]),
    (pa.array([True, False, None]), ["true", "false", None]),
    (pa.array([-1, 0, 255], pa.int16()), ["-1", "0", "255"]),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (
        pa.array([1.0, -0.0, 0.1, 1e16, float("inf"), float("-inf"), float("nan")]),
        ["1.0", "-0.0", "0.1", "1e+16", "Infinity", "-Infinity", "NaN"],
    ),
    (pa.array([0.1, None], pa.float32()), ["0.1", None]),
    (pa.array(np.array([0.5], np.float16)), ["0.5"]),
    (
        pa.array([Decimal("1.50"), Decimal("-1E-9")], pa.decimal128(20, 9)),
        ["1.500000000", "-0.000000001"],
    ),
    (pa.array([Decimal("12")], pa.decimal256(5, 0)), ["12"]),
    (pa.array([dt.date(2025, 11, 4), dt.date(1, 1, 1), None]), ["2025-11-04", "0001-01-01", None]),
    (pa.array([dt.date(2025, 11, 4)], pa.date64()), ["2025-11-04"]),
    (
        pa.array([0, -1, None], pa.timestamp("s")),
        ["1970-01-01 00:00:00", "1969-12-31 23:59:59", None],
    ),
    (pa.array([1], pa.timestamp("ms")), ["1970-01-01 00:00:00.001"]),
    (
        pa.array([1, 1000], pa.timestamp("ns")),
        ["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000001"],
    ),
    (pa.array([0], pa.timestamp("us", "Europe/Berlin")), ["1970-01-01 00:00:00+00:00"]),
    (pa.array([86399], pa.time32("s")), ["23:59:59"]),
    (pa.array([1500], pa.time64("us")), ["00:00:00.001500"]),
    (pa.array([b"ab", None]), ["ab", None]),
    (pa.nulls(2), [None, None]),
    (
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([uuid.UUID(int=7).bytes], pa.binary(16))
        ),
        ["00000000-0000-0000-0000-000000000007"],
    ),
    (pa.array(["x", None], pa.string_view()), ["x", None]),
]


@pytest.mark.parametrize(("array", "texts"), SPELLINGS, ids=lambda v: str(getattr(v, "type", "")))
def test_values_have_one_spelling(array: Any, texts: list[str | None]) -> None:
    assert partition_texts(array) == texts
    directories = placed({"k": array})
    assert [parse_partition(d)[0].value for d in directories] == texts


def test_dictionaries_count_as_their_values() -> None:
    coded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 2, 3]), pa.array(["a", "b", "a", None])
    )
    assert placed({"k": coded}) == ["k=a", "k=b", f"k={NULL}", "k=a", f"k={NULL}"]


def test_only_combinations_that_occur_have_a_directory() -> None:
    batch = pa.record_batch({"a": [1, 1, 2], "b": ["x", "y", "y"]})
    codes, directories = partition_directories(batch, ["b", "a"])
    assert sorted(directories) == ["b=x/a=1", "b=y/a=1", "b=y/a=2"]
    assert [directories[code] for code in codes] == ["b=x/a=1", "b=y/a=1", "b=y/a=2"]


def test_no_columns_mean_the_root() -> None:
    codes, directories = partition_directories(pa.record_batch({"a": [1, 2]}), [])
    assert (codes.tolist(), directories) == ([0, 0], ("",))


def test_no_rows_need_no_directory() -> None:
    codes, directories = partition_directories(pa.record_batch({"a": pa.array([], "int64")}), ["a"])
    assert (codes.tolist(), directories) == ([], ())


def test_very_many_combinations_are_told_apart() -> None:
    rows = 3000
    columns = {name: list(range(rows)) for name in "abcd"}
    assert placed(columns) == [f"a={n}/b={n}/c={n}/d={n}" for n in range(rows)]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([1], pa.duration("s")),
        pa.array([b"\xff"]),
        pa.array([4_000_000], pa.date32()),
        pa.array([2**62], pa.timestamp("s")),
    ],
    ids=lambda array: str(array.type),
)
def test_values_without_a_text_are_refused_by_name(array: Any) -> None:
    with pytest.raises(ValueError, match="'k' cannot be a partition column"):
        partition_directories(pa.record_batch({"k": array}), ["k"])


@given(st.lists(st.one_of(st.none(), st.text()), max_size=30), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_text_comes_back_from_its_directory(values: list[str | None], coded: bool) -> None:
    array: Any = pa.array(values, pa.string())
    directories = placed({"k": array.dictionary_encode() if coded else array})
    assert [parse_partition(d)[0].value for d in directories] == values
    assert all(d.count("/") == 0 for d in directories)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (pa.array([5, 6]), 5),
        (pa.array([1.5, 2.0]), 1.5),
        (pa.array([True, False]), True),
        (pa.array([dt.date(2025, 1, 2), dt.date(2025, 1, 3)]), dt.date(2025, 1, 2)),
        (pa.array([dt.datetime(2025, 1, 2, 3), None]), dt.datetime(2025, 1, 2, 3)),
        (
            pa.array([dt.datetime(2025, 1, 2, 3, 4, 5, 600000), None]),
            dt.datetime(2025, 1, 2, 3, 4, 5, 600000),
        ),
        (
            pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC")),
            dt.datetime.fromtimestamp(1_700_000_000, dt.UTC),
        ),
        (pa.array([None, 1]), None),
    ],
    ids=str,
)
def test_a_filter_finds_what_was_placed(array: Any, wanted: Any) -> None:
    first, second = placed({"k": array})
    chosen = parse_partition_filter({"k": wanted})
    assert chosen is not None
    assert (chosen.matches(first), chosen.matches(second)) == (True, False)
