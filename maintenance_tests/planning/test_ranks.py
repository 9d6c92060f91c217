"""Ids by mass: ordered as the values are, evenly used, the same for equal values."""

import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintenance_assets.planning.orderable import find_path, is_orderable, orderable
from maintenance_assets.planning.ranks import ids_of, ranks_of_sample

FLOATS = st.floats() | st.none()


def ids(values: Any, sample: Any = None, bits: int = 6) -> list[int]:
    plain = orderable(values)
    ranks = ranks_of_sample("x", plain if sample is None else orderable(sample), bits)
    return list(ids_of(ranks, plain).tolist())


def place(value: float | None) -> tuple[int, float]:
    """The order that is promised: numbers, NaN, null; -0.0 equals 0.0."""
    if value is None:
        return 2, 0.0
    return (1, 0.0) if math.isnan(value) else (0, value)


@given(st.lists(FLOATS, min_size=1, max_size=60), st.lists(FLOATS, min_size=1, max_size=60))
def test_ids_are_in_the_order_of_values(
    values: list[float | None], sample: list[float | None]
) -> None:
    found = ids(pa.array(values, pa.float64()), pa.array(sample, pa.float64()))
    ordered = sorted(range(len(values)), key=lambda i: place(values[i]))
    assert all(found[a] <= found[b] for a, b in pairwise(ordered))
    assert all(0 <= one < 64 for one in found)


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=40), st.integers(0, 39))
def test_equal_values_have_equal_ids_sampled_or_not(values: list[bytes], cut: int) -> None:
    array = pa.array(values, pa.binary())
    found = dict(zip(values, ids(array, array.slice(0, max(1, cut))), strict=True))
    again = dict(
        zip(
            values[::-1],
            ids(array.take(pa.array(range(len(values) - 1, -1, -1))), array.slice(0, max(1, cut))),
            strict=True,
        )
    )
    assert found == again


def test_twelve_values_use_the_whole_range() -> None:
    found = sorted(set(ids(pa.array([f"C{n % 12:02}" for n in range(1200)]))))
    assert found == [2, 8, 13, 18, 24, 29, 34, 40, 45, 50, 56, 61]


def test_skewed_values_use_the_range_by_their_mass() -> None:
    """Half of the rows have one value: it takes the middle of its half, the rest the other."""
    found = ids(pa.array([0] * 500 + list(range(1, 501))))
    assert found[0] == 16
    assert found[500] == 32
    assert found[-1] == 63


def test_values_of_any_scale_are_told_apart() -> None:
    found = ids(pa.array([10.0**n for n in range(-30, 34)]))
    assert found == list(range(64))


def test_long_strings_with_a_shared_prefix_are_told_apart() -> None:
    assert ids(pa.array(["s3://bucket/very/long/prefix/" + f"{n:04}" for n in range(64)])) == list(
        range(64)
    )


@pytest.mark.parametrize("build", [pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256])
def test_decimals_are_compared_by_their_value(build: Any) -> None:
    values = [Decimal("-12.50"), Decimal("-0.01"), None, Decimal("0.00"), Decimal("99.99")]
    found = ids(pa.array(values, build(6, 2)))
    assert found[0] < found[1] < found[3] < found[4] < found[2]
    assert ids(pa.array([None, *values], build(6, 2)).slice(1)) == found


def test_unsigned_values_above_the_signed_range_are_large() -> None:
    found = ids(pa.array([2**63 + 1, 1, 2**63 - 1], pa.uint64()))
    assert np.argsort(found).tolist() == [1, 2, 0]


@pytest.mark.parametrize("values", [pa.nulls(4), pa.nulls(4, pa.string()), pa.array([7, 7, 7, 7])])
def test_without_differences_all_ids_are_the_same(values: Any) -> None:
    assert ids(values) == [32, 32, 32, 32]


def test_a_name_with_dots_goes_before_a_nested_field() -> None:
    nested = pa.field("a", pa.struct([("b", pa.int64())]))
    assert find_path(pa.schema([nested]), "a.b") == ("a", "b")
    assert find_path(pa.schema([nested, pa.field("a.b", pa.int8())]), "a.b") == ("a.b",)
    assert find_path(pa.schema([nested]), "a.c") is None


def test_lists_structs_and_maps_have_no_order() -> None:
    assert not is_orderable(pa.list_(pa.int64()))
    assert not is_orderable(pa.struct([("b", pa.int64())]))
    assert not is_orderable(pa.map_(pa.string(), pa.int64()))
    assert is_orderable(pa.dictionary(pa.int8(), pa.string()))
