"""How the schema of a catalog dataset may change, and how data has to change to fit it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from maintenance_assets.errors import SchemaMismatchError
from maintenance_assets.model.lakehouse import FIELD_ID, Column, TableSchema
from maintenance_assets.planning.fitting import plain_type
from maintenance_assets.planning.schema_drift import widen

OnMismatch = Literal["error", "string"]
UNSAVED = -1
"""The id of a schema that no catalog has numbered yet."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """How data is written, and what becomes of the schema."""

    table: TableSchema
    changed: bool
    """Whether that is a new schema."""
    columns: tuple[Column, ...]
    """The columns that are in the data, as they are written."""
    warnings: tuple[str, ...] = ()

    @property
    def file_schema(self) -> pa.Schema:
        """What is written into files: the columns of the data with their ids."""
        return TableSchema(UNSAVED, self.columns).with_ids

    @property
    def mapping(self) -> tuple[tuple[str, int], ...]:
        """Names in the files and the columns they are."""
        return tuple((column.name, column.field_id) for column in self.columns)


def new_schema(arrow: pa.Schema, dataset: str) -> TableSchema:
    """The first schema of a dataset; ids are handed out in order."""
    check_names(arrow.names, dataset)
    return TableSchema(0, tuple(Column(i, plain_field(f)) for i, f in enumerate(arrow, start=1)))


def plain_field(field: Any) -> Any:
    """A field without a field id: which column it is, the catalog says; of a type for files."""
    metadata = {k: v for k, v in (field.metadata or {}).items() if k != FIELD_ID}
    return field.with_type(plain_type(field.type)).with_metadata(metadata or None)


def check_names(names: Sequence[str], dataset: str) -> None:
    """SchemaMismatchError unless every name is one, and means one column to every reader."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise SchemaMismatchError(f"a column of dataset '{dataset}' needs a name")
        other = seen.get(name.lower())
        if other is not None:
            why = (
                f"two columns '{name}'"
                if other == name
                else f"columns '{other}' and '{name}', which differ at most in case: DuckDB and "
                "Spark could not tell them apart"
            )
            raise SchemaMismatchError(
                f"dataset '{dataset}' would have {why}. Give one of them another name"
            )
        seen[name.lower()] = name


def new_column_names(table: TableSchema, incoming: pa.Schema) -> tuple[str, ...]:
    """Columns of the data that the dataset does not have."""
    return tuple(name for name in incoming.names if table.find(name) is None)


def fit(
    table: TableSchema,
    incoming: pa.Schema,
    *,
    dataset: str,
    merge: bool,
    on_mismatch: OnMismatch,
    first_id: int,
    fixed: Sequence[str] = (),
) -> Fitted:
    """How data of this schema goes into a dataset; SchemaMismatchError where it does not.

    `fixed` are columns whose type may not change; new columns get ids from `first_id` on.
    """
    check_names(incoming.names, dataset)
    _check_required(table, incoming)
    warnings: list[str] = []
    by_id = {column.field_id: column for column in table.columns}
    written: list[Column] = []
    for field in incoming:
        column = table.find(field.name)
        if column is None:
            column = _added(table, field, dataset, merge, first_id)
            first_id += 1
        else:
            type_ = _fitting_type(column, field, merge, on_mismatch, fixed, warnings)
            column = Column(column.field_id, column.field.with_type(type_))
        by_id[column.field_id] = column
        written.append(column)
    columns = tuple(by_id.values())
    changed = columns != table.columns
    return Fitted(
        TableSchema(UNSAVED, columns) if changed else table,
        changed,
        tuple(written),
        tuple(warnings),
    )


def _check_required(table: TableSchema, incoming: pa.Schema) -> None:
    for column in table.columns:
        if not column.field.nullable and column.name not in incoming.names:
            raise SchemaMismatchError(
                f"the data lacks column '{column.name}', which must not be null"
            )


def _added(table: TableSchema, field: Any, dataset: str, merge: bool, field_id: int) -> Column:
    if not merge:
        raise SchemaMismatchError(
            f"the data has a column '{field.name}' that the dataset does not have. Columns: "
            f"{', '.join(table.names)}. Add it with add_column(), or write with merge_schema=True"
        )
    check_names([*table.names, field.name], dataset)
    if pa.types.is_null(field.type):
        raise SchemaMismatchError(
            f"the new column '{field.name}' is null in all rows, so its type is unknown. Cast it"
        )
    return Column(field_id, plain_field(field).with_nullable(True))


