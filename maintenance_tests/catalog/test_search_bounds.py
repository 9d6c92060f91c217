"""What the database is asked for before anything is looked at more closely."""

import pyarrow as pa
import pytest

from maintenance_assets.planning.predicates import parse_predicate
from maintenance_assets.planning.search_bounds import is_covered, search_bounds

SCHEMA = pa.schema([("n", pa.int32()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_())])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n = 5", [("n", 5, 5)]),
        ("5 < n", [("n", 5, None)]),
        ("n BETWEEN 1 AND 3 AND s = 'x'", [("n", 1, None), ("n", None, 3), ("s", "x", "x")]),
        ("n IN (3, 1, 2)", [("n", 1, 3)]),
        ("s IN ('b', 'a')", [("s", "a", "b")]),
        ("f < 2", [("f", None, 2.0)]),
        ("f = 2", [("f", 2.0, 2.0)]),
        ("f > 2", []),  # NaN is greater, and in no footer
        ("f IN (1, 2)", []),
        ("n = 5 OR n = 6", []),
        ("NOT n = 5", []),
        ("n IS NULL", []),
        ("n + 1 = 5", []),
        ("n = 5 AND (s = 'a' OR f > 1)", [("n", 5, 5)]),
        ("b", []),
    ],
)
def test_bounds_are_those_of_what_must_hold(
    where: str, expected: list[tuple[str, object, object]]
) -> None:
    found = search_bounds(parse_predicate(where).bind(SCHEMA).tree)
    shown = [(b.column, b.low and b.low.as_py(), b.high and b.high.as_py()) for b in found]
    assert shown == expected


def test_only_comparisons_are_said_in_full_by_bounds() -> None:
    def covered(where: str) -> bool:
        return is_covered(parse_predicate(where).bind(SCHEMA).tree)

    assert covered("n >= 5 AND s < 'x'")
    assert not covered("n >= 5 AND f > 1")
    assert not covered("n IN (1, 9)")
    assert not covered("n = 1 OR n = 2")
