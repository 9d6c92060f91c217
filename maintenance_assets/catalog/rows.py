"""Rows of the catalog as values, and values as rows."""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa

from maintenance_assets.catalog import tables
from maintenance_assets.catalog.statistics import pack_bounds, pack_numbers, unpack_numbers
from maintenance_assets.model.lakehouse import (
    CatalogFile,
    Column,
    Commit,
    NewFile,
    PartitionKey,
    PhysicalSchema,
    TableSchema,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Row = Any  # a mapping from column names, as SQLAlchemy hands it out


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970; a moment without a zone is taken for local time, as Python does."""
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def to_moment(micros: int) -> datetime:
    """The moment in UTC."""
    return _EPOCH + micros * _MICROSECOND


def column_row(column: Column, position: int) -> dict[str, Any]:
    """A column of a schema as a row."""
    return {
        "field_id": column.field_id,
        "position": position,
        "name": column.name,
        "type": str(column.type),
        "nullable": bool(column.field.nullable),
        "arrow": pa.schema([column.field]).serialize().to_pybytes(),
    }


def table_schema(schema_id: int, rows: Iterable[Row]) -> TableSchema:
    """The schema that rows of columns describe."""
    ordered = sorted(rows, key=lambda row: int(row["position"]))
    columns = [Column(int(r["field_id"]), read_schema(r["arrow"]).field(0)) for r in ordered]
    return TableSchema(schema_id, tuple(columns))


def read_schema(data: bytes) -> pa.Schema:
    """A schema as it was serialized."""
    return pa.ipc.read_schema(pa.py_buffer(bytes(data)))


def fingerprint(physical: PhysicalSchema) -> str:
    """Equal for files that are read the same way."""
    digest = hashlib.sha256(physical.arrow.serialize().to_pybytes())
    digest.update(repr(physical.mapping).encode())
    return digest.hexdigest()


def file_row(file: NewFile) -> dict[str, Any]:
    """What a file's own row says of it, without its identity and its lifetime."""
    return {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "row_count": file.row_count,
        "row_group_rows": pack_numbers(file.row_group_rows),
    }


_FILE = tables.file.c
FILE_COLUMNS = (
    _FILE.file_id,
    _FILE.path,
    _FILE.size_bytes,
    _FILE.row_count,
    _FILE.physical_id,
    _FILE.begin_version,
    _FILE.row_group_rows,
)


def catalog_file(row: Row, partition: PartitionKey) -> CatalogFile:
    """A file of a version, from its `FILE_COLUMNS`."""
    number, path, size, rows, physical, begin, groups = row
    counts = _row_counts(bytes(groups))
    return CatalogFile(number, path, size, rows, physical, begin, partition, counts)


@lru_cache(maxsize=4096)
def _row_counts(packed: bytes) -> tuple[int, ...]:
    return tuple(count or 0 for count in unpack_numbers(packed))


def partition_rows(file: NewFile) -> list[dict[str, Any]]:
    """One row per partition column."""
    return [
        {"position": position, "name": name, "value": value}
        for position, (name, value) in enumerate(file.partition)
    ]


def statistics_rows(file: NewFile) -> list[dict[str, Any]]:
    """One row per column."""
    return [
        {"field_id": s.field_id, "null_count": s.null_count, "low": s.low, "high": s.high}
        for s in file.statistics
    ]


def row_group_rows(file: NewFile) -> list[dict[str, Any]]:
    """One row per column of a file with several row groups."""
    return [
        {
            "field_id": s.field_id,
            "null_counts": pack_numbers(s.groups.null_counts),
            "lows": pack_bounds(s.groups.lows),
            "highs": pack_bounds(s.groups.highs),
        }
        for s in file.statistics
        if s.groups is not None
    ]


def commit_of(row: Row) -> Commit:
    """A version in the history."""
    return Commit(
        version=row["version"],
        committed_at=to_moment(row["committed_at"]),
        operation=row["operation"],
        author=row["author"],
        message=row["message"],
        txn_id=row["txn_id"],
        schema_id=row["schema_id"],
        data_change=bool(row["data_change"]),
        files_added=row["files_added"],
        files_removed=row["files_removed"],
        rows_added=row["rows_added"],
        rows_removed=row["rows_removed"],
        total_files=row["total_files"],
        total_rows=row["total_rows"],
        total_bytes=row["total_bytes"],
        expired=row["expired_at"] is not None,
        summary=json.loads(row["summary"]),
    )
