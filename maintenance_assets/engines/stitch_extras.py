"""What belongs to a column chunk and lies elsewhere in the file: indexes and bloom filters."""

from collections.abc import Iterable, Sequence

from maintenance_assets.engines.stitch_footer import (
    BLOOM_FILTER,
    COLUMN_INDEX,
    OFFSET_INDEX,
    Chunk,
    StitchObstacleError,
)
from maintenance_assets.engines.stitch_pages import Read
from maintenance_assets.engines.thrift import (
    I32,
    I64,
    LIST,
    Fields,
    int_bytes,
    int_of,
    list_bytes,
    struct_bytes,
    take_list,
    take_struct,
)
from maintenance_assets.model.policy import MIB

Extent = tuple[int, int]
"""Position and length."""
_GAP = 64 * 1024
_LONGEST_READ = 8 * MIB
_BLOOM_HEADER = 64
_BLOOM_FIELDS = frozenset({1, 2, 3, 4})
_PAGE_LOCATIONS, _LAST_OF_INDEX = 1, 2
_PAGE_OFFSET, _LAST_OF_LOCATION = 1, 3


class Extras:
    """The indexes and bloom filters of some chunks, read with few reads."""

    def __init__(self, read: Read, chunks: Sequence[Chunk], data_end: int) -> None:
        """Nothing of them lies behind `data_end`."""
        self._blooms = {id(chunk): _bloom_extent(read, chunk, data_end) for chunk in chunks}
        wanted = [
            extent
            for chunk in chunks
            for extent in (
                self._blooms[id(chunk)],
                chunk.extent(COLUMN_INDEX),
                chunk.extent(OFFSET_INDEX),
            )
        ]
        self._content = read_extents(read, wanted)

    def bloom_filter(self, chunk: Chunk) -> bytes:
        """Header and bits; empty where there is none."""
        return self._content.get(self._blooms[id(chunk)], b"")

    def column_index(self, chunk: Chunk) -> bytes:
        """As it was written: it holds no positions."""
        return self._content.get(chunk.extent(COLUMN_INDEX), b"")

    def offset_index(self, chunk: Chunk, delta: int) -> bytes:
        """With its pages that much further on."""
        content = self._content.get(chunk.extent(OFFSET_INDEX), b"")
        return _moved(content, delta) if content else b""


def _bloom_extent(read: Read, chunk: Chunk, data_end: int) -> Extent:
    start, length = chunk.extent(BLOOM_FILTER, of_column=True)
    if start and not length:
        # Older writers do not say how long it is; its own header does.
        length = _bloom_bytes(read(start, min(_BLOOM_HEADER, data_end - start)))
        if start + length > data_end:
            raise StitchObstacleError("a bloom filter lies outside the data")
    return start, length


def _bloom_bytes(data: bytes) -> int:
    """How long a bloom filter is, header included."""
    try:
        header, size = take_struct(data, 0)
        bits = int_of(header, 1)
    except (IndexError, ValueError) as error:
        raise StitchObstacleError(f"a bloom filter is damaged ({error})") from error
    if set(header) != _BLOOM_FIELDS or header[1][0] != I32 or bits <= 0:
        raise StitchObstacleError("a bloom filter is not where the footer says")
    return size + bits


def read_extents(read: Read, extents: Iterable[Extent]) -> dict[Extent, bytes]:
    """What lies close together is read together."""
    found: dict[Extent, bytes] = {}
    for together in _close_together({extent for extent in extents if extent[0] and extent[1]}):
        first = together[0][0]
        content = read(first, max(start + length for start, length in together) - first)
        for start, length in together:
            found[start, length] = content[start - first : start - first + length]
    return found


def _close_together(extents: set[Extent]) -> list[list[Extent]]:
    runs: list[list[Extent]] = []
    first = end = 0
    for start, length in sorted(extents):
        if runs and start <= end + _GAP and start + length - first <= _LONGEST_READ:
            runs[-1].append((start, length))
            end = max(end, start + length)
        else:
            runs.append([(start, length)])
            first, end = start, start + length
    return runs


def _moved(content: bytes, delta: int) -> bytes:
    def move(data: bytes, position: int) -> tuple[bytes, int]:
        location, end = take_struct(data, position)
        _require_known(location, _LAST_OF_LOCATION)
        location[_PAGE_OFFSET] = I64, int_bytes(int_of(location, _PAGE_OFFSET) + delta)
        return struct_bytes(location), end

    def move_all(data: bytes, position: int) -> tuple[list[bytes], int]:
        return take_list(data, position, move)

    try:
        index, _ = take_struct(content, 0, {_PAGE_LOCATIONS: move_all})
        _require_known(index, _LAST_OF_INDEX)
        index[_PAGE_LOCATIONS] = LIST, list_bytes(index[_PAGE_LOCATIONS][1])
    except (IndexError, KeyError, ValueError, RecursionError) as error:
        raise StitchObstacleError(f"a page index is damaged ({error})") from error
    return struct_bytes(index)


def page_positions(content: bytes) -> list[int]:
    """Where an offset index says that pages start."""

    def take_all(data: bytes, position: int) -> tuple[list[Fields], int]:
        return take_list(data, position, take_struct)

    try:
        index, _ = take_struct(content, 0, {_PAGE_LOCATIONS: take_all})
        return [int_of(location, _PAGE_OFFSET) for location in index[_PAGE_LOCATIONS][1]]
    except (IndexError, KeyError, ValueError, RecursionError) as error:
        raise StitchObstacleError(f"a page index is damaged ({error})") from error


def _require_known(fields: Fields, last: int) -> None:
    if any(number > last for number in fields):
        raise StitchObstacleError("a page index has a field that is not known")
