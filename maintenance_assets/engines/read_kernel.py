"""Read Parquet files as batches of bounded size, losing nothing on the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.dictionaries import has_nested_dictionary

MAX_BATCH_ROWS = 64 * 1024
_PROBE_ROWS = 128
_PROBE_BUFFER = 64 * 1024
_WIDEST = 12
"""Bytes of the widest value (INT96) that is not as long as it likes."""
_MIN_BATCH_ROWS = 16
_PREFETCH_LIMIT = 64 * MIB
_THREADS_FROM = MIB
"""Columns of a smaller file are decoded sooner than handed to threads."""
_NANOSECONDS = 1_000_000_000
RowGroups = Callable[[Any], Sequence[int]]
"""From the metadata of a file to the row groups of it that are to be read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """In what form rows are handed out."""

    most_rows: int = MAX_BATCH_ROWS
    coded: tuple[str, ...] = ()
    """Columns of the file that are handed out as dictionaries; the schema has them as such."""


_PLAIN = Reading()


def read_file(
    file: DataFile,
    schema: pa.Schema,
    access: FileAccess,
    batch_bytes: int,
    columns: list[str] | None = None,
    choose: RowGroups | None = None,
    reading: Reading = _PLAIN,
) -> Iterator[pa.RecordBatch]:
    """Batches of one file in the schema of the plan, each about `batch_bytes` decoded.

    `columns` are the dotted paths to read; the schema is then one of these columns alone. `choose`
    says by the footer which row groups are wanted.
    """
    batches = _read_batches(file, schema, access, batch_bytes, columns, choose, reading)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            what = " ".join(str(error).split())
            raise RewriteError(
                f"'{file.path}' cannot be read: {what}. Restore that file or move it away"
            ) from error
        yield batch


def _read_batches(
    file: DataFile,
    schema: pa.Schema,
    access: FileAccess,
    batch_bytes: int,
    columns: list[str] | None,
    choose: RowGroups | None,
    reading: Reading,
) -> Iterator[pa.RecordBatch]:
    same = columns is None and file.schema.arrow.remove_metadata().equals(schema.remove_metadata())
    rows = 0
    with access.open_input(file.path) as handle:
        parquet = open_parquet(handle, file, read_dictionary=list(reading.coded) or None)
        check = _Int96Check(file, access, columns) if file.schema.has_int96 else None
        metadata = parquet.metadata
        wanted = range(metadata.num_row_groups) if choose is None else choose(metadata)
        batch_rows = _batch_rows(handle, metadata, file, batch_bytes, columns, wanted[:1], reading)
        several = file.size_bytes > _THREADS_FROM
        # PyArrow reads a nested dictionary within one row group only.
        portion_rows = 1 if has_nested_dictionary(file.schema.arrow) else batch_rows
        for groups in _portions(metadata, portion_rows, wanted):
            for batch in parquet.iter_batches(
                batch_rows, row_groups=groups, columns=columns, use_threads=several
            ):
                rows += batch.num_rows
                yield batch if same else conform_batch(batch, schema, file.path)
            if check is not None:
                check.verify(groups)
        promised = file.num_rows if choose is None else _rows_of(metadata, wanted)
    if rows != promised:
        raise RewriteError(f"'{file.path}' has {promised} rows by its footer, {rows} by count")


def _rows_of(metadata: Any, groups: Sequence[int]) -> int:
    return sum(metadata.row_group(index).num_rows for index in groups)


def open_parquet(handle: Any, file: DataFile, **options: Any) -> pq.ParquetFile:
    """Open for reading with page checksums verified where there are any."""
    return pq.ParquetFile(
        handle,
        pre_buffer=file.size_bytes <= _PREFETCH_LIMIT,
        buffer_size=MIB if file.size_bytes > _PREFETCH_LIMIT else 0,
        page_checksum_verification=True,
        **options,
    )


