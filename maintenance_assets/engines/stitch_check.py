"""A second look at a stitched file, from its own bytes: all is where its footer says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from maintenance_assets.engines.stitch_extras import page_positions, read_extents
from maintenance_assets.engines.stitch_footer import (
    BLOOM_FILTER,
    CHUNK_OFFSET,
    COLUMN_INDEX,
    DATA_PAGE,
    DICTIONARY_PAGE,
    INDEX_PAGE,
    MAGIC,
    OFFSET_INDEX,
    SORTING,
    Chunk,
    Footer,
    RowGroup,
    StitchObstacleError,
    parse_footer,
)
from maintenance_assets.engines.stitch_pages import check_copied, checked_pages
from maintenance_assets.engines.stitch_source import Source
from maintenance_assets.engines.thrift import Fields, int_of
from maintenance_assets.errors import RewriteError

_PAGES = (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE)
_MOVED_IN_COLUMN = frozenset({*_PAGES, *BLOOM_FILTER})
_MOVED_IN_CHUNK = frozenset({CHUNK_OFFSET, *OFFSET_INDEX, *COLUMN_INDEX})
_TAIL = 64 * 1024


@dataclass(frozen=True, slots=True)
class Expected:
    """What a stitched file has to be: its size, its row groups as they were, and its rows."""

    path: str
    size: int
    groups: Sequence[RowGroup]
    rows: int
    keeps_sorting: bool


def check_stitched(source: Source, expected: Expected, *, look_at_pages: bool) -> None:
    """RewriteError unless a file that was just written is what it has to be.

    A page index that does not point at pages is an obstacle: it may have been so in the source.
    """
    try:
        footer = _read_footer(source, expected)
        _check_groups(footer, expected)
        _check_places(footer, expected.path)
        starts = list(_page_starts(source, footer, expected)) if look_at_pages else None
    except StitchObstacleError as error:
        raise _wrong(expected.path, str(error)) from error
    _check_offset_indexes(source, footer, starts)


def _wrong(path: str, what: str) -> RewriteError:
    return RewriteError(f"'{path}' did not come out as it has to be: {what}")


def _read_footer(source: Source, expected: Expected) -> Footer:
    size = expected.size
    tail = source.read(max(0, size - _TAIL), min(size, _TAIL))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < length <= size:
        tail = source.read(size - length, length)
    return parse_footer(tail, expected.path, size)


def _check_groups(footer: Footer, expected: Expected) -> None:
    groups, path = footer.row_groups, expected.path
    if [group.rows for group in groups] != [group.rows for group in expected.groups]:
        raise _wrong(path, "it has other row groups than its sources")
    if sum(group.rows for group in groups) != expected.rows:
        raise _wrong(path, "it has other rows than were planned")
    for group, old in zip(groups, expected.groups, strict=True):
        order = old.fields.get(SORTING) if expected.keeps_sorting else None
        if group.fields.get(SORTING) != order:
            raise _wrong(path, "it declares another order than was planned")
        for chunk, origin in zip(group.chunks, old.chunks, strict=True):
            _check_chunk(chunk, origin, path)


def _check_chunk(chunk: Chunk, origin: Chunk, path: str) -> None:
    """Only positions differ, and all of them by the same distance."""
    same = _without(chunk.column, _MOVED_IN_COLUMN) == _without(origin.column, _MOVED_IN_COLUMN)
    if not same or _without(chunk.fields, _MOVED_IN_CHUNK) != _without(
        origin.fields, _MOVED_IN_CHUNK
    ):
        raise _wrong(path, "a column is described differently than in its source")
    delta = chunk.start - origin.start
    for number in _PAGES:
        old = int_of(origin.column, number)
        if int_of(chunk.column, number) != (old + delta if old > 0 else old):
            raise _wrong(path, "the pages of a column are not where they were put")
    for (start, length), (before, measured) in zip(chunk.extras(), origin.extras(), strict=True):
        # Not every writer says how long its bloom filters are.
        if before > 0 and measured > 0 and (start <= 0 or length <= 0):
            raise _wrong(path, "an index or bloom filter was left behind")
    if chunk.extent(COLUMN_INDEX)[1] != origin.extent(COLUMN_INDEX)[1]:
        raise _wrong(path, "a column index is not as long as it was")


def _without(fields: Fields, numbers: frozenset[int]) -> Fields:
    return {number: field for number, field in fields.items() if number not in numbers}


def _chunks(footer: Footer) -> list[Chunk]:
    return [chunk for group in footer.row_groups for chunk in group.chunks]


def _check_places(footer: Footer, path: str) -> None:
    """No two things share bytes."""
    places = [(chunk.start, chunk.length) for chunk in _chunks(footer)]
    places += [extent for chunk in _chunks(footer) for extent in chunk.extras()]
    taken = sorted((start, start + length) for start, length in places if length)
    if taken and taken[0][0] < len(MAGIC):
        raise _wrong(path, "a column lies before the data")
    if any(following < end for (_, end), (following, _) in pairwise(taken)):
        raise _wrong(path, "two columns or indexes share bytes")


def _page_starts(source: Source, footer: Footer, expected: Expected) -> Iterator[set[int]]:
    """Pages that were looked at in the source have to begin as there; others are looked at."""
    origins = [chunk for group in expected.groups for chunk in group.chunks]
    for chunk, origin in zip(_chunks(footer), origins, strict=True):
        if origin.pages is None:
            yield {page.start for page in checked_pages(source.read, chunk, expected.path)}
            continue
        moved = chunk.start - origin.start
        yield set(check_copied(source.read, origin.pages, moved, expected.path))


def _check_offset_indexes(source: Source, footer: Footer, starts: list[set[int]] | None) -> None:
    chunks = _chunks(footer)
    content = read_extents(source.read, [chunk.extent(OFFSET_INDEX) for chunk in chunks])
    for at, chunk in enumerate(chunks):
        if chunk.extent(OFFSET_INDEX) not in content:
            continue
        found = page_positions(content[chunk.extent(OFFSET_INDEX)])
        inside = all(chunk.start <= position < chunk.end for position in found)
        if not inside or (starts is not None and not starts[at].issuperset(found)):
            raise StitchObstacleError("a page index points at something that is no page")
