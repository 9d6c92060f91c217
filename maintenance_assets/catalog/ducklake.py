"""Views named as the tables of DuckLake 1.0, over the tables of a catalog.

A snapshot is a commit of any dataset: its number is the commit's `sequence`, which is handed out
in the commit's transaction, so that it never changes and never comes before one that was seen.
At a snapshot every dataset is at its last version up to it. A dataset is a table of the schema
`main`, wherever that version can still be read and DuckLake can express it.
"""

from sqlalchemy import Connection, inspect, text

from maintenance_assets.catalog.ducklake_dialects import Dialect, dialect_of
from maintenance_assets.catalog.ducklake_files import IDS_PER_SNAPSHOT, file_views
from maintenance_assets.catalog.ducklake_types import ducklake_type, type_family
from maintenance_assets.errors import CatalogError

DUCKDB_STORAGE = "v1.4.0"
"""The format of new DuckDB files: one that the versions with a DuckLake extension can read."""
NOWHERE = "/dev/null/read-only-views-of-maintenance-assets/"
"""Where DuckLake would write files: no directory can ever be made there, nor is one searched."""

_REMOTE = ("s3://", "gs://", "gcs://", "r2://", "az://", "abfss://", "http://", "https://")


def create_views(connection: Connection) -> None:
    """Make the views, or make them anew; CatalogError where DuckLake could not read them."""
    check_readable(connection)
    drop_views(connection)
    for name, query in _views(dialect_of(connection)).items():
        # A query that begins with WITH is one that PostgreSQL lets nobody write through.
        _run(connection, f"CREATE VIEW {name} AS WITH read_only AS (SELECT 1) {query}")


def check_readable(connection: Connection) -> None:
    """A DuckDB file must have a format that versions with a DuckLake extension know."""
    if connection.dialect.name != "duckdb":
        return
    tags = connection.execute(
        text("SELECT tags FROM duckdb_databases() WHERE database_name = current_database()")
    ).scalar_one()
    found = str(tags.get("storage_version", "unknown"))
    if found.startswith(("v0.", "v1.")):
        return
    raise CatalogError(
        f"The catalog is a DuckDB file of format {found}, which no DuckDB with a DuckLake "
        "extension can read. Copy it into a new file: ATTACH 'new.db' (STORAGE_VERSION "
        f"'{DUCKDB_STORAGE}'), then COPY FROM DATABASE; or keep the catalog in SQLite"
    )


def drop_views(connection: Connection) -> None:
    """Take the views away; there may be none."""
    there = set(inspect(connection).get_view_names())
    for name in reversed(_views(dialect_of(connection))):
        if name in there:
            _run(connection, f"DROP VIEW {name}")


def left_out(connection: Connection) -> dict[str, str]:
    """Datasets whose newest version is no table of the views, and why."""
    query = text(
        "SELECT d.name, r.reason FROM lake_dataset d JOIN lake_duck_refusal r "
        "ON r.dataset_id = d.dataset_id AND (r.schema_id IS NULL OR r.schema_id = d.schema_id) "
        "AND (r.version IS NULL OR r.version = d.head) "
        "ORDER BY d.name, r.reason"
    )
    found: dict[str, list[str]] = {}
    for name, reason in connection.execute(query):
        found.setdefault(name, []).append(reason)
    return {name: "; ".join(reasons) for name, reasons in found.items()}


def _run(connection: Connection, statement: str) -> None:
    # Percent signs and colons are nothing but themselves.
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def _views(dialect: Dialect) -> dict[str, str]:
    """Name and query of every view, in the order in which they need each other."""
    return {
        **_COLUMNS,
        **file_views(dialect),
        **_SPANS,
        **_catalog_views(dialect),
        **_TABLES,
        **_empty_views(),
    }


# -- what the others are made of --------------------------------------------------------------

_COLUMNS = {
    "lake_duck_column": f"""
SELECT dataset_id, schema_id, field_id, position, name, type AS arrow_type,
    {ducklake_type("type")} AS type
FROM lake_column""",
    "lake_duck_mapping": f"""
SELECT dataset_id, physical_id, field_id, position, name, type AS arrow_type,
    {ducklake_type("type")} AS type
FROM lake_name_mapping""",
}

