"""Keys are found by value, and files are only ruled out where no key can be."""

import datetime as dt
import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning import key_index
from maintenance_assets.planning.key_index import NONE, KeyIndex, check_key_type

TYPES: dict[str, Any] = {
    "n": pa.int64(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
}
VALUES: dict[str, Any] = {
    "n": st.sampled_from([None, -(2**63), -1, 0, 1, 2**63 - 1]),
    "u": st.sampled_from([None, 0, 1, 2**63, 2**64 - 1]),
    "f": st.sampled_from([None, math.nan, -0.0, 0.0, 1.5, math.inf, -math.inf]),
    "s": st.sampled_from([None, "", "a", "b", "é"]),
    "b": st.sampled_from([None, True, False]),
}
tables = st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(
        *(st.lists(st.tuples(*(VALUES[n] for n in names)), max_size=8) for _ in range(2)),
        st.just(names),
    )
)


def columns(rows: list[tuple[Any, ...]], names: list[str]) -> dict[str, Any]:
    return {n: pa.array([row[i] for row in rows], TYPES[n]) for i, n in enumerate(names)}


def by_value(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else v + 0.0 if isinstance(v, float) else v
        for v in row
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tables)
def test_rows_meet_those_with_equal_keys(drawn: Any) -> None:
    source, target, names = drawn
    first = {by_value(row): n for n, row in reversed(list(enumerate(source)))}
    index = KeyIndex(pa.table(columns(source, names)))
    found = index.find(pa.record_batch(columns(target, names)))
    assert found.tolist() == [first.get(by_value(row), NONE) for row in target]
    last = {by_value(row): n for n, row in enumerate(source)}
    assert index.last_of_each().tolist() == sorted(last.values())
    twins = index.duplicates()
    assert (twins is None) is (len(last) == len(source))
    if twins is not None:
        assert by_value(source[twins[0]]) == by_value(source[twins[1]])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tables)
def test_no_key_of_a_file_is_ruled_out(drawn: Any) -> None:
    source, target, names = drawn
    index = KeyIndex(pa.table(columns(source, names)))
    ranges = {name: footer(name, [row[i] for row in target]) for i, name in enumerate(names)}
    candidates = index.candidates(ranges, {})
    inside = {by_value(row) for row in target}
    met = {n for n, row in enumerate(source) if by_value(row) in inside}
    if target:
        assert candidates is None or met <= {*candidates.tolist()}


def footer(name: str, values: list[Any]) -> ColumnRange:
    """What a footer says: nothing of NaN, and of zeros not their sign."""
    known = [v for v in values if v is not None and v == v]
    if not known:
        all_null = all(v is None for v in values)
        return ColumnRange(name, None, None, all_null=all_null)
    bounds = pa.array([min(known), max(known)], TYPES[name])
    return ColumnRange(name, bounds[0], bounds[1])


def test_ranges_rule_out_what_is_outside() -> None:
    index = KeyIndex(pa.table({"n": [1, 5, 9, None], "s": ["a", "m", "z", "q"]}))

    def rows(**ranges: tuple[Any, Any]) -> list[int] | None:
        found = index.candidates(
            {
                n: ColumnRange(n, pa.scalar(low), pa.scalar(high))
                for n, (low, high) in ranges.items()
            },
            {},
        )
        return None if found is None else [int(n) for n in found]

    assert rows() is None
    assert rows(n=(2, 8)) == [1, 3]
    assert rows(n=(1, 9), s=("b", "r")) == [1, 3]
    assert rows(n=(20, 30), s=("a", "c")) == []
    assert rows(s=("aa", "y")) == [1, 3]


