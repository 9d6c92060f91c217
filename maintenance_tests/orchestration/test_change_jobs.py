"""Jobs that change rows or their places: what they do, and what Dagster is told of it."""

import re
from typing import Any

import dagster
import pytest

from maintenance_assets import build_definitions
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import (
    DAYS,
    NAME,
    Location,
    check,
    declared,
    failure,
    location,
    two_days,
)

JOBS = {"delete", "update", "upsert", "repartition"}


def run(place: Location, operation: str, **config: Any) -> dagster.ExecuteInProcessResult:
    return place.run(operation, {"ops": {f"{operation}_{NAME}": {"config": config}}})


def last(place: Location) -> dict[str, Any]:
    (found,) = place.materializations().values()
    return found


def test_every_dataset_has_the_jobs_in_its_pool(local: Lake) -> None:
    repository = build_definitions([declared(local)]).get_repository_def()
    jobs = {name.removeprefix(f"{NAME}__") for name in repository.job_names}
    assert jobs >= JOBS
    assert "restore" not in jobs
    for operation in JOBS:
        job = repository.get_job(f"{NAME}__{operation}")
        pools = {node.definition.pool for node in job.nodes}  # type: ignore[attr-defined]
        assert pools == {"dataset:lake/trades"}


def test_delete_is_recorded_with_its_figures(local: Lake, engine: str) -> None:
    two_days(local)
    with location(local, engine=engine) as place:
        assert run(place, "delete", where="id < 4 OR id = 101").success
        found = last(place)
        check_of_rows = check(place, "rows_preserved")
    assert local.column("id") == [4, 5, 100, 102, 103, 104, 105]
    assert (found["rows"], found["rows_after"], found["rows_deleted"]) == (12, 7, 5)
    assert (found["files_deleted"], found["partitions_affected"]) == (5, 2)
    assert (found["dagster/row_count"], found["engine"]) == (7, engine)
    assert check_of_rows.passed
    assert check_of_rows.description == "12 rows before, 7 after (7 expected)"


def test_a_dry_run_counts_and_touches_nothing(local: Lake) -> None:
    two_days(local)
    before = local.tree()
    with location(local) as place:
        assert run(place, "delete", where="id < 4", dry_run=True).success
        assert place.materializations() == {}
        (found,) = place.observations()
    assert local.tree() == before
    assert (found["rows_deleted"], found["dry_run"]) == (4, True)


def test_update_takes_values_and_expressions(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        result = run(
            place,
            "update",
            where="id >= 100",
            values={"name": "late"},
            expressions={"id": "id + 1000"},
            partition_filter={"date": "2025-11-05"},
        )
        assert result.success
        found = last(place)
    assert found["rows_updated"] == 6
    assert local.column("id")[6:] == [1100, 1101, 1102, 1103, 1104, 1105]
    assert set(local.column("name")[6:]) == {"late"}


def test_upsert_reads_its_rows_from_files(local: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    two_days(local)
    source = Lake(f"{local.url}-new")
    source.write("a.parquet", {"id": [5], "name": ["five"], "date": ["2025-11-04"]})
    source.write("b.parquet", {"id": [6], "name": ["six"], "date": ["2025-11-06"]})
    monkeypatch.setenv("NEW_ROWS", source.url)
    with location(local) as place:
        assert run(place, "upsert", source="${NEW_ROWS}", key_cols=["id"]).success
        found = last(place)
        assert "date=2025-11-06" in place.known()
    assert (found["rows_updated"], found["rows_inserted"]) == (1, 1)
    assert dict(zip(local.column("id"), local.column("name"), strict=True))[5] == "five"
    assert local.files("date=2025-11-06")


def test_a_change_is_taken_back_by_its_backup(local: Lake) -> None:
    two_days(local)
    before = local.tree()
    with location(local, backup_path=f"{local.url}-backups") as place:
        assert run(place, "delete", where="id < 4").success
        backup_id = last(place)["backup_id"]
        assert run(place, "restore", backup_id=backup_id).success
        found = place.materializations()[None]
        assert not run(place, "restore", backup_id=backup_id).success
    assert local.tree() == before
    assert (found["files_restored"], found["rows_restored"]) == (4, 4)


def test_repartition_in_place_makes_the_new_partitions_known(local: Lake, engine: str) -> None:
    two_days(local)
    with location(local, engine=engine) as place:
        result = run(place, "repartition", partition_by=["bucket"], derived={"bucket": "id % 2"})
        assert result.success
        found = last(place)
        assert {"bucket=0", "bucket=1"} <= set(place.known())
    assert (found["rows"], found["rows_after"]) == (12, 12)
    assert {name.split("/")[0] for name in local.files()} == {"bucket=0", "bucket=1"}
    assert sorted(local.column("id")) == [*range(6), *range(100, 106)]


def test_repartition_into_another_directory_is_an_observation(local: Lake) -> None:
    two_days(local)
    before = local.tree()
    with location(local) as place:
        target = f"{local.url}-by-name"
        assert run(place, "repartition", partition_by=["name"], target=target).success
        assert place.materializations() == {}
        (found,) = place.observations()
    assert local.tree() == before
    assert found["rows_written"] == 12
    assert len(Lake(target).files()) == 12


@pytest.mark.parametrize(
    ("operation", "config", "message"),
    [
        ("delete", {"where": "nonsense = 1"}, "nonsense"),
        ("delete", {"where": "id = 1; DROP TABLE x"}, "id = 1; DROP"),
        ("update", {"where": "id = 1", "values": {"id": 2}, "expressions": {"id": "3"}}, "both"),
        ("upsert", {"source": "/nowhere/at/all", "key_cols": ["id"]}, "source: .*does not exist"),
        ("repartition", {"partition_by": ["nonsense"]}, "nonsense"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    local: Lake, operation: str, config: Any, message: str
) -> None:
    two_days(local)
    before = local.tree()
    with location(local) as place:
        result = run(place, operation, **config)
        assert not result.success
        assert re.search(message, failure(result))
    assert local.tree() == before
    assert DAYS[0] in local.files()[0]
