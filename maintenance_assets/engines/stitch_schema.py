"""Whether column chunks of different writers mean the same under one schema."""

from typing import Any

from maintenance_assets.engines.stitch_footer import (
    COLUMN_ORDERS,
    SCHEMA,
    Footer,
    StitchObstacleError,
)
from maintenance_assets.engines.thrift import Reader

_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN = 1, 2, 3, 4, 5
_CONVERTED, _SCALE, _PRECISION, _FIELD_ID, _LOGICAL = 6, 7, 8, 9, 10
_KNOWN = 10
_INT32, _INT64 = 1, 2
_LOGICAL_DECIMAL, _LOGICAL_INTEGER = 5, 10
# What an old annotation is called today: the field of LogicalType, and its content.
_TODAY: dict[int, Any] = {
    0: (1, {}),  # UTF8: STRING
    1: (2, {}),  # MAP
    2: None,  # MAP_KEY_VALUE marks the entries of a map, which says nothing more
    3: (3, {}),  # LIST
    4: (4, {}),  # ENUM
    6: (6, {}),  # DATE
    7: (7, {1: True, 2: {1: {}}}),  # TIME_MILLIS
    8: (7, {1: True, 2: {2: {}}}),
    9: (8, {1: True, 2: {1: {}}}),  # TIMESTAMP_MILLIS
    10: (8, {1: True, 2: {2: {}}}),
    11: (10, {1: 8, 2: False}),  # UINT_8
    12: (10, {1: 16, 2: False}),
    13: (10, {1: 32, 2: False}),
    14: (10, {1: 64, 2: False}),
    15: (10, {1: 8, 2: True}),  # INT_8
    16: (10, {1: 16, 2: True}),
    17: (10, {1: 32, 2: True}),
    18: (10, {1: 64, 2: True}),
    19: (12, {}),  # JSON
    20: (13, {}),  # BSON
    21: ("INTERVAL", {}),
}
_OLD_TIMES = range(7, 11)
_NOTATION = "notation"


def require_same_meaning(footer: Footer, base: Footer) -> None:
    """StitchObstacleError unless chunks of one file can stand under the schema of the other."""
    if footer.raw(SCHEMA) != base.raw(SCHEMA):
        ours, theirs = _elements(footer), _elements(base)
        if ours != theirs:
            raise StitchObstacleError("the files describe their columns differently")
    if footer.raw(COLUMN_ORDERS) != base.raw(COLUMN_ORDERS):
        raise StitchObstacleError("the files declare different orders of values")


def require_can_hold_encoded(base: Footer, encoded: Footer) -> None:
    """The same for what our own writer makes; its statistics may go unused, but not be wrong."""
    # The values are the same in either notation, and the schema stays that of the files.
    ours, theirs = (_without_notation(_elements(footer)) for footer in (encoded, base))
    if ours != theirs:
        raise StitchObstacleError("PyArrow describes these columns differently than their writer")
    orders = base.raw(COLUMN_ORDERS)
    if orders is not None and orders != encoded.raw(COLUMN_ORDERS):
        raise StitchObstacleError("the files declare another order of values than PyArrow")


def _elements(footer: Footer) -> list[dict[Any, Any]]:
    """The schema without its own name, each annotation in today's notation."""
    content = footer.raw(SCHEMA)
    if content is None:
        raise StitchObstacleError("a file has no schema")
    try:
        # A list behind the header of a field of its own, so that the reader takes it for a struct.
        elements = Reader(b"\x19" + content + b"\0").struct()[1]
        return [_meaning(element, is_root=not index) for index, element in enumerate(elements)]
    except (IndexError, ValueError, TypeError, AttributeError) as error:
        raise StitchObstacleError(f"a schema is not understood ({error})") from error


def _without_notation(elements: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    return [{**element, _NOTATION: None} for element in elements]


def _meaning(element: dict[int, Any], *, is_root: bool) -> dict[Any, Any]:
    if any(number > _KNOWN for number in element):
        raise StitchObstacleError("a column is described by a field that is not known")
    kept = (_TYPE, _LENGTH, _NAME, _CHILDREN, _FIELD_ID, _REPETITION)
    meaning: dict[Any, Any] = {number: element.get(number) for number in kept}
    if element.get(_TYPE) != 7:  # only a fixed length is one
        meaning[_LENGTH] = None
    if element.get(_TYPE) is not None:
        meaning[_CHILDREN] = None  # a leaf: zero or not set
    if is_root:
        meaning[_NAME] = meaning[_REPETITION] = meaning[_FIELD_ID] = None
    meaning["logical"] = annotation = _annotation(element)
    meaning[_NOTATION] = None if annotation is None else _odd_notation(element, annotation)
    return meaning


def _odd_notation(element: dict[int, Any], annotation: Any) -> str | None:
    """One that some readers take for another type than both notations together.

    To DuckDB and Polars a time in the old one alone is in no zone; DuckDB knows no new one alone.
    """
    converted = element.get(_CONVERTED)
    if not element.get(_LOGICAL):
        return "old" if converted in _OLD_TIMES else None
    has_old_name = annotation[0] == _LOGICAL_DECIMAL or annotation in _TODAY.values()
    return "new" if converted is None and has_old_name else None


def _annotation(element: dict[int, Any]) -> Any:
    logical = element.get(_LOGICAL)
    if logical:
        ((kind, content),) = logical.items()
        if kind == _LOGICAL_INTEGER:
            # One byte in the format, signed; the width is never more than 64.
            content = {1: content.get(1), 2: content.get(2)}
        return _unless_plain(element, (kind, content))
    converted = element.get(_CONVERTED)
    if converted is None:
        return None
    if converted == _LOGICAL_DECIMAL:
        content = {1: element.get(_SCALE, 0), 2: element.get(_PRECISION)}
        return (_LOGICAL_DECIMAL, content)
    if converted not in _TODAY:
        raise StitchObstacleError(f"a column has annotation {converted}, which is not known")
    return _unless_plain(element, _TODAY[converted])


def _unless_plain(element: dict[int, Any], annotation: Any) -> Any:
    """INT64 that is said to be a signed integer of 64 bits is just INT64."""
    plain = {_INT32: (10, {1: 32, 2: True}), _INT64: (10, {1: 64, 2: True})}
    return None if annotation == plain.get(element.get(_TYPE, -1)) else annotation
