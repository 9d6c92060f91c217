"""A Parquet file put together from column chunks that were written before."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from maintenance_assets.engines.stitch_extras import Extras
from maintenance_assets.engines.stitch_footer import (
    BLOOM_FILTER,
    CHUNK_OFFSET,
    COLUMN_INDEX,
    COLUMN_ORDERS,
    COLUMNS,
    CREATED_BY,
    DATA_PAGE,
    DICTIONARY_PAGE,
    GROUP_OFFSET,
    INDEX_PAGE,
    KEY_VALUES,
    MAGIC,
    META_DATA,
    NUM_ROWS,
    OFFSET_INDEX,
    ORDINAL,
    ROW_GROUPS,
    SCHEMA,
    SORTING,
    VERSION,
    Chunk,
    Footer,
    RowGroup,
    StitchObstacleError,
)
from maintenance_assets.engines.stitch_source import Source
from maintenance_assets.engines.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Fields,
    Reader,
    int_bytes,
    int_of,
    list_bytes,
    struct_bytes,
)

_NAME = re.compile(rb"(.+?) version v?(\d+)\.(\d+)\.(\d+)")
_MOST_ORDINALS = 32_767
_I16 = 4


def _version_of(writer: bytes | None) -> tuple[bytes, tuple[int, ...]] | None:
    """Application and version in a writer's encoded name."""
    if writer is None:
        return None
    # Behind the header of a field, so that the reader takes it for a struct.
    match = _NAME.match(Reader(b"\x18" + writer + b"\0").struct()[1])
    return None if match is None else (match[1], tuple(int(part) for part in match.groups()[1:]))


