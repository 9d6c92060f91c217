"""Bring the tables of a catalog to the newest layout, one numbered step after the other."""

from collections.abc import Callable
from uuid import uuid4

from sqlalchemy import Connection, Table, insert, inspect, select, text, update

from maintenance_assets.catalog import tables
from maintenance_assets.catalog.ducklake import drop_views
from maintenance_assets.catalog.rows import read_schema
from maintenance_assets.catalog.sequence import LAST_COMMIT, PAST_CHANGES, Place
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


def _one_order_of_all_commits(connection: Connection) -> None:
    """Commits of all datasets get one sequence; name mappings say of which type a column is."""
    _add_column(connection, tables.commit, "sequence", "BIGINT")
    _add_column(connection, tables.name_mapping, "type", "TEXT")
    connection.execute(insert(tables.catalog), [{"name": PAST_CHANGES, "value": "0"}])
    last = _number_commits(connection)
    connection.execute(insert(tables.catalog), [{"name": LAST_COMMIT, "value": last.text}])
    _name_types(connection)


def _add_column(connection: Connection, table: Table, name: str, type_: str) -> None:
    # A catalog that is made just now has the tables as they are today.
    if name not in {column["name"] for column in inspect(connection).get_columns(table.name)}:
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {name} {type_}"))


def _number_commits(connection: Connection) -> Place:
    """In the order of time; later times are moved where clocks of writers did not agree."""
    commit = tables.commit.c
    query = select(commit.dataset_id, commit.version, commit.committed_at).order_by(
        commit.committed_at, commit.dataset_id, commit.version
    )
    place = Place(0, 0)
    for row in connection.execute(query).all():
        place = place.next(row.committed_at)
        connection.execute(
            update(tables.commit)
            .where(commit.dataset_id == row.dataset_id, commit.version == row.version)
            .values(sequence=place.sequence, committed_at=place.committed_at)
        )
    return place


def _name_types(connection: Connection) -> None:
    mapping, physical = tables.name_mapping.c, tables.physical_schema.c
    query = select(physical.dataset_id, physical.physical_id, physical.arrow)
    for row in connection.execute(query).all():
        for field in read_schema(row.arrow):
            connection.execute(
                update(tables.name_mapping)
                .where(
                    mapping.dataset_id == row.dataset_id,
                    mapping.physical_id == row.physical_id,
                    mapping.name == field.name,
                )
                .values(type=str(field.type))
            )


STEPS: tuple[Step, ...] = (_first_layout, _one_order_of_all_commits)
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
    if 0 < found < len(steps):
        drop_views(connection)  # no table changes under a view; they are made again when asked for
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
