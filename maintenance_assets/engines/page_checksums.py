"""Verify page checksums for readers that do not: a flipped bit must not become data."""

import zlib
from typing import Any

import pyarrow.parquet as pq

from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.thrift import Reader
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DataFile

_COMPRESSED_SIZE, _CRC = 3, 4
_HEADER_PROBE = 512


def verify_page_checksums(file: DataFile, access: FileAccess) -> None:
    """Raise when a page is not what its writer summed up; without sums it costs a look each."""
    with access.open_input(file.path) as handle:
        metadata = pq.ParquetFile(handle).metadata
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(column)
                # Row groups may come from different writers, the pages of a chunk do not.
                if chunk.total_compressed_size and _has_checksums(handle, chunk, file):
                    _verify_chunk(handle, chunk, file)


def _has_checksums(handle: Any, chunk: Any, file: DataFile) -> bool:
    start, length = _extent(chunk)
    probe = min(length, _HEADER_PROBE)
    while True:
        handle.seek(start)
        data = memoryview(handle.read(probe))
        try:
            return _CRC in Reader(data).struct()
        except (IndexError, ValueError) as error:
            if probe == length:
                raise _damaged(file) from error
            probe = min(length, 16 * probe)  # a header holds statistics of any length


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
    # A chunk without values may have a dictionary page and no data page, whose offset is then 0.
    offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return min(offset for offset in offsets if offset), chunk.total_compressed_size


def _header(data: memoryview, position: int, file: DataFile) -> tuple[dict[int, Any], int]:
    reader = Reader(data, position)
    try:
        header = reader.struct()
        if not header[_COMPRESSED_SIZE] >= 0:
            raise ValueError("a page has a negative size")
    except (IndexError, KeyError, ValueError) as error:
        raise _damaged(file) from error
    return header, reader.position


def _damaged(file: DataFile) -> RewriteError:
    return RewriteError(
        f"'{file.path}' cannot be read: a page header is damaged. Restore that file or move it away"
    )
