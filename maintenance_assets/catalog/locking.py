"""What every changing transaction begins with, and how files are given up."""

import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, select, update

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.inserting import insert_many
from maintenance_assets.errors import CatalogError


def now_micros() -> int:
    """The time as the catalog stores it."""
    return time.time_ns() // 1000


def lock_dataset(connection: Connection, dataset_id: int) -> RowMapping:
    """Hold the row of a dataset to the end of the transaction, and read it."""
    held = connection.execute(
        update(t.dataset)
        .where(t.dataset.c.dataset_id == dataset_id)
        .values(locks=t.dataset.c.locks + 1)
    )
    if held.rowcount != 1:
        raise CatalogError("The dataset is not in the catalog any more")
    query = select(t.dataset).where(t.dataset.c.dataset_id == dataset_id)
    return connection.execute(query).mappings().one()


def lock_catalog(connection: Connection, counter: str) -> int:
    """Hold a counter of the catalog to the end of the transaction; its next number."""
    row = t.catalog.c
    query = select(row.value).where(row.name == counter)
    # Written before it is read, so that two transactions cannot read the same number.
    connection.execute(update(t.catalog).where(row.name == counter).values(value=row.value))
    number = int(connection.execute(query).scalar_one())
    connection.execute(update(t.catalog).where(row.name == counter).values(value=str(number + 1)))
    return number


def bury(
    connection: Connection,
    dataset_id: int,
    paths: Iterable[str],
    reason: str,
    now: int,
    sizes: dict[str, int] | None = None,
) -> None:
    """Make tombstones: from now on nobody needs these files."""
    rows: list[dict[str, Any]] = [
        {
            "dataset_id": dataset_id,
            "path": path,
            "removed_at": now,
            "reason": reason,
            "state": "pending",
            "size_bytes": (sizes or {}).get(path),
        }
        for path in sorted(set(paths))
    ]
    insert_many(connection, t.tombstone, rows)
