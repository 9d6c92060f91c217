"""The schedule: a run for each partition in need, or the reason why there is none."""

from datetime import UTC, datetime
from typing import Any

import dagster
import pytest

from maintenance_assets.orchestration import schedules
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.orchestration.location import DAYS, NAME, PLANNER, Location, location

AT = datetime(2025, 11, 6, 3, tzinfo=UTC)


def evaluate(place: Location) -> Any:
    schedule = place.repository.get_schedule_def(f"{NAME}__scheduled_compaction")
    with dagster.build_schedule_context(
        instance=place.instance, scheduled_execution_time=AT, resources=PLANNER
    ) as context:
        return schedule.evaluate_tick(context)


def test_partitions_in_need_get_a_run_each(local: Lake) -> None:
    one_row_files(local, 5, DAYS[0])
    one_row_files(local, 9, DAYS[1])
    one_row_files(local, 2, "date=2025-11-06")
    with location(local) as place:
        found = evaluate(place)
        # Those most in need first.
        asked = [request.tags["maintenance/partition"] for request in found.run_requests]
        assert asked == [DAYS[1], DAYS[0]]
        key = f"lake/trades:{DAYS[1]}:2025-11-06T03:00:00+00:00"
        assert found.run_requests[0].run_key == key
        assert all(place.pay(request).success for request in found.run_requests)
        again = evaluate(place)
        assert not again.run_requests
        assert again.skip_message == "3 partition(s) looked at, none would save 4 files or more"
    assert len(local.files()) == 4


def test_a_tick_asks_for_a_bounded_number(local: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MAX_RUNS", 2)
    for number in range(4):
        one_row_files(local, 5, f"n={number}")
    with location(local) as place:
        assert len(evaluate(place).run_requests) == 2


def test_a_tick_takes_a_bounded_time(local: Lake) -> None:
    for number in range(20):
        one_row_files(local, 5, f"n={number:02}")
    with location(local, sensor_seconds=1e-9) as place:
        assert len(evaluate(place).run_requests) == 1


def test_an_empty_dataset_is_skipped(local: Lake) -> None:
    with location(local) as place:
        assert evaluate(place).skip_message.startswith("0 partition(s) looked at")
