"""Files under other column names: what a reader sees is the footer, and that is a few bytes.

A dataset column may be called otherwise in an old file, or an old file may hold a dropped column
whose name is in use again. Readers go by names. So they are shown the file with a footer in which
the names are right; all other bytes are the file's own.
"""

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from maintenance_assets.engines.thrift import Reader

_MAGIC = b"PAR1"
_TAIL = 64 * 1024
_SCHEMA, _NAME, _CHILDREN = 2, 4, 5
_ROW_GROUPS, _COLUMNS, _METADATA, _PATH, _STATISTICS = 4, 1, 3, 3, 12


def renamed_footer(
    footer: bytes, names: Mapping[str, str], without_statistics: frozenset[str]
) -> bytes:
    """The footer with top-level columns called otherwise; some (by old name) lose statistics.

    Statistics have to go where values are read as another type that is ordered differently.
    """
    walker = _Walker(memoryview(footer))
    metadata = walker.struct()
    edits: list[tuple[int, int, bytes]] = []
    for index in _top_level(metadata[_SCHEMA]):
        old = metadata[_SCHEMA][index][_NAME].decode()
        if old in names:
            start, end = walker.spans[_SCHEMA, index, _NAME]
            edits.append((start, end, _text(names[old])))
    for group, fields in enumerate(metadata.get(_ROW_GROUPS, [])):
        for index, chunk in enumerate(fields[_COLUMNS]):
            column = (_ROW_GROUPS, group, _COLUMNS, index, _METADATA)
            leaf = chunk[_METADATA]
            if leaf[_PATH][0].decode() in without_statistics and _STATISTICS in leaf:
                start, end = walker.spans[(*column, _STATISTICS)]
                edits.append((start, end, b"\x00"))
    return _edited(footer[: walker.position], edits)


class _Walker(Reader):
    """Remembers where each field of each struct stands."""

    def __init__(self, data: memoryview) -> None:
        super().__init__(data)
        self.spans: dict[tuple[int, ...], tuple[int, int]] = {}
        self._place: tuple[int, ...] = ()

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        place = self._place
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            start = self.position
            self._place = (*place, number)
            fields[number] = self._value(kind)
            self.spans[self._place] = start, self.position
        self._place = place
        return fields

    def _list(self) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        place = self._place
        items = []
        for index in range(size):
            self._place = (*place, index)
            items.append(self._byte() if kind in (1, 2) else self._value(kind))
        self._place = place
        return items


def _top_level(elements: list[dict[int, Any]]) -> list[int]:
    """Positions of the children of the root in the flattened tree."""
    found = []
    position = 1
    while position < len(elements):
        found.append(position)
        left = 1
        while left:
            left += elements[position].get(_CHILDREN, 0) - 1
            position += 1
    return found


def _text(value: str) -> bytes:
    data = value.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts = []
    position = 0
    for start, end, text in sorted(edits):
        parts += [data[position:start], text]
        position = end
    return b"".join([*parts, data[position:]])


class RenamedFile(io.RawIOBase):
    """A Parquet file with another footer, for reading."""

    def __init__(
        self, source: Any, names: Mapping[str, str], without_statistics: frozenset[str]
    ) -> None:
        super().__init__()
        self._source = source
        size = source.seek(0, io.SEEK_END)
        footer_bytes = _footer_length(source, size)
        self._data_end = size - footer_bytes - 8
        source.seek(self._data_end)
        footer = renamed_footer(source.read(footer_bytes), names, without_statistics)
        self._tail = footer + len(footer).to_bytes(4, "little") + _MAGIC
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._position + size)
        start, self._position = self._position, max(self._position, end)
        data = b""
        if start < self._data_end:
            self._source.seek(start)
            data = self._source.read(min(end, self._data_end) - start)
        tail_start = max(0, start - self._data_end)
        return data + self._tail[tail_start : max(0, end - self._data_end)]

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()

    @property
    def _size(self) -> int:
        return self._data_end + len(self._tail)


def _footer_length(source: Any, size: int) -> int:
    source.seek(size - 8)
    end = source.read(8)
    if end[4:] != _MAGIC:
        raise pa.ArrowInvalid("the end of the file is not a Parquet footer (truncated or corrupt)")
    return int.from_bytes(end[:4], "little")


class RenamingHandler(pafs.FileSystemHandler):
    """Opens files of another file system under other column names."""

    def __init__(
        self, inner: Any, names: Mapping[str, str], without_statistics: frozenset[str]
    ) -> None:
        self._inner = inner
        self._names = dict(names)
        self._without = without_statistics

    def open_input_file(self, path: str) -> Any:
        """The file, with the names that readers go by."""
        source = self._inner.open_input_file(path)
        return pa.PythonFile(RenamedFile(source, self._names, self._without), mode="r")

    def open_input_stream(self, path: str) -> Any:
        """The same, from its beginning."""
        return self.open_input_file(path)

    def get_type_name(self) -> str:
        return "renamed"

    def get_file_info(self, paths: list[str]) -> Any:
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._inner.get_file_info(selector)

    def normalize_path(self, path: str) -> str:
        return str(self._inner.normalize_path(path))

    def _refuse(self, *_: Any) -> Any:
        raise PermissionError("files are only read here")

    create_dir = delete_dir = delete_dir_contents = delete_file = _refuse
    delete_root_dir_contents = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse
