"""A Parquet footer taken apart as far as copying needs it; the rest stays as it was written."""

from dataclasses import dataclass

from maintenance_assets.engines.thrift import (
    Fields,
    int_of,
    take_list,
    take_struct,
)

MAGIC = b"PAR1"

# Fields of FileMetaData.
VERSION, SCHEMA, NUM_ROWS, ROW_GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = range(1, 8)
# Fields of RowGroup.
COLUMNS, TOTAL_BYTES, GROUP_ROWS, SORTING, GROUP_OFFSET, GROUP_COMPRESSED, ORDINAL = range(1, 8)
# Fields of SchemaElement.
_REPETITION, _CHILDREN = 3, 5
_REPEATED = 2
# Fields of ColumnChunk.
FILE_PATH, CHUNK_OFFSET, META_DATA = 1, 2, 3
OFFSET_INDEX, COLUMN_INDEX = (4, 5), (6, 7)
"""Where an index is, and how long."""
_KEYS_OF_ENCRYPTION = (8, 9)
# Fields of ColumnMetaData.
NUM_VALUES, COMPRESSED_SIZE = 5, 7
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = 9, 10, 11
BLOOM_FILTER = (14, 15)
_LAST_OF_FILE, _LAST_OF_GROUP, _LAST_OF_CHUNK, _LAST_OF_COLUMN = 9, 7, 9, 17


class StitchObstacleError(Exception):
    """Why bytes cannot be copied as they are, in words; decoding them may still work."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where a page is, its header as it is encoded, and what its writer summed up of it."""

    start: int
    size: int
    """With its header."""
    header: bytes
    checksum: int | None = None


@dataclass(slots=True)
class Chunk:
    """A column chunk: its fields, those of its metadata, where its bytes are, and its rows."""

    fields: Fields
    column: Fields
    start: int
    length: int
    rows: int = 0
    repeated: bool = False
    """Whether a row may have several values, as in lists."""
    pages: "tuple[Page, ...] | None" = None
    """Its pages, once they were looked at while they were copied."""

    @property
    def end(self) -> int:
        """The position behind its last byte."""
        return self.start + self.length

    def extent(self, numbers: tuple[int, int], *, of_column: bool = False) -> tuple[int, int]:
        """Position and length of an index or bloom filter; zeros where there is none."""
        fields = self.column if of_column else self.fields
        return int_of(fields, numbers[0]), int_of(fields, numbers[1])

    def extras(self) -> tuple[tuple[int, int], ...]:
        """Position and length of the bloom filter and of both indexes."""
        return (
            self.extent(BLOOM_FILTER, of_column=True),
            self.extent(COLUMN_INDEX),
            self.extent(OFFSET_INDEX),
        )


@dataclass(slots=True)
class RowGroup:
    """A row group: its fields without the columns, and these."""

    fields: Fields
    chunks: list[Chunk]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int_of(self.fields, GROUP_ROWS)


@dataclass(slots=True)
class Footer:
    """The fields of a file's metadata, its row groups, and where all before it ends."""

    fields: Fields
    row_groups: list[RowGroup]
    data_end: int

    def raw(self, number: int) -> bytes | None:
        """A field as it is encoded; None where it is not set."""
        field = self.fields.get(number)
        return None if field is None else field[1]


def parse_footer(tail: bytes, path: str, file_bytes: int) -> Footer:
    """The footer in the last bytes of a file; StitchObstacleError where it is not understood."""
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != MAGIC or length + 8 > len(tail):
        raise StitchObstacleError(f"the footer of '{path}' is not where it was")
    data_end = file_bytes - length - 8
    try:
        fields, _ = take_struct(tail, len(tail) - 8 - length, {ROW_GROUPS: _take_row_groups})
        footer = Footer(fields, fields.pop(ROW_GROUPS)[1], data_end)
        _refuse_unknown(footer)
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise StitchObstacleError(f"the footer of '{path}' is not understood ({error})") from error
    except StitchObstacleError as error:
        raise StitchObstacleError(f"{error} ('{path}')") from None
    return footer


