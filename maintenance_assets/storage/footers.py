"""Read Parquet footers: one ranged read each, many in parallel."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.errors import UnreadableFileError
from maintenance_assets.model.files import DICTIONARY, DataFile, FileSchema, SortedColumn
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.planning.column_ranges import column_ranges
from maintenance_assets.storage.filesystems import Listed, Store

T = TypeVar("T")

_TAIL_BYTES = 64 * 1024
_LOCAL_READERS = 2
_LOCAL_PORTION = 64
"""A local footer takes a tenth of a millisecond: handing each to a thread would cost more."""
_LOOK_AHEAD = 1024
_REMOTE_READERS = 32
_SIGNATURE_BYTES = 28
"""Behind a footer that can be read although columns are encrypted."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_CODEC_NAMES = {"": "none", "uncompressed": "none"}


class _UnreadableError(Exception):
    """A file that is not readable Parquet, with the reason in words."""


def read_footers(
    store: Store,
    listed: Sequence[Listed],
    on_progress: ProgressCallback | None = None,
    ranges_of: Sequence[str] = (),
    known: Mapping[str, DataFile] | None = None,
) -> tuple[DataFile, ...]:
    """Read all footers but the known ones; every unreadable file is named in one error."""
    schemas = _Schemas(ranges_of, known)
    files: list[DataFile] = []
    problems: list[tuple[str, str]] = []
    with ThreadPoolExecutor(_LOCAL_READERS if store.is_local else _REMOTE_READERS) as pool:
        # Bounded look-ahead, so that a million listed files are not a million queued futures.
        for chunk in _chunks(listed, _LOOK_AHEAD):
            portions = _chunks(chunk, _LOCAL_PORTION if store.is_local else 1)
            for outcomes in pool.map(
                lambda part: [_try_footer(store, entry, schemas) for entry in part], portions
            ):
                for outcome in outcomes:
                    match outcome:
                        case DataFile():
                            files.append(outcome)
                        case (path, reason):
                            problems.append((path, reason))
                        case None:
                            pass  # deleted since the listing: no longer part of the dataset
            if on_progress is not None:
                on_progress(Progress("discover", len(files), len(listed)))
    if problems:
        raise UnreadableFileError(problems)
    return tuple(files)


def examine_footers(
    store: Store, listed: Sequence[Listed], look: Callable[[DataFile, Any], T]
) -> tuple[T, ...]:
    """What `look` makes of each file and its whole metadata; an unreadable or missing one raises.

    Every problem is named in one error.
    """
    schemas = _Schemas()

    def examine(entry: Listed) -> tuple[T | None, str]:
        try:
            parquet, footer_bytes = _open_footer(store, entry)
            file = _data_file(entry, parquet, footer_bytes, schemas.of(parquet))
            return look(file, parquet.metadata), ""
        except (_UnreadableError, pa.ArrowException, OSError) as error:
            return None, str(error).splitlines()[0]

    with ThreadPoolExecutor(_LOCAL_READERS if store.is_local else _REMOTE_READERS) as pool:
        found = list(pool.map(examine, listed))
    problems = [(e.path, why) for e, (_, why) in zip(listed, found, strict=True) if why]
    if problems:
        raise UnreadableFileError(problems)
    return tuple(seen for seen, _ in found if seen is not None)


def read_footer(store: Store, listed: Listed, ranges_of: Sequence[str] = ()) -> DataFile:
    """Read one footer; UnreadableFileError when it is not readable Parquet."""
    match _try_footer(store, listed, _Schemas(ranges_of)):
        case DataFile() as file:
            return file
        case (path, reason):
            raise UnreadableFileError([(path, reason)])
        case None:
            raise FileNotFoundError(f"'{listed.path}' does not exist")


