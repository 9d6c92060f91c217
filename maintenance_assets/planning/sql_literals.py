"""Numbers and intervals as they are written in SQL."""

import re
from decimal import Decimal, localcontext

from maintenance_assets.planning.expressions import Literal, Nanoseconds, Span, pointing_at

_MAX_DIGITS = 76
_MAX_EXPONENT = 400
_SECOND = 1_000_000_000
_UNITS = {
    "NANOSECOND": 1,
    "MICROSECOND": 1_000,
    "MILLISECOND": 1_000_000,
    "SECOND": _SECOND,
    "MINUTE": 60 * _SECOND,
    "HOUR": 3600 * _SECOND,
    "DAY": 86_400 * _SECOND,
    "WEEK": 7 * 86_400 * _SECOND,
}
_SHORT = {"NS": "NANOSECOND", "US": "MICROSECOND", "MS": "MILLISECOND", "S": "SECOND"}
_SHORT |= {"SEC": "SECOND", "MIN": "MINUTE", "H": "HOUR", "HR": "HOUR", "D": "DAY", "W": "WEEK"}
_CALENDAR = ("MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY", "MILLENNIUM")
_AMOUNT = re.compile(r"([+-]?\d+(?:\.\d*)?)\s*([A-Z]*)\s*")


def number(text: str, written: str, span: Span) -> Literal:
    """A number with all its digits; an integer where it is written as one."""
    if written.isdecimal():
        if len(written.lstrip("0")) > _MAX_DIGITS:
            raise pointing_at(text, span, f"A number of more than {_MAX_DIGITS} digits")
        return Literal(int(written), span)
    value = Decimal(written)
    digits = value.as_tuple().digits
    if len(digits) > _MAX_DIGITS or abs(value.adjusted()) > _MAX_EXPONENT:
        raise pointing_at(text, span, f"A number of more than {_MAX_DIGITS} digits")
    return Literal(value, span, approximate="e" in written.lower())


def interval(text: str, amount: str, unit: str | None, span: Span) -> Literal:
    """A length of time such as INTERVAL '3 days' or INTERVAL 90 MINUTE."""
    written = f"{amount} {unit or ''}".upper().strip()
    total = Decimal(0)
    position = 0
    while position < len(written) or not written:
        found = _AMOUNT.match(written, position)
        if found is None:
            raise pointing_at(text, span, "Write an interval like INTERVAL '1 day 30 minutes'")
        with localcontext(prec=100):
            total += Decimal(found[1]) * _unit(text, found[2], span)
        position = found.end()
    if total != int(total) or abs(total) >= 2**63:
        raise pointing_at(text, span, "An interval is a whole number of nanoseconds in 64 bits")
    return Literal(Nanoseconds(int(total)), span)


def _unit(text: str, name: str, span: Span) -> int:
    singular = _SHORT.get(name) or name.removesuffix("S")
    if singular in _CALENDAR or name in ("CENTURIES", "MILLENNIA"):
        message = f"The length of a {singular.lower()} depends on the calendar: use days or hours"
        raise pointing_at(text, span, message)
    if singular not in _UNITS:
        known = ", ".join(unit.lower() for unit in _UNITS)
        raise pointing_at(text, span, f"An interval needs a unit: one of {known}")
    return _UNITS[singular]
