"""Casts that change no value: what does not fit is an error that shows the value.

What is rounded on purpose: numbers become the nearest float (a value beyond all floats is an
error), timestamps become the date they lie in. A float becomes a decimal if that decimal means
the same float, and a text with the fewest digits that mean it. Wall-clock values of a timestamp
with a zone are those of its zone.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.evaluation_compare import compare
from maintenance_assets.planning.families import Family, family, type_name, unit_nanoseconds
from maintenance_assets.planning.moments import parse_moment

ArrowType = Any
Array = Any

_NUMBERS = (Family.INTEGER, Family.DECIMAL, Family.FLOAT)
_TO: dict[Family, tuple[Family, ...]] = {
    Family.BOOLEAN: (Family.INTEGER, Family.TEXT),
    Family.INTEGER: (*_NUMBERS, Family.TEXT),
    Family.DECIMAL: (*_NUMBERS, Family.TEXT),
    Family.FLOAT: (*_NUMBERS, Family.TEXT),
    Family.TEXT: (
        *_NUMBERS,
        Family.BOOLEAN,
        Family.BINARY,
        Family.DATE,
        Family.TIME,
        Family.TIMESTAMP,
        Family.INSTANT,
    ),
    Family.BINARY: (Family.BINARY, Family.TEXT),
    Family.DATE: (Family.TIMESTAMP, Family.TEXT),
    Family.TIME: (Family.TIME, Family.TEXT),
    Family.TIMESTAMP: (Family.TIMESTAMP, Family.DATE, Family.TIME, Family.TEXT),
    Family.INSTANT: (Family.INSTANT, Family.TIMESTAMP, Family.DATE, Family.TIME),
    Family.DURATION: (Family.DURATION,),
}


_MISFITS = (pa.ArrowException, ValueError, OverflowError)


def check_cast(source: ArrowType, target: ArrowType) -> None:
    """ValueError in words unless values of one plain type can be cast to another."""
    own, wanted = family(source), family(target)
    if source == target or own is Family.NULL or wanted in _TO.get(own, ()):
        return
    hint = ""
    if wanted is Family.INSTANT:
        hint = ": it has no time zone"
    elif own is Family.INSTANT and wanted is Family.TEXT:
        hint = ": say how with strftime"
    raise ValueError(f"{type_name(source)} cannot be cast to {type_name(target)}{hint}")


def cast(values: Array, target: ArrowType) -> Array:
    """Cast plain values to a plain type; ValueError that shows a value which does not fit."""
    if values.type == target:
        return values
    try:
        return _cast(values, target)
    except _MISFITS as error:
        found, reason = _misfit(values, target)
        shown = "" if found is None else f": {found!r}"
        said = str(reason or error).splitlines()[0]
        raise ValueError(f"A value does not fit {type_name(target)}{shown} ({said})") from error


def cast_exactly(values: Array, target: ArrowType) -> Array:
    """The same where nobody asked for a cast: integers only become floats equal to them."""
    found = cast(values, target)
    if family(values.type) is Family.INTEGER and family(target) is Family.FLOAT:
        differs = pc.fill_null(compare("<>", values, found), False)
        if pc.any(differs).as_py():
            number = values.filter(differs)[0].as_py()
            raise ValueError(f"{number} is not exact in {target}: round it with CAST")
    return found


def _misfit(values: Array, target: ArrowType) -> tuple[Any, Exception | None]:
    """One of the values that cannot be cast, and why."""
    while len(values) > 1:
        half = values.slice(0, len(values) // 2)
        values = half if _why_not(half, target) else values.slice(len(half))
    return (values[0].as_py() if len(values) else None), _why_not(values, target)


def _why_not(values: Array, target: ArrowType) -> Exception | None:
    try:
        _cast(values, target)
    except _MISFITS as error:
        return error
    return None


def _cast(values: Array, target: ArrowType) -> Array:
    own, wanted = family(values.type), family(target)
    match (own, wanted):
        case (Family.NULL, _):
            return pa.nulls(len(values), target)
        case (Family.INTEGER | Family.DECIMAL | Family.FLOAT, Family.FLOAT):
            return _to_float(values, target)
        case (Family.FLOAT, Family.DECIMAL):
            return _float_to_decimal(values, target)
        case (Family.TEXT, Family.DATE | Family.TIME | Family.TIMESTAMP | Family.INSTANT):
            return _text_to_moment(values, target)
        case (Family.TEXT | Family.BINARY, Family.BINARY) if values.type != target:
            return _to_binary(values, target)
        case (Family.INSTANT, Family.TIMESTAMP | Family.DATE | Family.TIME):
            return _cast_wall(pc.local_timestamp(values), target)
        case (Family.TIMESTAMP, Family.DATE | Family.TIME):
            return _cast_wall(values, target)
        case (Family.TIMESTAMP | Family.TIME, Family.TEXT):
            return _moment_to_text(values)
        case _:
            return values.cast(target)


def _to_float(values: Array, target: ArrowType) -> Array:
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    found = values.cast(target, safe=False)
    if family(values.type) is Family.FLOAT:
        grown = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(values)))
        if pc.any(grown).as_py():
            raise OverflowError("out of range")
    return found


def _float_to_decimal(values: Array, target: ArrowType) -> Array:
    found = values.cast(target)
    if pc.any(pc.not_equal(found.cast(pa.float64()).cast(values.type), values)).as_py():
        raise ValueError("it has more digits; use round first")
    return found


def _to_binary(values: Array, target: ArrowType) -> Array:
    if family(values.type) is Family.TEXT and pa.types.is_fixed_size_binary(target):
        raise ValueError("only bytes of that length fit")
    return values.cast(target)


def _text_to_moment(values: Array, target: ArrowType) -> Array:
    if family(target) in (Family.DATE, Family.TIMESTAMP):
        try:
            return values.cast(target)
        except pa.ArrowInvalid:
            # Arrow knows fewer forms; what it cannot read may still be one of ours.
            pass
    counts = [_moment_of(text, target) for text in values.to_pylist()]
    return pa.array(counts, pa.int32() if target.bit_width == 32 else pa.int64()).cast(target)


def _moment_of(text: str | None, target: ArrowType) -> int | None:
    if text is None:
        return None
    count, rest = divmod(parse_moment(text, target), unit_nanoseconds(target))
    if rest:
        raise ValueError("it is finer than the type")
    return count


def _cast_wall(values: Array, target: ArrowType) -> Array:
    if family(target) is Family.DATE:
        return pc.floor_temporal(values, unit="day").cast(target)
    return values.cast(target)


def _moment_to_text(values: Array) -> Array:
    """Without zeros at the end of a fraction, as SQL engines write it."""
    written = values.cast(pa.large_string())
    if values.type.unit == "s":
        return written
    return pc.replace_substring_regex(written, pattern=r"(\.\d*[1-9])0+$|\.0+$", replacement=r"\1")
