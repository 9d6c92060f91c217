"""Thrift's compact protocol: read whole values, or take structs apart and put them together.

The second way keeps what it does not know: a field is its kind and its encoded bytes, and only
the fields that change are decoded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

TRUE, FALSE = 1, 2
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
_BYTE, _I16, _DOUBLE, _SET, _MAP = 3, 4, 7, 10, 11

Fields = dict[int, tuple[int, Any]]
"""Fields of a struct by number: kind, and encoded bytes or whatever a nested parser made."""
Parser = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a position; returns it and the position behind."""


class Reader:
    """Reads structs from bytes; `position` is where the next one starts."""

    def __init__(self, data: memoryview | bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    def struct(self) -> dict[int, Any]:
        """The fields of a struct by their numbers, known to us or not."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            fields[number] = self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == TRUE
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self.struct()
        raise ValueError(f"{kind} is not a Thrift type")

    def _list(self) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        # In a list a boolean is a byte of its own.
        read = self._byte if kind in (TRUE, FALSE) else None
        return [read() if read else self._value(kind) for _ in range(size)]

    def _map(self) -> list[tuple[Any, Any]]:
        size = self._varint()
        kinds = self._byte() if size else 0
        return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value, self.position = _varint(self._data, self.position)
        return value

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _bytes(self, length: int) -> bytes:
        start, self.position = self.position, self.position + length
        if length < 0 or self.position > len(self._data):
            raise ValueError("a Thrift value ends beyond the data")
        return bytes(self._data[start : self.position])


def take_struct(
    data: bytes, position: int, nested: Mapping[int, Parser] | None = None
) -> tuple[Fields, int]:
    """The fields of the struct at a position, and where it ends; each byte is looked at once."""
    fields: Fields = {}
    number = 0
    while head := data[position]:
        position += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            value, position = _varint(data, position)
            number = (value >> 1) ^ -(value & 1)
        if number in fields:
            raise ValueError(f"field {number} is in a Thrift struct twice")
        if nested and number in nested:
            content, position = nested[number](data, position)
            fields[number] = kind, content
            continue
        start = position
        if I64 >= kind >= _I16:  # most fields are integers: a call for each would take longer
            while data[position] > 127:
                position += 1
            position += 1
        else:
            position = skip(data, position, kind)
        fields[number] = kind, data[start:position]
    return fields, position + 1


def take_list(data: bytes, position: int, parse: Parser) -> tuple[list[Any], int]:
    """The structs of the list at a position, each read by `parse`, and where it ends."""
    size, kind, position = _list_head(data, position)
    if kind != STRUCT and size:
        raise ValueError(f"a Thrift list of kind {kind} where one of structs should be")
    items = []
    for _ in range(size):
        item, position = parse(data, position)
        items.append(item)
    return items, position


def skip(data: bytes, position: int, kind: int) -> int:
    """Where the value at a position ends."""
    if _I16 <= kind <= I64:
        while data[position] > 127:
            position += 1
        return position + 1
    if kind == BINARY:
        size, position = _varint(data, position)
        position += size
    elif kind == STRUCT:
        return _skip_struct(data, position)
    elif kind in (LIST, _SET):
        size, inner, position = _list_head(data, position)
        if inner <= _BYTE:  # in a list a boolean is a byte of its own
            position += size
        else:
            for _ in range(size):
                position = skip(data, position, inner)
    elif kind == _MAP:
        position = _skip_map(data, position)
    elif kind in (_BYTE, _DOUBLE):
        position += 1 if kind == _BYTE else 8
    elif kind not in (TRUE, FALSE):
        raise ValueError(f"{kind} is not a Thrift type")
    if position > len(data):
        raise ValueError("a Thrift value ends beyond the data")
    return position


def _skip_struct(data: bytes, position: int) -> int:
    while head := data[position]:
        position += 1
        kind = head & 15
        if head < 16:
            _, position = _varint(data, position)
        if I64 >= kind >= _I16:
            while data[position] > 127:
                position += 1
            position += 1
        elif kind > FALSE:
            position = skip(data, position, kind)
    return position + 1


def struct_bytes(fields: Fields) -> bytes:
    """A struct of these fields, which hold encoded bytes."""
    parts = []
    last = 0
    for number in sorted(fields):
        kind, content = fields[number]
        delta = number - last
        if 0 < delta < 16:
            parts.append(bytes((delta << 4 | kind,)))
        else:
            parts.append(bytes((kind,)) + int_bytes(number))
        parts.append(content)
        last = number
    parts.append(b"\0")
    return b"".join(parts)


def list_bytes(items: Sequence[bytes], kind: int = STRUCT) -> bytes:
    """A list of encoded items."""
    size = len(items)
    head = bytes((size << 4 | kind,)) if size < 15 else bytes((0xF0 | kind,)) + _varint_bytes(size)
    return head + b"".join(items)


def int_bytes(value: int) -> bytes:
    """An integer of any width."""
    return _varint_bytes((value << 1) ^ (value >> 63))


def to_int(content: bytes) -> int:
    """The integer in encoded bytes."""
    value, _ = _varint(content, 0)
    return (value >> 1) ^ -(value & 1)


def int_of(fields: Fields, number: int, default: int = 0) -> int:
    """An integer field, or the default where it is not set."""
    field = fields.get(number)
    return default if field is None else to_int(field[1])


def _varint(data: Any, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 128:
        return value, position
    value &= 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _varint_bytes(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _list_head(data: bytes, position: int) -> tuple[int, int, int]:
    head = data[position]
    size, position = head >> 4, position + 1
    if size == 15:
        size, position = _varint(data, position)
    if size > len(data):
        raise ValueError("a Thrift list is longer than the data")
    return size, head & 15, position


def _skip_map(data: bytes, position: int) -> int:
    size, position = _varint(data, position)
    if not size:
        return position
    kinds = data[position]
    position += 1
    for _ in range(size):
        position = _skip_item(data, position, kinds >> 4)
        position = _skip_item(data, position, kinds & 15)
    return position


def _skip_item(data: bytes, position: int, kind: int) -> int:
    return position + 1 if kind in (TRUE, FALSE) else skip(data, position, kind)