_SPANS = {
    "lake_duck_refusal": f"""
SELECT dataset_id, schema_id, CAST(NULL AS BIGINT) AS version,
    'column ' || name || ' is ' || arrow_type || ', which DuckLake cannot express' AS reason
FROM lake_duck_column WHERE type IS NULL
UNION ALL
SELECT DISTINCT x.dataset_id, CAST(NULL AS BIGINT), v.version, x.reason
FROM (
    SELECT DISTINCT c.dataset_id, c.schema_id, m.physical_id,
        'column ' || c.name || ' is ' || c.arrow_type || ' and in some files '
        || COALESCE(m.arrow_type, 'of an unknown type')
        || ', which DuckDB would turn into it otherwise' AS reason
    FROM lake_duck_column c
    JOIN lake_duck_mapping m ON m.dataset_id = c.dataset_id AND m.field_id = c.field_id
    WHERE c.type IS NOT NULL
        AND (m.type IS NULL OR {type_family("m.type")} <> {type_family("c.type")})
) x
JOIN lake_file f ON f.dataset_id = x.dataset_id AND f.physical_id = x.physical_id
JOIN lake_commit v ON v.dataset_id = x.dataset_id AND v.schema_id = x.schema_id
    AND f.begin_version <= v.version AND (f.end_version IS NULL OR f.end_version > v.version)
UNION ALL
SELECT dataset_id, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
    'files have columns that differ only in case'
FROM lake_name_mapping GROUP BY dataset_id, physical_id, lower(name) HAVING COUNT(*) > 1
UNION ALL
SELECT d.dataset_id, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
    'another dataset has this name in another case'
FROM lake_dataset d
WHERE lower(d.name) IN (
    SELECT lower(name) FROM lake_dataset GROUP BY lower(name) HAVING COUNT(*) > 1)
UNION ALL
SELECT dataset_id, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
    'column ' || name || ' is in paths only, and DuckDB takes the text null there for NULL'
FROM lake_duck_path_column WHERE misread = 1
UNION ALL
SELECT DISTINCT d.dataset_id, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
    'column ' || p.name
    || ' is in paths only, and the path of the dataset names it as well'
FROM lake_dataset d JOIN lake_duck_path_column p ON p.dataset_id = d.dataset_id
WHERE replace('/' || d.root, '/' || p.name || '=', '') <> '/' || d.root
UNION ALL
SELECT dataset_id, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
    'DuckDB cannot read ' || root FROM lake_dataset
WHERE replace(root, '://', '') <> root
    AND {" AND ".join(f"substr(root, 1, {len(start)}) <> '{start}'" for start in _REMOTE)}""",
    # Snapshots at which a dataset is a table with the columns of a schema.
    "lake_duck_span": """
SELECT dataset_id, schema_id, begin_snapshot, end_snapshot FROM (
    SELECT dataset_id, schema_id, shown, sequence AS begin_snapshot,
        LEAD(sequence) OVER (PARTITION BY dataset_id ORDER BY version) AS end_snapshot
    FROM (
        SELECT dataset_id, version, sequence, schema_id, shown,
            LAG(shown) OVER (PARTITION BY dataset_id ORDER BY version) AS shown_before,
            LAG(schema_id) OVER (PARTITION BY dataset_id ORDER BY version) AS schema_before
        FROM (
            SELECT c.dataset_id, c.version, c.sequence, c.schema_id,
                CASE WHEN c.expired_at IS NULL AND r.dataset_id IS NULL THEN 1 ELSE 0 END AS shown
            FROM lake_commit c
            LEFT JOIN (
                SELECT DISTINCT v.dataset_id, v.version
                FROM lake_commit v JOIN lake_duck_refusal x ON x.dataset_id = v.dataset_id
                    AND (x.schema_id IS NULL OR x.schema_id = v.schema_id)
                    AND (x.version IS NULL OR x.version = v.version)
            ) r ON r.dataset_id = c.dataset_id AND r.version = c.version
        ) versions
    ) compared
    WHERE shown_before IS NULL OR shown <> shown_before OR schema_id <> schema_before
) spans
WHERE shown = 1""",
}