def _chunks(items: Sequence[Listed], size: int) -> Iterator[list[Listed]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _try_footer(
    store: Store, listed: Listed, schemas: "_Schemas"
) -> DataFile | tuple[str, str] | None:
    found = schemas.known.get(listed.path)
    if found is not None and (found.version, found.size_bytes) == (
        listed.version,
        listed.size_bytes,
    ):
        return found
    try:
        parquet, footer_bytes = _open_footer(store, listed)
        file = _data_file(listed, parquet, footer_bytes, schemas.of(parquet))
        ranges = column_ranges(parquet.metadata, file.schema, schemas.ranges_of)
        return replace(file, ranges=ranges) if ranges else file
    except FileNotFoundError:
        return None
    except _UnreadableError as error:
        return listed.path, str(error)
    except (pa.ArrowException, OSError, ValueError) as error:
        return listed.path, str(error).splitlines()[0]


def _open_footer(store: Store, listed: Listed) -> tuple[pq.ParquetFile, int]:
    if listed.size_bytes == 0:
        raise _UnreadableError("the file is empty (0 bytes)")
    if listed.size_bytes < 12:
        raise _UnreadableError(f"too short to be Parquet ({listed.size_bytes} bytes)")
    tail = store.tail(listed.path, _TAIL_BYTES, listed.size_bytes)
    magic = tail[-4:]
    if magic == b"PARE":
        raise _UnreadableError("the footer is encrypted; encrypted files are not supported")
    if magic != b"PAR1":
        raise _UnreadableError("the end of the file is not a Parquet footer (truncated or corrupt)")
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
    if footer_bytes + 4 > listed.size_bytes:
        raise _UnreadableError("the footer is longer than the file (truncated or corrupt)")
    if footer_bytes > len(tail):
        tail = store.tail(listed.path, footer_bytes, listed.size_bytes)
    parquet = pq.ParquetFile(pa.BufferReader(tail))
    if footer_bytes - 8 == parquet.metadata.serialized_size + _SIGNATURE_BYTES:
        # PyArrow would end the whole process on the first look at an encrypted column.
        raise _UnreadableError("its columns are encrypted; encrypted files are not supported")
    return parquet, footer_bytes


def _data_file(
    listed: Listed, parquet: pq.ParquetFile, footer_bytes: int, schema: FileSchema
) -> DataFile:
    metadata = parquet.metadata
    decoded = 0
    group_bytes: list[int] = []
    group_rows: list[int] = []
    codecs: list[str] = [""] * metadata.num_columns
    mixes_codecs = False
    encodings: list[set[str]] = [set() for _ in codecs]
    page_index = False
    data_end = listed.size_bytes - footer_bytes
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        group_bytes.append(0)
        group_rows.append(group.num_rows)
        for index, column in enumerate(columns):
            chunk = group.column(index)
            if chunk.physical_type != column.physical_type:
                # PyArrow would end the whole process on the first look at its statistics.
                raise _UnreadableError(f"column '{chunk.path_in_schema}' has values of two types")
            if _chunk_end(chunk) > data_end:
                raise _UnreadableError(f"column '{chunk.path_in_schema}' ends beyond the data")
            group_bytes[-1] += chunk.total_compressed_size
            decoded += decoded_size(column, chunk)
            codec = chunk.compression.lower()
            mixes_codecs = mixes_codecs or codecs[index] not in ("", codec)
            codecs[index] = codec
            encodings[index].update(chunk.encodings)
            page_index = page_index or chunk.has_offset_index
    if sum(group_rows) != metadata.num_rows:
        raise _UnreadableError(f"{metadata.num_rows} rows, but {sum(group_rows)} in its row groups")
    return DataFile(
        path=listed.path,
        size_bytes=listed.size_bytes,
        num_rows=metadata.num_rows,
        version=listed.version,
        schema=schema,
        data_bytes=sum(group_bytes),
        decoded_bytes=decoded,
        row_group_count=metadata.num_row_groups,
        codecs=tuple(_CODEC_NAMES.get(codec, codec) for codec in codecs),
        mixes_codecs=mixes_codecs,
        encodings=tuple(_encoding(names) for names in encodings),
        has_page_index=page_index,
        sorting=_sorting(metadata),
        created_by=_created_by(metadata),
        footer_bytes=footer_bytes,
        group_rows=tuple(group_rows) if len(group_rows) > 1 else (),
        group_bytes=tuple(group_bytes) if len(group_bytes) > 1 else (),
    )


def _created_by(metadata: Any) -> str:
    try:
        return sys.intern(metadata.created_by or "")
    except UnicodeDecodeError:
        return ""  # nobody's name that we know


def _encoding(names: set[str]) -> str:
    if any("DICTIONARY" in name for name in names):
        return DICTIONARY
    # RLE and BIT_PACKED also encode levels: they say nothing about the values.
    special = names - {"PLAIN", "RLE", "BIT_PACKED"}
    return min(special) if len(special) == 1 else "PLAIN"


def _chunk_end(chunk: Any) -> int:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return int(start + chunk.total_compressed_size)


def decoded_size(column: Any, chunk: Any) -> int:
    """Bytes of a column chunk once decoded, as well as a footer can tell."""
    width = _WIDTHS.get(column.physical_type)
    if width is None and column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = max(1, column.length)
    if width is not None:
        return int(chunk.num_values * width)
    # Variable-length values repeat in a dictionary: the longest known value bounds the guess,
    # and where no value is known (long ones are left out of statistics) the dictionary itself.
    longest = 0
    if chunk.is_stats_set and chunk.statistics.has_min_max:
        # Raw: text that is not UTF-8 cannot be shown, but it can be kept.
        longest = max(len(chunk.statistics.min_raw), len(chunk.statistics.max_raw)) // 2
    elif any("DICTIONARY" in encoding for encoding in chunk.encodings):
        longest = chunk.total_uncompressed_size
    return int(
        max(chunk.total_uncompressed_size, chunk.num_values * longest) + 4 * chunk.num_values
    )


def _sorting(metadata: Any) -> tuple[SortedColumn, ...]:
    """The order within each row group, where all declare the same one."""
    groups = range(metadata.num_row_groups)
    orders = {tuple(metadata.row_group(index).sorting_columns) for index in groups}
    if len(orders) != 1:
        return ()
    return tuple(
        SortedColumn(
            metadata.schema.column(column.column_index).path, column.descending, column.nulls_first
        )
        for column in orders.pop()
    )


class _Schemas:
    """Schemas seen so far: thousands of files share a handful of them."""

    def __init__(
        self, ranges_of: Sequence[str] = (), known: Mapping[str, DataFile] | None = None
    ) -> None:
        self.ranges_of = ranges_of
        self.known = known or {}
        self._known: dict[str, FileSchema] = {}
        self._last: tuple[str, Any, FileSchema] | None = None

    def of(self, parquet: pq.ParquetFile) -> FileSchema:
        """The schema of a file, the same object for equal ones."""
        # As text: `equals` sees leaves only, and takes a struct of another name for the same.
        parsed, stored = str(parquet.schema), parquet.metadata.metadata
        last = self._last
        # Most files look like the one before: comparing is cheaper than describing.
        if last is not None and (parsed, stored) == last[:2]:
            return last[2]
        described = _file_schema(parquet)
        found = self._known.setdefault(described.fingerprint, described)
        self._last = parsed, stored, found
        return found


def _file_schema(parquet: pq.ParquetFile) -> FileSchema:
    arrow = parquet.schema_arrow
    leaves = tuple(leaf_text(parquet.schema.column(i)) for i in range(len(parquet.schema)))
    stored = parquet.metadata.metadata or {}
    digest = hashlib.sha256(arrow.serialize())
    paths = tuple(parquet.schema.column(i).path for i in range(len(parquet.schema)))
    annotations, old = _annotations(parquet.schema, paths), _old_timestamps(parquet.schema)
    traits = paths, leaves, b"ARROW:schema" in stored, annotations, old
    digest.update(repr(traits).encode())
    return FileSchema(arrow, digest.hexdigest(), *traits)


def _annotations(schema: Any, paths: tuple[str, ...]) -> tuple[str, ...]:
    # Only the text of a schema shows types of groups, and every Variant has a `metadata`.
    if not any(path.endswith(".metadata") for path in paths):
        return ()
    return tuple(re.findall(r"^ *\w+ group .* \((Variant.*)\) \{$", str(schema), re.MULTILINE))


def _old_timestamps(schema: Any) -> tuple[str, ...]:
    columns = (schema.column(i) for i in range(len(schema)))
    return tuple(
        column.path
        for column in columns
        if column.converted_type.startswith("TIMESTAMP")
        and "is_from_converted_type=true" in str(column.logical_type)
    )


def leaf_text(column: Any) -> str:
    """Physical and logical type of a leaf, without marks that differ between writers."""
    logical = re.sub(
        r", (is_from_converted_type|force_set_converted_type)=\w+", "", str(column.logical_type)
    )
    length = f"({column.length})" if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else ""
    converted = "INTERVAL" if column.converted_type == "INTERVAL" else ""
    return f"{column.physical_type}{length} {logical}{converted}"