def _batch_rows(
    handle: Any,
    metadata: Any,
    file: DataFile,
    batch_bytes: int,
    columns: list[str] | None,
    first: Sequence[int],
    reading: Reading,
) -> int:
    """How many rows of this file fit the budget, by its footer and by a look at its first rows."""
    if _surely_fits(file, batch_bytes):
        return reading.most_rows
    row_bytes = max(1, file.decoded_bytes // max(1, file.num_rows))
    # A footer cannot tell how often a long dictionary value repeats; a few rows can.
    texts = _variable_columns(file, columns)
    if first and file.num_rows > _PROBE_ROWS and texts:
        probed = _probed(handle, metadata, texts, first[0], reading)
        row_bytes = max(row_bytes, probed + _others(metadata, first[0], texts, columns))
    return max(_MIN_BATCH_ROWS, min(reading.most_rows, batch_bytes // row_bytes))


def _probed(handle: Any, metadata: Any, columns: list[str], group: int, reading: Reading) -> int:
    """What columns take of a row, by the first ones of a row group, and no more is read of it."""
    parquet = pq.ParquetFile(
        handle,
        metadata=metadata,
        read_dictionary=list(reading.coded) or None,
        pre_buffer=False,
        buffer_size=_PROBE_BUFFER,
        page_checksum_verification=True,
    )
    first = next(parquet.iter_batches(_PROBE_ROWS, row_groups=[group], columns=columns), None)
    return 0 if first is None or not first.num_rows else int(first.nbytes // first.num_rows)


def _others(metadata: Any, group: int, probed: list[str], columns: list[str] | None) -> int:
    """The most that the other columns take of a row: their values have a width of their own."""
    found = metadata.row_group(group)
    chunks = [found.column(index) for index in range(found.num_columns)]
    values = sum(
        chunk.num_values
        for chunk in chunks
        if chunk.path_in_schema not in probed
        and (columns is None or chunk.path_in_schema in columns)
    )
    return int(values * _WIDEST // max(1, found.num_rows))


def _surely_fits(file: DataFile, batch_bytes: int) -> bool:
    """Whether even the whole content of the file, repeated in each row, would fit the budget."""
    flat = not any(pa.types.is_nested(field.type) for field in file.schema.arrow)
    return flat and file.num_rows * file.decoded_bytes <= batch_bytes


def has_variable_width(file: DataFile, columns: list[str] | None) -> bool:
    """Whether any of the columns (of all, where none are named) has values of any length."""
    return bool(_variable_columns(file, columns))


def _variable_columns(file: DataFile, columns: list[str] | None) -> list[str]:
    leaves = zip(file.schema.leaf_paths, file.schema.leaves, strict=True)
    wanted = [path for path, leaf in leaves if "BYTE_ARRAY" in leaf]
    return wanted if columns is None else [path for path in wanted if path in columns]


def _portions(metadata: Any, rows_at_least: int, wanted: Sequence[int]) -> Iterator[list[int]]:
    """Runs of row groups to read together: one large one, or many small ones."""
    groups: list[int] = []
    rows = 0
    for index in wanted:
        groups.append(index)
        rows += metadata.row_group(index).num_rows
        if rows >= rows_at_least:
            yield groups
            groups, rows = [], 0
    if groups:
        yield groups


class _Int96Check:
    """INT96 reaches further than 64-bit nanoseconds; a value outside would wrap silently."""

    def __init__(self, file: DataFile, access: FileAccess, read: list[str] | None) -> None:
        self._file = file
        self._access = access
        self._read = read
        """The columns that are read at all; None for all of them."""

    def verify(self, groups: list[int]) -> None:
        """Compare nanoseconds with seconds, which cannot overflow, for these row groups."""
        with self._access.open_input(self._file.path) as handle:
            fine = open_parquet(handle, self._file)
            columns = self._columns(fine.schema)
            if not columns:
                return
            exact = fine.read_row_groups(groups, columns=columns)
        with self._access.open_input(self._file.path) as handle:
            coarse = open_parquet(handle, self._file, coerce_int96_timestamp_unit="s")
            seconds = coarse.read_row_groups(groups, columns=columns)
        for name in columns:
            if not _agree(exact.column(name), seconds.column(name)):
                raise RewriteError(
                    f"column '{name}' of '{self._file.path}' holds INT96 timestamps outside "
                    "1677..2262, which PyArrow would change. Its files are left as they are."
                )

    def _columns(self, schema: Any) -> list[str]:
        """Top-level columns with an INT96 somewhere inside, of those that are read."""
        leaves = [schema.column(i) for i in range(len(schema))]
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        if self._read is not None:
            paths = [path for path in paths if any(_is_in(path, name) for name in self._read)]
        dotted = [name for name in self._file.schema.arrow.names if "." in name]
        if dotted and paths:
            raise RewriteError(
                f"'{self._file.path}' has INT96 timestamps and a column '{dotted[0]}', whose dot "
                "makes it impossible to check their range. Rename that column"
            )
        return list(dict.fromkeys(path.split(".")[0] for path in paths))


def _is_in(path: str, column: str) -> bool:
    """Whether a leaf is a column or lies in it."""
    return path == column or path.startswith(f"{column}.")


def _agree(exact: Any, seconds: Any) -> bool:
    pairs = zip(_timestamps(exact), _timestamps(seconds), strict=True)
    return all(
        np.array_equal(np.floor_divide(fine, _NANOSECONDS), coarse) for fine, coarse in pairs
    )


def _timestamps(column: Any) -> list[Any]:
    """The timestamps of a column, however deep, as integers."""
    if pa.types.is_timestamp(column.type):
        return [pc.drop_null(column).cast(pa.int64()).to_numpy()]
    if pa.types.is_struct(column.type):
        indices = range(column.type.num_fields)
        return [found for i in indices for found in _timestamps(pc.struct_field(column, [i]))]
    if pa.types.is_map(column.type):
        entries = [chunk.cast(_entries(column.type)) for chunk in column.chunks]
        return _timestamps(pa.chunked_array(entries, _entries(column.type)))
    if pa.types.is_nested(column.type):
        return _timestamps(pc.list_flatten(column))
    return []


def _entries(map_type: Any) -> Any:
    """A map as what it is: a list of pairs."""
    return pa.list_(pa.struct([map_type.key_field, map_type.item_field]))
