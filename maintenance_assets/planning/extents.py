"""Which values an expression can take, from what is known of columns without reading them.

Bounds are Python values that compare exactly: integers, fractions, floats, text, bytes, booleans,
and nanoseconds for all that is time. They may be too wide, and never too narrow.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa

from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.families import TEMPORAL, ArrowType, Family, family, plain_type
from maintenance_assets.planning.moments import nanoseconds, parse_moment
from maintenance_assets.planning.typed import Field

Ranges = Mapping[str, ColumnRange]
Constants = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """What a value can be; a bound that is None is not known."""

    low: Any = None
    high: Any = None
    has_null: bool = True
    """It can be NULL."""
    has_value: bool = True
    """It can be a value other than NULL and NaN."""
    has_nan: bool = False
    """It can be NaN, which no footer ever mentions."""

    @property
    def is_point(self) -> bool:
        """Whether all values but NULL are the same."""
        return self.low is not None and self.low == self.high and not self.has_nan

    @property
    def is_known(self) -> bool:
        """Whether both bounds are known."""
        return self.low is not None and self.high is not None


NOTHING = Extent(has_value=False)
"""All NULL."""


def anything(type_: ArrowType) -> Extent:
    """All that a type can hold."""
    return Extent(has_nan=family(type_) is Family.FLOAT)


@dataclass(frozen=True, slots=True)
class Known:
    """What the columns of a file can be."""

    extents: Mapping[tuple[str, ...], Extent]

    @classmethod
    def of(cls, columns: Iterable[Field], ranges: Ranges, constants: Constants) -> "Known":
        """What ranges and constants say of columns."""
        return cls({one.path: _extent_of(one, ranges, constants) for one in columns})

    def supposing(self, is_nan: Mapping[tuple[str, ...], bool]) -> "Known":
        """The same where columns of floats are all NaN, or nothing but NaN is excluded."""
        supposed = {
            path: _ONLY_NAN if nan else replace(self.extents[path], has_nan=False)
            for path, nan in is_nan.items()
        }
        return Known({**self.extents, **supposed})


_ONLY_NAN = Extent(has_null=False, has_value=False, has_nan=True)


def _extent_of(column: Field, ranges: Ranges, constants: Constants) -> Extent:
    if not column.alone:
        return anything(column.type)
    constant = constants.get(column.name)
    found = None if constant is None else _from_constant(constant, column.type)
    if found is not None:
        return found
    if family(column.type) is Family.NULL:
        return NOTHING
    range_ = ranges.get(column.name)
    return anything(column.type) if range_ is None else _from_range(range_, column.type)


def point(scalar: Any) -> Extent:
    """The extent of one known value."""
    if not scalar.is_valid:
        return NOTHING
    value = bound(scalar)
    if isinstance(value, float) and math.isnan(value):
        return _ONLY_NAN
    return Extent(value, value, has_null=False)


def bound(scalar: Any) -> Any:
    """A scalar as a value that compares exactly; None for types without an order."""
    match family(plain_type(scalar.type)):
        case Family.OTHER | Family.NULL:
            return None
        case Family.DECIMAL:
            return Fraction(scalar.as_py())
        case own if own in TEMPORAL:
            return nanoseconds(scalar)
        case _:
            return scalar.as_py()


def _from_constant(scalar: Any, type_: ArrowType) -> Extent | None:
    """The column of a partition; None where its text does not say what the value is."""
    if not scalar.is_valid:
        return NOTHING
    scalar = _plain(scalar)
    own = family(plain_type(scalar.type))
    if own is family(type_):
        return point(scalar) if own is not Family.OTHER else None
    value = _read(scalar.as_py(), type_) if own is Family.TEXT else None
    return None if value is None else Extent(value, value, has_null=False)


def _plain(scalar: Any) -> Any:
    """The scalar without dictionary and extension."""
    if pa.types.is_dictionary(scalar.type):
        scalar = scalar.value if scalar.is_valid else pa.scalar(None, scalar.type.value_type)
    return scalar.value if isinstance(scalar.type, pa.BaseExtensionType) else scalar


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _read(text: str, type_: ArrowType) -> Any:
    """The value that a partition's text stands for in the type of its column, if that is sure."""
    match family(type_):
        case Family.INTEGER:
            return int(text) if _INTEGER.fullmatch(text) else None
        case Family.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        case Family.DATE if len(text) == len("2025-01-01"):
            try:
                return parse_moment(text, type_)
            except ValueError:
                return None
        case _:
            return None


def _from_range(range_: ColumnRange, type_: ArrowType) -> Extent:
    if range_.all_null:
        return NOTHING
    found = replace(anything(type_), has_null=not range_.no_nulls)
    low, high = (_range_bound(scalar, type_) for scalar in (range_.low, range_.high))
    if low is not None and high is not None and low > high:
        return found
    return replace(found, low=low, high=reaching(high))


def _range_bound(scalar: Any, type_: ArrowType) -> Any:
    """A bound from a footer; None unless it is of the same family as the column."""
    if scalar is None or not scalar.is_valid:
        return None
    plain = _plain(scalar)
    if family(plain_type(plain.type)) is not family(type_):
        return None
    value = bound(plain)
    return None if isinstance(value, float) and math.isnan(value) else value


MAYBE_CUT = 16
"""Writers shorten long texts, and not all of them turn a shortened upper bound upwards."""


def reaching(high: Any) -> Any:
    """An upper bound that covers whatever a cut text can have stood for."""
    if isinstance(high, bytes) and len(high) >= MAYBE_CUT:
        return after_prefix(high)
    if isinstance(high, str) and len(high.encode()) >= MAYBE_CUT:
        return after_prefix(high)
    return high


def after_prefix(prefix: Any) -> Any:
    """A value above all that begin with a prefix; None where there is none."""
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # Half of a surrogate pair is no character.
    return kept[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
