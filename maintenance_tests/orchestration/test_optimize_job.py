"""The clustering job: only where columns are declared, its figures, its chart, its dry run."""

from typing import Any

import dagster
import numpy as np
import pytest

from maintenance_assets import DatasetConfig, build_definitions
from maintenance_assets.errors import DatasetConfigError
from maintenance_assets.orchestration.config import parse_datasets
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import (
    DAYS,
    NAME,
    Location,
    declared,
    failure,
    location,
)

KEY_COLUMNS = ["time", "symbol"]
ROWS = 400


def fill(lake: Lake) -> None:
    """Two days of four files; every file has all times and symbols."""
    random = np.random.default_rng(3)
    for day in DAYS:
        for number in range(4):
            columns = {
                "time": random.integers(0, 1000, ROWS // 4),
                "symbol": [f"S{n}" for n in random.integers(0, 50, ROWS // 4)],
            }
            lake.write(f"{day}/part-{number}.parquet", columns)


def optimize(place: Location, **config: Any) -> dagster.ExecuteInProcessResult:
    return place.run("optimize", {"ops": {f"optimize_{NAME}": {"config": config}}})


def clustered(lake: Lake, **fields: Any) -> Any:
    common = {"zorder_columns": KEY_COLUMNS, "target_rows_per_file": 50, "small_file_mb": 1}
    return location(lake, **{**common, **fields})


def test_a_partition_is_clustered_on_every_engine(local: Lake, engine: str) -> None:
    fill(local)
    untouched = {name: local.get(name) for name in local.files(DAYS[1])}
    with clustered(local, engine=engine) as place:
        assert optimize(place, partitions=[DAYS[0]]).success
        found = place.materializations()
    stats = found[DAYS[0]]
    assert list(found) == [DAYS[0]]
    assert stats["zorder_columns"] == KEY_COLUMNS
    assert (stats["before_file_count"], stats["after_file_count"]) == (4, 8)
    assert (stats["compacted_file_count"], stats["engine"]) == (4, engine)
    assert stats["rows"] == stats["rows_after"] == stats["dagster/partition_row_count"] == ROWS
    for column in KEY_COLUMNS:
        assert stats[f"files_touched_percent_before/{column}"] > 90
        assert stats[f"files_touched_percent_after/{column}"] < 60
    assert {name: local.get(name) for name in local.files(DAYS[1])} == untouched


def test_what_was_gained_is_shown_as_a_chart(local: Lake) -> None:
    fill(local)
    with clustered(local) as place:
        assert optimize(place).success
        (stats,) = place.materializations().values()
    lines = stats["clustering"].splitlines()
    assert lines[0] == "| look-up by | | files touched | overlap depth | |"
    before, after = lines[2].split("|"), lines[3].split("|")
    assert [before[1].strip(), before[2].strip(), after[2].strip()] == ["time", "before", "after"]
    assert before[5].count("█") > after[5].count("█") > 0
    assert len(before[5].strip()) == len(after[5].strip()) == 20
    assert stats["decisions"].splitlines()[2:] == [
        f"| {day} | full | 4 of 4 | not clustered this way yet, or not any more |" for day in DAYS
    ]


def test_a_second_run_rewrites_nothing(local: Lake) -> None:
    fill(local)
    with clustered(local) as place:
        optimize(place)
        before = local.tree()
        assert optimize(place).success
        stats = list(place.materializations().values())[-1]
    assert local.tree() == before
    assert (stats["compacted_file_count"], stats["rewritten_bytes"]) == (0, 0)
    assert "nothing was written to it since it was clustered" in stats["decisions"]


def test_a_dry_run_predicts_and_writes_nothing(local: Lake) -> None:
    fill(local)
    before = local.tree()
    with clustered(local) as place:
        assert optimize(place, dry_run=True).success
        assert place.materializations() == {}
        (stats,) = place.observations()
    assert local.tree() == before
    assert stats["dry_run"] is True
    assert "| predicted |" in stats["clustering"]
    assert stats["planned_groups"].splitlines()[-1].endswith("| 8 |")


def test_other_columns_can_be_asked_for(local: Lake) -> None:
    fill(local)
    with clustered(local) as place:
        assert optimize(place, zorder_columns=["symbol"]).success
        (stats,) = place.materializations().values()
    assert stats["zorder_columns"] == ["symbol"]


def test_a_column_that_is_missing_fails_the_run_by_name(local: Lake) -> None:
    fill(local)
    with clustered(local, zorder_columns=["nonsense"]) as place:
        result = optimize(place)
        assert not result.success
        assert "Missing z-order columns: nonsense. Available columns: time, symbol" in failure(
            result
        )


def test_only_datasets_with_columns_have_the_job(local: Lake) -> None:
    fill(local)
    without = build_definitions([declared(local)]).get_repository_def()
    names = build_definitions([declared(local, zorder_columns=["time"])]).get_repository_def()
    assert not without.has_job(f"{NAME}__optimize")
    job = names.get_job(f"{NAME}__optimize")
    assert {node.definition.pool for node in job.nodes} == {"dataset:lake/trades"}  # type: ignore[attr-defined]


def test_a_schedule_clusters_at_the_declared_time(local: Lake) -> None:
    fill(local)
    fields = {"zorder_columns": ["time"], "optimize_cron": "0 4 * * 0"}
    repository = build_definitions([declared(local, **fields)]).get_repository_def()
    schedule = repository.get_schedule_def(f"{NAME}__scheduled_optimize")
    assert (schedule.cron_schedule, schedule.job_name) == ("0 4 * * 0", f"{NAME}__optimize")
    assert schedule.default_status is dagster.DefaultScheduleStatus.STOPPED


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"optimize_cron": "0 4 * * 0"}, "optimize_cron needs zorder_columns"),
        ({"zorder_columns": ["a", "a"]}, "'a' is given twice"),
        ({"zorder_columns": [""]}, "must not be empty"),
        ({"zorder_columns": ["a"], "curve": "peano"}, "field 'curve'"),
        ({"zorder_columns": ["a"], "optimize_cron": "soon"}, "is not a cron schedule"),
    ],
)
def test_declarations_that_cannot_work_are_refused(fields: Any, message: str) -> None:
    with pytest.raises(DatasetConfigError, match=message):
        parse_datasets([{"key": "lake/trades", "path": "lake", **fields}])


def test_hilbert_is_the_default_curve() -> None:
    assert DatasetConfig(key="a", path="b", zorder_columns=["c"]).curve == "hilbert"
