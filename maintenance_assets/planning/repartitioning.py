"""What rows look like once they are repartitioned. Pure: no I/O, no clock, no randomness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from maintenance_assets.errors import UnsupportedDatasetError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.encoding import notation_notes, writer_options
from maintenance_assets.planning.file_metadata import has_range_index, merge_file_metadata
from maintenance_assets.planning.placement import check_partition_type
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas
from maintenance_assets.planning.values import BoundValue, Value


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of a row before a user's function sees it."""

    columns: DatasetColumns
    rows: pa.Schema
    """Columns of files, then of paths, then derived ones."""
    derived: tuple[tuple[str, BoundValue], ...]
    notes: tuple[str, ...]


def check_names(partition_by: Any) -> tuple[str, ...]:
    """Check the list of partition columns, before any I/O; an empty one puts all into the root."""
    if isinstance(partition_by, str | bytes) or not isinstance(partition_by, Sequence):
        raise ValueError(f"partition_by must be a list of column names, got {partition_by!r}")
    names = tuple(partition_by)
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"partition_by must be a list of column names, got {name!r}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"partition_by names '{repeated[0]}' more than once")
    return names


def shape_rows(
    files: Sequence[DataFile], directories: Sequence[str], derived: Mapping[str, Value]
) -> RowShape:
    """The columns that rows have, from the schemas of files, from their paths and derived."""
    distinct = list({file.schema.fingerprint: file for file in files}.values())
    merged = merge_schemas([SchemaSource(f.path, f.schema.arrow) for f in distinct])
    columns = DatasetColumns.of(files, directories)
    columns.require(columns.stored.names)
    _refuse_twins(columns)
    in_paths = [columns.schema.field(key) for key in columns.keys if key not in merged.schema.names]
    known = pa.schema([*merged.schema, *in_paths])
    bound = tuple((name, _bind(name, value, known)) for name, value in derived.items())
    notes = [
        f"column {field.name!r}: only in the paths until now, becomes text in the files"
        for field in in_paths
    ]
    fields = [*known, *(pa.field(name, value.type) for name, value in bound)]
    told = (*merged.notes, *notation_notes(files), *notes)
    return RowShape(columns, pa.schema(fields), bound, told)


def _bind(name: str, value: Value, known: pa.Schema) -> BoundValue:
    if name in known.names:
        raise ValueError(
            f"Column '{name}' exists already: a derived column needs a name of its own. "
            f"Available columns: {', '.join(known.names)}"
        )
    return value.bind(known, None, column=name)


def _refuse_twins(columns: DatasetColumns) -> None:
    """`Month=1` next to a column `month`: two for Arrow, one for SQL engines."""
    folded = {name.casefold(): name for name in columns.stored.names}
    for key in columns.keys:
        twin = folded.get(key.casefold(), key)
        if key not in columns.stored.names and twin != key:
            raise UnsupportedDatasetError(
                f"The partition key '{key}' of a path and the column '{twin}' of the files differ "
                "only in case: rename one of the two. Nothing was changed."
            )


def check_partition_columns(partition_by: Sequence[str], final: pa.Schema) -> None:
    """Raise unless rows have these columns, once each, in a type that has a text."""
    missing = [name for name in partition_by if name not in final.names]
    if missing:
        raise ValueError(
            f"Partition columns not found in data: {', '.join(missing)}. "
            f"Available columns: {', '.join(final.names)}"
        )
    for name in partition_by:
        if final.names.count(name) > 1:
            raise ValueError(f"column '{name}' occurs more than once: its values cannot be told")
        check_partition_type(final.field(name).type, name)


def written_schema(
    files: Sequence[DataFile], final: pa.Schema, partition_by: Sequence[str], keep: bool
) -> tuple[pa.Schema, tuple[str, ...]]:
    """The schema of the outputs with the file metadata that still holds, and notes about it."""
    fields = [field for field in final if keep or field.name not in partition_by]
    if not fields:
        raise ValueError("all columns are partition columns: keep_partition_columns has to be True")
    bare = pa.schema(fields)
    distinct = {file.schema.fingerprint: file for file in files}.values()
    sources = [(file.path, file.schema.arrow) for file in distinct]
    metadata, notes = merge_file_metadata(sources, bare)
    schema = bare.with_metadata(metadata or None)
    if has_range_index(schema):
        notes = (*notes, "file metadata 'pandas': each output numbers its rows from 0")
    return schema, notes


def repartition_writer(
    files: Sequence[DataFile], compression: str | None, schema: pa.Schema, *, made_columns: bool
) -> tuple[WriterOptions, tuple[str, ...]]:
    """How outputs are encoded, and notes about what is not as it was."""
    options = writer_options(files, compression)
    if made_columns:
        # Types of new columns may be such as only the stored Arrow schema tells.
        options = replace(options, store_arrow_schema=True, sorting=())
    if not all(column.path in schema.names for column in options.sorting):
        options = replace(options, sorting=())
    declared = sorted({str(column) for file in files for column in file.sorting})
    if not declared or options.sorting:
        return options, ()
    order = ", ".join(declared)
    return options, (f"the declared sort order ({order}) held inside the sources, not in outputs",)


def check_lengths(directories: Sequence[str]) -> None:
    """Raise where a file system has no room for the name of a directory."""
    for directory in directories:
        for segment in directory.split("/"):
            # A directory that exists may have a name that is no text.
            size = len(segment.encode(errors="surrogateescape"))
            if size > _LONGEST_NAME:
                raise ValueError(
                    f"the partition '{segment[:60]}...' has a name of {size} bytes; a file system "
                    f"takes {_LONGEST_NAME}. Choose another partition column, or a shorter value"
                )


_LONGEST_NAME = 255
