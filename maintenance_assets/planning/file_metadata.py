"""Merging the key-value metadata of many files: kept where true of all, dropped where stale."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

ARROW_SCHEMA = b"ARROW:schema"
LAYOUT = b"maintenance_assets:layout"
# Written anew, or not true any more once rows have moved.
_NEVER_KEPT = frozenset({ARROW_SCHEMA, LAYOUT})
PANDAS = b"pandas"
GEO = b"geo"
# Each repeats the schema in another notation: stale, it hides added columns from its readers.
SCHEMA_KEYS = frozenset(
    {
        b"org.apache.spark.sql.parquet.row.metadata",
        b"parquet.avro.schema",
        b"avro.schema",
        b"iceberg.schema",
        b"parquet.proto.descriptor",
    }
)
SPARK_VERSION = b"org.apache.spark.version"
SPARK_LEGACY_DATES = b"org.apache.spark.legacyDateTime"
SPARK_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
SPARK_ZONE = b"org.apache.spark.timeZone"

Source = tuple[str, pa.Schema]
Json = dict[str, Any]


def merge_file_metadata(
    sources: Sequence[Source], merged: pa.Schema
) -> tuple[dict[bytes, bytes], tuple[str, ...]]:
    """The metadata of a file with the merged fields, and notes on what was dropped or chosen."""
    ordered = sorted(sources, key=lambda source: source[0])
    shape_kept = all(schema.equals(merged, check_metadata=False) for _, schema in ordered)
    kept: dict[bytes, bytes] = {}
    notes: dict[str, None] = {}
    keys = dict.fromkeys(key for _, schema in ordered for key in schema.metadata or {})
    for key in keys:
        value = None if key in _NEVER_KEPT else _merge_key(key, ordered, merged, shape_kept, notes)
        if value is not None:
            kept[key] = value
    return kept, tuple(notes)


def with_row_count(schema: pa.Schema, rows: int) -> pa.Schema:
    """The schema whose pandas range index has this many rows; unchanged if it already has."""
    metadata = schema.metadata or {}
    pandas = _parse(metadata.get(PANDAS))
    old = _range_of(pandas.get("index_columns")) if pandas else None
    if pandas is None or old is None or _range_length(old) == rows:
        return schema
    pandas["index_columns"] = [{**old, "start": 0, "stop": rows, "step": 1}]
    return schema.with_metadata({**metadata, PANDAS: json.dumps(pandas).encode()})


def has_range_index(schema: pa.Schema) -> bool:
    """Whether pandas numbers the rows instead of storing an index."""
    pandas = _parse((schema.metadata or {}).get(PANDAS))
    return pandas is not None and _range_of(pandas.get("index_columns")) is not None


def restated(
    metadata: Mapping[bytes, bytes],
    *,
    columns_changed: bool,
    new_values: Collection[str],
    new_types: Collection[str],
) -> dict[bytes, bytes]:
    """File metadata that still holds after some columns got other values, or other types."""
    kept = {k: v for k, v in metadata.items() if not (columns_changed and k in SCHEMA_KEYS)}
    pandas, geo = _parse(kept.get(PANDAS)), _parse(kept.get(GEO))
    if pandas is not None and _is_pandas(pandas):
        index = pandas["index_columns"]
        gone = [
            c
            for c in pandas["columns"]
            if _field_name(c) in new_types and _field_name(c) not in index
        ]
        if gone:
            columns = [column for column in pandas["columns"] if column not in gone]
            kept[PANDAS] = json.dumps({**pandas, "columns": columns}).encode()
    shapes = geo.get("columns") if geo is not None else None
    if isinstance(shapes, dict):
        # A box around the old shapes need not be one around the new ones.
        boxed = [name for name in new_values if isinstance(shapes.get(name), dict)]
        for name in boxed:
            shapes[name].pop("bbox", None)
        if boxed:
            kept[GEO] = json.dumps(geo).encode()
    return kept


class Calendar(NamedTuple):
    """How Spark takes the dates and timestamps of a file."""

    legacy_dates: bool
    legacy_int96: bool
    zone: bytes | None
    """In which legacy timestamps were local; of no meaning where nothing is legacy."""


def calendar_of(metadata: Mapping[bytes, bytes]) -> Calendar:
    """What Spark takes for written in the Julian-Gregorian calendar, and in which zone."""
    # Spark itself compares the version as text, and looks no further when there is none.
    version = metadata.get(SPARK_VERSION)
    if version is None:
        return Calendar(False, False, None)
    dates = version < b"3.0.0" or SPARK_LEGACY_DATES in metadata
    int96 = version < b"3.1.0" or SPARK_LEGACY_INT96 in metadata
    return Calendar(dates, int96, metadata.get(SPARK_ZONE) if dates or int96 else None)


def _merge_key(
    key: bytes,
    sources: list[Source],
    merged: pa.Schema,
    shape_kept: bool,
    notes: dict[str, None],
) -> bytes | None:
    holders = [(path, schema) for path, schema in sources if key in (schema.metadata or {})]
    first: bytes = holders[0][1].metadata[key]
    everywhere = len(holders) == len(sources)
    equal = all(schema.metadata[key] == first for _, schema in holders)
    name = key.decode(errors="replace")
    if everywhere and equal and shape_kept:
        return first
    if key in SCHEMA_KEYS:
        notes[f"file metadata {name!r}: dropped, it does not describe the merged columns"] = None
        return None
    if key == PANDAS:
        return _merge_pandas(holders, everywhere, merged, notes)
    if key == GEO:
        return _merge_geo([schema.metadata[key] for _, schema in holders], everywhere, notes)
    if not equal:
        notes[f"file metadata {name!r}: differs, kept from {holders[0][0]!r}"] = None
    return first


def _merge_pandas(
    holders: list[Source], everywhere: bool, merged: pa.Schema, notes: dict[str, None]
) -> bytes | None:
    parsed = [_parse(schema.metadata[PANDAS]) for _, schema in holders]
    entries = [entry for entry in parsed if entry is not None and _is_pandas(entry)]
    if len(entries) < len(parsed):
        return _dropped(notes, PANDAS, "not in the form pandas writes")
    index = _merge_index([entry["index_columns"] for entry in entries], everywhere, notes)
    if index is None:
        return _dropped(notes, PANDAS, "the files have different index columns")
    if len({_column_index_key(entry) for entry in entries}) > 1:
        return _dropped(notes, PANDAS, "the files have different kinds of column labels")
    columns = _merge_columns(holders, entries, merged, notes)
    described = {_field_name(column) for column in columns}
    # pandas fails to read an index column that has no entry.
    if any(isinstance(name, str) and name not in described for name in index):
        return _dropped(notes, PANDAS, "no file describes the merged type of the index column")
    return json.dumps(_first_of(entries, index, columns, notes)).encode()


def _is_pandas(entry: Json) -> bool:
    columns = entry.get("columns")
    return (
        isinstance(entry.get("index_columns"), list)
        and isinstance(columns, list)
        and all(isinstance(column, dict) for column in columns)
    )


def _first_of(
    entries: list[Json], index: list[Any], columns: list[Json], notes: dict[str, None]
) -> Json:
    """The first file's entry with merged index and columns; other differences are noted."""
    result: Json = {}
    for entry in entries:
        for key, value in entry.items():
            if result.setdefault(key, value) != value and key not in ("index_columns", "columns"):
                notes[f"file metadata 'pandas': {key!r} differs, kept from the first file"] = None
    return {**result, "index_columns": index, "columns": columns}


