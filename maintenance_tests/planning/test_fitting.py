"""New data fits the types of a dataset value by value, or not at all."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from maintenance_assets.planning.fitting import fit_array, plain_type

DAY = dt.date(2025, 1, 1)
MOMENT = dt.datetime(2025, 1, 1, 0, 0, 1)
FITTING: list[tuple[Any, Any]] = [
    (pa.array([1, None, 127]), pa.int8()),
    (pa.array([1], pa.uint64()), pa.int64()),
    (pa.array([3]), pa.float64()),
    (pa.array([1.0, None]), pa.int32()),
    (pa.array([1.5, math.nan, None, math.inf]), pa.float32()),
    (pa.array([1.5]), pa.float16()),
    (pa.array([1]), pa.decimal128(3, 2)),
    (pa.array([50000.1]), pa.decimal128(10, 2)),
    (pa.array([Decimal("1.50")]), pa.decimal128(5, 1)),
    (pa.array([Decimal("5")], pa.decimal256(40, 0)), pa.int64()),
    (pa.array(["x", None], pa.string_view()), pa.string()),
    (pa.array(["x", None]), pa.dictionary(pa.int8(), pa.string())),
    (pa.array(["x", "y"]).dictionary_encode(), pa.large_string()),
    (pa.array([b"abc"]), pa.binary(3)),
    (pa.array([DAY]), pa.date64()),
    (pa.array([MOMENT], pa.timestamp("ns")), pa.timestamp("s")),
    (pa.array([MOMENT], pa.timestamp("us", "UTC")), pa.timestamp("ms", "Europe/Berlin")),
    (pa.array([dt.time(1, 2, 3)]), pa.time32("s")),
    (pa.nulls(2), pa.list_(pa.int8())),
    (pa.array([{"a": 1, "b": None}]), pa.struct([("b", pa.string()), ("a", pa.int8())])),
    (pa.array([[1.0, math.nan], None]), pa.large_list(pa.float32())),
    (pa.array([["x"], None, []], pa.list_view(pa.string_view())), pa.list_(pa.string())),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.int8())),
]


@pytest.mark.parametrize(("array", "target"), FITTING, ids=lambda x: str(getattr(x, "type", x)))
def test_values_that_fit_are_the_same_afterwards(array: Any, target: Any) -> None:
    fitted = fit_array(array, target, "x")
    assert fitted.type == target
    assert repr(fitted.cast(target).to_pylist()).replace("Decimal('1.5')", "Decimal('1.50')") == (
        repr(expected(array, target))
    )


def expected(array: Any, target: Any) -> list[Any]:
    """The values as Python has them, in the kind of number of the target."""
    values = array.to_pylist()
    if pa.types.is_decimal(target):
        return [Decimal(str(value)).quantize(Decimal("0.01")) for value in values]
    if pa.types.is_integer(target):
        return [None if value is None else int(value) for value in values]
    if pa.types.is_floating(target):
        return [None if value is None else float(value) for value in values]
    if pa.types.is_timestamp(target):
        return pa.array(values, target).to_pylist()
    if pa.types.is_struct(target):
        return [{"b": value["b"], "a": value["a"]} for value in values]
    found: list[Any] = values
    return found


REFUSED: list[tuple[Any, Any, str]] = [
    (pa.array([128]), pa.int8(), "not all of its values fit the int8"),
    (pa.array([-1]), pa.uint8(), "fit the uint8"),
    (pa.array([2**63], pa.uint64()), pa.int64(), "fit the int64"),
    (pa.array([2**53 + 1]), pa.float64(), "fit the double"),
    (pa.array([0.1]), pa.float32(), "rounded or cut off"),
    (pa.array([1.5]), pa.int64(), "fit the int64"),
    (pa.array([math.nan]), pa.int64(), "fit the int64"),
    (pa.array([0.1]), pa.decimal128(38, 20), "rounded or cut off"),
    (pa.array([100]), pa.decimal128(3, 2), "fit the decimal128"),
    (pa.array([Decimal("1.55")]), pa.decimal128(5, 1), "fit the decimal128"),
    (pa.array(["1"]), pa.int64(), "has type string, the dataset has int64"),
    (pa.array([1]), pa.string(), "has type int64, the dataset has string"),
    (pa.array([True]), pa.int8(), "has type bool"),
    (pa.array([DAY]), pa.timestamp("s"), "has type date32"),
    (pa.array([MOMENT]), pa.timestamp("us", "UTC"), "has type timestamp"),
    (pa.array([MOMENT.replace(microsecond=5)]), pa.timestamp("ms"), "lose data"),
    (pa.array([b"abcd"]), pa.binary(3), "fit the fixed_size_binary"),
    (pa.array([{"a": 1}]), pa.struct([("a", pa.int8()), ("b", pa.int8())]), "has type struct"),
    (pa.array([[1, 2, 3]]), pa.list_(pa.int64(), 2), "fit the fixed_size_list"),
    (pa.array([[300]]), pa.list_(pa.int8()), "fit the list"),
    (pa.array([b"x" * 16], pa.uuid()), pa.string(), "has type extension"),
]


@pytest.mark.parametrize(
    ("array", "target", "why"), REFUSED, ids=[f"{a.type} to {t}" for a, t, _ in REFUSED]
)
def test_values_that_would_change_are_refused_by_name(array: Any, target: Any, why: str) -> None:
    with pytest.raises(ValueError, match="Column 'x' of the new data") as caught:
        fit_array(array, target, "x")
    assert why in str(caught.value)


def test_new_columns_are_stored_as_values_and_not_as_views() -> None:
    assert plain_type(pa.string_view()) == pa.string()
    nested = pa.list_view(pa.struct([("a", pa.binary_view())]))
    assert plain_type(nested) == pa.list_(pa.struct([("a", pa.binary())]))
    assert plain_type(pa.uuid()) == pa.uuid()
