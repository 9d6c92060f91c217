"""The compaction job: what it does, what it records, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    failure,
    location,
    two_days,
)

CANONICAL = {
    "before_file_count": 6,
    "after_file_count": 1,
    "compacted_file_count": 6,
    "dry_run": False,
    "compression_codec": "snappy",
}
NUMBERS = (
    "before_file_count",
    "after_file_count",
    "before_total_bytes",
    "after_total_bytes",
    "compacted_file_count",
    "rewritten_bytes",
    "rows",
    "rows_after",
    "seconds",
    "health_before",
    "health_after",
)


def last_metadata(place: Location) -> dict[str, Any]:
    event = place.instance.get_latest_materialization_event(KEY)
    assert event is not None and event.asset_materialization is not None
    return dict(event.asset_materialization.metadata)


def test_a_partition_is_compacted_on_every_engine(local: Lake, engine: str) -> None:
    two_days(local)
    with location(local, engine=engine) as place:
        result = place.compact([DAYS[0]])
        assert result.success
        found = place.materializations()
        metadata = last_metadata(place)
    assert list(found) == [DAYS[0]]
    stats = found[DAYS[0]]
    assert {key: stats[key] for key in CANONICAL} == CANONICAL
    assert stats["engine"] == engine
    assert stats["mode"] == "encode"
    assert stats["rows"] == stats["rows_after"] == stats["dagster/partition_row_count"] == 6
    assert stats["before_total_bytes"] == stats["rewritten_bytes"] > stats["after_total_bytes"]
    assert (round(stats["health_before"]), stats["health_after"]) == (17, 100.0)
    assert stats["planned_groups"].splitlines()[-1] == f"| {DAYS[0]} | 6 | 0.00 | 1 |"
    for name in NUMBERS:  # only these plot
        assert isinstance(metadata[name], dagster.IntMetadataValue | dagster.FloatMetadataValue)
    columns = metadata["dagster/column_schema"].schema.columns
    assert [(column.name, column.type) for column in columns] == [
        ("id", "int64"),
        ("name", "string"),
    ]
    assert len(local.files(DAYS[0])) == 1
    assert len(local.files(DAYS[1])) == 6


def test_a_whole_dataset_is_compacted_in_one_go(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        assert place.compact().success
        (partition,), (stats,) = place.materializations().keys(), place.materializations().values()
    assert partition is None
    assert (stats["before_file_count"], stats["after_file_count"]) == (12, 2)
    assert stats["dagster/row_count"] == 12
    assert "dagster/partition_row_count" not in stats


def test_a_dataset_on_any_store(lake: Lake) -> None:
    two_days(lake)
    with location(lake) as place:
        assert place.compact([DAYS[1]]).success
        assert place.materializations()[DAYS[1]]["after_file_count"] == 1
    assert lake.column("id") == [*range(6), *range(100, 106)]


def test_a_directory_above_stands_for_its_partitions(local: Lake) -> None:
    for region in ("eu", "us"):
        one_row_files(local, 4, f"{DAYS[0]}/region={region}")
    with location(local) as place:
        assert place.compact([DAYS[0]]).success
        found = place.materializations()
        assert set(found) == set(place.known()) == {f"{DAYS[0]}/region={r}" for r in ("eu", "us")}
    assert {stats["after_file_count"] for stats in found.values()} == {1}


def test_a_partition_that_is_not_known_yet_is_introduced(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        assert place.known() == []
        place.compact([DAYS[0]])
        assert place.known() == [DAYS[0]]


def test_special_characters_in_partition_names(local: Lake) -> None:
    names = ["name=a%2Fb", "name=two words", "name=é", "name=a...b"]
    for name in names:
        one_row_files(local, 5, name)
    with location(local) as place:
        result = place.compact(names)
        assert result.success
        # A key with dots could not be part of a range: its event is that of the dataset.
        assert set(place.materializations()) == {*names[:3], None}
        assert place.known() == names[:3]
    assert len(local.files()) == 4


def test_nothing_to_do_is_said(local: Lake) -> None:
    local.write(f"{DAYS[0]}/one.parquet", {"id": [1], "name": ["x"]})
    before = local.tree()
    with location(local) as place:
        assert place.compact([DAYS[0]]).success
        stats = place.materializations()[DAYS[0]]
    assert stats["planned_groups"] == "Nothing to do."
    assert stats["compacted_file_count"] == stats["rewritten_bytes"] == 0
    assert stats["before_file_count"] == stats["after_file_count"] == 1
    assert local.tree() == before


def test_a_dry_run_is_an_observation_only(local: Lake) -> None:
    two_days(local)
    before = local.tree()
    with location(local, engine="spark") as place:
        assert place.compact([DAYS[0]], dry_run=True).success
        assert place.materializations() == {}
        (seen,) = place.observations()
        assert place.known() == [DAYS[0]]  # so that it can be picked in the UI
        assert place.compact(dry_run=True).success
        assert place.known() == list(DAYS)
    assert seen["dry_run"] is True
    assert (seen["before_file_count"], seen["after_file_count"]) == (6, 1)
    assert seen["engine"] == "spark"
    assert "health_after" not in seen
    assert f"| {DAYS[0]} | 6 |" in seen["planned_groups"]
    assert local.tree() == before


def conflicting(lake: Lake) -> None:
    """Two days, the first of which has files that cannot be merged."""
    lake.write(f"{DAYS[0]}/a.parquet", {"id": pa.array([1], pa.int64())})
    lake.write(f"{DAYS[0]}/b.parquet", {"id": pa.array(["x"], pa.string())})
    one_row_files(lake, 6, DAYS[1])


@pytest.mark.parametrize("partitions", [[], list(DAYS)], ids=["whole", "each"])
def test_a_schema_conflict_fails_the_run_and_the_rest_is_done(
    local: Lake, partitions: list[str]
) -> None:
    conflicting(local)
    with location(local) as place:
        result = place.compact(partitions)
        assert not result.success
        why = failure(result)
        assert "'id'" in why and "a.parquet" in why
        found = place.materializations()
    done = found[DAYS[1]] if partitions else found[None]
    assert done["compacted_file_count"] == 6
    assert "'id'" in found[DAYS[0] if partitions else None]["failures"]
    assert len(local.files(DAYS[1])) == 1
    assert len(local.files(DAYS[0])) == 2


def test_a_busy_dataset_fails_the_run_and_names_the_holder(local: Lake) -> None:
    two_days(local)
    run_id = uuid7()
    with location(local) as place, Lease(open_store(local.url), run_id, "compact"):
        result = place.compact()
        assert not result.success
        assert f"is being maintained by another process: compact run {run_id}" in failure(result)
        assert place.materializations() == {}
    assert len(local.files()) == 12


@pytest.mark.parametrize(
    "name", ["date=1999-01-01", "../elsewhere", "", "date=2025-11-04/", "/", "_maintenance", "."]
)
def test_an_unknown_partition_is_refused(local: Lake, name: str) -> None:
    two_days(local)
    one_row_files(Lake(local.url.replace("lake", "elsewhere")), 6)
    before = local.tree()
    with location(local) as place:
        result = place.compact([DAYS[0], name])
        assert not result.success
        assert f"dataset 'lake/trades' has no partition '{name}'" in failure(result)
        assert place.materializations() == {}
    assert local.tree() == before


def test_targets_and_codec_are_those_of_the_dataset(local: Lake) -> None:
    one_row_files(local, 10)
    with location(local, target_rows_per_file=5, compression="zstd") as place:
        assert place.compact().success
        stats = place.materializations()[None]
    assert stats["after_file_count"] == 2
    assert stats["compression_codec"] == "zstd"


def test_many_partitions_get_events_up_to_a_cap(
    local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maintenance_assets.orchestration.maintenance.MAX_PARTITION_EVENTS", 2)
    names = [f"n={number}" for number in range(4)]
    for name in names:
        one_row_files(local, 2, name)
    with location(local) as place:
        assert place.compact(names).success
        assert set(place.materializations()) == {"n=0", "n=1"}
    assert len(local.files()) == 4


def test_recovery_says_what_it_found(local: Lake) -> None:
    two_days(local)
    local.put(f"_maintenance/{uuid7()}/x.parquet.staged", b"left behind")
    with location(local) as place:
        assert place.run("recover").success
        assert place.run("recover").success
        second, first = place.observations()
        assert place.materializations() == {}
    assert "removed staged files" in first["recovered"]
    assert (first["recovered_runs"], second["recovered_runs"]) == (1, 0)
    assert second["recovered"] == "Nothing to recover."
    assert len(local.files()) == 12


def test_recovery_of_a_busy_dataset_names_the_holder(local: Lake) -> None:
    two_days(local)
    with location(local) as place, Lease(open_store(local.url), uuid7(), "compact"):
        assert "is being maintained by another process" in failure(place.run("recover"))


NO_JAVA = """
import json, sys
import dagster, psutil
from pyspark import SparkContext
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import Location, declared
from maintenance_assets import build_definitions

lake = Lake(sys.argv[1])
defs = build_definitions([declared(lake, engine="spark")])
place = Location(defs, dagster.DagsterInstance.ephemeral())
assert place.compact(["date=healthy"]).success
assert place.compact(dry_run=True).success
assert place.tick().run_requests
place.know("date=healthy")
assert place.materialize(partition_key="date=healthy").success
java = [p.name() for p in psutil.Process().children(recursive=True)]
print(json.dumps([java, SparkContext._gateway is None]))
"""


def test_no_java_is_started_for_nothing(local: Lake, tmp_path: Path) -> None:
    one_row_files(local, 1, "date=healthy")
    one_row_files(local, 6, "date=needy")
    command = [sys.executable, "-c", NO_JAVA, local.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[], True]
    assert len(local.files()) == 7
