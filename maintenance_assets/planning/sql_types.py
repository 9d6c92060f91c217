"""The types that can be named in a CAST, as the Arrow types they stand for."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

_PLAIN: dict[str, Any] = {
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "TINYINT": pa.int8(),
    "INT1": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT2": pa.int16(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "INT": pa.int32(),
    "INT4": pa.int32(),
    "BIGINT": pa.int64(),
    "INT8": pa.int64(),
    "LONG": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "REAL": pa.float32(),
    "FLOAT": pa.float32(),
    "FLOAT4": pa.float32(),
    "DOUBLE": pa.float64(),
    "DOUBLE PRECISION": pa.float64(),
    "FLOAT8": pa.float64(),
    "VARCHAR": pa.string(),
    "TEXT": pa.string(),
    "STRING": pa.string(),
    "BLOB": pa.binary(),
    "BYTEA": pa.binary(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_US": pa.timestamp("us"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMP WITHOUT TIME ZONE": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "UUID": pa.uuid(),
}
_DECIMAL_NAMES = frozenset({"DECIMAL", "NUMERIC", "DEC"})
_TEXT_NAMES = frozenset({"VARCHAR", "TEXT", "STRING"})

SEVERAL_WORDS = (
    ("DOUBLE", "PRECISION"),
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"),
    ("TIMESTAMP", "WITH", "TIME", "ZONE"),
)


def type_of_name(name: str, arguments: tuple[int, ...]) -> Any:
    """The Arrow type of an SQL type; ValueError in words when there is none."""
    if name in _DECIMAL_NAMES:
        return _decimal(arguments)
    if arguments and name not in _TEXT_NAMES:
        raise ValueError(f"The type {name} takes no arguments")
    if arguments:
        raise ValueError(f"A length of {name} is not checked: leave it out")
    if name not in _PLAIN:
        raise ValueError(f"Unknown type {name}. Known types: {', '.join(known_types())}")
    return _PLAIN[name]


def known_types() -> tuple[str, ...]:
    """The names that a CAST understands, without synonyms."""
    first: dict[Any, str] = {}
    for name, type_ in _PLAIN.items():
        first.setdefault(type_, name)
    return (*first.values(), "DECIMAL(precision, scale)")


def _decimal(arguments: tuple[int, ...]) -> Any:
    precision, scale = {0: (18, 3), 1: (*arguments, 0), 2: arguments}.get(len(arguments), (0, 0))
    if not (1 <= precision <= 76 and 0 <= scale <= precision):
        raise ValueError("DECIMAL takes a precision of 1 to 76 and a scale up to the precision")
    return decimal_type(precision, scale)


def decimal_type(precision: int, scale: int) -> Any:
    """The decimal type that calculates with so many digits."""
    build: Callable[[int, int], Any] = pa.decimal128 if precision <= 38 else pa.decimal256
    return build(precision, scale)