def _merge_index(
    found: list[list[Any]], everywhere: bool, notes: dict[str, None]
) -> list[Any] | None:
    """One index description, or None when the files do not agree on one."""
    ranges = [_range_of(index) for index in found]
    if not all(old is not None or index == [] for old, index in zip(ranges, found, strict=True)):
        return found[0] if everywhere and all(index == found[0] for index in found) else None
    # No index column and no metadata both read as a range from 0 without a name.
    named = [old.get("name") if old is not None else None for old in ranges]
    if not everywhere:
        named.append(None)
    if any(name != named[0] for name in named):
        return None
    old_ranges = [old for old in ranges if old is not None]
    if not old_ranges:
        return []
    if any((old.get("start"), old.get("step")) != (0, 1) for old in old_ranges):
        notes["file metadata 'pandas': rows of the range index are numbered from 0 again"] = None
    return [{"kind": "range", "name": named[0], "start": 0, "stop": 0, "step": 1}]


def _merge_columns(
    holders: list[Source], entries: list[Json], merged: pa.Schema, notes: dict[str, None]
) -> list[Json]:
    """Per merged column the entry of the first file that has it in the merged type."""
    chosen: dict[str, Json] = {}
    for (_, schema), entry in zip(holders, entries, strict=True):
        for column in entry["columns"]:
            name = _field_name(column)
            if chosen.get(name) == column or not _same_type(schema, merged, name):
                continue
            if _kind(chosen.setdefault(name, column)) != _kind(column):
                notes[f"file metadata 'pandas': type of {name!r} kept from the first file"] = None
    return [chosen[name] for name in merged.names if name in chosen]


