"""An upsert bound to a dataset: which of the new rows replace values, and where the others go."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from maintenance_assets.model.changes import FileChange
from maintenance_assets.planning.bound_changes import refuse_odd_column
from maintenance_assets.planning.change_plan import Changes, FileOutcome, Surveyed
from maintenance_assets.planning.changes import Merging, RowsByKey
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.file_metadata import restated
from maintenance_assets.planning.fitting import fit_array, is_storable, plain_type
from maintenance_assets.planning.key_index import KeyIndex, check_key_type
from maintenance_assets.planning.moves import Moves
from maintenance_assets.planning.partitions import parse_partition

Array = Any
OnDuplicates = Literal["error", "last"]


@dataclass(frozen=True, slots=True)
class UpsertRequest:
    """New data and how it is to be merged, as the user said it."""

    source: pa.Table
    keys: tuple[str, ...]
    partition_cols: tuple[str, ...] | None
    update_cols: tuple[str, ...] | None
    on_duplicates: OnDuplicates


@dataclass(frozen=True, slots=True)
class Layout:
    """The partition columns of a dataset; or why new rows have no place in it."""

    keys: tuple[str, ...]
    obstacle: str | None = None

    @classmethod
    def of(cls, directories: Iterable[str], partition_cols: Sequence[str] | None) -> "Layout":
        """From the directories that hold files; from `partition_cols` where there are none."""
        found: dict[tuple[str, ...], str] = {}
        odd = None
        for directory in directories:
            parts = parse_partition(directory)
            found.setdefault(tuple(part.key for part in parts), directory)
            if directory and len(parts) < len(directory.split("/")):
                odd = directory
        if not found:
            return cls(tuple(partition_cols or ()))
        keys, *others = found
        if partition_cols is not None and not odd and not others:
            _refuse_other_layout(keys, partition_cols)
        if odd:
            return cls(keys, f"'{odd}' is not made of key=value segments")
        if others:
            why = f"'{found[keys]}' and '{found[others[0]]}' have different partition columns"
            return cls(keys, why)
        return cls(keys)


def _refuse_other_layout(keys: Sequence[str], partition_cols: Sequence[str]) -> None:
    if set(keys) != set(partition_cols):
        shown = ", ".join(keys) or "none"
        raise ValueError(
            f"partition_cols {list(partition_cols)} contradict the dataset, whose partition "
            f"columns are: {shown}. Leave partition_cols out, or repartition the dataset first"
        )


@dataclass(frozen=True, slots=True)
class BoundUpsert:
    """New data in the types of the dataset, found by its keys."""

    finder: RowsByKey
    rule: Merging
    used: frozenset[str]
    added: tuple[str, ...]
    table: pa.Table
    assigned: Mapping[str, Any]
    layout: Layout
    placing: Moves
    """Finds the directory of new rows."""
    schema: pa.Schema
    """Of the files that new rows are written to."""

    @property
    def source(self) -> pa.Table:
        """What rows of files are merged with."""
        return self.table.select([*self.rule.keys, *self.rule.updates])

    def changes(self, read: Sequence[Surveyed]) -> Changes:
        """Rows of files that get new values, and rows that are new."""
        outcomes = tuple(self._outcomes(read))
        return Changes(self.rule, outcomes, self.assigned, dict(self.inserted(read)))

    # -- rows that are new -------------------------------------------------------------------

    def new_rows(self, read: Sequence[Surveyed]) -> Array:
        """Rows of the new data whose keys are in no file."""
        matched = np.zeros(self.table.num_rows, bool)
        for found in read:
            matched[found.scan.source_rows] = True
        return np.flatnonzero(~matched)

    def inserted(self, read: Sequence[Surveyed]) -> Counter[str]:
        """How many rows come to which directory."""
        rows = self.new_rows(read)
        counts: Counter[str] = Counter()
        if len(rows):
            self._require_complete(rows)
            codes, directories = self.directories(rows)
            for code, count in enumerate(np.bincount(codes, minlength=len(directories)).tolist()):
                if count:
                    counts[directories[code]] += count
        if counts.total() != len(rows):
            raise ValueError(f"{len(rows)} new rows have {counts.total()} places")
        return counts

    def directories(self, rows: Array) -> tuple[Array, tuple[str, ...]]:
        """Where new rows belong: codes and directories."""
        if self.layout.obstacle is not None:
            raise ValueError(
                f"{len(rows)} new row(s) cannot be placed: {self.layout.obstacle}. Repartition the "
                "dataset first"
            )
        missing = [key for key in self.layout.keys if key not in self.table.column_names]
        if missing:
            raise ValueError(
                f"Partition columns not found in data: {', '.join(missing)}. {len(rows)} new "
                f"row(s) need them. Available columns: {', '.join(self.table.column_names)}"
            )
        if not self.layout.keys:
            return np.zeros(len(rows), np.int32), ("",)
        return self.placing.whole(one_batch(self.table.select(list(self.layout.keys)), rows))

    def _require_complete(self, rows: Array) -> None:
        for field in self.schema:
            if not field.nullable and field.name not in self.table.column_names:
                raise ValueError(
                    f"Column '{field.name}' is required in the dataset and missing in the new "
                    f"data, of which {len(rows)} row(s) are to be inserted"
                )

    # -- rows of files -----------------------------------------------------------------------

    def _outcomes(self, read: Sequence[Surveyed]) -> Iterable[FileOutcome]:
        owners = self._owners(read) if self.rule.one_copy else None
        for number, found in enumerate(read):
            rows = found.scan.source_rows
            given_up = None
            if owners is not None:
                distinct = np.unique(rows)
                given_up = distinct[owners[distinct] != number]
                rows = distinct[owners[distinct] == number]
            deleted = found.scan.matches - len(rows)
            if deleted or (len(rows) and self.rule.updates):
                moved = self._moved(found.directory, rows)
                yield FileOutcome(
                    found,
                    FileChange(found.scan.matches, given_up),
                    staying=found.file.num_rows - deleted - sum(moved.values()),
                    moved=tuple(sorted(moved.items())),
                    updated=len(rows) if self.rule.updates else 0,
                    deleted=deleted,
                )

    def _owners(self, read: Sequence[Surveyed]) -> Array:
        """For each row of the new data the file that keeps the one copy of it."""
        owners = np.full(self.table.num_rows, -1)
        # Rather a copy that lies where it belongs than one that would have to move there.
        for wants_to_stay in (True, False):
            for number, found in enumerate(read):
                rows = np.unique(found.scan.source_rows)
                if wants_to_stay:
                    rows = rows[~self._leaves(found.directory, rows)]
                owners[rows[owners[rows] < 0]] = number
        return owners

    def _leaves(self, directory: str, rows: Array) -> Array:
        """For each row whether a copy in this directory would have to move."""
        if self.rule.moves is None or not len(rows):
            return np.zeros(len(rows), bool)
        codes, targets = self.rule.moves.targets(self._keys(rows), directory)
        return np.array([target != directory for target in targets])[codes]

    def _moved(self, directory: str, rows: Array) -> Counter[str]:
        counts: Counter[str] = Counter()
        if self.rule.moves is None or not len(rows):
            return counts
        codes, targets = self.rule.moves.targets(self._keys(rows), directory)
        for code, count in enumerate(np.bincount(codes, minlength=len(targets)).tolist()):
            if count and targets[code] != directory:
                counts[targets[code]] += count
        return counts

    def _keys(self, rows: Array) -> pa.RecordBatch:
        keys = () if self.rule.moves is None else self.rule.moves.keys
        return one_batch(self.table.select(list(keys)), rows)


def one_batch(table: pa.Table, rows: Array) -> pa.RecordBatch:
    """These rows of a table."""
    taken = table.take(pa.array(rows)).combine_chunks()
    arrays = [
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
        for column in taken.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=taken.schema)


# -- binding -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FittedRows:
    """New data in the types of a dataset, each key once."""

    columns: DatasetColumns
    """What it was fitted to."""
    table: pa.Table
    index: KeyIndex

    @classmethod
    def of(cls, request: UpsertRequest, columns: DatasetColumns) -> "FittedRows":
        """ValueError where it does not fit, or has a key twice."""
        index, table = _distinct_keys(request, _fitted(request, columns))
        return cls(columns, table, index)


def bind_upsert(
    request: UpsertRequest, fitted: FittedRows, directories: Sequence[str]
) -> BoundUpsert:
    """Say what is to be done with new data in a dataset that has these directories."""
    columns, table, index = fitted.columns, fitted.table, fitted.index
    layout = Layout.of(directories, request.partition_cols)
    is_new = not directories
    others = [name for name in table.column_names if name not in request.keys]
    updates = others if request.update_cols is None else list(request.update_cols)
    moving = tuple(key for key in columns.keys if key in updates)
    complete = set(columns.schema.names) <= set(table.column_names)
    key_schema = pa.schema([table.schema.field(name) for name in request.keys])
    rule = Merging(
        keys=request.keys,
        schema=key_schema,
        updates=tuple(updates),
        moves=Moves.of(moving, columns.schema, directories) if moving else None,
        one_copy=request.update_cols is None and complete and not is_new,
    )
    placing = Moves.of(layout.keys, table.schema if is_new else columns.schema, directories)
    return BoundUpsert(
        finder=RowsByKey(index, key_schema),
        rule=rule,
        used=frozenset({*request.keys, *moving}),
        added=tuple(n for n in table.column_names if n not in columns.schema.names),
        table=table,
        assigned=_assigned(updates, table, columns),
        layout=layout,
        placing=placing,
        schema=_insert_schema(table, columns),
    )


def _fitted(request: UpsertRequest, columns: DatasetColumns) -> pa.Table:
    """All columns in the types that rules see: those of the dataset, or plain ones."""
    columns.require(request.source.column_names)
    is_new = not columns.schema.names
    unknown = [key for key in request.keys if key not in columns.schema.names]
    if unknown and not is_new:
        raise ValueError(
            f"Unknown key column '{unknown[0]}'. Columns of the dataset: "
            f"{', '.join(columns.schema.names)}"
        )
    arrays = []
    for name in request.source.column_names:
        array = _whole(request.source.column(name))
        if name in columns.keys and name not in columns.stored.names:
            _require_text(name, array.type)
        target = _type_of(name, columns)
        if target is None:
            target = _new_type(name, array.type, columns)
        array = fit_array(array, target, name)
        if name in request.keys:
            check_key_type(array.type, name)
        _refuse_null(name, array, columns)
        arrays.append(array)
    return pa.table(arrays, names=request.source.column_names)


def _type_of(name: str, columns: DatasetColumns) -> Any | None:
    """The type that values have to fit; None where no value of the column is known so far."""
    index = columns.schema.get_field_index(name)
    if index < 0 or pa.types.is_null(columns.schema.field(index).type):
        return None
    return columns.schema.field(index).type


def _new_type(name: str, type_: Any, columns: DatasetColumns) -> Any:
    if name not in columns.schema.names:
        refuse_odd_column(name, columns)
        if pa.types.is_null(type_):
            raise ValueError(
                f"Column '{name}' of the new data is new to the dataset and has no type: cast it "
                "to one, or leave it out"
            )
    if not is_storable(type_):
        raise ValueError(
            f"Column '{name}' of the new data has type {type_}, which Parquet cannot hold: cast "
            "it to another one, or leave it out"
        )
    plain = plain_type(type_)
    # Rows of old files have no category, and an order has no place for those to come.
    is_ordered = pa.types.is_dictionary(plain) and plain.ordered
    return plain.value_type if is_ordered and columns.schema.names else plain


def _require_text(name: str, type_: Any) -> None:
    kinds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_null,
    )
    if not any(belongs(type_) for belongs in kinds):
        raise ValueError(
            f"Column '{name}' is only in the paths of the dataset, where it is text, and "
            f"{type_} in the new data. Cast it to text, spelled as in the paths"
        )


def _refuse_null(name: str, array: Array, columns: DatasetColumns) -> None:
    index = columns.stored.get_field_index(name)
    if array.null_count and index >= 0 and not columns.stored.field(index).nullable:
        raise ValueError(
            f"Column '{name}' is required in the dataset, and NULL in {array.null_count} row(s) of "
            "the new data"
        )


def _distinct_keys(request: UpsertRequest, table: pa.Table) -> tuple[KeyIndex, pa.Table]:
    index = KeyIndex(table.select(list(request.keys)))
    twins = index.duplicates()
    if twins is None:
        return index, table
    if request.on_duplicates == "error":
        row = table.select(list(request.keys)).slice(twins[0], 1).to_pylist()[0]
        shown = ", ".join(f"{name}={value!r}" for name, value in row.items())
        raise ValueError(
            f"The new data has the key {shown} more than once (rows {twins[0]} and {twins[1]}): "
            "which of them counts cannot be told. Remove the others, or pass on_duplicates='last', "
            "or --on-duplicates last in a shell"
        )
    table = table.take(pa.array(index.last_of_each())).combine_chunks()
    return KeyIndex(table.select(list(request.keys))), table


def _assigned(updates: Sequence[str], table: pa.Table, columns: DatasetColumns) -> dict[str, Any]:
    """Updated columns, and the types that files store them in."""
    found = {}
    for name in updates:
        is_typed = name in columns.stored.names and _type_of(name, columns) is not None
        found[name] = (columns.stored if is_typed else table.schema).field(name).type
    return found


def _insert_schema(table: pa.Table, columns: DatasetColumns) -> pa.Schema:
    """All columns of the dataset's files and those that are new."""
    fields = [
        field.with_type(table.schema.field(field.name).type)
        if pa.types.is_null(field.type) and field.name in table.column_names
        else field
        for field in columns.stored
        if field.name not in columns.unusable
    ]
    known = {*columns.stored.names, *columns.keys}
    added = [
        pa.field(name, table.schema.field(name).type)
        for name in table.column_names
        if name not in known
    ]
    metadata = restated(
        columns.stored.metadata or {},
        columns_changed=bool(added) or len(fields) < len(columns.stored),
        new_values=table.column_names,
        new_types=(),
    )
    return pa.schema([*fields, *added], metadata or None)


def _whole(column: pa.ChunkedArray) -> Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
