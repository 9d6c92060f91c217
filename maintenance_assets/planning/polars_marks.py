"""What Polars notes beside its categories: it takes a value that is not among them for null."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ENUM = frozenset({b"_PL_ENUM_VALUES", b"_PL_ENUM_VALUES2"})
"""All values there are, each behind its length."""
CATEGORICAL = frozenset({b"_PL_CATEGORICAL", b"_PL_CATEGORICAL2"})
"""A name, and how many values there may be."""
MARKS = ENUM | CATEGORICAL
_WITH_LENGTHS = b"_PL_ENUM_VALUES2"

Marks = dict[bytes, bytes]


def marks_of(metadata: Mapping[bytes, bytes]) -> Marks:
    """The marks in the metadata of a column."""
    return {key: value for key, value in metadata.items() if key in MARKS}


def common_marks(left: Marks, right: Marks) -> Marks | None:
    """Marks that are true of the values of both, if need be none; None where they contradict."""
    if left == right:
        return left
    if set(left) == set(right) and ENUM.intersection(left):
        return _longest_enum(left, right)
    # Without a mark Polars reads categories of any number.
    return {}


def _longest_enum(left: Marks, right: Marks) -> Marks | None:
    """Values that only go on where others end keep the order, and the codes, of both."""
    longer, shorter = sorted((left, right), key=lambda marks: len(marks.get(_WITH_LENGTHS, b"")))[
        ::-1
    ]
    others = {key for key in longer if key != _WITH_LENGTHS and longer[key] != shorter[key]}
    starts = longer.get(_WITH_LENGTHS, b"").startswith(shorter.get(_WITH_LENGTHS, b""))
    return longer if starts and not others else None


def require_listed(array: Any, field: Any) -> None:
    """ValueError where new values of a column are not in the list that Polars has of them."""
    values = _listed(field.metadata or {})
    if values is not None and pa.types.is_dictionary(array.type):
        used = array.dictionary_decode().unique().drop_null()
        others = used.filter(pc.invert(pc.is_in(used, value_set=pa.array(values, used.type))))
        if len(others):
            raise ValueError(
                f"column '{field.name}' is an enumeration of Polars, in which "
                f"{others[0].as_py()!r} has no place: Polars would read it as null"
            )
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            require_listed(pc.struct_field(array, [index]), field.type.field(index))
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        require_listed(pc.list_flatten(array), field.type.value_field)


def _listed(metadata: Mapping[bytes, bytes]) -> list[str] | None:
    """The values of an enumeration; None where the column is none, or in a form of old."""
    mark = metadata.get(_WITH_LENGTHS)
    if mark is None:
        return None
    values: list[str] = []
    position = 0
    while position < len(mark):
        start = mark.index(b";", position) + 1
        position = start + int(mark[position : start - 1])
        values.append(mark[start:position].decode())
    return values
