"""Hive partition paths: their values, their spelling, and filters over them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from math import isnan
from typing import assert_never
from urllib.parse import unquote

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

# A segment in comparable form: (key, value) of a partition, or the name of a plain directory.
# Equal spelling implies an equal form, so comparing forms covers both.
_Segment = tuple[str, str | None] | str
_Run = tuple[_Segment, ...]


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """One `key=value` segment, decoded, with its spelling in the path."""

    key: str
    value: str | None
    raw: str


def parse_partition(directory: str) -> tuple[PartitionValue, ...]:
    """Return the partition values in a directory relative to the root, outermost first."""
    found = []
    for raw in directory.split("/"):
        segment = _segment(raw)
        if isinstance(segment, tuple):
            found.append(PartitionValue(segment[0], segment[1], raw))
    return tuple(found)


def format_partition(values: Sequence[tuple[str, str | None]]) -> str:
    """Spell partition values as a directory that Spark, DuckDB and PyArrow read as those values."""
    return "/".join(f"{_encode_key(key)}={_encode_value(value)}" for key, value in values)


def known_partition_keys(directories: Iterable[str]) -> frozenset[str]:
    """Return every partition key that occurs in the directories."""
    return frozenset(part.key for directory in directories for part in parse_partition(directory))


# Spark's ExternalCatalogUtils.escapePathName on Unix, and NUL, which no file name may hold.
# Non-ASCII must stay as it is: Spark decodes each %XX to one character, not to a UTF-8 byte.
_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *b"\"#%'*/:=?\\{[]^")}


def _encode_key(key: str) -> str:
    if not key:
        raise ValueError("A partition key must not be empty")
    encoded = key.translate(_ESCAPED)
    # Spark and PyArrow skip hidden directories.
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def _encode_value(value: str | None) -> str:
    if value is None:
        return HIVE_NULL
    if value == HIVE_NULL:
        # PyArrow still reads this as null; Spark, DuckDB and we tell it from a null.
        return "%5F" + HIVE_NULL[1:]
    # The empty text stays empty: PyArrow and DuckDB read it so; Spark has no spelling for it.
    encoded = value.translate(_ESCAPED)
    # Azure and Windows drop a dot or a space at the end of a name.
    return encoded[:-1] + f"%{ord(encoded[-1]):02X}" if encoded.endswith((" ", ".")) else encoded


def _decode(text: str) -> str:
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        # Replacement characters would make different directories equal.
        return text


def _segment(raw: str) -> _Segment:
    key, equals, value = raw.partition("=")
    if not equals or not key:
        return _decode(raw)
    return _decode(key), None if value == HIVE_NULL else _decode(value)


def _run(directory: str) -> _Run:
    return tuple(_segment(raw) for raw in directory.split("/") if raw and raw != ".")


@dataclass(frozen=True, slots=True)
class _AnyPath:
    """Paths of which any may match, grouped by length so that each costs one set lookup."""

    leading: tuple[tuple[int, frozenset[_Run]], ...]
    anywhere: tuple[tuple[int, frozenset[_Run]], ...]

    def matches(self, directory: str) -> bool:
        segments = _run(directory)
        for length, runs in self.leading:
            if segments[:length] in runs:
                return True
        for length, runs in self.anywhere:
            for start in range(len(segments) - length + 1):
                if segments[start : start + length] in runs:
                    return True
        return False


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The values a key may have: spelled exactly, or equal in canonical form."""

    exact: frozenset[str | None]
    integers: frozenset[str]
    booleans: frozenset[str]
    floats: frozenset[float]
    nan: bool

    def accepts(self, value: str | None) -> bool:
        if value in self.exact:
            return True
        return value is not None and (
            (bool(self.integers) and _canonical_integer(value) in self.integers)
            or (bool(self.booleans) and value.lower() in self.booleans)
            or ((bool(self.floats) or self.nan) and self._accepts_float(value))
        )

    def _accepts_float(self, value: str) -> bool:
        if not _FLOAT.fullmatch(value):
            return False
        number = float(value)
        return self.nan if isnan(number) else number in self.floats


@dataclass(frozen=True, slots=True)
class _AllKeys:
    """Conditions on keys, all of which must hold."""

    conditions: tuple[tuple[str, _Accepted], ...]

    def matches(self, directory: str) -> bool:
        values = [segment for segment in _run(directory) if isinstance(segment, tuple)]
        return all(
            any(key == wanted and accepted.accepts(value) for key, value in values)
            for wanted, accepted in self.conditions
        )


