"""What DuckDB's own COPY keeps exactly, and what its reader hands out without loss."""

import re
from typing import Any

import pyarrow as pa

from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.changes import Deletion

_COPY_CODECS = frozenset({"snappy", "zstd", "gzip", "brotli", "none"})


def copy_obstacle(group: RewriteGroup) -> str | None:
    """Why COPY cannot write this group as planned; None when it can."""
    return (
        read_obstacle(group, _copied_exactly) or _schema_obstacle(group) or _writer_obstacle(group)
    )


def read_obstacle(group: RewriteGroup, keeps: Any = None) -> str | None:
    """Why DuckDB cannot even read this group without loss; None when it can."""
    names = group.schema.names
    if len({name.casefold() for name in names}) < len(names) or "" in names:
        return "DuckDB takes column names that differ only in case for one"
    for field in group.schema:
        if not (keeps or _read_exactly)(field.type):
            return f"DuckDB cannot keep column '{field.name}' of type {field.type}"
        if _has_odd_name(field):
            return f"DuckDB changes names that are empty or hold a NUL, as in column '{field.name}'"
    if any(file.schema.has_int96 for file in group.files):
        return "DuckDB does not write INT96 timestamps"
    return _drift_obstacle(group)


def change_obstacle(group: RewriteGroup) -> str | None:
    """Why COPY cannot change the rows of this group; None when it can."""
    change = group.change
    if change is None or not isinstance(change.rule, Deletion):
        return "DuckDB deletes rows, but leaves updating them to PyArrow"
    if change.rule.predicate.duckdb_sql() is None:
        return "DuckDB might take the condition in another way"
    if len(group.files) != 1 or len(group.output_rows) != 1:
        return "DuckDB changes one file at a time"
    held = group.files[0].schema.arrow
    missing = [field.name for field in group.schema if field.name not in held.names]
    if missing:
        return f"column '{missing[0]}' is in other files only"
    for field in change.rule.schema:
        if field.name in change.constants:
            if not pa.types.is_string(field.type):
                return f"column '{field.name}' is in other files only"
        elif held.field(field.name).type != field.type:
            return f"column '{field.name}' has different types in the files of the dataset"
    return copy_obstacle(group)


def sort_obstacle(group: RewriteGroup) -> str | None:
    """Why rows of this group cannot pass through DuckDB without loss; None when they can.

    Kernels read and write them, under names of our own: only values have to survive.
    """
    for field in group.schema:
        if not _read_exactly(field.type):
            return f"DuckDB cannot keep column '{field.name}' of type {field.type}"
        if _has_odd_child(field.type):
            return f"DuckDB changes names that are empty or hold a NUL, as in column '{field.name}'"
    for schema in {file.schema.fingerprint: file.schema for file in group.files}.values():
        wide = [leaf for leaf in schema.leaves if _is_wide_decimal(leaf)]
        if wide:
            return f"DuckDB holds '{wide[0]}' in fewer bytes than the file, and may cut values off"
    return None


def _has_odd_child(type_: Any) -> bool:
    return any(_has_odd_name(type_.field(i)) for i in range(type_.num_fields))


def _has_odd_name(field: Any) -> bool:
    if not field.name or "\0" in field.name:
        return True
    return any(_has_odd_name(field.type.field(i)) for i in range(field.type.num_fields))


def _drift_obstacle(group: RewriteGroup) -> str | None:
    """Columns may be missing or in another order; other types are ours to widen, not DuckDB's."""
    planned = {field.name: field.type for field in group.schema}
    for schema in {file.schema.fingerprint: file.schema for file in group.files}.values():
        for field in schema.arrow:
            if field.type != planned[field.name]:
                return f"column '{field.name}' has different types in the files of the group"
        if any("Time(isAdjustedToUTC=true" in leaf for leaf in schema.leaves):
            return "DuckDB changes times of day in UTC"
        if any(_is_special(leaf) for leaf in (*schema.leaves, *schema.annotations)):
            return "the files have Parquet types that Arrow does not know"
        wide = [leaf for leaf in schema.leaves if _is_wide_decimal(leaf)]
        if wide:
            return f"DuckDB holds '{wide[0]}' in fewer bytes than the file, and may cut values off"
    return None


_DECIMAL = re.compile(
    r"(INT32|INT64|BYTE_ARRAY|FIXED_LEN_BYTE_ARRAY\((\d+)\)) Decimal\(precision=(\d+)"
)


