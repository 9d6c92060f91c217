"""Write batches into Parquet files with healthy row groups and all the sources' traits."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.dictionaries import as_written
from maintenance_assets.engines.dictionary_choice import with_useful_dictionaries
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.planning.compaction import ROW_GROUP_ROWS
from maintenance_assets.planning.file_metadata import with_row_count


def write_files(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    outputs: Sequence[tuple[str, int]],
    options: WriterOptions,
    access: FileAccess,
    row_group_bytes: int,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> None:
    """Write a stream into files of exactly the given numbers of rows."""
    stream = Cutter(iter(batches), schema)
    for path, rows in outputs:
        tables = stream.row_groups(rows, row_group_bytes, row_group_rows)
        _write_file(path, tables, with_row_count(schema, rows), options, access)
    if stream.has_more():
        raise RewriteError("the sources hold more rows than their footers say")


def _write_file(
    path: str,
    tables: Iterator[pa.Table],
    schema: pa.Schema,
    options: WriterOptions,
    access: FileAccess,
) -> None:
    """Write row groups; the first one shows which columns are worth a dictionary."""
    first = next(tables, None)
    chosen = options if first is None else with_useful_dictionaries(options, first)
    with access.open_output(path) as sink, open_writer(sink, schema, chosen) as writer:
        for table in chain(() if first is None else (first,), tables):
            writer.write_table(table.replace_schema_metadata(schema.metadata), ROW_GROUP_ROWS)


@contextmanager
def open_writer(sink: Any, schema: pa.Schema, options: WriterOptions) -> Iterator[pq.ParquetWriter]:
    """A writer of a file with all that the schema's metadata says."""
    with pq.ParquetWriter(sink, schema, **writer_arguments(schema, options)) as writer:
        if not options.store_arrow_schema and schema.metadata:
            # pyarrow leaves all metadata out together with the Arrow schema.
            writer.add_key_value_metadata(schema.metadata)
        yield writer


def writer_arguments(schema: pa.Schema, options: WriterOptions) -> dict[str, Any]:
    """What pyarrow's writer is told."""
    arguments: dict[str, Any] = {
        "compression": options.codec,
        "store_schema": options.store_arrow_schema,
        "use_deprecated_int96_timestamps": options.int96_timestamps,
        "store_decimal_as_integer": options.decimals_as_integers,
        "write_page_index": options.page_index,
        "write_time_adjusted_to_utc": options.times_in_utc,
        "use_compliant_nested_type": all(_has_standard_lists(field.type) for field in schema),
    }
    if options.column_codecs or options.column_encodings or options.sorting:
        arguments |= _column_arguments(_leaf_paths(schema, arguments), options)
    return arguments


def _has_standard_lists(type_: Any) -> bool:
    """Whether list items have the name of the standard; any other name is kept as it is."""
    if isinstance(type_, pa.BaseExtensionType):
        return True
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if (is_list or pa.types.is_fixed_size_list(type_)) and type_.value_field.name != "element":
        return False
    return all(_has_standard_lists(type_.field(i).type) for i in range(type_.num_fields))


def _column_arguments(paths: list[str], options: WriterOptions) -> dict[str, Any]:
    codecs, encodings = dict(options.column_codecs), dict(options.column_encodings)
    return {
        "compression": {path: codecs.get(path, options.codec) for path in paths},
        "use_dictionary": [path for path in paths if path not in encodings],
        "column_encoding": {
            path: encodings[path] for path in paths if encodings.get(path, "PLAIN") != "PLAIN"
        },
        "sorting_columns": _sorting_columns(paths, options) or None,
    }


def _sorting_columns(paths: list[str], options: WriterOptions) -> list[pq.SortingColumn]:
    declared = []
    for column in options.sorting:
        if paths.count(column.path) != 1:
            break  # a struct's field and a name with a dot in it: which of them is in order?
        declared.append(
            pq.SortingColumn(paths.index(column.path), column.descending, column.nulls_first)
        )
    return declared


def _leaf_paths(schema: pa.Schema, arguments: dict[str, Any]) -> list[str]:
    """Parquet's own names of the leaf columns, as this writer spells them."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, **arguments).close()
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    return [parquet.schema.column(i).path for i in range(len(parquet.schema))]


class Cutter:
    """Cuts a stream of batches at row-group limits and at the ends of files."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self._rest: pa.RecordBatch | None = None

    def row_groups(self, rows: int, max_bytes: int, max_rows: int) -> Iterator[pa.Table]:
        """Tables that together have exactly `rows` rows, each a good row group."""
        while rows > 0:
            table = self._take(min(rows, max_rows), max_bytes)
            rows -= table.num_rows
            yield table

    def has_more(self) -> bool:
        """Whether any row is left."""
        return self._next() is not None

    def _take(self, max_rows: int, max_bytes: int) -> pa.Table:
        taken: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < max_rows and size < max_bytes:
            batch = self._next()
            if batch is None:
                break
            part = batch.slice(0, max_rows - rows)
            if part.num_rows < batch.num_rows:
                self._rest = batch.slice(part.num_rows)
            taken.append(part)
            rows += part.num_rows
            size += part.nbytes
        if not taken:
            raise RewriteError("the sources hold fewer rows than their footers say")
        # A batch is larger than a row group may be: each would hold the dictionary of all of it.
        return as_written(taken, self._schema)

    def _next(self) -> pa.RecordBatch | None:
        if self._rest is not None:
            batch, self._rest = self._rest, None
            return batch
        for batch in self._batches:
            if batch.num_rows:
                return _plain_metadata(batch, self._schema)
        return None


def _plain_metadata(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under the plan's schema (names and metadata, no cast)."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