@dataclass(frozen=True, slots=True)
class _OneDirectory:
    """A directory as it is spelled; what is above and below it is not meant."""

    directory: str

    def matches(self, directory: str) -> bool:
        return directory == self.directory


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """A parsed partition_filter."""

    text: str
    rule: _AnyPath | _AllKeys | _OneDirectory

    def matches(self, directory: str) -> bool:
        """Tell whether the directory, relative to the root, is selected."""
        return self.rule.matches(directory)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that a dict filter names; none for text."""
        match self.rule:
            case _AllKeys(conditions):
                return tuple(key for key, _ in conditions)
            case _AnyPath() | _OneDirectory():
                return ()
            case never:
                assert_never(never)

    def __str__(self) -> str:
        return self.text


def exactly(directory: str) -> PartitionFilter:
    """The files that lie in this directory itself; the empty name is the root."""
    return PartitionFilter(repr(directory or "(root)"), _OneDirectory(directory))


def parse_partition_filter(value: object) -> PartitionFilter | None:
    """Parse what a user passed as partition_filter; ValueError when it cannot be one."""
    if value is None or isinstance(value, PartitionFilter):
        return value
    if isinstance(value, str):
        return PartitionFilter(value, _any_path([value]))
    if isinstance(value, Mapping):
        return PartitionFilter(repr(dict(value)), _all_keys(value))
    if isinstance(value, list | tuple | set | frozenset):
        rule = _any_path(value)
        # A set has no order of its own; messages should not change from run to run.
        ordered = sorted(value) if isinstance(value, set | frozenset) else list(value)
        return PartitionFilter(repr(ordered), rule)
    raise ValueError(
        "partition_filter must be text such as 'date=2025-11-04', a list of such texts or a dict, "
        f"got {type(value).__name__}"
    )


def check_filter_keys(filter: PartitionFilter, directories: Iterable[str]) -> None:
    """Refuse a dict filter that names a key found in none of the directories."""
    if not filter.keys:
        return
    known = known_partition_keys(directories)
    for key in filter.keys:
        if key not in known:
            raise ValueError(
                f"Unknown partition key {key!r} in partition_filter. "
                f"Known keys: {', '.join(sorted(known)) or '(none)'}"
            )


def _any_path(texts: Iterable[object]) -> _AnyPath:
    leading: set[_Run] = set()
    anywhere: set[_Run] = set()
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(
                "partition_filter entries must be text such as 'date=2025-11-04', "
                f"got {type(text).__name__}"
            )
        (anywhere if "=" in text else leading).add(_parse_text(text))
    return _AnyPath(_by_length(leading), _by_length(anywhere))


def _parse_text(text: str) -> _Run:
    if ".." in text.split("/"):
        raise ValueError(f"partition_filter must stay below the dataset root, got {text!r}")
    run = _run(text) if text.strip() else ()
    if not run:
        raise ValueError(f"partition_filter must name at least one partition, got {text!r}")
    return run


def _by_length(runs: set[_Run]) -> tuple[tuple[int, frozenset[_Run]], ...]:
    lengths = sorted({len(run) for run in runs})
    return tuple((size, frozenset(run for run in runs if len(run) == size)) for size in lengths)


def _all_keys(conditions: Mapping[object, object]) -> _AllKeys:
    if not conditions:
        raise ValueError("partition_filter must name at least one partition")
    parsed = []
    for key, value in conditions.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"partition_filter keys must be non-empty text, got {key!r}")
        parsed.append((key, _accepted(key, value)))
    return _AllKeys(tuple(parsed))


def _accepted(key: str, value: object) -> _Accepted:
    exact: set[str | None] = set()
    integers: set[str] = set()
    booleans: set[str] = set()
    floats: set[float] = set()
    for item in value if isinstance(value, list | tuple | set | frozenset) else (value,):
        match item:
            case None | str():
                exact.add(item)
            case bool():  # before int, of which it is a subclass
                booleans.add(str(item).lower())
            case int():
                integers.add(str(item))
            case float():
                floats.add(item)
            case datetime():  # before date, of which it is a subclass
                exact.update(_spellings(item))
            case date():
                exact.add(item.isoformat())
            case _:
                raise ValueError(
                    f"partition_filter value for {key!r} must be text, a number, a bool, a date, "
                    f"None or a list of those, got {type(item).__name__}"
                )
    numbers = frozenset(number for number in floats if not isnan(number))
    return _Accepted(
        frozenset(exact),
        frozenset(integers),
        frozenset(booleans),
        numbers,
        nan=len(numbers) < len(floats),
    )


_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))"
)


def _canonical_integer(text: str) -> str | None:
    # Not int(): it accepts '1_0' and ' 1', and refuses very long digits.
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("-").lstrip("0") or "0"
    return "-" + digits if text.startswith("-") and digits != "0" else digits


def _spellings(moment: datetime) -> set[str]:
    precisions = ["auto", "microseconds"]
    if moment.microsecond % 1000 == 0:
        precisions.append("milliseconds")
    spelled = {moment.isoformat(sep, precision) for sep in "T " for precision in precisions}
    if moment.microsecond and moment.tzinfo is None:
        # Spark and DuckDB cut the zeros at the end of a fraction.
        spelled |= {text.rstrip("0") for text in spelled}
    if (moment.hour, moment.minute, moment.second, moment.microsecond) == (0, 0, 0, 0):
        spelled.add(moment.date().isoformat())
    return spelled