@dataclass(slots=True)
class _Written:
    """A chunk that is in its place; its indexes follow behind all data."""

    fields: Fields
    column_index: bytes
    offset_index: bytes


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Chunks that lie one directly behind the other."""

    start: int
    stop: int
    chunks: tuple[Chunk, ...]


def copy_ranges(groups: Iterable[RowGroup]) -> list[CopyRange]:
    """Where the bytes of row groups are, in as few pieces as possible."""
    chunks = [chunk for group in groups for chunk in group.chunks if chunk.length]
    runs: list[list[Chunk]] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        end = runs[-1][-1].end if runs else -1
        if chunk.start < end:
            raise StitchObstacleError("two columns of a file share bytes")
        if chunk.start == end:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [CopyRange(run[0].start, run[-1].end, tuple(run)) for run in runs]


class StitchedFile:
    """Takes row groups one after the other; `finish` writes indexes and footer."""

    def __init__(self, target: Any, base: Footer, own: Footer, *, keep_sorting: bool) -> None:
        """`base` gives the schema; `own`, as PyArrow writes it, the metadata."""
        self._target = target
        self._base = base
        self._own = own
        self._keep_sorting = keep_sorting
        self.sources: list[RowGroup] = []
        self._groups: list[tuple[Fields, list[_Written]]] = []
        self._writers: set[bytes | None] = set()
        self._rows = 0
        self._version = 1
        self._position = 0
        self._write(MAGIC)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._position

    def append(self, source: Source, footer: Footer, groups: Sequence[RowGroup]) -> None:
        """Copy row groups of a file."""
        copied = [chunk for group in groups for chunk in group.chunks]
        extras = Extras(source.read, copied, footer.data_end)
        moved: dict[int, int] = {}
        for part in copy_ranges(groups):
            for chunk in part.chunks:
                moved[id(chunk)] = self._position - part.start
            source.copy(self._target, part.start, part.stop, part.chunks)
            self._position += part.stop - part.start
        for group in groups:
            self._add(group, extras, moved)
        self.sources += groups
        self._writers.add(footer.raw(CREATED_BY))
        self._version = max(self._version, int_of(footer.fields, VERSION))

    def _add(self, group: RowGroup, extras: Extras, moved: dict[int, int]) -> None:
        fields = dict(group.fields)
        if not self._keep_sorting:
            # The order holds inside a row group, and readers take it for that of the file.
            fields.pop(SORTING, None)
        if int_of(fields, GROUP_OFFSET):
            first = group.chunks[0]
            fields[GROUP_OFFSET] = I64, int_bytes(first.start + moved[id(first)])
        written = [self._add_chunk(chunk, extras, moved[id(chunk)]) for chunk in group.chunks]
        self._groups.append((fields, written))
        self._rows += group.rows

    def _add_chunk(self, chunk: Chunk, extras: Extras, delta: int) -> _Written:
        column, fields = dict(chunk.column), dict(chunk.fields)
        for number in (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE):
            if int_of(column, number) > 0:
                column[number] = I64, int_bytes(int_of(column, number) + delta)
        bloom = extras.bloom_filter(chunk)
        for number in BLOOM_FILTER:
            column.pop(number, None)
        if bloom:
            column[BLOOM_FILTER[0]] = I64, int_bytes(self._position)
            column[BLOOM_FILTER[1]] = I32, int_bytes(len(bloom))
            self._write(bloom)
        # A second copy of the metadata, which it may point at, is not taken along.
        offset = int_of(fields, CHUNK_OFFSET)
        inside = chunk.start <= offset < chunk.end
        fields[CHUNK_OFFSET] = I64, int_bytes(offset + delta if inside else 0)
        fields[META_DATA] = STRUCT, struct_bytes(column)
        for number in (*COLUMN_INDEX, *OFFSET_INDEX):
            fields.pop(number, None)
        return _Written(fields, extras.column_index(chunk), extras.offset_index(chunk, delta))

    def finish(self) -> None:
        """Write what stands behind the data."""
        chunks = [chunk for _, written in self._groups for chunk in written]
        for chunk in chunks:
            self._add_index(chunk, COLUMN_INDEX, chunk.column_index)
        for chunk in chunks:
            self._add_index(chunk, OFFSET_INDEX, chunk.offset_index)
        footer = struct_bytes(self._footer())
        self._write(footer + len(footer).to_bytes(4, "little") + MAGIC)

    def _add_index(self, chunk: _Written, numbers: tuple[int, int], content: bytes) -> None:
        if content:
            chunk.fields[numbers[0]] = I64, int_bytes(self._position)
            chunk.fields[numbers[1]] = I32, int_bytes(len(content))
            self._write(content)

    def _footer(self) -> Fields:
        groups = [self._group_bytes(*group, at) for at, group in enumerate(self._groups)]
        fields: Fields = {
            VERSION: (I32, int_bytes(self._version)),
            SCHEMA: self._base.fields[SCHEMA],
            NUM_ROWS: (I64, int_bytes(self._rows)),
            ROW_GROUPS: (LIST, list_bytes(groups)),
        }
        for number, origin in ((KEY_VALUES, self._own), (COLUMN_ORDERS, self._base)):
            if number in origin.fields:
                fields[number] = origin.fields[number]
        writer = self._writer()
        return fields if writer is None else {**fields, CREATED_BY: (BINARY, writer)}

    def _writer(self) -> bytes | None:
        """Readers judge values and statistics by who wrote them: the oldest of one application.

        Where several applications wrote them, it is our own name.
        """
        if len(self._writers) == 1:
            return next(iter(self._writers))
        versions = [(_version_of(writer), writer) for writer in self._writers]
        known = [(version, writer) for version, writer in versions if version and writer]
        if len(known) < len(versions) or len({version[0] for version, _ in known}) > 1:
            return self._own.raw(CREATED_BY)
        return min(known)[1]

    def _group_bytes(self, fields: Fields, chunks: list[_Written], at: int) -> bytes:
        if ORDINAL in fields:
            if len(self._groups) > _MOST_ORDINALS:
                del fields[ORDINAL]
            else:
                fields[ORDINAL] = _I16, int_bytes(at)
        columns = list_bytes([struct_bytes(chunk.fields) for chunk in chunks])
        return struct_bytes({**fields, COLUMNS: (LIST, columns)})

    def _write(self, content: bytes) -> None:
        self._target.write(content)
        self._position += len(content)