# -- the catalog and its snapshots ------------------------------------------------------------

_EPOCH_SNAPSHOT = 0
"""Before the first commit: no table is there."""


def _catalog_views(dialect: Dialect) -> dict[str, str]:
    # What DuckDB remembers of a snapshot is filed under this number. It is another one for every
    # snapshot, and all are others once earlier versions have expired or a dataset has gone.
    version = (
        "(SELECT CAST(value AS BIGINT) FROM lake_catalog WHERE name = 'past_changes') "
        f"* {1 << 31} + "
    )
    return {
        "ducklake_metadata": f"""
SELECT 'version' AS key, '1.0' AS value, CAST(NULL AS VARCHAR) AS scope,
    CAST(NULL AS BIGINT) AS scope_id
UNION ALL SELECT 'created_by', 'maintenance_assets', NULL, NULL
UNION ALL SELECT 'data_path', '{NOWHERE}', NULL, NULL
UNION ALL SELECT 'encrypted', 'false', NULL, NULL""",
        "ducklake_snapshot": f"""
SELECT sequence AS snapshot_id, {dialect.moment.format("committed_at")} AS snapshot_time,
    {version} sequence AS schema_version,
    (SELECT CAST(value AS BIGINT) FROM lake_catalog WHERE name = 'next_dataset_id')
        AS next_catalog_id,
    (sequence + 1) * {IDS_PER_SNAPSHOT} AS next_file_id
FROM lake_commit
UNION ALL
SELECT CAST({_EPOCH_SNAPSHOT} AS BIGINT), {dialect.moment.format("CAST(0 AS BIGINT)")},
    {version} {_EPOCH_SNAPSHOT},
    (SELECT CAST(value AS BIGINT) FROM lake_catalog WHERE name = 'next_dataset_id'),
    CAST({IDS_PER_SNAPSHOT} AS BIGINT)""",
        "ducklake_snapshot_changes": f"""
SELECT c.sequence AS snapshot_id,
    CASE
        WHEN c.version = 0 THEN 'created_table:"main"."' || replace(d.name, '"', '""') || '"'
        WHEN c.operation = 'schema' THEN 'altered_table:' || CAST(d.dataset_id AS VARCHAR)
        WHEN NOT c.data_change THEN 'compacted_table:' || CAST(d.dataset_id AS VARCHAR)
        WHEN c.files_removed = 0 THEN 'inserted_into_table:' || CAST(d.dataset_id AS VARCHAR)
        WHEN c.files_added = 0 THEN 'deleted_from_table:' || CAST(d.dataset_id AS VARCHAR)
        ELSE 'inserted_into_table:' || CAST(d.dataset_id AS VARCHAR)
            || ',deleted_from_table:' || CAST(d.dataset_id AS VARCHAR)
    END AS changes_made,
    c.author AS author, c.message AS commit_message,
    d.name || ' version ' || CAST(c.version AS VARCHAR) || ': ' || c.operation
        AS commit_extra_info
FROM lake_commit c JOIN lake_dataset d ON d.dataset_id = c.dataset_id
UNION ALL
SELECT CAST({_EPOCH_SNAPSHOT} AS BIGINT), 'created_schema:"main"', NULL, NULL, NULL""",
        "ducklake_schema": """
SELECT CAST(0 AS BIGINT) AS schema_id, value AS schema_uuid, CAST(0 AS BIGINT) AS begin_snapshot,
    CAST(NULL AS BIGINT) AS end_snapshot, 'main' AS schema_name, 'main/' AS path,
    CAST(1 AS BOOLEAN) AS path_is_relative
FROM lake_catalog WHERE name = 'catalog_uid'""",
        "ducklake_schema_versions": f"""
SELECT s.begin_snapshot, {version} s.begin_snapshot AS schema_version, s.dataset_id AS table_id
FROM lake_duck_span s""",
    }


