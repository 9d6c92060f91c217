"""Which directory a row belongs into, and how the values of its partition columns are spelled.

- text, or bytes that are text in UTF-8: itself
- bool: `true`, `false`; integers: their digits
- float: the shortest digits that give the same value: `1.5`, `1e+16`, `-0.0`, `Infinity`, `NaN`
- decimal: its digits, with as many of them behind the point as its type has
- date, time, timestamp: ISO, as in `2025-11-04`, `10:00:00`, `2025-11-04 10:00:00.500000`, with the
  digits of their unit if they are not zero; `+00:00` follows where the type has a zone
- UUID: `123e4567-e89b-12d3-a456-426614174000`
- null: none, `planning.partitions` has a spelling for it
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from functools import reduce
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from maintenance_assets.planning.partitions import format_partition

Codes = Any
_EPOCH = datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_BITS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_MOST_DIRECT = 1 << 22
"""Up to this many possible combinations are counted rather than sorted."""


def partition_directories(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> tuple[Codes, tuple[str, ...]]:
    """For each row the number of its directory, and the directories in order of their numbers.

    The directory of no columns is the root, spelled as the empty text.
    """
    if not columns:
        return np.zeros(batch.num_rows, np.int32), ("",)
    keys = [_texts(batch.column(name), name) for name in columns]
    codes, combinations = _combined([(codes, len(texts)) for codes, texts in keys])
    directories = tuple(
        format_partition([(name, keys[n][1][row[n]]) for n, name in enumerate(columns)])
        for row in combinations
    )
    return codes, directories


def partition_texts(array: Any, column: str = "") -> list[str | None]:
    """The text of each value; ValueError names the column where a value has none."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return _spelled(plain, column)


def check_partition_type(type_: Any, column: str) -> None:
    """Raise unless values of this type can name directories."""
    try:
        _speller(type_.value_type if pa.types.is_dictionary(type_) else type_)
    except ValueError as error:
        raise ValueError(f"column '{column}' cannot be a partition column: {error}") from error


