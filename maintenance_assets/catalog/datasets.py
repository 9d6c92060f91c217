"""Bringing datasets into the catalog and taking them out of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.applying import insert_schema, insert_spec
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.inserting import insert_many
from maintenance_assets.catalog.locking import lock_catalog, lock_dataset, now_micros
from maintenance_assets.catalog.reader import dataset_state
from maintenance_assets.catalog.sequence import Place, next_place, past_changed
from maintenance_assets.errors import CatalogError
from maintenance_assets.model.lakehouse import DatasetState, SortField, TableSchema


def create_dataset(
    database: Database,
    name: str,
    root: str,
    schema: TableSchema,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[SortField] = (),
    options: Mapping[str, Any] | None = None,
    uid: str | None = None,
) -> DatasetState:
    """Add an empty dataset; its root must not touch that of any other."""

    def work(connection: Connection) -> DatasetState:
        dataset_id = lock_catalog(connection, "next_dataset_id")
        check_new(connection, name, root)
        _insert(connection, dataset_id, name, root, schema, partition_by, sort_by, options, uid)
        return dataset_state(connection, name)

    return database.write(work)


def check_new(connection: Connection, name: str, root: str) -> None:
    """Raise unless the name is free, and the root apart from those of all datasets."""
    for other in connection.execute(select(t.dataset.c.name, t.dataset.c.root)):
        if other.name == name:
            raise CatalogError(
                f"There is a dataset {name!r} in the catalog already. Open it with "
                f"dataset({name!r}), or take another name"
            )
        if overlaps(other.root, root):
            raise CatalogError(
                f"'{root}' and the root of dataset {other.name!r} ('{other.root}') are the same "
                "directory, or one lies in the other. Give each dataset a directory of its own"
            )


def overlaps(left: str, right: str) -> bool:
    """Whether one directory is, or lies in, the other."""
    left, right = left.rstrip("/") + "/", right.rstrip("/") + "/"
    return left.startswith(right) or right.startswith(left)


def _insert(
    connection: Connection,
    dataset_id: int,
    name: str,
    root: str,
    schema: TableSchema,
    partition_by: Sequence[str],
    sort_by: Sequence[SortField],
    options: Mapping[str, Any] | None,
    uid: str | None,
) -> None:
    now = now_micros()
    uid = uid or str(uuid4())
    row = {
        "dataset_id": dataset_id,
        "name": name,
        "root": root,
        "uid": uid,
        "created_at": now,
        "head": 0,
        "schema_id": 0,
        "spec_id": 0,
        "sort_id": 0,
        "next_file_id": 1,
        "next_field_id": 1,
        "next_physical_id": 1,
        "locks": 0,
        "options": json.dumps(dict(options or {}), sort_keys=True),
    }
    connection.execute(insert(t.dataset).values(row))
    insert_schema(connection, dataset_id, 0, 0, schema)
    insert_spec(connection, dataset_id, 0, 0, partition_by)
    _insert_sort_order(connection, dataset_id, sort_by)
    place = next_place(connection, now)
    connection.execute(insert(t.commit).values(_first_commit(dataset_id, uid, place)))


def _insert_sort_order(
    connection: Connection, dataset_id: int, sort_by: Sequence[SortField]
) -> None:
    rows = [
        {
            "dataset_id": dataset_id,
            "sort_id": 0,
            "position": position,
            "field_id": field.field_id,
            "descending": field.descending,
            "nulls_first": field.nulls_first,
        }
        for position, field in enumerate(sort_by)
    ]
    insert_many(connection, t.sort_order, rows)


def _first_commit(dataset_id: int, uid: str, place: Place) -> dict[str, Any]:
    counts = ("files_added", "files_removed", "rows_added", "rows_removed")
    totals = ("total_files", "total_rows", "total_bytes")
    return {
        "dataset_id": dataset_id,
        "version": 0,
        "committed_at": place.committed_at,
        "sequence": place.sequence,
        "txn_id": f"create-{uid}",
        "operation": "create",
        "summary": "{}",
        "schema_id": 0,
        "spec_id": 0,
        "data_change": False,
        **dict.fromkeys((*counts, *totals), 0),
    }


def reserve_field_ids(connection: Connection, dataset_id: int, count: int) -> int:
    """Field ids that nobody else will get; the first of them."""
    row = lock_dataset(connection, dataset_id)
    first = int(row["next_field_id"])
    connection.execute(
        t.dataset.update()
        .where(t.dataset.c.dataset_id == dataset_id)
        .values(next_field_id=first + count)
    )
    return first


_OF_A_DATASET = (
    t.commit,
    t.schema,
    t.column,
    t.partition_spec,
    t.sort_order,
    t.physical_schema,
    t.name_mapping,
    t.file,
    t.file_partition,
    t.file_statistics,
    t.row_group,
    t.transaction,
    t.transaction_file,
    t.tombstone,
    t.pin,
    t.dataset,
)


def forget_dataset(database: Database, dataset_id: int, head: int) -> None:
    """Take a dataset out of the catalog, provided that it is still at this version and idle."""

    def work(connection: Connection) -> None:
        row = lock_dataset(connection, dataset_id)
        busy = connection.execute(
            select(t.transaction.c.operation, t.transaction.c.owner)
            .where(t.transaction.c.dataset_id == dataset_id, t.transaction.c.state == "open")
            .limit(1)
        ).first()
        if busy is not None:
            raise CatalogError(f"{busy.operation} by {busy.owner} is under way on this dataset")
        if int(row["head"]) != head:
            raise CatalogError("The dataset was changed meanwhile")
        for table in _OF_A_DATASET:
            connection.execute(delete(table).where(table.c.dataset_id == dataset_id))
        past_changed(connection)

    database.write(work)
