"""Files as the catalog records them: from their footers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from maintenance_assets.catalog.statistics import collect_statistics, constant_statistics
from maintenance_assets.errors import CatalogError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.lakehouse import (
    CatalogFile,
    Column,
    ColumnStatistics,
    NewFile,
    PartitionKey,
    PhysicalSchema,
    TableSchema,
)
from maintenance_assets.planning.partitions import format_partition, parse_partition
from maintenance_assets.planning.placement import partition_texts
from maintenance_assets.storage.filesystems import Listed, Store
from maintenance_assets.storage.footers import examine_footers


def describe_files(
    store: Store, paths: Sequence[str], table: TableSchema, names: Mapping[str, int]
) -> tuple[NewFile, ...]:
    """Written files (by full path) for a commit; `names` says which column each name is."""
    listed = [_listed(store, path) for path in paths]
    return describe_listed(store, listed, table, names)


def describe_listed(
    store: Store, listed: Sequence[Listed], table: TableSchema, names: Mapping[str, int]
) -> tuple[NewFile, ...]:
    """The same for files whose size is known."""

    def look(file: DataFile, metadata: Any) -> NewFile:
        return _new_file(store, file, metadata, table, names)

    return examine_footers(store, listed, look)


def _listed(store: Store, path: str) -> Listed:
    listed = store.stat(path)
    if listed is None:
        raise FileNotFoundError(f"'{path}' was not written")
    return listed


def _new_file(
    store: Store, file: DataFile, metadata: Any, table: TableSchema, names: Mapping[str, int]
) -> NewFile:
    mapping = {name: names[name] for name in file.schema.arrow.names if name in names}
    partition = partition_key(store.relative(file.directory))
    statistics = collect_statistics(metadata, file.schema, mapping)
    return NewFile(
        path=store.relative(file.path),
        size_bytes=file.size_bytes,
        row_count=file.num_rows,
        physical=PhysicalSchema(file.schema.arrow.remove_metadata(), tuple(mapping.items())),
        partition=partition,
        row_group_rows=tuple(
            metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
        ),
        statistics=(*statistics, *_in_path_only(file, table, mapping, partition)),
    )


def partition_key(directory: str) -> PartitionKey:
    """Keys and values of a directory as they are spelled in it."""
    return tuple((part.key, part.raw.partition("=")[2]) for part in parse_partition(directory))


def _in_path_only(
    file: DataFile, table: TableSchema, mapping: Mapping[str, int], partition: PartitionKey
) -> list[ColumnStatistics]:
    known = set(mapping.values())
    values = path_values(table.columns, partition)
    return [
        constant_statistics(field_id, value, file.num_rows)
        for field_id, value in values.items()
        if field_id not in known
    ]


def path_values(columns: Sequence[Column], partition: PartitionKey) -> dict[int, Any]:
    """The values that a directory gives columns, as pyarrow scalars by field id."""
    if not partition:
        return {}
    spelled = "/".join(f"{key}={raw}" for key, raw in partition)
    texts = {part.key: part.value for part in parse_partition(spelled)}
    return {
        column.field_id: _value(texts[column.name], column)
        for column in columns
        if column.name in texts
    }


def plain_partition(columns: Sequence[Column], partition: PartitionKey) -> PartitionKey:
    """The keys of a path with their values as we spell them; what is no column stays as it is."""
    values = path_values(columns, partition)
    ids = {column.name: column.field_id for column in columns}
    spelled = []
    for key, raw in partition:
        value = values.get(ids.get(key, -1))
        if value is not None:
            (text,) = partition_texts(pa.repeat(value, 1), key)
            raw = format_partition([(key, text)]).partition("=")[2]
        spelled.append((key, raw))
    return tuple(spelled)


def _value(text: str | None, column: Column) -> Any:
    try:
        if text is None:
            return pa.scalar(None, column.type)
        if pa.types.is_time(column.type):
            return _time_of(text, column.type)
        return pa.scalar(text, pa.string()).cast(column.type)
    except pa.ArrowException as error:
        raise CatalogError(
            f"'{column.name}={text}' of a path is not a value of type {column.type}: {error}"
        ) from error


def _time_of(text: str, type_: Any) -> Any:
    """A time of day; pyarrow reads such text as part of a moment only."""
    moment = pa.scalar(f"1970-01-01 {text}", pa.string()).cast(pa.timestamp("ns"))
    return moment.cast(pa.time64("ns")).cast(type_)


def listed_of(store: Store, file: CatalogFile) -> Listed:
    """A file of the catalog as a listing would have it; files never change."""
    return Listed(store.path(file.path), file.size_bytes, str(file.file_id))
