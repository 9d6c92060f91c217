"""Footer ranges hold every value of their column, or there is none: pruning relies on them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from maintenance_assets import optimize
from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.orderable import leaf_of, orderable
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import open_store
from maintenance_tests.datasets import Lake

FAR = 2**62
NAN = float("nan")


def moments(values: list[int], type_: Any) -> Any:
    integers = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array(values, integers).view(type_)


EDGES: dict[str, Any] = {
    "nanoseconds of a day": moments([1, 86_399_999_999_999], pa.time64("ns")),
    "milliseconds of a day": moments([1, 86_399_999], pa.time32("ms")),
    "far dates": moments([-(10**7), 10**7], pa.date32()),
    "far microseconds": moments([-FAR, FAR], pa.timestamp("us")),
    "far milliseconds": moments([-FAR, FAR], pa.timestamp("ms", "UTC")),
    "all nanoseconds": moments([-(2**63), 2**63 - 1], pa.timestamp("ns", "Europe/Berlin")),
    "durations": moments([-FAR, FAR], pa.duration("ns")),
    "halves": pa.array(np.array([-2, 3], np.float16)),
    "unsigned": pa.array([1, 2**64 - 1], pa.uint64()),
    "bytes": pa.array([b"a", b"\xff\xfe"]),
}


def ranges_of(lake: Lake, *columns: str) -> dict[str, ColumnRange]:
    (file,) = discover(open_store(lake.url, None, None), None, None, columns).files
    return {found.column: found for found in file.ranges}


@pytest.mark.parametrize("name", EDGES)
def test_range_reaches_to_the_last_unit(local: Lake, name: str) -> None:
    local.write("a.parquet", pa.table({"k": EDGES[name]}))
    found = ranges_of(local, "k")["k"]
    bounds = orderable(pa.array([found.low, found.high], found.low.type))
    assert bounds.equals(orderable(EDGES[name]))


def test_text_that_is_not_utf8_has_no_range(local: Lake) -> None:
    odd = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xfe", b"\xff"]).buffers())
    local.write("a.parquet", pa.table({"k": odd}))
    assert ranges_of(local, "k")["k"] == ColumnRange("k", None, None)


@pytest.mark.parametrize(
    ("values", "numbers"), [([1.0, 2.0, NAN, NAN, NAN, None], (1.0, 2.0)), ([NAN, NAN], ())]
)
def test_row_groups_of_nan_alone_have_no_range(local: Lake, values: Any, numbers: Any) -> None:
    """Readers have to open them, so nothing is said of the file but of its other numbers."""
    local.write("a.parquet", {"k": values}, row_group_size=2)
    found = ranges_of(local, "k")["k"]
    assert (found.low, found.high, found.all_null) == (None, None, False)
    assert tuple(number.as_py() for number in found.numbers or ()) == numbers


def test_nan_is_no_bound(local: Lake) -> None:
    local.write("a.parquet", {"k": [float("nan"), 1.0, 2.0]})
    found = ranges_of(local, "k")["k"]
    assert (found.low.as_py(), found.high.as_py()) == (1.0, 2.0)


def test_lists_before_a_column_do_not_move_its_range(local: Lake) -> None:
    rows = [{"l": [{"x": 7, "y": 8}], "m": [("a", 5)], "s": {"x": 1}, "k": 2}]
    schema = pa.schema(
        [
            ("l", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())]))),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("s", pa.struct([("x", pa.int64())])),
            ("k", pa.int64()),
        ]
    )
    local.write("a.parquet", pa.Table.from_pylist(rows, schema))
    found = ranges_of(local, "s.x", "k", "l.x")
    assert {name: each.low.as_py() for name, each in found.items()} == {"s.x": 1, "k": 2}


def two_named_alike() -> dict[str, Any]:
    numbers = pa.array(range(10))
    return {
        "a dot and a struct": (
            pa.table([pa.array([{"b": -n} for n in range(10)]), numbers], names=["a", "a.b"]),
            "a.b",
        ),
        "two columns": (pa.table([numbers, pc.negate(numbers)], names=["x", "x"]), "x"),
        "a dot and a list": (
            pa.table([pa.array([[-n] for n in range(10)]), numbers], names=["l", "l.list.element"]),
            "l.list.element",
        ),
    }


@pytest.mark.parametrize("name", two_named_alike())
def test_a_range_is_never_that_of_a_namesake(local: Lake, name: str) -> None:
    table, column = two_named_alike()[name]
    local.write("a.parquet", table)
    for found in ranges_of(local, column).values():
        assert (found.low.as_py(), found.high.as_py()) == (0, 9)


def test_name_that_two_columns_have_is_no_leaf() -> None:
    table, column = two_named_alike()["a dot and a struct"]
    assert leaf_of(table.schema, column) is None
    assert leaf_of(table.schema, "a") is None


def test_order_is_not_declared_for_a_namesake(local: Lake) -> None:
    table, column = two_named_alike()["a dot and a struct"]
    local.write("a.parquet", table)
    optimize(local.url, [column])
    group = local.open(local.only_file()).metadata.row_group(0)
    assert not group.sorting_columns
    assert local.column("a.b") == list(range(10))


def test_int96_has_no_order_to_declare(local: Lake) -> None:
    table = pa.table({"n": [2, 1], "t": moments([1, 2], pa.timestamp("ns"))})
    local.write("a.parquet", table, use_deprecated_int96_timestamps=True)
    optimize(local.url, ["n", "t"])
    (declared,) = local.open(local.only_file()).metadata.row_group(0).sorting_columns
    assert declared.column_index == 0
