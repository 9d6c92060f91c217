"""The DuckLake views of files: where they lie, when they lived, how they are read, their bounds."""

from maintenance_assets.catalog.ducklake_dialects import Dialect

_FILES = 1 << 40
"""Ids count per dataset, and DuckLake's across all: the dataset is in the upper digits."""
_DEPTHS = 64
_ROWS = 1 << 31
IDS_PER_SNAPSHOT = 1 << 31
"""DuckDB loads name mappings once, and later only those whose id is not below `next_file_id` of
the snapshot it knew; one that comes twice makes it crash. So ids begin with the commit's number."""


def file_views(dialect: Dialect) -> dict[str, str]:
    """Name and query of each, in the order in which they need each other."""
    return {**_FILE_VIEWS, "ducklake_file_column_stats": _statistics(dialect)}


_FILE_VIEWS = {
    # Files of one physical schema differ in how many of their columns are in the path.
    "lake_duck_file": f"""
SELECT f.dataset_id, f.file_id, f.path, f.size_bytes, f.row_count, f.physical_id, f.end_version,
    b.sequence AS begin_snapshot,
    b.sequence * {IDS_PER_SNAPSHOT} + f.physical_id * {_DEPTHS} + COALESCE(p.depth, 0) AS mapping_id
FROM lake_file f
JOIN lake_commit b ON b.dataset_id = f.dataset_id AND b.version = f.begin_version
LEFT JOIN (
    SELECT dataset_id, file_id, COUNT(*) AS depth FROM lake_file_partition
    GROUP BY dataset_id, file_id
) p ON p.dataset_id = f.dataset_id AND p.file_id = f.file_id""",
    "lake_duck_path_column": """
SELECT DISTINCT f.dataset_id, f.mapping_id, c.field_id, p.name,
    CASE WHEN lower(p.value) = 'null' THEN 1 ELSE 0 END AS misread
FROM lake_duck_file f
JOIN lake_file_partition p ON p.dataset_id = f.dataset_id AND p.file_id = f.file_id
JOIN (SELECT DISTINCT dataset_id, field_id, name FROM lake_column) c
    ON c.dataset_id = f.dataset_id AND c.name = p.name
LEFT JOIN lake_name_mapping m ON m.dataset_id = f.dataset_id
    AND m.physical_id = f.physical_id AND m.field_id = c.field_id
WHERE m.field_id IS NULL""",
    "ducklake_data_file": f"""
SELECT f.dataset_id * {_FILES} + f.file_id AS data_file_id, f.dataset_id AS table_id,
    f.begin_snapshot, e.sequence AS end_snapshot,
    CAST(NULL AS BIGINT) AS file_order, d.root || '/' || f.path AS path,
    CAST(0 AS BOOLEAN) AS path_is_relative, 'parquet' AS file_format,
    f.row_count AS record_count, f.size_bytes AS file_size_bytes,
    CAST(NULL AS BIGINT) AS footer_size, f.file_id * {_ROWS} AS row_id_start,
    CAST(NULL AS BIGINT) AS partition_id, CAST(NULL AS VARCHAR) AS encryption_key,
    f.mapping_id,
    CAST(NULL AS BIGINT) AS partial_max
FROM lake_duck_file f
JOIN lake_dataset d ON d.dataset_id = f.dataset_id
LEFT JOIN lake_commit e ON e.dataset_id = f.dataset_id AND e.version = f.end_version""",
    # Which column a name in a file is, the catalog says; not every file has field ids.
    "ducklake_column_mapping": """
SELECT DISTINCT mapping_id, dataset_id AS table_id, 'map_by_name' AS type
FROM lake_duck_file""",
    "ducklake_name_mapping": """
SELECT f.mapping_id AS mapping_id,
    m.field_id AS column_id, m.name AS source_name, m.field_id AS target_field_id,
    CAST(NULL AS BIGINT) AS parent_column, CAST(0 AS BOOLEAN) AS is_partition
FROM lake_name_mapping m
JOIN (SELECT DISTINCT dataset_id, physical_id, mapping_id FROM lake_duck_file) f
    ON f.dataset_id = m.dataset_id AND f.physical_id = m.physical_id
UNION ALL
SELECT DISTINCT mapping_id, field_id, name, field_id, CAST(NULL AS BIGINT), CAST(1 AS BOOLEAN)
FROM lake_duck_path_column""",
}


_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def _statistics(dialect: Dialect) -> str:
    """Bounds of whole numbers and of short plain texts; there is no row where there is a doubt.

    A bound that DuckDB cannot read, or reads as another value, would lose rows. Row groups are
    ruled out by the footers of the files in any case.
    """
    columns = """
SELECT f.dataset_id * {files} + f.file_id AS data_file_id, f.dataset_id AS table_id,
    s.field_id AS column_id, CAST(NULL AS BIGINT) AS column_size_bytes,
    CAST(NULL AS BIGINT) AS value_count, CAST(NULL AS BIGINT) AS null_count,
    {low} AS min_value, {high} AS max_value,
    CAST(NULL AS BOOLEAN) AS contains_nan, CAST(NULL AS VARCHAR) AS extra_stats
FROM lake_file_statistics s
JOIN lake_file f ON f.dataset_id = s.dataset_id AND f.file_id = s.file_id
JOIN lake_duck_mapping m ON m.dataset_id = f.dataset_id AND m.physical_id = f.physical_id
    AND m.field_id = s.field_id
WHERE {kind}
    AND s.low IS NOT NULL AND s.high IS NOT NULL"""
    names = ", ".join(f"'{name}'" for name in _NUMBERS)
    plain = f"({dialect.plain}) AND ({dialect.plain})".format(*["s.low"] * 2, *["s.high"] * 2)
    numbers = columns.format(
        files=_FILES,
        low=dialect.number.format("s.low"),
        high=dialect.number.format("s.high"),
        kind=f"m.type IN ({names})",
    )
    texts = columns.format(
        files=_FILES,
        low=f"CASE WHEN {plain} THEN {dialect.text.format('s.low')} END",
        high=f"CASE WHEN {plain} THEN {dialect.text.format('s.high')} END",
        kind="m.type = 'varchar'",
    )
    return f"{numbers} UNION ALL {texts}"
