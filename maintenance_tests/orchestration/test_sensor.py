"""The sensor on a real instance and real files."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from maintenance_assets.operations.naming import uuid7
from maintenance_assets.orchestration import attempts
from maintenance_assets.planning import debts
from maintenance_assets.storage.filesystems import open_store
from maintenance_assets.storage.lease import Lease
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.orchestration.location import DAYS, Location, location, two_days


def partitions(found: Any) -> list[str]:
    return [request.tags["maintenance/partition"] for request in found.run_requests]


def run_keys(found: Any) -> list[str]:
    return [request.run_key for request in found.run_requests]


def test_debts_become_runs_and_the_next_tick_is_quiet(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        first = place.tick()
        assert partitions(first) == list(DAYS)
        assert place.known() == list(DAYS)
        reason = first.run_requests[0].tags["maintenance/reason"]
        assert reason == "6 small files of 6, 5 could be saved"
        cost = first.run_requests[0].tags["maintenance/cost"]
        assert re.fullmatch(r"about \d+ s for \d+\.\d KiB", cost)
        assert all(place.pay(request).success for request in first.run_requests)
        second = place.tick(first.cursor)
        assert not second.run_requests
        assert second.skip_message == "2 partition(s) looked at: 2 x fewer than min_gain 4"
        after, before = place.observations()
    assert (before["file_count"], before["small_file_count"], before["gain"]) == (12, 12, 10)
    assert (after["file_count"], after["gain"], after["health"]) == (2, 0, 100.0)


def test_a_run_under_way_is_not_asked_for_again(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        first = place.tick()
        for request in first.run_requests:
            place.instance.create_run_for_job(
                place.definitions.resolve_job_def("lake__trades__compact"),
                tags={**request.tags, "dagster/run_key": request.run_key},
            )
        second = place.tick(first.cursor)
        assert second.skip_message == "2 partition(s) looked at: 2 x a run is under way"


def conflicting(lake: Lake) -> None:
    for number in range(6):
        lake.write(f"{DAYS[0]}/{number}.parquet", {"id": [number if number % 2 else f"{number}"]})


def test_a_failed_debt_waits_and_is_tried_again(
    local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflicting(local)
    with location(local) as place:
        first = place.tick()
        assert not place.pay(first.run_requests[0]).success
        second = place.tick(first.cursor)
        message = "1 partition(s) looked at: 1 x its run failed and is tried again later"
        assert second.skip_message == message
        monkeypatch.setattr(debts, "FIRST_RETRY_SECONDS", 0.0)
        (request,) = place.tick(second.cursor).run_requests
        assert request.run_key == first.run_requests[0].run_key[:-1] + "1"
        # A cursor that was lost changes nothing: Dagster remembers the runs.
        assert run_keys(place.tick()) == [request.run_key]


def test_a_run_of_the_schedule_is_not_asked_for_again(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        scheduled = place.evaluate_schedule().run_requests
        assert place.pay(scheduled[0]).success
        assert run_keys(place.tick()) == [scheduled[1].run_key]


def test_a_run_whose_machine_went_away_is_asked_for_again(
    local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_days(local)
    with location(local) as place:
        (request, _) = place.tick().run_requests
        run = place.instance.create_run_for_job(
            place.definitions.resolve_job_def("lake__trades__compact"),
            tags={**request.tags, "dagster/run_key": request.run_key},
        )
        place.start(run)
        assert request.run_key not in run_keys(place.tick())
        monkeypatch.setattr(attempts, "LOST_SECONDS", -1.0)
        monkeypatch.setattr(debts, "FIRST_RETRY_SECONDS", 0.0)
        assert f"{request.run_key[:-1]}1" in run_keys(place.tick())


def test_a_dataset_whose_runs_all_fail_is_not_stormed(local: Lake) -> None:
    for number in range(12):
        for name in range(6):
            value = name if name % 2 else f"{name}"
            local.write(f"n={number:02}/{name}.parquet", {"id": [value]})
    with location(local) as place:
        first = place.tick()
        assert len(first.run_requests) == 5
        assert not any(place.pay(request).success for request in first.run_requests)
        second = place.tick(first.cursor)
        assert "12 x the last 5 runs failed, the next is tried later" in second.skip_message


def test_files_that_cannot_be_bettered_are_tried_once(local: Lake) -> None:
    one_row_files(local, 10)
    with location(local, target_rows_per_file=1) as place:
        first = place.tick()
        assert place.pay(first.run_requests[0]).success
        second = place.tick(first.cursor)
        assert "1 x a run has seen to exactly these files" in second.skip_message


def test_a_busy_dataset_is_left_alone_and_the_holder_named(local: Lake) -> None:
    two_days(local)
    run_id = uuid7()
    with location(local) as place, Lease(open_store(local.url), run_id, "optimize"):
        found = place.tick("as it was")
        assert not found.run_requests
        assert f"being maintained already: optimize run {run_id} on" in found.skip_message
        assert found.cursor == "as it was"


def test_a_lease_that_cannot_be_read_is_a_reason(local: Lake) -> None:
    two_days(local)
    local.put(f"_maintenance/leases/{uuid7()}.json", b"{")
    with location(local) as place:
        assert "delete that file" in place.tick().skip_message


def test_a_corrupt_cursor_recovers(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        assert len(place.tick("{not json").run_requests) == 2


def test_a_dataset_that_does_not_exist_yet(local: Lake) -> None:
    with location(local, partition_columns=["date"]) as place:
        first = place.tick()
        assert first.skip_message == f"no partition with data files was found in '{local.url}'"
        two_days(local)
        assert len(place.tick(first.cursor).run_requests) == 2


def test_new_partitions_are_added_in_the_same_tick(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        first = place.tick()
        one_row_files(local, 1, "date=2025-11-06")
        one_row_files(local, 1, "date=dots...inside")
        second = place.tick(first.cursor)
        (request,) = second.dynamic_partitions_requests
        assert list(request.partition_keys) == ["date=2025-11-06"]
        third = place.tick(second.cursor)
        assert not third.dynamic_partitions_requests


def drop(lake: Lake, partition: str) -> None:
    shutil.rmtree(Path(lake.path(partition)))


def test_dropped_partitions_are_forgotten(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        first = place.tick()
        drop(local, DAYS[0])
        second = place.tick(first.cursor)
        assert place.known() == [DAYS[1]]
        assert place.materialize(partition_key=DAYS[1]).success
        # Nothing at all is more likely a fault of the store than an empty dataset.
        drop(local, DAYS[1])
        place.tick(second.cursor)
        assert place.known() == [DAYS[1]]


def test_files_beside_partitions_get_a_run_of_their_own(local: Lake) -> None:
    one_row_files(local, 6)
    one_row_files(local, 3, DAYS[0], start=100)
    with location(local) as place:
        (request,) = place.tick().run_requests
        assert request.tags["maintenance/partition"] == "."
        assert place.pay(request).success
        (event,) = place.materializations().values()
    assert (event["before_file_count"], event["after_file_count"]) == (6, 1)
    assert "dagster/row_count" not in event
    assert len(local.files()) == 4


def test_a_cooldown_is_kept(local: Lake) -> None:
    two_days(local)
    with location(local, cooldown_minutes=60) as place:
        found = place.tick()
        assert (
            found.skip_message == "2 partition(s) looked at: 2 x written lately (cooldown 3600 s)"
        )


def test_a_cap_is_kept(local: Lake) -> None:
    two_days(local)
    with location(local, max_runs_per_tick=1) as place:
        first = place.tick()
        assert partitions(first) == [DAYS[0]]
        place.pay(first.run_requests[0])
        assert partitions(place.tick(first.cursor)) == [DAYS[1]]


def test_a_dataset_on_any_store(lake: Lake) -> None:
    two_days(lake)
    with location(lake) as place:
        first = place.tick()
        assert partitions(first) == list(DAYS)
        assert all(place.pay(request).success for request in first.run_requests)
        assert not place.tick(first.cursor).run_requests


def test_unchanged_health_is_observed_once(local: Lake) -> None:
    one_row_files(local, 1, DAYS[0])
    with location(local) as place:
        cursor = None
        for _ in range(4):
            cursor = place.tick(cursor).cursor
        assert len(place.observations()) == 1


def many_files(root: Path) -> None:
    for number in range(500):
        folder = root / f"date={number:03}"
        folder.mkdir(parents=True)
        for name in range(4):
            (folder / f"{name}.parquet").write_bytes(b"PAR1")


def sweep(place: Location, most: int) -> tuple[int, list[str]]:
    """Ticks until all of the dataset was seen."""
    cursor, reasons = None, []
    for count in range(1, most + 1):
        found = place.tick(cursor)
        cursor = found.cursor
        reasons.append(found.skip_message)
        if json.loads(cursor)["resume_after"] is None:
            return count, reasons
    raise AssertionError("the sweep did not end")


def test_a_large_dataset_is_seen_in_several_ticks(tmp_path: Path) -> None:
    many_files(tmp_path / "lake")
    lake = Lake(str(tmp_path / "lake"))
    with location(lake, sensor_seconds=0.0001) as place:
        count, reasons = sweep(place, 500)
        (health,) = place.observations()
        assert len(place.known()) == 500
    assert count > 1
    assert "out of time, the next tick goes on after 'date=" in reasons[0]
    assert "out of time" not in reasons[-1]
    assert (health["file_count"], health["partition_count"]) == (2000, 500)
    with location(lake) as place:
        assert sweep(place, 1)[0] == 1
        assert place.observations() == [health]


def test_a_directory_whose_name_is_no_text_is_passed_by(local: Lake) -> None:
    two_days(local)
    folder = os.fsencode(local.path("")) + b"/date=caf\xe9"
    os.makedirs(folder)
    for number in range(9):
        with open(folder + b"/%d.parquet" % number, "wb") as file:
            file.write(b"PAR1")
    with location(local) as place:
        found = place.tick()
        assert partitions(found) == list(DAYS)
        assert place.known() == list(DAYS)
