"""Storage options reach the store, and nothing that Dagster keeps or shows."""

from collections.abc import Iterator

import fsspec
import pytest

from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import DAYS, Location, location, two_days

SECRET = "s3cr3t-in-no-event"


@pytest.fixture
def lake() -> Iterator[Lake]:
    # The memory store takes any options, and gives none of them away by itself.
    yield Lake("memory://secret-lake", {"password": SECRET})
    fsspec.filesystem("memory").rm("/secret-lake", recursive=True)


def everything_shown(place: Location) -> str:
    """Runs with their configuration and tags, all their logs and events, and the definitions."""
    shown = [repr(place.definitions.get_repository_def().assets_defs_by_key)]
    for asset in place.definitions.resolve_asset_graph().get_all_asset_keys():
        shown.append(repr(place.definitions.resolve_asset_graph().get(asset).metadata))
    for record in place.instance.get_run_records():
        run = record.dagster_run
        shown += [repr(run), repr(run.run_config), repr(run.tags)]
        shown += [repr(event) for event in place.instance.all_logs(run.run_id)]
    shown += [repr(place.materializations()), repr(place.observations())]
    return "\n".join(shown)


def test_no_event_log_or_configuration_has_the_secret(lake: Lake) -> None:
    two_days(lake)
    lake.write(f"{DAYS[1]}/odd.parquet", {"id": ["not a number"]})
    with location(lake, cooldown_minutes=0) as place:
        assert place.compact(dry_run=True).success
        found = place.tick()
        for request in found.run_requests:
            place.pay(request)
        assert not place.compact([DAYS[1]]).success  # a conflict, told with all its words
        assert place.run("recover").success
        shown = everything_shown(place) + repr(found)
    assert "compacted_file_count" in shown
    assert "cannot be merged" in shown or "column 'id' is" in shown
    assert SECRET not in shown
