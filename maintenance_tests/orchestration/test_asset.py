"""Materializing the asset: by partition, by range, whole, and with its checks."""

import dagster
import pyarrow as pa
import pytest

from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.orchestration.location import (
    DAYS,
    KEY,
    failure,
    location,
    two_days,
)

RANGE = {
    "dagster/asset_partition_range_start": DAYS[0],
    "dagster/asset_partition_range_end": DAYS[1],
}


def test_one_partition(local: Lake, engine: str) -> None:
    two_days(local)
    with location(local, engine=engine) as place:
        place.know(*DAYS)
        assert place.materialize(partition_key=DAYS[1]).success
        found = place.materializations()
    assert list(found) == [DAYS[1]]
    assert found[DAYS[1]]["after_file_count"] == 1
    assert found[DAYS[1]]["engine"] == engine
    assert len(local.files(DAYS[0])) == 6


def test_the_checks_are_made_in_the_same_run(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        place.know(*DAYS)
        result = place.materialize(partition_key=DAYS[1])
    evaluations = {one.check_name: one.passed for one in result.get_asset_check_evaluations()}
    assert evaluations == {
        "small_files": False,  # the other day still has them
        "schema_drift": True,
        "rows_preserved": True,
        "leftovers": True,
    }


def test_a_range_in_one_run_gives_each_partition_its_own_stats(local: Lake) -> None:
    one_row_files(local, 4, DAYS[0])
    one_row_files(local, 7, DAYS[1])
    with location(local) as place:
        place.know(*DAYS)
        result = place.materialize(tags=RANGE)
        assert result.success
        found = place.materializations()
        check = {e.check_name: e for e in result.get_asset_check_evaluations()}["rows_preserved"]
    assert [found[day]["before_file_count"] for day in DAYS] == [4, 7]
    assert [found[day]["dagster/partition_row_count"] for day in DAYS] == [4, 7]
    assert [found[day]["after_file_count"] for day in DAYS] == [1, 1]
    # All partitions of the run count, not only the last.
    assert {k: v.value for k, v in check.metadata.items()} == {
        "rows_before": 11,
        "rows_after": 11,
        "events": 2,
    }


def test_a_backfill_is_cut_into_runs_that_can_store_their_events(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        policy = place.definitions.resolve_assets_def(KEY).backfill_policy
    assert policy is not None
    assert policy.max_partitions_per_run == 100


def test_a_partition_without_data_is_refused(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        place.know("date=1999-01-01")
        result = place.materialize(partition_key="date=1999-01-01")
        assert not result.success
        assert "has no partition 'date=1999-01-01'" in failure(result)
        assert place.materializations() == {}


def test_a_dry_run_of_the_asset_is_refused_and_not_ignored(local: Lake) -> None:
    two_days(local)
    before = local.tree()
    with location(local) as place:
        place.know(*DAYS)
        config = {"ops": {"lake__trades": {"config": {"dry_run": True}}}}
        with pytest.raises(dagster.DagsterInvalidConfigError, match="dry_run"):
            place.materialize(partition_key=DAYS[0], run_config=config)
    assert local.tree() == before


def test_a_dropped_partition_does_not_stop_the_others_of_a_backfill(local: Lake) -> None:
    two_days(local)
    gone = "date=2025-11-04-gone"
    with location(local) as place:
        place.know(DAYS[0], gone, DAYS[1])
        result = place.materialize(tags=RANGE)
        assert not result.success
        assert f"has no partition '{gone}'" in failure(result)
        assert set(place.materializations()) == set(DAYS)
    assert len(local.files()) == 2


NEIGHBOURS = ("n=1", "x=9/n=1", "n=1/z=2", "d=a b", "d=a%20b", " ")


@pytest.mark.parametrize("partition", NEIGHBOURS)
def test_a_partition_is_a_directory_and_nothing_beside_above_or_below_it(
    local: Lake, partition: str
) -> None:
    for name in NEIGHBOURS:
        one_row_files(local, 6, name)
    one_row_files(local, 6)
    with location(local, partition_columns=["n"]) as place:
        place.know(*NEIGHBOURS)
        assert place.materialize(partition_key=partition).success
        assert place.compact(["", partition]).success
        found = place.materializations()
    assert (found[partition]["rows"], found[partition]["dagster/partition_row_count"]) == (6, 6)
    assert (found[None]["before_file_count"], found[None]["after_file_count"]) == (6, 1)
    for name in NEIGHBOURS:
        own = [file for file in local.files(name) if file.rpartition("/")[0] == name]
        assert len(own) == (1 if name == partition else 6)


def test_what_was_committed_is_recorded_when_the_store_fails_afterwards(
    forgetful: Lake,
) -> None:
    two_days(forgetful)
    with location(forgetful, partition_columns=["date"]) as place:
        place.know(*DAYS)
        result = place.materialize(partition_key=DAYS[0])
        assert not result.success
        assert "stopped after 6 files were rewritten" in failure(result)
        event = place.materializations()[DAYS[0]]
    assert (event["before_file_count"], event["after_file_count"]) == (6, 1)
    assert (event["rows"], event["rows_after"]) == (6, 6)
    assert "503" in event["failures"]


def test_what_was_done_before_a_failure_is_recorded(local: Lake) -> None:
    one_row_files(local, 4, DAYS[0])
    local.write(f"{DAYS[1]}/a.parquet", {"id": pa.array([1], pa.int64())})
    local.write(f"{DAYS[1]}/b.parquet", {"id": pa.array(["x"], pa.string())})
    with location(local) as place:
        place.know(*DAYS)
        result = place.materialize(tags=RANGE)
        assert not result.success
        assert "'id'" in failure(result)
        found = place.materializations()
    assert found[DAYS[0]]["after_file_count"] == 1
    assert "'id'" in found[DAYS[1]]["failures"]


def test_a_file_that_cannot_be_read_does_not_hide_what_was_done(local: Lake) -> None:
    one_row_files(local, 4, DAYS[0])
    one_row_files(local, 1, DAYS[1])
    local.put(f"{DAYS[1]}/broken.parquet", b"not parquet")
    with location(local) as place:
        place.know(*DAYS)
        result = place.materialize(tags=RANGE)
        assert not result.success
        assert "broken.parquet" in failure(result)
        assert list(place.materializations()) == [DAYS[0]]


def test_a_dataset_without_partitions(local: Lake) -> None:
    one_row_files(local, 5)
    with location(local) as place:
        assert place.materialize().success
        found = place.materializations()
    assert list(found) == [None]
    assert found[None]["dagster/row_count"] == 5


def test_directories_that_are_no_hive_partitions(local: Lake) -> None:
    one_row_files(local, 5, "2025/11")
    with location(local) as place:
        assert place.compact(["2025/11"]).success
        # The asset has no partitions that an event could belong to.
        assert list(place.materializations()) == [None]
        assert place.known() == []


def test_dagster_itself_materializes_it(local: Lake) -> None:
    one_row_files(local, 5)
    with location(local) as place:
        asset = place.definitions.resolve_assets_def(KEY)
        assert dagster.materialize([asset], instance=place.instance).success
    assert len(local.files()) == 1
