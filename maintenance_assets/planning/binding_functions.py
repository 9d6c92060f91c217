"""Which types a function takes, and which it gives."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from maintenance_assets.planning.evaluation_compare import digits_of
from maintenance_assets.planning.expressions import Span
from maintenance_assets.planning.families import ArrowType, Family, family, type_name
from maintenance_assets.planning.sql_functions import DATE_PARTS, DATE_UNITS
from maintenance_assets.planning.sql_types import decimal_type
from maintenance_assets.planning.typed import Call, Constant, Typed

_MOMENTS = (Family.DATE, Family.TIMESTAMP, Family.INSTANT)
_CLOCK_PARTS = frozenset({"hour", "minute", "second"})
_NUMBERS = (Family.INTEGER, Family.DECIMAL, Family.FLOAT)
_NO_OPTION: tuple[Any, ...] = ()
_DIRECTIVES = re.compile(r"(?:[^%]|%[YmdHMSj%])*")


class ArgumentError(ValueError):
    """What is wrong with an argument, and which one it is."""

    def __init__(self, index: int, message: str) -> None:
        self.index = index
        super().__init__(message)


def bind_function(name: str, arguments: Sequence[Typed], span: Span) -> Call:
    """A call whose arguments have the right types; ArgumentError otherwise."""
    kept, options, type_ = _rule(name)(name, arguments)
    return Call(name, tuple(kept), type_, span, tuple(options))


_Bound = tuple[Sequence[Typed], Sequence[Any], ArrowType]


def _rule(name: str) -> Callable[[str, Sequence[Typed]], _Bound]:
    return _date_part if name in DATE_PARTS else _RULES[name]


def _require(arguments: Sequence[Typed], index: int, families: Sequence[Family], what: str) -> None:
    found = arguments[index].type
    if family(found) not in (*families, Family.NULL):
        raise ArgumentError(index, f"Expected {what}, not {type_name(found)}")


def _option(arguments: Sequence[Typed], index: int, kind: type, what: str) -> Any:
    node = arguments[index]
    value = node.scalar.as_py() if isinstance(node, Constant) else None
    if type(value) is not kind:
        raise ArgumentError(index, f"Expected {what} as a constant")
    return value


def _date_part(name: str, arguments: Sequence[Typed]) -> _Bound:
    clock = (Family.TIME,) if name in _CLOCK_PARTS else ()
    _require(arguments, 0, (*_MOMENTS, *clock), "a date or a timestamp")
    return arguments, _NO_OPTION, pa.int64()


def _date_trunc(_name: str, arguments: Sequence[Typed]) -> _Bound:
    unit = _option(arguments, 0, str, "a unit").lower()
    if unit not in DATE_UNITS:
        raise ArgumentError(0, f"Expected one of {', '.join(DATE_UNITS)}")
    _require(arguments, 1, _MOMENTS, "a date or a timestamp")
    return arguments[1:], (unit,), arguments[1].type


def _strftime(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, _MOMENTS, "a date or a timestamp")
    pattern = _option(arguments, 1, str, "a format")
    if not _DIRECTIVES.fullmatch(pattern):
        raise ArgumentError(1, "Of the directives only %Y %m %d %H %M %S %j and %% are available")
    return arguments[:1], (pattern,), pa.large_string()


def _text(result: ArrowType) -> Callable[[str, Sequence[Typed]], _Bound]:
    def rule(_name: str, arguments: Sequence[Typed]) -> _Bound:
        _require(arguments, 0, (Family.TEXT,), "text")
        return arguments, _NO_OPTION, result

    return rule


def _text_and_constants(result: ArrowType) -> Callable[[str, Sequence[Typed]], _Bound]:
    def rule(_name: str, arguments: Sequence[Typed]) -> _Bound:
        _require(arguments, 0, (Family.TEXT,), "text")
        rest = [_option(arguments, i, str, "text") for i in range(1, len(arguments))]
        return arguments[:1], rest, result

    return rule


def _trim(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, (Family.TEXT,), "text")
    characters = _option(arguments, 1, str, "characters") if len(arguments) > 1 else " "
    return arguments[:1], (characters,), pa.large_string()


def _substring(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, (Family.TEXT,), "text")
    start = _option(arguments, 1, int, "a position")
    if not 1 <= start < 2**31:
        raise ArgumentError(1, "Positions count from 1")
    length = _option(arguments, 2, int, "a length") if len(arguments) > 2 else None
    if length is not None and not 0 <= length < 2**31:
        raise ArgumentError(2, "A length is not negative")
    return arguments[:1], (start, length), pa.large_string()


def _concat(_name: str, arguments: Sequence[Typed]) -> _Bound:
    for index in range(len(arguments)):
        _require(arguments, index, (Family.TEXT, Family.INTEGER), "text (use CAST)")
    return arguments, _NO_OPTION, pa.large_string()


def _same_type(_name: str, arguments: Sequence[Typed]) -> _Bound:
    return arguments, _NO_OPTION, arguments[0].type


def _ordered(_name: str, arguments: Sequence[Typed]) -> _Bound:
    if family(arguments[0].type) is Family.OTHER:
        raise ArgumentError(0, f"Values of type {arguments[0].type} have no order")
    return arguments, _NO_OPTION, arguments[0].type


def _abs(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, _NUMBERS, "a number")
    type_ = arguments[0].type
    signed = family(type_) is Family.INTEGER and not pa.types.is_uint64(type_)
    return arguments, _NO_OPTION, pa.int64() if signed else type_


def _round(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, _NUMBERS, "a number")
    digits = _option(arguments, 1, int, "a number of digits") if len(arguments) > 1 else 0
    if not 0 <= digits <= 76:
        raise ArgumentError(1, "The number of digits is not negative")
    return arguments[:1], (digits,), _shortened(arguments[0].type, digits)


def _floor(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, _NUMBERS, "a number")
    return arguments, _NO_OPTION, _shortened(arguments[0].type, 0)


def _shortened(type_: ArrowType, digits: int) -> ArrowType:
    """The type after rounding: a decimal may carry into one more digit."""
    if family(type_) is not Family.DECIMAL:
        return type_
    whole, scale = digits_of(type_)
    kept = min(digits, scale)
    carry = kept < scale
    return decimal_type(min(76, max(1, whole + kept + carry)), kept)


def _is_float(_name: str, arguments: Sequence[Typed]) -> _Bound:
    _require(arguments, 0, (Family.FLOAT,), "a float")
    return arguments, _NO_OPTION, pa.bool_()


_RULES: dict[str, Callable[[str, Sequence[Typed]], _Bound]] = {
    "date_trunc": _date_trunc,
    "strftime": _strftime,
    "lower": _text(pa.large_string()),
    "upper": _text(pa.large_string()),
    "length": _text(pa.int64()),
    "trim": _trim,
    "ltrim": _trim,
    "rtrim": _trim,
    "substring": _substring,
    "replace": _text_and_constants(pa.large_string()),
    "concat": _concat,
    "||": _concat,
    "starts_with": _text_and_constants(pa.bool_()),
    "ends_with": _text_and_constants(pa.bool_()),
    "contains": _text_and_constants(pa.bool_()),
    "coalesce": _same_type,
    "nullif": _same_type,
    "greatest": _ordered,
    "least": _ordered,
    "abs": _abs,
    "round": _round,
    "floor": _floor,
    "ceil": _floor,
    "isnan": _is_float,
    "isfinite": _is_float,
}
