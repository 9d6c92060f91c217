"""Just enough of Thrift's compact protocol to read Parquet page headers."""

from typing import Any

_TRUE, _FALSE = 1, 2


class Reader:
    """Reads structs from bytes; `position` is where the next one starts."""

    def __init__(self, data: memoryview, position: int = 0) -> None:
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
                return kind == _TRUE
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
        read = self._byte if kind in (_TRUE, _FALSE) else None
        return [read() if read else self._value(kind) for _ in range(size)]

    def _map(self) -> list[tuple[Any, Any]]:
        size = self._varint()
        kinds = self._byte() if size else 0
        return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _bytes(self, length: int) -> bytes:
        start, self.position = self.position, self.position + length
        if length < 0 or self.position > len(self._data):
            raise ValueError("a Thrift value ends beyond the data")
        return bytes(self._data[start : self.position])
