"""The functions of SQL expressions as Arrow kernels; their types are those of the binding."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.evaluation_compare import compare
from maintenance_assets.planning.evaluation_text import joined, replaced, substring, trimmed
from maintenance_assets.planning.families import ArrowType, Family, family

Array = Any
_LAST_YEAR = 32_767 - 1
"""Arrow counts years in 16 bits, and wraps beyond."""
_SECONDS_PER_YEAR = 31_556_952


def call(name: str, arguments: list[Array], options: tuple[Any, ...], type_: ArrowType) -> Array:
    """The value of a function for each row."""
    if name in _DATE_PARTS:
        return _DATE_PARTS[name](_in_range(arguments[0])).cast(pa.int64())
    if name in _BY_NAME:
        return _BY_NAME[name](arguments[0], *options)
    if name in ("trim", "ltrim", "rtrim"):
        return trimmed(arguments[0], name, options[0])
    if name in ("concat", "||"):
        return joined(arguments, skip_nulls=name == "concat")
    if name in ("greatest", "least"):
        return _extreme(arguments, ">=" if name == "greatest" else "<=")
    if name == "round":
        return _rounded(arguments[0], options[0], type_)
    return _OTHERS[name](arguments, type_)


_DATE_PARTS: dict[str, Callable[[Any], Any]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "isodow": lambda values: pc.day_of_week(values, count_from_zero=False, week_start=1),
    "doy": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}


def _in_range(values: Array) -> Array:
    """Moments in the years that Arrow can count; a date as its midnight."""
    if family(values.type) is Family.TIME:
        return values
    if family(values.type) is Family.DATE:
        values = values.cast(pa.timestamp("s"))
    limit = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[values.type.unit]
    bounds = pc.min_max(values.cast(pa.int64()))
    most = _LAST_YEAR * _SECONDS_PER_YEAR * limit
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None and abs(bound) > most:
            raise ValueError(f"A date is beyond the year {_LAST_YEAR}")
    return values


def _truncated(values: Array, unit: str) -> Array:
    if family(values.type) is Family.DATE and unit in ("hour", "minute", "second"):
        return values
    _in_range(values)
    return pc.floor_temporal(values, unit=unit)


def _formatted(values: Array, pattern: str) -> Array:
    values = _in_range(values)
    years = pc.min_max(pc.year(values))
    if years["min"].is_valid and not 0 < years["min"].as_py() <= years["max"].as_py() < 10_000:
        raise ValueError("strftime is for the years 1 to 9999")
    # With a finer unit Arrow writes a fraction after the seconds.
    seconds = pc.floor_temporal(values, unit="second").cast(pa.timestamp("s", values.type.tz))
    return pc.strftime(seconds, format=pattern).cast(pa.large_string())


_BY_NAME: dict[str, Callable[..., Any]] = {
    "date_trunc": _truncated,
    "strftime": _formatted,
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "length": lambda values: pc.utf8_length(values).cast(pa.int64()),
    "substring": substring,
    "replace": replaced,
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
    "isnan": pc.is_nan,
    "isfinite": pc.is_finite,
}


def _extreme(arguments: list[Array], operator: str) -> Array:
    """The greatest or least that is not NULL; NaN is the greatest."""
    found = arguments[0]
    for other in arguments[1:]:
        keep = pc.or_(pc.fill_null(compare(operator, found, other), False), pc.is_null(other))
        found = pc.if_else(pc.and_(keep, pc.is_valid(found)), found, other)
    return found


def _coalesced(arguments: list[Array], _type: ArrowType) -> Array:
    found = arguments[0]
    for other in arguments[1:]:
        found = pc.if_else(pc.is_valid(found), found, other)
    return found


def _nulled(arguments: list[Array], type_: ArrowType) -> Array:
    equal = pc.fill_null(compare("=", *arguments), False)
    return pc.if_else(equal, pa.scalar(None, type_), arguments[0])


def _absolute(arguments: list[Array], type_: ArrowType) -> Array:
    values = arguments[0].cast(type_)
    if family(type_) is not Family.INTEGER:
        return pc.abs(values)
    try:
        return pc.abs_checked(values)
    except pa.ArrowInvalid as error:
        raise OverflowError("The absolute value is out of range for BIGINT") from error


def _rounded(values: Array, digits: int, type_: ArrowType) -> Array:
    """Half away from zero."""
    if family(type_) is Family.INTEGER:
        return values
    if family(type_) is Family.DECIMAL:
        wide = pa.decimal128 if values.type.precision < 38 else pa.decimal256
        values = values.cast(wide(min(values.type.precision + 1, 76), values.type.scale))
        digits = min(digits, values.type.scale)
    rounded = pc.round(values, ndigits=digits, round_mode="half_towards_infinity")
    return rounded.cast(type_)


def _whole(kernel: Callable[[Any], Any]) -> Callable[[list[Array], ArrowType], Array]:
    def apply(arguments: list[Array], type_: ArrowType) -> Array:
        values = arguments[0]
        if family(type_) is Family.INTEGER:
            return values
        if family(type_) is Family.DECIMAL:
            wide = pa.decimal128 if values.type.precision < 38 else pa.decimal256
            values = values.cast(wide(min(values.type.precision + 1, 76), values.type.scale))
        return kernel(values).cast(type_)

    return apply


_OTHERS: dict[str, Callable[[list[Array], ArrowType], Any]] = {
    "coalesce": _coalesced,
    "nullif": _nulled,
    "abs": _absolute,
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
}
