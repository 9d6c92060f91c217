"""A hash of the content of rows: of their values alone, whatever their order and encoding.

The hash of a row depends on names and values of its columns, not on their order; a dictionary
counts as the values it stands for. The hash of many rows is the sum of theirs: it can be taken in
parts, whatever the order of the rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Hashes = Any
"""numpy: unsigned 64-bit integers."""
_MASK = (1 << 64) - 1
_BLOCK_ROWS = 32 * 1024
"""Rows at a time: what is computed in between stays in the cache of a core."""
_STRETCH = 64
_LONG_TEXT = 4096
"""Longer values are hashed one by one."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_STEP = 0x5851F42D4C957F2D
_BACK = pow(_STEP, -1, 1 << 64)


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows there are, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def plus(self, other: "Digest") -> "Digest":
        """Of both together."""
        return Digest(self.rows + other.rows, (self.total + other.total) & _MASK)

    @classmethod
    def of(cls, hashes: Hashes) -> "Digest":
        """Of rows with these hashes."""
        return cls(len(hashes), int(hashes.sum(dtype=np.uint64)))

    @classmethod
    def sum(cls, digests: Iterable["Digest"]) -> "Digest":
        """Of all together."""
        total = cls()
        for digest in digests:
            total = total.plus(digest)
        return total


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str] | None = None) -> Hashes:
    """The hash of each row, over some columns or all."""
    names = batch.schema.names if columns is None else columns
    chosen = [(_factor(name), batch.column(name)) for name in names]
    found = np.zeros(batch.num_rows, np.uint64)
    for start in range(0, batch.num_rows, _BLOCK_ROWS):
        block = found[start : start + _BLOCK_ROWS]
        for factor, array in chosen:
            _combine(block, value_hashes(array.slice(start, _BLOCK_ROWS)), factor)
        _finish(block)
    return found


def value_hashes(array: Any) -> Hashes:
    """A number for each value: the same for equal ones, bit for bit, and one for all nulls."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return value_hashes(array.storage)
    if pa.types.is_null(type_) or array.null_count == len(array):
        return np.full(len(array), _NULL)
    found = _hasher(type_)(array)
    if array.null_count:
        found = np.where(pc.is_null(array).to_numpy(zero_copy_only=False), _NULL, found)
    return found


def _factor(name: str) -> Any:
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little") | 1)


_WORD_FACTORS = [_factor(f"word {number}") for number in range(_LONG_TEXT // 8)]


def _combine(into: Hashes, values: Hashes, factor: Any) -> None:
    """Add values times a factor; their upper halves first, which alone a float often has."""
    folded = values >> _HALF
    folded ^= values
    folded *= factor
    into += folded


def _finish(hashes: Hashes) -> None:
    """Spread every bit over all others, in place."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= np.uint64(factor)


# -- by type -----------------------------------------------------------------------------------


def _hasher(type_: Any) -> Callable[[Any], Hashes]:
    for belongs, hasher in _HASHERS:
        if belongs(type_):
            return hasher
    if type_.num_buffers == 2 and type_.num_fields == 0:
        return _fixed
    raise TypeError(f"values of type {type_} cannot be hashed")


def _fixed(array: Any) -> Hashes:
    """Values of a fixed number of bytes, as they are."""
    width = array.type.bit_width // 8
    if width not in (1, 2, 4) and width % 8:
        return _text(array.cast(pa.binary()))
    words = width // 8 if width % 8 == 0 else 1
    unit = np.dtype(f"u{width // words}")
    begin, count = array.offset * words, len(array) * words
    values = np.frombuffer(array.buffers()[1], unit, count, begin * unit.itemsize)
    if words == 1:
        return values.astype(np.uint64, copy=False)
    found = np.zeros(len(array), np.uint64)
    for number in range(words):
        _combine(found, values[number::words], _WORD_FACTORS[number])
    _finish(found)
    return found


def _bool(array: Any) -> Hashes:
    return pc.cast(array, pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)


def _dictionary(array: Any) -> Hashes:
    values = value_hashes(array.dictionary)
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(0)
        values = values if len(values) else np.zeros(1, np.uint64)
    return values[indices.to_numpy()]


def _text(array: Any) -> Hashes:
    """Values of any number of bytes, in stretches that are padded to whole words.

    The sum of words times factors of their own: padding with zeros adds nothing.
    """
    offsets = _offsets(array)
    lengths = np.diff(offsets)
    found = lengths.astype(np.uint64) * _MIX
    longest = int(lengths.max(initial=0))
    for start in range(0, min(longest, _LONG_TEXT), _STRETCH):
        rows = slice(None) if start == 0 else np.flatnonzero(lengths > start)
        part = array if start == 0 else array.take(pa.array(rows))
        found[rows] += _stretch(part, start, min(longest, start + _STRETCH))
    for row in np.flatnonzero(lengths > _LONG_TEXT).tolist():
        value = array[row].as_buffer() if array[row].is_valid else b""
        found[row] = int.from_bytes(blake2b(value, digest_size=8).digest(), "little")
    return found


