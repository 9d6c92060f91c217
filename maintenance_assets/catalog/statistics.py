"""Column statistics in a form that any database compares right: bytes ordered like the values."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange, FileSchema
from maintenance_assets.model.lakehouse import ColumnStatistics, GroupStatistics
from maintenance_assets.planning.column_ranges import column_ranges
from maintenance_assets.planning.orderable import leaf_count, leaf_of, orderable

_SIGN = 1 << 64
_LONGEST = 64
"""Longer texts are cut: a bound needs to be near, not exact."""
_HIGHEST = "\U0010ffff"


def collect_statistics(
    metadata: Any, schema: FileSchema, mapping: Mapping[str, int]
) -> tuple[ColumnStatistics, ...]:
    """What a footer says about the mapped columns."""
    groups = range(metadata.num_row_groups)
    if leaf_count(schema.arrow) != len(schema.leaf_paths):
        return ()  # which statistics belong to which column cannot be told
    leaves = {name: leaf_of(schema.arrow, name) for name in mapping}
    names = [name for name, leaf in leaves.items() if leaf is not None]
    bounds = [column_ranges(metadata, schema, names, [group]) for group in groups]
    found = []
    for name in names:
        leaf = leaves[name]
        if leaf is not None:
            ranges = [next((r for r in part if r.column == name), None) for part in bounds]
            found.append(_of_column(metadata, leaf.index, mapping[name], ranges))
    return tuple(found)


def _of_column(
    metadata: Any, leaf: int, field_id: int, ranges: Sequence[ColumnRange | None]
) -> ColumnStatistics:
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    nulls = tuple(_null_count(metadata.row_group(g).column(leaf)) for g in range(len(rows)))
    lows = tuple(None if r is None else encode_bound(r.low, upper=False) for r in ranges)
    highs = tuple(None if r is None else encode_bound(r.high, upper=True) for r in ranges)
    groups = GroupStatistics(nulls, lows, highs)
    filled = [i for i, count in enumerate(rows) if count and nulls[i] != count]
    return ColumnStatistics(
        field_id,
        None if None in nulls else sum(count or 0 for count in nulls),
        _extreme([lows[i] for i in filled], min),
        _extreme([highs[i] for i in filled], max),
        groups if len(rows) > 1 else None,
    )


def _null_count(chunk: Any) -> int | None:
    statistics = chunk.statistics
    known = statistics is not None and statistics.has_null_count
    return int(statistics.null_count) if known else None


def _extreme(bounds: Sequence[bytes | None], choose: Any) -> bytes | None:
    return None if not bounds or None in bounds else choose(bounds)


def constant_statistics(field_id: int, value: Any, rows: int) -> ColumnStatistics:
    """Of a column that has one value (a pyarrow scalar) in all rows of a file."""
    if not value.is_valid:
        return ColumnStatistics(field_id, rows, None, None)
    return ColumnStatistics(
        field_id, 0, encode_bound(value, upper=False), encode_bound(value, upper=True)
    )


def encode_bound(value: Any, *, upper: bool) -> bytes | None:
    """A pyarrow scalar as bytes that are ordered like the values; None where there is no bound."""
    if value is None or not value.is_valid:
        return None
    plain = orderable(pa.array([value.as_py()], value.type) if _is_simple(value) else _one(value))
    item = plain[0].as_py()
    if isinstance(item, int):
        return (item + _SIGN).to_bytes(9, "big")
    if isinstance(item, float):
        return _float_bytes(item, upper)
    return _cut(item, upper, is_text(value.type))


def _is_simple(value: Any) -> bool:
    return bool(pa.types.is_integer(value.type) or pa.types.is_string(value.type))


def _one(value: Any) -> Any:
    return pc.take(pa.repeat(value, 1), pa.array([0]))


def is_text(type_: Any) -> bool:
    """Whether values are text, of whatever width."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(_plain_type(type_)) for check in checks)


def is_bytes_or_text(type_: Any) -> bool:
    """Whether values are text or bytes, whose bounds may have been cut."""
    return is_text(type_) or _is_bytes(_plain_type(type_))


def _plain_type(type_: Any) -> Any:
    if isinstance(type_, pa.BaseExtensionType):
        return _plain_type(type_.storage_type)
    return _plain_type(type_.value_type) if pa.types.is_dictionary(type_) else type_


def _float_bytes(value: float, upper: bool) -> bytes | None:
    if value != value:
        return None
    # Footers do not tell one zero from the other.
    value = (0.0 if upper else -0.0) if value == 0 else value
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    ordered = bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63)
    return struct.pack(">Q", ordered)


def _cut(value: bytes, upper: bool, text: bool) -> bytes | None:
    if len(value) <= _LONGEST:
        return value
    if not text:
        rest = value[_LONGEST:]
        head = value[:_LONGEST]
        return head if not upper else None if rest[:8] == b"\xff" * 8 else head + b"\xff" * 8
    shown = value.decode()
    head_text = value[:_LONGEST].decode(errors="ignore")
    if not upper:
        return head_text.encode()
    return None if shown[len(head_text)] == _HIGHEST else (head_text + _HIGHEST).encode()


def decode_bound(data: bytes, type_: Any) -> Any:
    """The pyarrow scalar of that type that a bound stands for; None where it has no such form."""
    plain = _plain_type(type_)
    try:
        if pa.types.is_floating(plain):
            return pa.scalar(_float_of(data), pa.float64()).cast(plain)
        if pa.types.is_decimal(plain):
            return _decimal_of(data, plain)
        if is_text(plain):
            return pa.scalar(data.decode(), plain)
        if _is_bytes(plain):
            return pa.scalar(data, plain)
        return _integer_of(int.from_bytes(data, "big") - _SIGN, plain)
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _float_of(data: bytes) -> float:
    (ordered,) = struct.unpack(">Q", data)
    bits = ordered ^ (1 << 63 if ordered >> 63 else 0xFFFF_FFFF_FFFF_FFFF)
    (value,) = struct.unpack(">d", struct.pack(">Q", bits))
    return float(value)


def _decimal_of(data: bytes, type_: Any) -> Any:
    raw = bytearray(data)
    raw[0] ^= 0x80
    buffer = pa.py_buffer(bytes(raw[::-1]))
    return pa.Array.from_buffers(type_, 1, [None, buffer])[0]


def _is_bytes(type_: Any) -> bool:
    checks = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(check(type_) for check in checks)


def _integer_of(number: int, type_: Any) -> Any:
    if pa.types.is_boolean(type_):
        return pa.scalar(bool(number))
    if pa.types.is_integer(type_):
        return pa.scalar(number, type_)
    if pa.types.is_null(type_):
        return None
    whole = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array([number], whole).view(type_)[0]


def pack_numbers(values: Sequence[int | None]) -> bytes:
    """Counts as bytes, eight each; None as -1."""
    return struct.pack(f"<{len(values)}q", *(-1 if value is None else value for value in values))


def unpack_numbers(data: bytes) -> tuple[int | None, ...]:
    """The counts again."""
    return tuple(
        None if value < 0 else value for value in struct.unpack(f"<{len(data) // 8}q", data)
    )


def pack_bounds(values: Sequence[bytes | None]) -> bytes:
    """Bounds one after the other, each behind its length."""
    return b"".join(
        struct.pack("<h", -1) if value is None else struct.pack("<h", len(value)) + value
        for value in values
    )


def unpack_bounds(data: bytes) -> Iterator[bytes | None]:
    """The bounds again."""
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<h", data, position)
        position += 2
        if length < 0:
            yield None
        else:
            yield data[position : position + length]
            position += length