def _is_wide_decimal(leaf: str) -> bool:
    """Whether a file has room for decimals beyond their precision, where DuckDB has none."""
    match = _DECIMAL.match(leaf)
    if match is None:
        return False
    stored = {"INT32": 4, "INT64": 8, "BYTE_ARRAY": 17}.get(match[1]) or int(match[2])
    precision = int(match[3])
    held = next((size for most, size in ((4, 2), (9, 4), (18, 8)) if precision <= most), 16)
    return stored > held


def _is_special(leaf: str) -> bool:
    marks = ("Enum", "BSON", "Interval", "INTERVAL", "Variant", "Geometry", "Geography")
    return any(mark in leaf for mark in marks)


def _schema_obstacle(group: RewriteGroup) -> str | None:
    for field in group.schema:
        if _has_required(field):
            return f"DuckDB would make the required column '{field.name}' nullable"
    if not group.writer.store_arrow_schema and any(
        not _is_plain(field.type) for field in group.schema
    ):
        return "DuckDB needs a stored Arrow schema to keep these types"
    return None


def _writer_obstacle(group: RewriteGroup) -> str | None:
    writer = group.writer
    if any(not _is_utf8(key) for key in group.schema.metadata or {}):
        return "DuckDB takes only text as a key of file metadata"
    nested = [field.name for field in group.schema if _has_nested_float(field.type)]
    if nested:
        return f"DuckDB makes all NaN of a column the same, also inside '{nested[0]}'"
    if writer.codec not in _COPY_CODECS or writer.column_codecs:
        return "DuckDB writes one codec for all columns, and no LZ4"
    if any(encoding != "PLAIN" for _, encoding in writer.column_encodings):
        return "DuckDB chooses encodings itself"
    if writer.page_index or writer.sorting:
        return "DuckDB writes no page index and declares no sort order"
    if not writer.decimals_as_integers and any(_has_decimal(f.type) for f in group.schema):
        return "DuckDB would store decimals as integers"
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def float_columns(schema: pa.Schema) -> list[str]:
    """Columns of which COPY keeps every value but the bits of NaN."""
    return [field.name for field in schema if pa.types.is_floating(field.type)]


def _has_nested_float(type_: Any) -> bool:
    return any(
        pa.types.is_floating(type_.field(i).type) or _has_nested_float(type_.field(i).type)
        for i in range(type_.num_fields)
    )


def _copied_exactly(type_: Any) -> bool:
    if pa.types.is_timestamp(type_):
        return bool(type_.unit == "us" or (type_.unit == "ns" and type_.tz is None))
    if pa.types.is_time(type_):
        return bool(type_.unit == "us")
    return _read_exactly(type_)


def _read_exactly(type_: Any) -> bool:
    """Types whose values survive the way through DuckDB and back into Arrow."""
    if isinstance(type_, pa.BaseExtensionType):
        return False
    if pa.types.is_timestamp(type_):
        # Nanoseconds with a zone become microseconds; seconds have no Parquet type at all.
        return type_.unit in ("ms", "us") or (type_.unit == "ns" and type_.tz is None)
    if pa.types.is_decimal128(type_):
        return bool(0 <= type_.scale <= type_.precision)
    if pa.types.is_struct(type_):
        names = [type_.field(i).name.casefold() for i in range(type_.num_fields)]
        return bool(names) and len({*names}) == len(names) and _children_are_exact(type_)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_):
        return _children_are_exact(type_)
    return any(
        check(type_)
        for check in (
            pa.types.is_integer,
            pa.types.is_boolean,
            pa.types.is_float32,
            pa.types.is_float64,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_date32,
            pa.types.is_time,
        )
    )


def _children_are_exact(type_: Any) -> bool:
    return all(_read_exactly(type_.field(i).type) for i in range(type_.num_fields))


def _has_required(field: Any) -> bool:
    if not field.nullable:
        return True
    type_ = field.type
    if pa.types.is_map(type_):  # keys are required everywhere
        return _has_required(type_.item_field) or _has_required(pa.field("key", type_.key_type))
    return any(_has_required(type_.field(i)) for i in range(type_.num_fields))


def _has_decimal(type_: Any) -> bool:
    return bool(pa.types.is_decimal(type_)) or any(
        _has_decimal(type_.field(i).type) for i in range(type_.num_fields)
    )


def _is_plain(type_: Any) -> bool:
    """Types that a reader finds again without a stored Arrow schema."""
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return False
    if pa.types.is_large_list(type_):
        return False
    if pa.types.is_timestamp(type_) and type_.tz not in (None, "UTC"):
        return False
    return all(_is_plain(type_.field(i).type) for i in range(type_.num_fields))
