"""The table of types without children: which type holds the values of two others."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

# pyarrow ships no types, and third-party stubs know no unit, scale or zone of a DataType.
ArrowType = Any

UTC_SYNONYMS = frozenset({"UTC", "Etc/UTC", "+00:00", "Z"})
UNITS = ("s", "ms", "us", "ns")
SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
STRINGS = (pa.string_view(), pa.string(), pa.large_string())
BINARIES = (pa.binary_view(), pa.binary(), pa.large_binary())
# (bits, digits that fit, constructor), narrowest first.
DECIMALS: tuple[tuple[int, int, Callable[[int, int], ArrowType]], ...] = (
    (32, 9, pa.decimal32),
    (64, 18, pa.decimal64),
    (128, 38, pa.decimal128),
    (256, 76, pa.decimal256),
)


def widen_flat(left: ArrowType, right: ArrowType) -> ArrowType | None:
    """The narrowest type for the values of two different types, or None when there is none."""
    for belongs, rule in _FLAT:
        if belongs(left) and belongs(right):
            return rule(left, right)
    return None


def widen_integers(left: ArrowType, right: ArrowType) -> ArrowType | None:
    """The narrowest integer type for both; None for uint64 with any signed one."""
    signed, other = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    if pa.types.is_signed_integer(signed) == pa.types.is_signed_integer(other):
        return left if left.bit_width >= right.bit_width else right
    # Signed holds unsigned only with a bit to spare; nothing holds uint64 and a sign.
    return SIGNED.get(max(signed.bit_width, 2 * other.bit_width))


def _widen_floats(left: ArrowType, right: ArrowType) -> ArrowType:
    return left if left.bit_width >= right.bit_width else right


def _widen_strings(left: ArrowType, right: ArrowType) -> ArrowType:
    return STRINGS[max(STRINGS.index(left), STRINGS.index(right))]


def _widen_binaries(left: ArrowType, right: ArrowType) -> ArrowType:
    return BINARIES[max(BINARIES.index(left), BINARIES.index(right))]


def _finer_unit(left: ArrowType, right: ArrowType) -> Any:
    return max(left.unit, right.unit, key=UNITS.index)


def _widen_timestamps(left: ArrowType, right: ArrowType) -> ArrowType | None:
    zone = left.tz
    if left.tz != right.tz:
        if not {left.tz, right.tz} <= UTC_SYNONYMS:
            return None
        zone = "UTC"
    return pa.timestamp(_finer_unit(left, right), zone)


def _widen_times(left: ArrowType, right: ArrowType) -> ArrowType:
    unit = _finer_unit(left, right)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def _widen_durations(left: ArrowType, right: ArrowType) -> ArrowType:
    return pa.duration(_finer_unit(left, right))


def _widen_decimals(left: ArrowType, right: ArrowType) -> ArrowType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    for bits, digits, build in DECIMALS:
        if bits >= max(left.bit_width, right.bit_width) and precision <= digits:
            return build(precision, scale)
    return None


_Rule = Callable[[ArrowType, ArrowType], ArrowType | None]
# Types without a row here merge only with their equals; so do types of different rows.
_FLAT: tuple[tuple[Callable[[ArrowType], bool], _Rule], ...] = (
    (pa.types.is_integer, widen_integers),
    (pa.types.is_floating, _widen_floats),
    (STRINGS.__contains__, _widen_strings),
    (BINARIES.__contains__, _widen_binaries),
    (pa.types.is_timestamp, _widen_timestamps),
    (pa.types.is_time, _widen_times),
    (pa.types.is_duration, _widen_durations),
    (pa.types.is_decimal, _widen_decimals),
)
