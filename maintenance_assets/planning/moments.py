"""Dates, times and timestamps as text, exactly as a count of nanoseconds."""

import re
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.planning.families import (
    DAY_NANOSECONDS,
    Family,
    family,
    unit_nanoseconds,
)

_SECOND = 1_000_000_000
_DATE = r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"
_TIME = r"(?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone> ?UTC|Z|[+-]\d{2}(?::?\d{2})?)?"
_TIMESTAMP = re.compile(f"{_DATE}(?:[ T]{_TIME}{_ZONE})?")
_TIME_OF_DAY = re.compile(_TIME)
_EPOCH = date(1970, 1, 1).toordinal()


def parse_moment(text: str, type_: Any) -> int:
    """Nanoseconds of a text in a temporal type: since the epoch, or since midnight.

    A timestamp without an offset is wall-clock time in the zone of the type.
    """
    if family(type_) is Family.TIME:
        found = _TIME_OF_DAY.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a time such as '10:30:00'")
        return _time_of_day(found, text)
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a date or a timestamp such as '2025-11-26 10:30:00'")
    return _since_epoch(found, text, type_)


def _since_epoch(found: Any, text: str, type_: Any) -> int:
    try:
        day = date(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from None
    wall = (day.toordinal() - _EPOCH) * DAY_NANOSECONDS
    if found["hour"] is not None:
        wall += _time_of_day(found, text)
    if family(type_) is not Family.INSTANT:
        if found["zone"]:
            raise ValueError(f"{text!r} has an offset, but the other side has no zone")
        return wall
    return wall - _offset(found["zone"]) if found["zone"] else in_zone(wall, type_.tz)


def _time_of_day(found: Any, text: str) -> int:
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of the day")
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    return (hour * 3600 + minute * 60 + second) * _SECOND + fraction


def _offset(zone: str) -> int:
    if zone.strip() in ("UTC", "Z"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return (-minutes if zone[0] == "-" else minutes) * 60 * _SECOND


def in_zone(wall: int, zone: str) -> int:
    """The instant of wall-clock time in a zone; ValueError where there is none, or two."""
    seconds, rest = divmod(wall, _SECOND)
    try:
        local = pa.scalar(seconds, pa.int64()).cast(pa.timestamp("s"))
        instant = pc.assume_timezone(local, zone)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{reason}; write the offset, as in '... 10:30:00+02:00'") from None
    return int(instant.cast(pa.int64()).as_py()) * _SECOND + rest


def nanoseconds(scalar: Any) -> int:
    """The count of a temporal scalar in nanoseconds."""
    return int(scalar.value) * unit_nanoseconds(scalar.type)


def moment(count: int, type_: Any) -> Any:
    """A scalar of a temporal type from counts of its unit."""
    integers = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.scalar(count, integers).cast(type_)


def offset_of(zone: str) -> int | None:
    """Nanoseconds that a zone is always ahead of UTC; None where that changes."""
    if zone in ("UTC", "Etc/UTC", "Z"):
        return 0
    return _offset(zone) if re.fullmatch(r"[+-]\d{2}:\d{2}", zone) else None
