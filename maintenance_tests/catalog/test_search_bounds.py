"""What the database is asked for before anything is looked at more closely."""

from collections.abc import Iterable

import pyarrow as pa
import pytest

from maintenance_assets.planning.predicates import parse_predicate
from maintenance_assets.planning.search_bounds import (
    Bound,
    SearchBound,
    is_covered,
    search_bounds,
)

SCHEMA = pa.schema([("n", pa.int32()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_())])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n = 5", [("n", 5, 5)]),
        ("5 < n", [("n", 5, None)]),
        ("n BETWEEN 1 AND 3 AND s = 'x'", [("n", 1, None), ("n", None, 3), ("s", "x", "x")]),
        ("n IN (3, 1)", [[[("n", 1, 1)], [("n", 3, 3)]]]),
        ("s IN ('b', 'a')", [[[("s", "a", "a")], [("s", "b", "b")]]]),
        (f"n IN ({', '.join(map(str, range(7, 99)))})", [("n", 7, 98)]),
        ("s LIKE 'ab%'", [("s", "ab", "ac")]),
        ("s LIKE 'ab_d'", [("s", "ab", "ac")]),
        ("s LIKE '%ab'", []),
        ("s ILIKE 'ab%'", []),
        ("f < 2", [("f", None, 2.0)]),
        ("f = 2", [("f", 2.0, 2.0)]),
        ("f > 2", []),  # NaN is greater, and in no footer
        ("f IN (1, 2)", []),
        ("n = 5 OR n > 6 AND s = 'x'", [[[("n", 5, 5)], [("n", 6, None), ("s", "x", "x")]]]),
        ("n = 5 OR n IS NULL", []),
        ("n = 5 OR f > 1", []),
        (" OR ".join(f"n = {number} AND s = 'x'" for number in range(40)), []),
        ("NOT n = 5", []),
        ("n IS NULL", []),
        ("n + 1 = 5", []),
        ("n = 5 AND (s = 'a' OR f > 1)", [("n", 5, 5)]),
        ("b", []),
    ],
)
def test_bounds_are_those_of_what_must_hold(where: str, expected: list[object]) -> None:
    assert shown(search_bounds(parse_predicate(where).bind(SCHEMA).tree)) == expected


def shown(bounds: Iterable[Bound]) -> list[object]:
    """Column, lowest and highest of each; of choices a list of those."""
    return [
        (bound.column, bound.low and bound.low.as_py(), bound.high and bound.high.as_py())
        if isinstance(bound, SearchBound)
        else [shown(choice) for choice in bound.each]
        for bound in bounds
    ]


def test_what_bounds_say_in_full() -> None:
    def covered(where: str) -> bool:
        return is_covered(parse_predicate(where).bind(SCHEMA).tree)

    assert covered("n >= 5 AND s < 'x'")
    assert not covered("n >= 5 AND f > 1")
    assert covered("n IN (1, 9)")
    assert covered("n = 1 OR n = 2 AND s LIKE 'a%'")
    assert not covered(f"n IN ({', '.join(map(str, range(60)))})")
    assert not covered("n = 1 OR s LIKE '%a'")
    assert not covered("s LIKE 'a%b'")