def _same_type(schema: pa.Schema, merged: pa.Schema, name: str) -> bool:
    here, there = schema.get_field_index(name), merged.get_field_index(name)
    return here >= 0 and there >= 0 and bool(schema.field(here).type == merged.field(there).type)


def _kind(column: Json) -> tuple[Any, Any]:
    return column.get("pandas_type"), column.get("numpy_type")


def _field_name(column: Json) -> str:
    # Files from before pandas 0.23 have only the name.
    return str(column.get("field_name", column.get("name")))


def _column_index_key(entry: Json) -> str:
    """What of the column labels matters to a reader; numpy_type changes with pandas 3 alone."""
    levels = entry.get("column_indexes") or []
    return json.dumps([(level.get("name"), level.get("pandas_type")) for level in levels])


def _range_of(index: Any) -> Json | None:
    if isinstance(index, list) and len(index) == 1 and isinstance(index[0], dict):
        return index[0] if index[0].get("kind") == "range" else None
    return None


def _range_length(old: Json) -> int | None:
    bounds = [old.get(key) for key in ("start", "stop", "step")]
    if not all(isinstance(bound, int) for bound in bounds) or not old.get("step"):
        return None
    return len(range(old["start"], old["stop"], old["step"]))


def _merge_geo(values: list[bytes], everywhere: bool, notes: dict[str, None]) -> bytes | None:
    if not everywhere:
        return _dropped(notes, GEO, "some files have none")
    entries = [_parse(value) for value in values]
    bare = [_without_boxes(entry) for entry in entries]
    if bare[0] is None or any(entry != bare[0] for entry in bare):
        return _dropped(notes, GEO, "the files differ in more than their bounding boxes")
    merged: Json = bare[0]
    for name, column in merged["columns"].items():
        boxes = [entry["columns"][name].get("bbox") for entry in entries if entry is not None]
        union = _union_box(boxes)
        if union is not None:
            column["bbox"] = union
        elif any(box is not None for box in boxes):
            notes[f"file metadata 'geo': bounding box of {name!r} dropped, it has no union"] = None
    return json.dumps(merged).encode()


def _without_boxes(entry: Json | None) -> Json | None:
    """The entry without what may differ; None when it is not GeoParquet's form."""
    columns = entry.get("columns") if entry else None
    if not entry or not isinstance(columns, dict):
        return None
    if not all(isinstance(column, dict) for column in columns.values()):
        return None
    bare = {name: {k: v for k, v in c.items() if k != "bbox"} for name, c in columns.items()}
    return {**entry, "columns": bare}


def _union_box(boxes: Sequence[Any]) -> list[float] | None:
    """The box around all boxes; None when one is missing, odd, or crosses the antimeridian."""
    if not all(isinstance(box, list) and len(box) in (4, 6) for box in boxes):
        return None
    if all(box == boxes[0] for box in boxes):
        return list(boxes[0])
    half = len(boxes[0]) // 2
    if any(len(box) != 2 * half or not _all_finite(box) or box[0] > box[half] for box in boxes):
        return None
    lows = [min(box[i] for box in boxes) for i in range(half)]
    return lows + [max(box[half + i] for box in boxes) for i in range(half)]


def _all_finite(box: Iterable[Any]) -> bool:
    return all(isinstance(bound, int | float) and math.isfinite(bound) for bound in box)


def _dropped(notes: dict[str, None], key: bytes, why: str) -> bytes | None:
    notes[f"file metadata {key.decode()!r}: dropped, {why}"] = None
    return None


def _parse(value: bytes | None) -> Json | None:
    try:
        parsed = json.loads(value) if value is not None else None
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
