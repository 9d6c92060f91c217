"""Changes bound to the columns of a dataset: delete and update."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from maintenance_assets.model.changes import FileChange
from maintenance_assets.planning.change_plan import Changes, FileOutcome, Surveyed
from maintenance_assets.planning.changes import (
    Assigned,
    Assignment,
    Deletion,
    Finder,
    RowsWhere,
    Rule,
)
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.expressions import column_names
from maintenance_assets.planning.fitting import plain_type
from maintenance_assets.planning.moves import Moves
from maintenance_assets.planning.predicates import Predicate
from maintenance_assets.planning.values import BoundValue, Value


class BoundChange(Protocol):
    """What delete, update and upsert have in common once the columns are known."""

    @property
    def finder(self) -> Finder:
        """Finds the rows that are meant."""
        ...

    @property
    def rule(self) -> Rule:
        """What becomes of them."""
        ...

    @property
    def used(self) -> frozenset[str]:
        """Columns that decide: where a path and a file both have one, they must agree."""
        ...

    @property
    def added(self) -> tuple[str, ...]:
        """Columns that are new to the dataset."""
        ...

    def changes(self, read: Sequence[Surveyed]) -> Changes:
        """What becomes of files by what was found in them."""
        ...


@dataclass(frozen=True, slots=True)
class BoundDelete:
    """Rows go."""

    finder: RowsWhere
    rule: Deletion
    used: frozenset[str]
    added: tuple[str, ...] = ()

    def changes(self, read: Sequence[Surveyed]) -> Changes:
        """All rows that were found."""
        outcomes = tuple(
            FileOutcome(
                found,
                FileChange(found.scan.matches),
                staying=found.file.num_rows - found.scan.matches,
                deleted=found.scan.matches,
            )
            for found in read
            if found.scan.matches
        )
        return Changes(self.rule, outcomes, {}, {})


@dataclass(frozen=True, slots=True)
class BoundUpdate:
    """Rows get new values, and perhaps another directory."""

    finder: RowsWhere
    rule: Assignment
    used: frozenset[str]
    assigned: Mapping[str, Any]
    """Columns and the types that files store them in."""
    added: tuple[str, ...] = ()

    def changes(self, read: Sequence[Surveyed]) -> Changes:
        """All rows that were found."""
        outcomes = tuple(
            FileOutcome(
                found,
                FileChange(found.scan.matches),
                staying=found.file.num_rows - sum(rows for _, rows in found.scan.moved),
                moved=found.scan.moved,
                updated=found.scan.matches,
            )
            for found in read
            if found.scan.matches
        )
        return Changes(self.rule, outcomes, self.assigned, {})


def bind_delete(predicate: Predicate, columns: DatasetColumns) -> BoundDelete:
    """Bind to the columns of a dataset; ValueError where they do not fit."""
    bound = predicate.bind(columns.schema)
    columns.require(bound.columns)
    schema = columns.select(bound.columns)
    finder, rule = RowsWhere(bound, schema), Deletion(bound, schema)
    return BoundDelete(finder, rule, frozenset(bound.columns))


def bind_update(
    predicate: Predicate,
    values: Mapping[str, Value],
    columns: DatasetColumns,
    directories: Iterable[str],
) -> BoundUpdate:
    """Bind to the columns of a dataset; ValueError where they do not fit."""
    bound = predicate.bind(columns.schema)
    new = {name: _bind_value(name, value, columns) for name, value in values.items()}
    columns.require([*bound.columns, *new, *_read_by(new.values())])
    keys = tuple(key for key in columns.keys if key in new)
    moves = Moves.of(keys, columns.schema, directories) if keys else None
    moving: Assigned = tuple((key, new[key]) for key in keys)
    found = {*bound.columns, *_read_by(value for _, value in moving)}
    rule = Assignment(
        bound,
        columns.select({*bound.columns, *_read_by(new.values())}),
        tuple(new.items()),
        moves,
    )
    # Also keys: a file of another depth holds what its path has no segment for.
    assigned = {name: _stored_type(name, value, columns) for name, value in new.items()}
    return BoundUpdate(
        RowsWhere(bound, columns.select(found), moving, moves),
        rule,
        frozenset({*found, *keys}),
        assigned,
        tuple(name for name in new if name not in columns.schema.names),
    )


def asked_columns(predicate: Predicate) -> tuple[str, ...]:
    """Columns, nested ones by dotted path, whose ranges tell where a predicate can be true."""
    if predicate.tree is None:
        names: tuple[str, ...] = predicate.foreign.names()
        return names
    return column_names(predicate.tree)


def refuse_odd_column(name: str, columns: DatasetColumns) -> None:
    """Raise ValueError where a new column would be confused with one that exists."""
    twin = {known.casefold(): known for known in columns.schema.names}.get(name.casefold())
    if twin is not None and twin != name:
        raise ValueError(
            f"Column '{name}' would differ from column '{twin}' in case only, which many readers "
            "take for the same"
        )
    parent = name.split(".")[0]
    index = columns.schema.get_field_index(parent)
    if parent != name and index >= 0 and pa.types.is_struct(columns.schema.field(index).type):
        raise ValueError(
            f"'{name}' is a field of column '{parent}': give that column a new value as a whole"
        )


def _bind_value(name: str, value: Value, columns: DatasetColumns) -> BoundValue:
    if name in columns.schema.names:
        type_ = columns.schema.field(columns.schema.get_field_index(name)).type
        if pa.types.is_null(type_):  # nothing but NULL so far: any value may be the first one
            return value.bind(columns.schema, None, column=name)
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        return value.bind(columns.schema, plain, column=name)
    refuse_odd_column(name, columns)
    bound = value.bind(columns.schema, None, column=name)
    if pa.types.is_null(bound.type):
        raise ValueError(
            f"Column '{name}' is new and NULL tells no type for it: give a typed one, such as "
            "sql('CAST(NULL AS BIGINT)')"
        )
    return bound


def _stored_type(name: str, value: BoundValue, columns: DatasetColumns) -> Any:
    index = columns.stored.get_field_index(name)
    if index >= 0 and not pa.types.is_null(columns.stored.field(index).type):
        return columns.stored.field(index).type
    # An order of categories belongs to the column that they come from.
    is_ordered = pa.types.is_dictionary(value.type) and value.type.ordered
    return plain_type(value.type.value_type if is_ordered else value.type)


def _read_by(values: Iterable[BoundValue]) -> set[str]:
    return {column for value in values for column in value.columns}