def test_one_value_for_all_rows_is_looked_up() -> None:
    index = KeyIndex(pa.table({"day": ["a", "b", None], "n": [1, 2, 3]}))
    assert index.candidates({}, {"day": pa.scalar("b")}).tolist() == [1]  # type: ignore[union-attr]
    nothing = pa.scalar(None, pa.string())
    assert index.candidates({}, {"day": nothing}).tolist() == [2]  # type: ignore[union-attr]
    assert index.candidates({}, {"day": pa.scalar("x")}).tolist() == []  # type: ignore[union-attr]


def test_many_texts_are_found_by_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_MANY", 10)
    texts = [f"key {n}" for n in range(1000)]
    index = KeyIndex(pa.table({"s": texts}))
    target = pa.record_batch({"s": ["key 7", None, "nope", "key 999", ""]})
    assert index.find(target).tolist() == [7, NONE, NONE, 999, NONE]
    assert pickle.loads(pickle.dumps(index)).find(target).tolist() == [7, NONE, NONE, 999, NONE]


CLOSE: list[tuple[Any, list[Any], list[Any], list[int]]] = [
    (
        pa.uint64(),
        [2**63 + 5, None, 2**64 - 1, 2**63 + 5000],
        [2**63 + 5, 5, 2**64 - 1],
        [0, -1, 2],
    ),
    (pa.uint64(), [2**64 - 1, 2**64 - 3], [2**64 - 1, 0, 2**64 - 2, 2**64 - 3], [0, -1, -1, 1]),
    (pa.int64(), [-(2**63), -(2**63) + 2], [2**63 - 1, -(2**63), 0, None], [-1, 0, -1, -1]),
    (pa.int64(), [2**63 - 1, 2**63 - 2], [-(2**63), 2**63 - 1], [-1, 0]),
    (pa.int64(), [-5, None, -7, 3], [None, -7, 3, -6, 4, -8], [1, 2, 3, -1, -1, -1]),
    (pa.int8(), [127, -128], [-128, 127, 0, None], [1, 0, -1, -1]),
    (pa.dictionary(pa.int8(), pa.int16()), [7, None, 5], [None, 5, 6], [1, 2, -1]),
    (pa.date32(), [dt.date(1969, 12, 31), dt.date(1970, 1, 2)], [dt.date(1970, 1, 2)], [1]),
    (
        pa.int64(),
        [
            None,
        ],
        [0, None],
        [-1, 0],
    ),
    (pa.int64(), [], [0, None], [-1, -1]),
]


@pytest.mark.parametrize(("type_", "source", "target", "found"), CLOSE, ids=str)
def test_integers_that_lie_close_together_are_found(
    type_: Any, source: list[Any], target: list[Any], found: list[int]
) -> None:
    index = KeyIndex(pa.table({"n": pa.array(source, type_)}))
    batch = pa.record_batch({"n": pa.array([source[0] if source else None, *target], type_)})
    assert index.find(batch.slice(1)).tolist() == found


@pytest.mark.parametrize("few", [0, 4096])
def test_a_table_of_integers_finds_what_a_search_finds(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(key_index, "_FEW", few)
    monkeypatch.setattr(key_index, "_MOST_SPARSE", 2 if few else 0)
    numbers = list(range(-3000, 3000, 3))
    index = KeyIndex(pa.table({"n": numbers, "m": [n % 2 for n in numbers]}))
    looked = list(range(-3100, 3100))
    batch = pa.record_batch({"n": looked, "m": [n % 2 for n in looked]})
    expected = [(n + 3000) // 3 if n % 3 == 0 and -3000 <= n < 3000 else NONE for n in looked]
    assert index.find(batch).tolist() == expected
    alone = KeyIndex(pa.table({"n": numbers}))
    assert alone.find(batch.select(["n"])).tolist() == expected


def test_what_has_no_order_is_no_key() -> None:
    check_key_type(pa.dictionary(pa.int8(), pa.string()), "x")
    check_key_type(pa.uuid(), "x")
    with pytest.raises(ValueError, match="Key column 'x' has type list"):
        check_key_type(pa.list_(pa.int64()), "x")
