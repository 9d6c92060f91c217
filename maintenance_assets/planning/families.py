"""Types as expressions see them: a family says what can be compared and calculated with what.

An expression works on plain values: dictionaries are decoded, views and 32-bit offsets become
large ones, half floats become floats, and narrow decimals become 128 bits wide. None of that
changes a value.
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import pyarrow as pa

ArrowType = Any  # pyarrow ships no types
Array = Any


class Family(Enum):
    """A kind of values."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    TEXT = auto()
    BINARY = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    """Wall-clock time without a zone."""
    INSTANT = auto()
    """A timestamp with a zone: a point in time."""
    DURATION = auto()
    OTHER = auto()
    """Structs, lists, maps and whatever else has no order; may be null, and no more."""


NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOAT})
MOMENTS = frozenset({Family.DATE, Family.TIMESTAMP, Family.INSTANT})
TEMPORAL = frozenset({*MOMENTS, Family.TIME, Family.DURATION})

_FAMILIES: tuple[tuple[Callable[[ArrowType], bool], Family], ...] = (
    (pa.types.is_null, Family.NULL),
    (pa.types.is_boolean, Family.BOOLEAN),
    (pa.types.is_integer, Family.INTEGER),
    (pa.types.is_decimal, Family.DECIMAL),
    (pa.types.is_floating, Family.FLOAT),
    (pa.types.is_large_string, Family.TEXT),
    (pa.types.is_large_binary, Family.BINARY),
    (pa.types.is_fixed_size_binary, Family.BINARY),
    (pa.types.is_date, Family.DATE),
    (pa.types.is_time, Family.TIME),
    (lambda type_: pa.types.is_timestamp(type_) and type_.tz is None, Family.TIMESTAMP),
    (pa.types.is_timestamp, Family.INSTANT),
    (pa.types.is_duration, Family.DURATION),
)


@lru_cache(maxsize=4096)
def family(type_: ArrowType) -> Family:
    """The family of a plain type."""
    # An extension type may have a storage that these checks would take for the type itself.
    if isinstance(type_, pa.BaseExtensionType):
        return Family.OTHER
    return next((found for check, found in _FAMILIES if check(type_)), Family.OTHER)


@lru_cache(maxsize=4096)
def plain_type(type_: ArrowType) -> ArrowType:
    """The type that values of a column have inside an expression."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain_extension(type_)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_string(type_) or pa.types.is_string_view(type_):
        return pa.large_string()
    if pa.types.is_binary(type_) or pa.types.is_binary_view(type_):
        return pa.large_binary()
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_date64(type_):
        return pa.date32()
    if pa.types.is_decimal(type_) and type_.bit_width < 128:
        return pa.decimal128(type_.precision, type_.scale)
    return type_


_PLAIN_EXTENSIONS = frozenset({"arrow.uuid", "arrow.json"})


def _plain_extension(type_: ArrowType) -> ArrowType:
    known = type_.extension_name in _PLAIN_EXTENSIONS
    return plain_type(type_.storage_type) if known else type_


def plain_array(array: Array, plain: ArrowType) -> Array:
    """The values of a column as an expression takes them."""
    while array.type != plain:
        type_ = array.type
        if isinstance(type_, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(type_):
            array = array.dictionary_decode()
        else:
            array = array.cast(plain)
    return array


_UNIT_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
DAY_NANOSECONDS = 86_400 * 1_000_000_000


def unit_nanoseconds(type_: ArrowType) -> int:
    """How long one count of a temporal type is."""
    if pa.types.is_date(type_):
        return DAY_NANOSECONDS if pa.types.is_date32(type_) else _UNIT_NANOSECONDS["ms"]
    return _UNIT_NANOSECONDS[type_.unit]


def type_name(type_: ArrowType) -> str:
    """A type as a message shows it."""
    return {Family.TEXT: "text", Family.BINARY: "binary", Family.NULL: "NULL"}.get(
        family(type_), str(type_)
    )