_TABLES = {
    "ducklake_table": """
SELECT d.dataset_id AS table_id, d.uid AS table_uuid, s.begin_snapshot, s.end_snapshot,
    CAST(0 AS BIGINT) AS schema_id, d.name AS table_name,
    CAST(d.dataset_id AS VARCHAR) || '/' AS path, CAST(1 AS BOOLEAN) AS path_is_relative
FROM lake_duck_span s JOIN lake_dataset d ON d.dataset_id = s.dataset_id""",
    # Whether values may be missing is no type: readers are told that they always may.
    "ducklake_column": """
SELECT c.field_id AS column_id, s.begin_snapshot, s.end_snapshot, c.dataset_id AS table_id,
    CAST(c.position AS BIGINT) AS column_order, c.name AS column_name, c.type AS column_type,
    CAST(NULL AS VARCHAR) AS initial_default, CAST(NULL AS VARCHAR) AS default_value,
    CAST(1 AS BOOLEAN) AS nulls_allowed, CAST(NULL AS BIGINT) AS parent_column,
    'literal' AS default_value_type, 'duckdb' AS default_value_dialect
FROM lake_duck_span s
JOIN lake_duck_column c ON c.dataset_id = s.dataset_id AND c.schema_id = s.schema_id""",
    "ducklake_table_stats": """
SELECT d.dataset_id AS table_id, c.total_rows AS record_count, c.total_rows AS next_row_id,
    c.total_bytes AS file_size_bytes
FROM lake_dataset d
JOIN lake_commit c ON c.dataset_id = d.dataset_id AND c.version = d.head""",
}


# -- what a catalog of ours has nothing for ---------------------------------------------------

_EMPTY = {
    "ducklake_view": "view_id view_uuid:v begin_snapshot end_snapshot schema_id view_name:v "
    "dialect:v sql:v column_aliases:v",
    "ducklake_tag": "object_id begin_snapshot end_snapshot key:v value:v",
    "ducklake_column_tag": "table_id column_id begin_snapshot end_snapshot key:v value:v",
    "ducklake_file_variant_stats": "data_file_id table_id column_id variant_path:v "
    "shredded_type:v column_size_bytes value_count null_count min_value:v max_value:v "
    "contains_nan:b extra_stats:v",
    "ducklake_delete_file": "delete_file_id table_id begin_snapshot end_snapshot data_file_id "
    "path:v path_is_relative:b format:v delete_count file_size_bytes footer_size "
    "encryption_key:v partial_max",
    "ducklake_table_column_stats": "table_id column_id contains_null:b contains_nan:b "
    "min_value:v max_value:v extra_stats:v",
    # Only writers need to know how a table is partitioned and sorted.
    "ducklake_partition_info": "partition_id table_id begin_snapshot end_snapshot",
    "ducklake_partition_column": "partition_id table_id partition_key_index column_id transform:v",
    "ducklake_file_partition_value": "data_file_id table_id partition_key_index partition_value:v",
    # Files are deleted by our vacuum and by nobody else.
    "ducklake_files_scheduled_for_deletion": "data_file_id path:v path_is_relative:b "
    "schedule_start:t",
    "ducklake_inlined_data_tables": "table_id table_name:v schema_version",
    "ducklake_macro": "schema_id macro_id macro_name:v begin_snapshot end_snapshot",
    "ducklake_macro_impl": "macro_id impl_id dialect:v sql:v type:v",
    "ducklake_macro_parameters": "macro_id impl_id column_id parameter_name:v "
    "parameter_type:v default_value:v default_value_type:v",
    "ducklake_sort_info": "sort_id table_id begin_snapshot end_snapshot",
    "ducklake_sort_expression": "sort_id table_id sort_key_index expression:v dialect:v "
    "sort_direction:v null_order:v",
}
_LETTERS = {"": "BIGINT", "v": "VARCHAR", "b": "BOOLEAN", "t": "TIMESTAMP"}


def _empty_views() -> dict[str, str]:
    return {name: f"SELECT {_nothing(columns)} WHERE 1 = 0" for name, columns in _EMPTY.items()}


def _nothing(columns: str) -> str:
    named = (column.partition(":") for column in columns.split())
    return ", ".join(f"CAST(NULL AS {_LETTERS[kind]}) AS {name}" for name, _, kind in named)
