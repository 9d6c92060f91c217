"""Bring the tables of a catalog to the newest layout, one numbered step after the other."""

from collections.abc import Callable
from uuid import uuid4

from sqlalchemy import Connection, insert, inspect, select, text, update

from maintenance_assets.catalog import tables
from maintenance_assets.errors import CatalogError

Step = Callable[[Connection], None]


def _first_layout(connection: Connection) -> None:
    tables.metadata.create_all(connection)
    rows = [
        {"name": "schema_version", "value": "0"},
        {"name": "catalog_uid", "value": str(uuid4())},
        {"name": "next_dataset_id", "value": "1"},
    ]
    connection.execute(insert(tables.catalog), rows)


STEPS: tuple[Step, ...] = (_first_layout,)
"""Step n makes layout n + 1 out of layout n. Steps are only ever added."""


def migrate(connection: Connection, steps: tuple[Step, ...] = STEPS) -> int:
    """Carry out the steps that this catalog has not seen; the version it then has."""
    if connection.dialect.name == "postgresql":
        # Two processes that create the same tables at once would both fail.
        connection.execute(text("SELECT pg_advisory_xact_lock(4919701)"))
    found = schema_version(connection)
    if found > len(steps):
        raise CatalogError(
            f"This catalog has layout {found}, and this version of maintenance_assets knows "
            f"layouts up to {len(steps)}. Use a newer version of the package"
        )
    for step in steps[found:]:
        step(connection)
    if found < len(steps):
        connection.execute(
            update(tables.catalog)
            .where(tables.catalog.c.name == "schema_version")
            .values(value=str(len(steps)))
        )
    return len(steps)


def schema_version(connection: Connection) -> int:
    """The layout of the catalog; 0 where there is none yet."""
    if not inspect(connection).has_table(tables.catalog.name):
        return 0
    value = connection.execute(
        select(tables.catalog.c.value).where(tables.catalog.c.name == "schema_version")
    ).scalar_one_or_none()
    return int(value or 0)
