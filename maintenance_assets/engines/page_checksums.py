"""Verify page checksums for readers that do not: a flipped bit must not become data."""

import zlib
from typing import Any

import pyarrow.parquet as pq

from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.thrift import Reader
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DataFile

_COMPRESSED_SIZE, _CRC = 3, 4
_HEADER_PROBE = 4096


def verify_page_checksums(file: DataFile, access: FileAccess) -> None:
    """Raise when a page is not what its writer summed up; files without sums cost one look."""
    with access.open_input(file.path) as handle:
        metadata = pq.ParquetFile(handle).metadata
        if not metadata.num_row_groups or not metadata.num_columns:
            return
        if not _has_checksums(handle, metadata.row_group(0).column(0), file):
            return
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(column)
                _verify_chunk(handle, chunk, file)


def _has_checksums(handle: Any, chunk: Any, file: DataFile) -> bool:
    start, length = _extent(chunk)
    handle.seek(start)
    return _CRC in _header(memoryview(handle.read(min(length, _HEADER_PROBE))), 0, file)[0]


def _verify_chunk(handle: Any, chunk: Any, file: DataFile) -> None:
    start, length = _extent(chunk)
    handle.seek(start)
    data = memoryview(handle.read(length))
    position = 0
    while position < len(data):
        header, position = _header(data, position, file)
        page = data[position : position + header[_COMPRESSED_SIZE]]
        position += header[_COMPRESSED_SIZE]
        if _CRC in header and zlib.crc32(page) != header[_CRC] & 0xFFFFFFFF:
            raise RewriteError(
                f"'{file.path}' cannot be read: a page of column '{chunk.path_in_schema}' does not "
                "match its CRC checksum. Restore that file or move it away"
            )


def _extent(chunk: Any) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, chunk.total_compressed_size


def _header(data: memoryview, position: int, file: DataFile) -> tuple[dict[int, Any], int]:
    reader = Reader(data, position)
    try:
        header = reader.struct()
        if not header[_COMPRESSED_SIZE] >= 0:
            raise ValueError("a page has a negative size")
    except (IndexError, KeyError, ValueError) as error:
        raise RewriteError(
            f"'{file.path}' cannot be read: a page header is damaged. Restore that file or move "
            "it away"
        ) from error
    return header, reader.position