def _texts(array: Any, column: str) -> tuple[Codes, list[str | None]]:
    """The column as numbers into its distinct texts."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64), [None]
    check_partition_type(array.type, column)
    if not pa.types.is_dictionary(array.type):
        array = _encoded(array)
    values = partition_texts(array.dictionary, column)
    indices = array.indices
    if indices.null_count:
        values = [*values, None]
        indices = indices.cast(pa.int64()).fill_null(len(values) - 1)
    codes = indices.to_numpy(zero_copy_only=False)
    distinct = {text: number for number, text in enumerate(dict.fromkeys(values))}
    if len(distinct) < len(values):
        codes = np.array([distinct[text] for text in values], np.int64)[codes]
    return codes, list(distinct)


def _encoded(array: Any) -> Any:
    """Dictionary-encoded; floats by their bits, which tell -0.0 from 0.0."""
    if isinstance(array, pa.ExtensionArray):
        coded = _encoded(array.storage)
        values = pa.ExtensionArray.from_storage(array.type, coded.dictionary)
        return pa.DictionaryArray.from_arrays(coded.indices, values)
    if pa.types.is_floating(array.type):
        coded = array.view(_BITS[array.type.bit_width]).dictionary_encode()
        values = coded.dictionary.view(array.type)
        return pa.DictionaryArray.from_arrays(coded.indices, values)
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array.dictionary_encode()


def _combined(keys: Sequence[tuple[Codes, int]]) -> tuple[Codes, list[tuple[int, ...]]]:
    """Numbers for the combinations that occur, and what each combination is made of."""
    sizes = [max(1, size) for _, size in keys]
    possible = reduce(lambda product, size: product * size, sizes, 1)
    if possible >= 1 << 62:
        raise ValueError("the partition columns have too many combinations of values")
    whole = keys[0][0].astype(np.int64)
    for (codes, _), size in zip(keys[1:], sizes[1:], strict=True):
        whole = whole * size + codes
    if possible <= max(_MOST_DIRECT, len(whole)):
        found = np.flatnonzero(np.bincount(whole, minlength=1))
        number = np.zeros(possible, np.int32)
        number[found] = np.arange(len(found), dtype=np.int32)
        codes = number[whole]
    else:
        found, codes = np.unique(whole, return_inverse=True)
    return codes, [tuple(map(int, row)) for row in zip(*_split(found, sizes), strict=True)]


def _split(combinations: Codes, sizes: Sequence[int]) -> list[Codes]:
    parts = []
    for size in reversed(sizes):
        combinations, part = np.divmod(combinations, size)
        parts.append(part)
    return parts[::-1]


# -- spelling ----------------------------------------------------------------------------------

_Speller = Callable[[Any, Any], list[str | None]]


def _spelled(array: Any, column: str) -> list[str | None]:
    try:
        return _speller(array.type)(array, array.type)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise ValueError(f"column '{column}' cannot be a partition column: {error}") from error


def _speller(type_: Any) -> _Speller:
    for belongs, speller in _SPELLERS:
        if belongs(type_):
            return speller
    raise ValueError(f"values of type {type_} have no text that readers agree on")


def _each(spell: Callable[[Any], str]) -> _Speller:
    return lambda array, type_: [None if v is None else spell(v) for v in array.to_pylist()]


def _float_text(array: Any, type_: Any) -> list[str | None]:
    numbers = array.to_numpy(zero_copy_only=False)
    valid = array.is_valid().to_pylist()
    return [_number(n) if is_valid else None for n, is_valid in zip(numbers, valid, strict=True)]


def _number(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(value)  # numpy's shortest digits of this width


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError("it holds bytes that are not text in UTF-8") from None


def _date_text(array: Any, type_: Any) -> list[str | None]:
    # Days of a date64 are counted in milliseconds.
    days = array.cast(pa.date32()).view(pa.int32()).to_pylist()
    return [None if n is None else _date(n).isoformat() for n in days]


def _date(days: int) -> date:
    return (_EPOCH + timedelta(days=days)).date()


def _moment_text(array: Any, type_: Any) -> list[str | None]:
    per_second = _PER_SECOND[type_.unit]
    zone = "+00:00" if type_.tz is not None else ""
    ticks = array.view(pa.int64()).to_pylist()
    return [None if n is None else _moment(n, per_second) + zone for n in ticks]


def _moment(ticks: int, per_second: int) -> str:
    seconds, fraction = divmod(ticks, per_second)
    # Space, not T: as Spark and DuckDB spell it.
    return f"{_EPOCH + timedelta(seconds=seconds)}{_fraction(fraction, per_second)}"


def _time_text(array: Any, type_: Any) -> list[str | None]:
    per_second = _PER_SECOND[type_.unit]
    ticks = array.view(pa.int32() if type_.bit_width == 32 else pa.int64()).to_pylist()
    return [None if n is None else _time(n, per_second) for n in ticks]


def _time(ticks: int, per_second: int) -> str:
    seconds, fraction = divmod(ticks, per_second)
    return time(*_clock(seconds)).isoformat() + _fraction(fraction, per_second)


def _clock(seconds: int) -> tuple[int, int, int]:
    return seconds // 3600, seconds // 60 % 60, seconds % 60


def _fraction(ticks: int, per_second: int) -> str:
    """As many digits as the unit has, for PyArrow reads no more; six of nanoseconds if they do."""
    if not ticks:
        return ""
    if per_second == 10**9 and ticks % 1000 == 0:
        return f".{ticks // 1000:06}"
    return f".{ticks:0{len(str(per_second)) - 1}}"


_SPELLERS: tuple[tuple[Callable[[Any], bool], _Speller], ...] = (
    (pa.types.is_null, lambda array, type_: [None] * len(array)),
    (lambda t: isinstance(t, pa.UuidType), _each(lambda value: str(UUID(str(value))))),
    (pa.types.is_boolean, _each(lambda value: str(value).lower())),
    (pa.types.is_integer, _each(str)),
    (pa.types.is_floating, _float_text),
    (pa.types.is_decimal, _each(lambda value: format(value, "f"))),
    (pa.types.is_date, _date_text),
    (pa.types.is_timestamp, _moment_text),
    (pa.types.is_time, _time_text),
    (pa.types.is_string, _each(str)),
    (pa.types.is_large_string, _each(str)),
    (pa.types.is_string_view, _each(str)),
    (pa.types.is_binary, _each(_bytes_text)),
    (pa.types.is_large_binary, _each(_bytes_text)),
    (pa.types.is_binary_view, _each(_bytes_text)),
    (pa.types.is_fixed_size_binary, _each(_bytes_text)),
)
