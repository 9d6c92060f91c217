"""The schedule: a run for each partition in need, or the reason why there is none."""

from datetime import timedelta
from typing import Any

import pytest

from maintenance_assets.orchestration import schedules
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.orchestration.location import AT, DAYS, location


def asked(found: Any) -> list[str | None]:
    return [request.tags.get("maintenance/partition") for request in found.run_requests]


def test_partitions_in_need_get_a_run_each(local: Lake) -> None:
    one_row_files(local, 5, DAYS[0])
    one_row_files(local, 9, DAYS[1])
    one_row_files(local, 2, "date=2025-11-06")
    with location(local, cooldown_minutes=60) as place:
        found = place.evaluate_schedule()
        assert asked(found) == list(DAYS)
        assert all(place.pay(request).success for request in found.run_requests)
        again = place.evaluate_schedule()
        assert not again.run_requests
        assert again.skip_message == "3 partition(s) looked at: 3 x fewer than min_gain 4"
    assert len(local.files()) == 4


def test_what_a_run_could_not_better_is_not_asked_for_every_night(local: Lake) -> None:
    one_row_files(local, 9, DAYS[0])
    with location(local, target_rows_per_file=1) as place:
        first = place.evaluate_schedule()
        assert place.pay(first.run_requests[0]).success
        second = place.evaluate_schedule(AT + timedelta(days=1))
        assert "1 x a run has seen to exactly these files" in second.skip_message


@pytest.mark.parametrize("seconds", [1e-9, 40.0])
def test_where_there_is_too_much_one_run_does_it_all(
    local: Lake, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Too many partitions in need, or too many to look at: those in need may come last."""
    monkeypatch.setattr(schedules, "MAX_RUNS", 2)
    for number in range(6):
        one_row_files(local, 5, f"n={number:02}")
    with location(local, sensor_seconds=seconds) as place:
        found = place.evaluate_schedule()
        assert asked(found) == [None]
        assert found.run_requests[0].run_key == "lake/trades:2025-11-06T03:00:00+00:00"
        assert place.pay(found.run_requests[0]).success
    assert len(local.files()) == 6


def test_an_empty_dataset_is_skipped(local: Lake) -> None:
    with location(local) as place:
        found = place.evaluate_schedule()
        assert found.skip_message == f"no partition with data files was found in '{local.url}'"
