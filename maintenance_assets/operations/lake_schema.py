"""Changing the schema of a catalog dataset; no file is rewritten."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from maintenance_assets.catalog.datasets import reserve_field_ids
from maintenance_assets.errors import SchemaMovedError
from maintenance_assets.model.lakehouse import Change, DatasetState, TableSchema
from maintenance_assets.operations.lake_session import LakeSession
from maintenance_assets.operations.lake_write import ATTEMPTS, refuse_path_names
from maintenance_assets.planning.evolution import (
    with_column,
    with_name,
    with_type,
    without_column,
)

Edit = Callable[[DatasetState], TableSchema]


def add_column(session: LakeSession, name: str, column: str, type_: Any) -> int:
    """Add a column that is null in all rows that are there; the new version."""
    field = type_ if isinstance(type_, pa.Field) else pa.field(column, type_)

    def edit(state: DatasetState) -> TableSchema:
        field_id = session.database.write(
            lambda connection: reserve_field_ids(connection, state.dataset_id, 1)
        )
        wider = with_column(state.schema, field.with_name(column), field_id, state.name)
        refuse_path_names(session, state, [column])
        return wider

    return _change(session, name, f"add column {column}", edit)


def drop_column(session: LakeSession, name: str, column: str) -> int:
    """Drop a column; a later one of that name will not see its values."""
    return _change(
        session,
        name,
        f"drop column {column}",
        lambda state: without_column(state.schema, column, _in_paths(session, state)),
    )


def rename_column(session: LakeSession, name: str, column: str, new_name: str) -> int:
    """Call a column otherwise."""

    def edit(state: DatasetState) -> TableSchema:
        renamed = with_name(state.schema, column, new_name, _in_paths(session, state), state.name)
        refuse_path_names(session, state, [new_name])
        return renamed

    return _change(session, name, f"rename column {column} to {new_name}", edit)


def widen_column(session: LakeSession, name: str, column: str, type_: Any) -> int:
    """Give a column a type that holds all its values and more."""
    return _change(
        session,
        name,
        f"widen column {column} to {type_}",
        lambda state: with_type(state.schema, column, type_, _in_paths(session, state)),
    )


def _in_paths(session: LakeSession, state: DatasetState) -> tuple[str, ...]:
    """Columns whose values may be in the paths of files, where they are told by their names."""
    found = session.reader.partition_names(state.dataset_id, state.head)
    return (*state.partition_by, *sorted(found.difference(state.partition_by)))


def _change(session: LakeSession, name: str, message: str, edit: Edit) -> int:
    for _ in range(ATTEMPTS - 1):
        try:
            return _try_change(session, name, message, edit)
        except SchemaMovedError:
            continue
    return _try_change(session, name, message, edit)


def _try_change(session: LakeSession, name: str, message: str, edit: Edit) -> int:
    state = session.reader.dataset(name)
    schema = edit(state)
    with session.transaction(state, "schema") as transaction:
        return transaction.commit(
            Change(
                "schema",
                schema=schema,
                schema_base=state.schema.schema_id,
                data_change=False,
                message=message,
            )
        )