def _take_row_groups(data: bytes, position: int) -> tuple[list[RowGroup], int]:
    return take_list(data, position, _take_row_group)


def _take_row_group(data: bytes, position: int) -> tuple[RowGroup, int]:
    fields, position = take_struct(data, position, {COLUMNS: _take_chunks})
    return RowGroup(fields, fields.pop(COLUMNS)[1]), position


def _take_chunks(data: bytes, position: int) -> tuple[list[Chunk], int]:
    return take_list(data, position, _take_chunk)


def _take_chunk(data: bytes, position: int) -> tuple[Chunk, int]:
    fields, position = take_struct(data, position, {META_DATA: take_struct})
    if META_DATA not in fields:
        raise StitchObstacleError("a column has its metadata elsewhere, as encrypted ones have")
    column: Fields = fields.pop(META_DATA)[1]
    offsets = int_of(column, DATA_PAGE), int_of(column, DICTIONARY_PAGE)
    # A chunk without values may have a dictionary page and no data page, whose offset is then 0.
    start = min((offset for offset in offsets if offset > 0), default=0)
    return Chunk(fields, column, start, int_of(column, COMPRESSED_SIZE)), position


def _refuse_unknown(footer: Footer) -> None:
    """What we do not know might be a position in the file, which copying would make wrong."""
    _require_known(footer.fields, _LAST_OF_FILE, "file")
    if any(number in footer.fields for number in _KEYS_OF_ENCRYPTION):
        raise StitchObstacleError("the file is encrypted or signed")
    repeated = repeated_leaves(footer)
    for group in footer.row_groups:
        _require_known(group.fields, _LAST_OF_GROUP, "row group")
        if len(group.chunks) != len(repeated):
            raise StitchObstacleError("a row group has other columns than the schema")
        for chunk, several in zip(group.chunks, repeated, strict=True):
            chunk.rows, chunk.repeated = group.rows, several
            _check_chunk(chunk, footer.data_end)
    if sum(group.rows for group in footer.row_groups) != int_of(footer.fields, NUM_ROWS):
        raise StitchObstacleError("the row groups have other rows than the file")


def repeated_leaves(footer: Footer) -> list[bool]:
    """For each column of the file whether a row may have several values of it."""
    elements, _ = take_list(footer.fields[SCHEMA][1], 0, take_struct)
    leaves: list[bool] = []
    open_groups = [(int_of(elements[0], _CHILDREN), False)]
    for element in elements[1:]:
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        left, repeated = open_groups.pop()
        open_groups.append((left - 1, repeated))
        repeated = repeated or int_of(element, _REPETITION) == _REPEATED
        children = int_of(element, _CHILDREN)
        if children:
            open_groups.append((children, repeated))
        else:
            leaves.append(repeated)
    return leaves


def _check_chunk(chunk: Chunk, data_end: int) -> None:
    _require_known(chunk.fields, _LAST_OF_CHUNK, "column chunk")
    _require_known(chunk.column, _LAST_OF_COLUMN, "column's metadata")
    if FILE_PATH in chunk.fields:
        raise StitchObstacleError("a column lies in another file")
    if any(number in chunk.fields for number in _KEYS_OF_ENCRYPTION):
        raise StitchObstacleError("a column is encrypted")
    if chunk.length < 0 or chunk.end > data_end or (chunk.length and chunk.start < len(MAGIC)):
        raise StitchObstacleError("a column lies outside the data")
    if chunk.rows and not chunk.length:
        raise StitchObstacleError("a column has rows and no bytes")
    values = int_of(chunk.column, NUM_VALUES)
    if values < chunk.rows or (values > chunk.rows and not chunk.repeated):
        raise StitchObstacleError(f"a column has {values} values in {chunk.rows} rows")
    for start, length in chunk.extras():
        if start < 0 or length < 0 or start + length > data_end:
            raise StitchObstacleError("an index or bloom filter lies outside the data")


def _require_known(fields: Fields, last: int, where: str) -> None:
    unknown = [number for number in fields if not 0 < number <= last]
    if unknown:
        raise StitchObstacleError(f"a {where} has field {unknown[0]}, which is not known")