def _stretch(array: Any, start: int, stop: int) -> Hashes:
    """What the bytes from start to stop of each value add."""
    words = -(-(stop - start) // 8)
    part = _as_bytes(array)
    if start or stop < int(pc.max(pc.binary_length(part)).as_py() or 0):
        part = pc.binary_slice(part, start, stop)
    # As text, for only that can be padded; nothing looks at what the bytes mean.
    text = part.view(pa.large_string() if part.type == pa.large_binary() else pa.string())
    padded = pc.ascii_rpad(text, width=8 * words, padding="\0").fill_null("\0" * 8 * words)
    content = np.frombuffer(padded.buffers()[2], np.uint64, words * len(padded))
    found = np.zeros(len(padded), np.uint64)
    for word in range(words):
        _combine(found, content[word::words], _WORD_FACTORS[(start // 8 + word)])
    return found


def _as_bytes(array: Any) -> Any:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    return array.view(pa.large_binary() if large else pa.binary())


def _view(array: Any) -> Hashes:
    is_text = pa.types.is_string_view(array.type)
    return _text(array.cast(pa.large_string() if is_text else pa.large_binary()))


def _offsets(array: Any) -> Any:
    """Where each value begins, and where the last one ends."""
    large = array.type in (pa.large_string(), pa.large_binary()) or pa.types.is_large_list(
        array.type
    )
    unit = np.dtype(np.int64 if large else np.int32)
    if len(array) == 0:
        return np.zeros(1, np.int64)
    start = array.offset * unit.itemsize
    return np.frombuffer(array.buffers()[1], unit, len(array) + 1, start).astype(np.int64)


def _struct(array: Any) -> Hashes:
    found = np.zeros(len(array), np.uint64)
    for index in range(array.type.num_fields):
        name = f"{index} {array.type.field(index).name}"
        _combine(found, value_hashes(array.field(index)), _factor(name))
    _finish(found)
    return found


def _list(array: Any) -> Hashes:
    offsets = _offsets(array)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    items = value_hashes(array.values.slice(begin, count))
    return _of_items(items, offsets[:-1] - begin, np.diff(offsets))


def _fixed_list(array: Any) -> Hashes:
    size = array.type.list_size
    items = value_hashes(array.values.slice(array.offset * size, len(array) * size))
    lengths = np.full(len(array), size, np.int64)
    return _of_items(items, np.arange(len(array), dtype=np.int64) * size, lengths)


def _list_view(array: Any) -> Hashes:
    """Lists that may lie anywhere; those of nulls are not looked at."""
    is_null = pc.is_null(array).to_numpy(zero_copy_only=False)
    lengths = np.where(is_null, 0, array.sizes.to_numpy()).astype(np.int64)
    starts = np.where(is_null, 0, array.offsets.to_numpy()).astype(np.int64)
    return _of_items(value_hashes(array.values), starts, lengths)


def _map(array: Any) -> Hashes:
    offsets = _offsets(array)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    pairs = np.zeros(count, np.uint64)
    _combine(pairs, value_hashes(array.keys.slice(begin, count)), _factor("key"))
    _combine(pairs, value_hashes(array.items.slice(begin, count)), _factor("item"))
    return _of_items(pairs, offsets[:-1] - begin, np.diff(offsets))


def _of_items(items: Hashes, starts: Any, lengths: Any) -> Hashes:
    """Lists by what is in them and where: by differences of sums, not list by list."""
    items = items.copy()
    _finish(items)
    sums = np.zeros(len(items) + 1, np.uint64)
    np.cumsum(items * _powers(_STEP, len(items)), dtype=np.uint64, out=sums[1:])
    found = (sums[starts + lengths] - sums[starts]) * _powers(_BACK, len(items) + 1)[starts]
    found += lengths.astype(np.uint64) * _MIX
    _finish(found)
    return found


def _powers(base: int, count: int) -> Hashes:
    """1, base, base squared and so on; what does not fit is cut off."""
    factors = np.full(count, np.uint64(base))
    factors[:1] = 1
    return np.multiply.accumulate(factors, dtype=np.uint64)


_HASHERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Hashes]], ...] = (
    (pa.types.is_dictionary, _dictionary),
    (pa.types.is_boolean, _bool),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_large_binary, _text),
    (pa.types.is_string_view, _view),
    (pa.types.is_binary_view, _view),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_fixed_size_list, _fixed_list),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
    (lambda type_: type_.id in (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW), _list_view),
)
