"""The tables of a catalog, the same on every database.

Keys are numbers that the catalog hands out itself, times are microseconds since 1970 in UTC, and
there are no foreign keys: DuckDB turns updates of referenced rows into a delete and an insert.
For the same reason indexes beside the primary keys exist only where rows are looked up one by one.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()


def _key(name: str, type_: Any = BigInteger) -> Column[Any]:
    return Column(name, type_, primary_key=True, autoincrement=False, nullable=False)


def _needed(name: str, type_: Any = BigInteger) -> Column[Any]:
    return Column(name, type_, nullable=False)


# Rows of these lie together by their key, which is how they are asked for.
_BY_KEY: dict[str, Any] = {"sqlite_with_rowid": False}

catalog = Table(
    "lake_catalog",
    metadata,
    _key("name", String(64)),
    _needed("value", Text),
)
"""Schema version and counters of the catalog itself."""

dataset = Table(
    "lake_dataset",
    metadata,
    _key("dataset_id"),
    _needed("name", Text),
    _needed("root", Text),
    _needed("uid", String(36)),
    _needed("created_at"),
    _needed("head"),
    _needed("schema_id"),
    _needed("spec_id"),
    _needed("sort_id"),
    _needed("next_file_id"),
    _needed("next_field_id"),
    _needed("next_physical_id"),
    _needed("locks"),
    _needed("options", Text),
)

commit = Table(
    "lake_commit",
    metadata,
    _key("dataset_id"),
    _key("version"),
    _needed("committed_at"),
    _needed("txn_id", Text),
    _needed("operation", Text),
    Column("author", Text),
    Column("message", Text),
    _needed("summary", Text),
    _needed("schema_id"),
    _needed("spec_id"),
    _needed("data_change", Boolean),
    _needed("files_added"),
    _needed("files_removed"),
    _needed("rows_added"),
    _needed("rows_removed"),
    _needed("total_files"),
    _needed("total_rows"),
    _needed("total_bytes"),
    Column("expired_at", BigInteger),
    # Its place among the commits of all datasets. Older layouts had none, hence not NOT NULL.
    Column("sequence", BigInteger),
)

schema = Table(
    "lake_schema",
    metadata,
    _key("dataset_id"),
    _key("schema_id"),
    _needed("begin_version"),
)

column = Table(
    "lake_column",
    metadata,
    _key("dataset_id"),
    _key("schema_id"),
    _key("field_id"),
    _needed("position", Integer),
    _needed("name", Text),
    _needed("type", Text),
    _needed("nullable", Boolean),
    _needed("arrow", LargeBinary),
)

partition_spec = Table(
    "lake_partition_spec",
    metadata,
    _key("dataset_id"),
    _key("spec_id"),
    _key("position", Integer),
    _needed("field_id"),
    _needed("transform", String(32)),
)

sort_order = Table(
    "lake_sort_order",
    metadata,
    _key("dataset_id"),
    _key("sort_id"),
    _key("position", Integer),
    _needed("field_id"),
    _needed("descending", Boolean),
    _needed("nulls_first", Boolean),
)

physical_schema = Table(
    "lake_physical_schema",
    metadata,
    _key("dataset_id"),
    _key("physical_id"),
    _needed("fingerprint", String(64)),
    _needed("arrow", LargeBinary),
)

name_mapping = Table(
    "lake_name_mapping",
    metadata,
    _key("dataset_id"),
    _key("physical_id"),
    _key("field_id"),
    _needed("position", Integer),
    _needed("name", Text),
    Column("type", Text),
)

file = Table(
    "lake_file",
    metadata,
    _key("dataset_id"),
    _key("file_id"),
    _needed("path", Text),
    _needed("size_bytes"),
    _needed("row_count"),
    _needed("physical_id"),
    _needed("spec_id"),
    _needed("begin_version"),
    Column("end_version", BigInteger),
    _needed("row_group_rows", LargeBinary),
    **_BY_KEY,
)

file_partition = Table(
    "lake_file_partition",
    metadata,
    _key("dataset_id"),
    _key("file_id"),
    _key("position", Integer),
    _needed("name", Text),
    _needed("value", Text),
    **_BY_KEY,
)

file_statistics = Table(
    "lake_file_statistics",
    metadata,
    _key("dataset_id"),
    _key("field_id"),
    _key("file_id"),
    Column("null_count", BigInteger),
    Column("low", LargeBinary),
    Column("high", LargeBinary),
    **_BY_KEY,
)

row_group = Table(
    "lake_row_group",
    metadata,
    _key("dataset_id"),
    _key("field_id"),
    _key("file_id"),
    _needed("null_counts", LargeBinary),
    _needed("lows", LargeBinary),
    _needed("highs", LargeBinary),
    **_BY_KEY,
)
"""Statistics of all row groups of a file, packed into one row per column."""

transaction = Table(
    "lake_transaction",
    metadata,
    _key("dataset_id"),
    _key("txn_id", Text),
    _needed("state", String(16)),
    _needed("fence"),
    _needed("operation", Text),
    _needed("base_version"),
    _needed("opened_at"),
    _needed("lease_until"),
    _needed("owner", Text),
    Column("version", BigInteger),
)

transaction_file = Table(
    "lake_transaction_file",
    metadata,
    _key("dataset_id"),
    _key("txn_id", Text),
    _key("path", Text),
    **_BY_KEY,
)
"""Paths that a transaction may be writing to."""

tombstone = Table(
    "lake_tombstone",
    metadata,
    _key("dataset_id"),
    _key("path", Text),
    _needed("removed_at"),
    _needed("reason", String(32)),
    _needed("state", String(16)),
    Column("size_bytes", BigInteger),
    Column("deleted_at", BigInteger),
    **_BY_KEY,
)

pin = Table(
    "lake_pin",
    metadata,
    _key("dataset_id"),
    _key("kind", String(16)),
    _key("name", Text),
    _needed("version"),
    Column("expires_at", BigInteger),
)


def _is_row_store(*_: Any, dialect: Any, **__: Any) -> bool:
    return dialect.name in ("sqlite", "postgresql")


def _index(name: str, *columns: Any, **options: Any) -> None:
    Index(name, *columns, **options).ddl_if(callable_=_is_row_store)


_index("lake_dataset_by_name", dataset.c.name, unique=True)
_index("lake_commit_by_time", commit.c.dataset_id, commit.c.committed_at)
_index("lake_file_alive", file.c.dataset_id, file.c.end_version, file.c.begin_version)
_index("lake_file_by_path", file.c.dataset_id, file.c.path)
_index("lake_file_in_partition", file_partition.c.dataset_id, file_partition.c.value)
_index("lake_transaction_by_state", transaction.c.state, transaction.c.lease_until)
_index("lake_tombstone_by_state", tombstone.c.dataset_id, tombstone.c.state, tombstone.c.removed_at)