def _fitting_type(
    column: Column,
    field: Any,
    merge: bool,
    on_mismatch: OnMismatch,
    fixed: Sequence[str],
    warnings: list[str],
) -> Any:
    """The type of a column once this data is in it."""
    have = column.type
    if _takes(have, field.type):
        return have
    comes = plain_type(field.type)
    if _takes(have, comes):
        return have
    wider = widen(have, comes)
    if wider == have:
        return have
    if wider is not None and merge and column.name not in fixed:
        return wider
    if column.name in fixed and pa.types.is_integer(have) and pa.types.is_integer(comes):
        return have  # each value is checked when it is cast
    if on_mismatch == "string" and column.name not in fixed and _has_text(have, comes):
        warnings.append(
            f"column '{column.name}' is {have} and the data brings {comes}: both become text"
        )
        return have if _is_text(have) else pa.string()
    why = "" if wider is None else f" It could be widened to {wider} with merge_schema=True."
    raise SchemaMismatchError(
        f"column '{column.name}' is {have} and the data brings {comes}.{why} "
        "Cast the data, or write with on_mismatch='string' in Python"
    )


def _takes(have: Any, comes: Any) -> bool:
    """Whether values fit without the column changing: equal types, and other forms of the same."""
    if have == comes or pa.types.is_null(comes):
        return True
    if pa.types.is_dictionary(comes) and not pa.types.is_dictionary(have):
        return _takes(have, comes.value_type)
    if pa.types.is_dictionary(have) and not pa.types.is_dictionary(comes):
        return _takes(have.value_type, comes)
    if pa.types.is_floating(have) and pa.types.is_integer(comes):
        return True  # each value is checked when it is cast: one that would change is refused
    return (_is_text(have) and _is_text(comes)) or (_is_binary(have) and _is_binary(comes))


def _is_text(type_: Any) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(type_) for check in checks)


def _is_binary(type_: Any) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(check(type_) for check in checks)


_TEXTUAL: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    _is_text,
)


def _has_text(*types: Any) -> bool:
    """Whether values of all these types can be spelled as text."""
    return all(any(check(type_) for check in _TEXTUAL) for type_ in types)


# -- changes that are asked for ---------------------------------------------------------------


def with_column(table: TableSchema, field: Any, field_id: int, dataset: str) -> TableSchema:
    """The schema with one more column, null in all rows that are there."""
    check_names([*table.names, field.name], dataset)
    if not field.nullable:
        raise SchemaMismatchError(
            f"column '{field.name}' cannot be required: the rows that are there have no value"
        )
    return TableSchema(UNSAVED, (*table.columns, Column(field_id, plain_field(field))))


def without_column(table: TableSchema, name: str, fixed: Sequence[str]) -> TableSchema:
    """The schema less one column; its values stay in the files, unseen."""
    gone = table.require(name)
    _check_free(name, fixed)
    if len(table.columns) == 1:
        raise SchemaMismatchError(f"column '{name}' is the only one and cannot be dropped")
    kept = tuple(column for column in table.columns if column.field_id != gone.field_id)
    return TableSchema(UNSAVED, kept)


def with_name(
    table: TableSchema, name: str, new_name: str, fixed: Sequence[str], dataset: str
) -> TableSchema:
    """The schema with a column called otherwise."""
    column = table.require(name)
    _check_free(name, fixed)
    if new_name == name:
        raise SchemaMismatchError(f"column '{name}' of dataset '{dataset}' is called so already")
    renamed = Column(column.field_id, column.field.with_name(new_name))
    columns = tuple(renamed if c is column else c for c in table.columns)
    check_names([c.name for c in columns], dataset)
    return TableSchema(UNSAVED, columns)


def with_type(table: TableSchema, name: str, type_: Any, fixed: Sequence[str]) -> TableSchema:
    """The schema with a column of a wider type."""
    column = table.require(name)
    _check_free(name, fixed)
    if widen(column.type, type_) != type_:
        raise SchemaMismatchError(
            f"column '{name}' is {column.type}, and {type_} does not hold all its values"
        )
    wider = Column(column.field_id, column.field.with_type(type_))
    return TableSchema(UNSAVED, tuple(wider if c is column else c for c in table.columns))


def _check_free(name: str, fixed: Sequence[str]) -> None:
    if name in fixed:
        raise SchemaMismatchError(
            f"'{name}' is a partition column: the directories are named after it"
        )


# -- bounds of files after a change -----------------------------------------------------------


def keeps_order(physical: Any, logical: Any) -> bool:
    """Whether bounds of values in the one type are bounds of them in the other."""
    if physical == logical:
        return True
    if pa.types.is_dictionary(physical) or pa.types.is_dictionary(logical):
        return keeps_order(_values(physical), _values(logical))
    if _is_text(physical) or _is_binary(physical):
        return _is_text(physical) == _is_text(logical) and _is_binary(physical) == _is_binary(
            logical
        )
    return widen(physical, logical) == logical


def _values(type_: Any) -> Any:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
