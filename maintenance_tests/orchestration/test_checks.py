"""The checks, each on data that passes and on data that does not."""

import dagster
import pyarrow as pa
import pytest

from maintenance_assets.operations.naming import uuid7
from maintenance_assets.storage.filesystems import open_store
from maintenance_assets.storage.lease import Lease
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.orchestration.location import (
    DAYS,
    KEY,
    Location,
    check,
    location,
    plain,
    two_days,
)

WARN, ERROR = dagster.AssetCheckSeverity.WARN, dagster.AssetCheckSeverity.ERROR


def test_small_files(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        found = check(place, "small_files")
        assert (found.passed, found.severity) == (False, WARN)
        assert found.description == "2 partition(s) in need, 10 files could be saved"
        assert plain(found.metadata)["files_to_save"] == f"- {DAYS[0]}: 5\n- {DAYS[1]}: 5"
        place.compact()
        assert check(place, "small_files").passed


def test_files_that_cannot_be_bettered_are_no_small_files(local: Lake) -> None:
    one_row_files(local, 20)
    with location(local, target_rows_per_file=2) as place:
        assert not check(place, "small_files").passed
        place.compact()
        assert len(local.files()) == 10  # far below 128 MiB, and as asked for
        assert check(place, "small_files").passed


@pytest.mark.parametrize("name", ["small_files", "schema_drift"])
def test_a_file_that_cannot_be_read_fails_the_check_and_not_the_run(local: Lake, name: str) -> None:
    two_days(local)
    local.put(f"{DAYS[0]}/broken.parquet", b"not parquet")
    with location(local) as place:
        found = check(place, name)
        assert not found.passed
        assert "broken.parquet" in found.description


@pytest.mark.parametrize("name", ["small_files", "schema_drift", "rows_preserved", "leftovers"])
def test_a_dataset_without_data_passes(local: Lake, name: str) -> None:
    with location(local) as place:
        assert check(place, name).passed


def test_schema_drift(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        assert check(place, "schema_drift").description == "all schemas can be merged"
        local.write(f"{DAYS[1]}/other.parquet", {"id": pa.array(["x"]), "name": ["y"]})
        found = check(place, "schema_drift")
        assert (found.passed, found.severity) == (False, ERROR)
        assert "'id'" in found.description
        assert plain(found.metadata)["conflict_count"] == 1


def record(place: Location, before: int, after: int) -> None:
    metadata = {"rows": before, "rows_after": after}
    place.instance.report_runless_asset_event(dagster.AssetMaterialization(KEY, metadata=metadata))


def test_rows_preserved(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        assert check(place, "rows_preserved").description == "no maintenance was recorded yet"
        place.compact()
        found = check(place, "rows_preserved")
        assert (found.passed, found.description) == (True, "12 rows before, 12 after")
        # Somebody who only appends says nothing about rows before and after.
        place.instance.report_runless_asset_event(dagster.AssetMaterialization(KEY))
        assert check(place, "rows_preserved").description == "12 rows before, 12 after"


def test_rows_that_were_lost(local: Lake) -> None:
    with location(local) as place:
        record(place, 12, 11)
        found = check(place, "rows_preserved")
        assert (found.passed, found.severity) == (False, ERROR)
        record(place, 12, 13)


def test_leftovers(local: Lake) -> None:
    two_days(local)
    run_id = uuid7()
    with location(local) as place:
        local.put(f"_maintenance/{run_id}/x.parquet.staged", b"left behind")
        found = check(place, "leftovers")
        assert (found.passed, found.severity) == (False, WARN)
        assert found.description == "1 interrupted run(s): run lake__trades__recover"
        assert run_id in plain(found.metadata)["runs"]
        with Lease(open_store(local.url), uuid7(), "compact"):
            assert check(place, "leftovers").passed  # somebody is working on it
        place.run("recover")
        assert check(place, "leftovers").description == "nothing left behind"
