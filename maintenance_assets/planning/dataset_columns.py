"""The columns of a dataset as a predicate sees them: those of its files and those of its paths."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintenance_assets.errors import SchemaConflictError, UnsupportedDatasetError
from maintenance_assets.model.files import ColumnRange, DataFile
from maintenance_assets.planning.extents import reaching
from maintenance_assets.planning.fitting import plain_type
from maintenance_assets.planning.partitions import parse_partition
from maintenance_assets.planning.path_values import differing_value, is_text, typed_value
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas

PATH_TYPE = pa.string()
"""A value that only a path has is text: `01` stays `01`."""


@dataclass(frozen=True, slots=True)
class DatasetColumns:
    """All columns by name; a file has some of them, its path has others, the rest is null."""

    schema: pa.Schema
    """Columns of files in the type that holds the values of all of them; then those of paths."""
    stored: pa.Schema
    """The columns of files alone, in the types that files are written in."""
    keys: tuple[str, ...]
    """Partition keys that occur in paths, outermost first."""
    unusable: Mapping[str, Exception]
    """Columns whose values cannot be told, and why; what needs one of them is refused."""

    @classmethod
    def of(cls, files: Iterable[DataFile], directories: Iterable[str]) -> "DatasetColumns":
        """The columns of these files in these directories (as seen from the root)."""
        distinct = {file.schema.fingerprint: file for file in files}.values()
        stored, unusable = _merged([SchemaSource(f.path, f.schema.arrow) for f in distinct])
        keys = tuple(dict.fromkeys(p.key for d in directories for p in parse_partition(d)))
        in_files = [pa.field(field.name, plain_type(field.type)) for field in stored]
        in_paths = [pa.field(key, PATH_TYPE) for key in keys if key not in stored.names]
        return cls(pa.schema([*in_files, *in_paths]), stored, keys, unusable)

    def require(self, names: Iterable[str]) -> None:
        """Raise if the values of one of these columns cannot be told."""
        for name in names:
            if name in self.unusable:
                raise self.unusable[name]

    def select(self, names: Collection[str]) -> pa.Schema:
        """These columns alone, in the order of the dataset."""
        return pa.schema([field for field in self.schema if field.name in names])

    def constants(self, directory: str, file: DataFile, names: Collection[str]) -> dict[str, Any]:
        """The one value that all rows of a file have, for those of the columns it does not hold."""
        there = set(file.schema.arrow.names)
        in_path = path_texts(directory, set(names) - there)
        found = {}
        for name in names:
            if name in there:
                continue
            type_ = self.schema.field(name).type
            value = typed_value(in_path[name], type_) if name in in_path else None
            if value is None and in_path.get(name) is not None:
                raise UnsupportedDatasetError(
                    f"'{file.path}' has column '{name}' in its path alone, where it reads "
                    f"'{in_path[name]}'; other files hold it as {type_}. Nothing was changed; "
                    "write that column into the file, or rename the directory."
                )
            found[name] = pa.scalar(None, type_) if value is None else value
        return found

    def refuse_disagreement(self, directory: str, file: DataFile, names: Collection[str]) -> None:
        """Raise if the footer shows that a partition column is another one than the path says."""
        in_path = path_texts(directory, names)
        for found in file.ranges:
            if found.column in in_path and file.num_rows:
                values = _certain_values(found, in_path[found.column])
                refuse_other_values(values, in_path[found.column], found.column, file.path)


def refuse_other_values(values: Any, text: str | None, column: str, path: str) -> None:
    """Raise unless all values are what the path of their file says."""
    different = differing_value(values, text)
    if different is not None:
        raise UnsupportedDatasetError(
            f"Column '{column}' of '{path}' holds {different.as_py()!r}, but by its path it is "
            f"{text!r}. Readers take the one or the other: correct the file or move it to another "
            "directory. Nothing was changed."
        )


def _certain_values(found: ColumnRange, text: str | None) -> Any:
    """Values that are surely in a file, as far as they could differ from what its path says."""
    if found.all_null:
        return pa.nulls(1)
    bounds = [] if found.low is None else [found.low, found.high]
    if bounds and text is not None and is_text(found.low.type):
        # Bounds of text may be cut off: only what lies outside of them is certain.
        low, high = (_as_bytes(bound.as_py()) for bound in bounds)
        reached = reaching(high)
        below = reached is None or text.encode() <= reached
        bounds = [] if low <= text.encode() and below else bounds
    return pa.array(bounds, bounds[0].type) if bounds else pa.nulls(0)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def path_texts(directory: str, names: Collection[str]) -> dict[str, str | None]:
    """What the path says of these columns."""
    parts = [part for part in parse_partition(directory) if part.key in names]
    repeated = [key for key, count in Counter(part.key for part in parts).items() if count > 1]
    if repeated:
        raise UnsupportedDatasetError(
            f"Directory '{directory}' has the partition key '{repeated[0]}' more than once: its "
            "value cannot be told. Nothing was changed; rename the directory."
        )
    return {part.key: part.value for part in parts}


def _merged(sources: Sequence[SchemaSource]) -> tuple[pa.Schema, dict[str, Exception]]:
    """One schema for all; a column that cannot be merged does not keep the others from it."""
    if not sources:
        return pa.schema([]), {}
    unusable: dict[str, Exception] = {}
    try:
        merged = merge_schemas(sources).schema
    except SchemaConflictError:
        merged = _column_by_column(sources, unusable)
    for name, count in Counter(merged.names).items():
        if count > 1:
            why = f"The name '{name}' is used by several columns: their values cannot be told"
            unusable[name] = UnsupportedDatasetError(why)
    if len(unusable) and len(set(merged.names)) < len(merged.names):
        first = {field.name: field for field in reversed(list(merged))}
        merged = pa.schema([first[name] for name in dict.fromkeys(merged.names)], merged.metadata)
    return merged, unusable


def _column_by_column(sources: Sequence[SchemaSource], unusable: dict[str, Exception]) -> pa.Schema:
    fields = []
    for name in dict.fromkeys(name for source in sources for name in source.schema.names):
        holders = [
            SchemaSource(source.path, pa.schema([f for f in source.schema if f.name == name]))
            for source in sources
            if name in source.schema.names
        ]
        try:
            fields += list(merge_schemas(holders).schema)
        except SchemaConflictError as error:
            unusable[name] = error
            fields.append(holders[0].schema.field(0))
    return pa.schema(fields)
