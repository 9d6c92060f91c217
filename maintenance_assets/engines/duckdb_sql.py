"""The SQL that DuckDB is given: every name, path and value is quoted here."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from maintenance_assets.model.plans import WriterOptions

FIELD_ID = b"PARQUET:field_id"
ARROW_SCHEMA = b"ARROW:schema"


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """An identifier."""
    return '"' + value.replace('"', '""') + '"'


def blob(value: bytes) -> str:
    """A binary literal."""
    return text("".join(f"\\x{byte:02X}" for byte in value)) + "::BLOB"


def exact_path(path: str) -> str:
    """A path that globbing takes for nothing but itself."""
    return text(re.sub(r"([\[*?])", r"[\1]", path))


def select(
    paths: Sequence[str], schema: pa.Schema, offset: int = 0, rows: int | None = None
) -> str:
    """The planned columns of files, one after the other, and of these a run of rows."""
    columns = ", ".join(name(field.name) for field in schema)
    files = ", ".join(exact_path(path) for path in paths)
    query = (
        f"SELECT {columns} FROM read_parquet([{files}], union_by_name = true, "
        "hive_partitioning = false)"
    )
    return query if rows is None else f"{query} LIMIT {rows} OFFSET {offset}"


def select_without(
    path: str, schema: pa.Schema, condition: str, constants: Mapping[str, str | None]
) -> str:
    """The columns of a file, less the rows for which a condition is true.

    Constants are columns that the condition knows and the file does not hold.
    """
    columns = ", ".join(name(field.name) for field in schema)
    values = "".join(
        f", {'NULL' if value is None else text(value)}::VARCHAR AS {name(column)}"
        for column, value in constants.items()
    )
    rows = (
        f"SELECT *{values} FROM read_parquet([{exact_path(path)}], union_by_name = true, "
        "hive_partitioning = false)"
    )
    return f"SELECT {columns} FROM ({rows}) WHERE ({condition}) IS NOT TRUE"


def any_nan(paths: Sequence[str], columns: Sequence[str]) -> str:
    """A row if there is a NaN in any of these columns, else none."""
    files = ", ".join(exact_path(path) for path in paths)
    tests = " OR ".join(f"isnan({name(column)})" for column in columns)
    return (
        f"SELECT 1 FROM read_parquet([{files}], union_by_name = true, hive_partitioning = false) "
        f"WHERE {tests} LIMIT 1"
    )


def copy(query: str, path: str, schema: pa.Schema, writer: WriterOptions, group_rows: int) -> str:
    """COPY of a query into one Parquet file with the plan's metadata and field ids."""
    codec = {"none": "uncompressed"}.get(writer.codec, writer.codec)
    options = ["FORMAT parquet", f"COMPRESSION {codec}", f"ROW_GROUP_SIZE {group_rows}"]
    metadata = file_metadata(schema, writer)
    if metadata:
        pairs = ", ".join(f"{name(key.decode())}: {blob(v)}" for key, v in metadata.items())
        options.append(f"KV_METADATA {{{pairs}}}")
    ids = field_ids(schema)
    if ids:
        options.append(f"FIELD_IDS {ids}")
    return f"COPY ({query}) TO {text(path)} ({', '.join(options)})"


def file_metadata(schema: pa.Schema, writer: WriterOptions) -> dict[bytes, bytes]:
    """The key-value metadata of a file, with the Arrow schema as PyArrow stores it."""
    metadata = dict(schema.metadata or {})
    if writer.store_arrow_schema:
        metadata[ARROW_SCHEMA] = base64.b64encode(schema.serialize().to_pybytes())
    return metadata


def field_ids(schema: pa.Schema) -> str:
    """The FIELD_IDS option, empty when no field has an id."""
    return _ids_of([(field.name, field) for field in schema], None)


def _ids_of(children: list[tuple[str, Any]], own: str | None) -> str:
    parts = [f"__duckdb_field_id: {own}"] if own is not None else []
    for child_name, field in children:
        identity = (field.metadata or {}).get(FIELD_ID)
        nested = _ids_of(_children(field.type), identity.decode() if identity else None)
        if nested:
            parts.append(f"{name(child_name)}: {nested}")
    return f"{{{', '.join(parts)}}}" if parts else ""


def _children(type_: Any) -> list[tuple[str, Any]]:
    if pa.types.is_map(type_):
        return [("key", type_.key_field), ("value", type_.item_field)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [("element", type_.value_field)]
    return [(type_.field(i).name, type_.field(i)) for i in range(type_.num_fields)]
