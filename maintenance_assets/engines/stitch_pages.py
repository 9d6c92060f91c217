"""A look at every page of a chunk that is copied: whole, in its place, and as it was summed up."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from maintenance_assets.engines.stitch_footer import (
    DATA_PAGE,
    NUM_VALUES,
    Chunk,
    Page,
    StitchObstacleError,
)
from maintenance_assets.engines.thrift import Fields, Parser, int_of, take_struct, to_int
from maintenance_assets.errors import RewriteError

_TYPE, _COMPRESSED_SIZE, _CRC = 1, 3, 4
_VALUES_OF = {0: 5, 3: 8}
"""By type of page, where the header of its data is; pages of other types hold no values."""
_SECOND_VERSION, _ROWS_OF_PAGE = 3, 3
_DATA_HEADERS: dict[int, Parser] = {5: take_struct, 8: take_struct}
_HEADER_PROBE = 256

Read = Callable[[int, int], bytes]
"""Bytes at a position, of a length."""


def checked_pages(read: Read, chunk: Chunk, path: str) -> Iterator[Page]:
    """Each page, once it has been looked at.

    Headers that do not add up are an obstacle: a decoder may know better. A page that is not
    what its writer summed up is an error.
    """
    position = chunk.start
    values = 0
    rows: int | None = 0
    first_data: int | None = None
    while position < chunk.end:
        header, encoded = _header(read, position, chunk.end, path)
        size = len(encoded) + int_of(header, _COMPRESSED_SIZE, -1)
        if size < len(encoded) or position + size > chunk.end:
            raise StitchObstacleError(f"a page of '{path}' does not fit into its column")
        kind = int_of(header, _TYPE)
        counted = header.get(_VALUES_OF.get(kind, 0))
        if counted is not None:
            first_data = position if first_data is None else first_data
            values += int_of(counted[1], 1)
            # Only pages of the second version say how many rows they have.
            if rows is not None and kind == _SECOND_VERSION:
                rows += int_of(counted[1], _ROWS_OF_PAGE)
            else:
                rows = None
        checksum = to_int(header[_CRC][1]) & 0xFFFFFFFF if _CRC in header else None
        page = Page(position, size, encoded, checksum)
        _check_sum(read, page, path)
        yield page
        position += size
    _require_whole(chunk, first_data, values, path)
    if rows is not None and rows != chunk.rows:
        raise StitchObstacleError(f"a column of '{path}' has {rows} rows in its pages")


def check_copied(read: Read, pages: Iterable[Page], moved: int, path: str) -> Iterator[int]:
    """Where pages of a source are in a copy of it, once each is seen to begin as it did there."""
    for page in pages:
        place = replace(page, start=page.start + moved)
        if read(place.start, len(page.header)) != page.header:
            raise StitchObstacleError("a page does not begin with the bytes that were copied")
        _check_sum(read, place, path)
        yield place.start


def _header(read: Read, position: int, end: int, path: str) -> tuple[Fields, bytes]:
    probe = _HEADER_PROBE
    while True:
        data = read(position, min(probe, end - position))
        try:
            fields, length = take_struct(data, 0, _DATA_HEADERS)
            return fields, data[:length]
        except (IndexError, ValueError, RecursionError) as error:
            if probe >= end - position:
                raise StitchObstacleError(f"a page header of '{path}' is damaged") from error
            probe *= 16  # a header holds statistics of any length


def _check_sum(read: Read, page: Page, path: str) -> None:
    if page.checksum is None:
        return
    length = len(page.header)
    if zlib.crc32(read(page.start + length, page.size - length)) != page.checksum:
        raise RewriteError(
            f"'{path}' cannot be read: a page does not match its CRC checksum. "
            "Restore that file or move it away"
        )


def _require_whole(chunk: Chunk, first_data: int | None, values: int, path: str) -> None:
    if values != int_of(chunk.column, NUM_VALUES):
        raise StitchObstacleError(f"a column of '{path}' has {values} values in its pages")
    # Some writers let it point at the dictionary, which is at the very start.
    if first_data is not None and int_of(chunk.column, DATA_PAGE) not in (first_data, chunk.start):
        raise StitchObstacleError(f"the pages of '{path}' are not where its footer says")
