"""The hash of rows: equal for equal content, whatever its form, and different for any other."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.planning.content_hash import Digest, row_hashes, value_hashes
from maintenance_tests.conformance.test_types import COLUMNS


def digest(table: pa.Table, size: int = 10**6) -> Digest:
    batches = table.combine_chunks().to_batches(size)
    return Digest.sum(Digest.of(row_hashes(batch)) for batch in batches)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_has_a_hash_that_slices_do_not_change(name: str) -> None:
    array = COLUMNS[name]
    hashes = value_hashes(array)
    assert len(hashes) == len(array)
    for start in range(len(array)):
        assert value_hashes(array.slice(start)).tolist() == hashes[start:].tolist()
        assert value_hashes(array.slice(start, 1)).tolist() == hashes[start : start + 1].tolist()


# Floats differ in their bits, moments are too far away for Python.
APART = ("float", "date", "time", "dur", "bool8")
COMPARABLE = [name for name in COLUMNS if not any(word in name for word in APART)]


@pytest.mark.parametrize("name", COMPARABLE)
def test_equal_values_and_no_others_have_equal_hashes(name: str) -> None:
    array = COLUMNS[name]
    values = {repr(value) for value in array.to_pylist()}
    assert len(set(value_hashes(array).tolist())) == len(values)


def test_order_form_and_cut_do_not_matter() -> None:
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "a": random.integers(0, 50, 5000),
            "b": pa.array([None if n % 7 == 0 else f"text {n % 90}" for n in range(5000)]),
            "c": pa.array([[n % 3] * (n % 4) for n in range(5000)]),
        }
    )
    expected = digest(table)
    assert digest(table.select(["c", "a", "b"])) == expected
    assert digest(table.take(random.permutation(5000))) == expected
    assert digest(table, 333) == expected
    coded = table.set_column(1, "b", table["b"].dictionary_encode())
    assert digest(coded) == expected
    large = table.set_column(1, "b", table["b"].cast(pa.large_string()))
    assert digest(large) == expected


@pytest.mark.parametrize(
    "other",
    [
        {"a": [1, 2, 3], "b": ["x", "y", "x"]},
        {"a": [1, 2, 2], "b": ["x", "y", None]},
        {"a": [1, 1, 2], "b": ["x", "y", "z"]},
        {"a": [2, 1, 2], "b": ["x", "y", "z"]},
        {"b": [1, 2, 2], "a": ["x", "y", "z"]},
        {"a": [1, 2, 2, 2], "b": ["x", "y", "z", "z"]},
        {"a": [1, 2], "b": ["x", "y"]},
    ],
)
def test_any_other_content_has_another_hash(other: dict[str, Any]) -> None:
    assert digest(pa.table({"a": [1, 2, 2], "b": ["x", "y", "z"]})) != digest(pa.table(other))


def test_values_that_change_places_between_rows_are_noticed() -> None:
    left = pa.table({"a": [1.0, 2.0, 4.0], "b": [1.0, 2.0, 4.0]})
    right = pa.table({"a": [1.0, 2.0, 4.0], "b": [2.0, 1.0, 4.0]})
    assert digest(left) != digest(right)


def test_floats_are_compared_by_their_bits() -> None:
    zero, minus = value_hashes(pa.array([0.0, -0.0])).tolist()
    assert zero != minus
    quiet = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    first, second = value_hashes(pa.array(quiet)).tolist()
    assert first != second


def test_nothing_differs_from_null() -> None:
    for array in (
        pa.array(["", None]),
        pa.array([0, None]),
        pa.array([[], None], pa.list_(pa.int8())),
    ):
        assert len(set(value_hashes(array).tolist())) == 2


def test_single_bits_of_wide_rows_are_noticed() -> None:
    random = np.random.default_rng(1)
    base = random.integers(0, 2**63, (8, 64), np.int64)
    expected = digest(pa.table({f"c{n}": column for n, column in enumerate(base)}))
    for _ in range(200):
        changed = base.copy()
        changed[random.integers(0, 8), random.integers(0, 64)] ^= 1 << int(random.integers(0, 63))
        assert digest(pa.table({f"c{n}": c for n, c in enumerate(changed)})) != expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=40), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_bytes_are_hashed_one_by_one(values: list[bytes | None], start: int) -> None:
    array = pa.array(values, pa.binary())
    alone = [int(value_hashes(pa.array([value], pa.binary()))[0]) for value in values]
    assert value_hashes(array.slice(start)).tolist() == alone[start:]
    assert len(set(alone)) == len(set(values))


def test_long_values_are_hashed_whole() -> None:
    values = [b"x" * 256, b"x" * 257, b"x" * 100_000, b"x" * 99_999 + b"y", b"y" + b"x" * 256]
    assert len(set(value_hashes(pa.array(values)).tolist())) == 5
