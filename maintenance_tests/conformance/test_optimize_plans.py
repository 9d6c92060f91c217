"""What optimize decides: nothing, some or all of a partition; what it predicts and refuses."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintenance_assets import (
    CompactionGroup,
    FileInfo,
    IncompleteMaintenanceError,
    OptimizeResult,
    Progress,
    optimize,
    plan_optimize_groups,
)
from maintenance_assets.engines.protocol import Engine
from maintenance_tests.conformance.test_optimize import WRITERS, writer_named
from maintenance_tests.datasets import Lake, row_counts

ROWS = 400
KEY = ["time", "symbol"]


def cluster(
    lake: Lake, columns: Any = KEY, engine: str | Engine = "pyarrow", **options: Any
) -> OptimizeResult:
    options = {"target_rows_per_file": 100, **options}
    return optimize(
        lake.url,
        columns,
        engine=engine,
        storage_options=dict(lake.storage_options) or None,
        **options,
    )


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str | Engine:
    """An engine; Spark twice, for it shuffles what is large."""
    return writer_named(request.param, request)


def events(first: int, rows: int = ROWS, times: tuple[int, int] = (0, 1000)) -> pa.Table:
    random = np.random.default_rng(first)
    return pa.table(
        {
            "id": range(first, first + rows),
            "time": random.integers(*times, rows),
            "symbol": [f"S{n:02}" for n in random.integers(0, 50, rows)],
        }
    )


def fill(lake: Lake, directory: str = "", files: int = 4, first: int = 0) -> None:
    prefix = f"{directory}/" if directory else ""
    for number in range(files):
        start = first + number * ROWS
        lake.write(f"{prefix}part-{start:05}.parquet", events(start))


def ids(lake: Lake) -> list[int]:
    return sorted(lake.column("id"))


def actions(result: OptimizeResult) -> list[tuple[str, int, int]]:
    return [(one.action, one.files, one.rewritten) for one in result.decisions]


def test_second_optimize_rewrites_nothing(engine: str, lake: Lake) -> None:
    fill(lake)
    cluster(lake, engine=engine)
    before = lake.tree()
    result = cluster(lake, engine=engine)
    assert lake.tree() == before
    assert actions(result) == [("none", 16, 0)]
    stats = result.to_dict()
    assert (stats["compacted_file_count"], stats["rewritten_bytes"]) == (0, 0)
    assert (stats["before_file_count"], stats["after_file_count"]) == (16, 16)
    assert {file.reason for file in result.untouched} == {"clustered"}
    assert [gain.share_before for gain in result.gains] == [g.share_after for g in result.gains]


def test_another_engine_finds_the_layout_as_well(local: Lake) -> None:
    fill(local)
    cluster(local)
    assert actions(cluster(local, engine="duckdb")) == [("none", 16, 0)]


@pytest.mark.parametrize(
    "options", [{"columns": ["time"]}, {"curve": "morton"}, {"target_rows_per_file": 90}]
)
def test_another_layout_rewrites_everything(local: Lake, options: Any) -> None:
    fill(local)
    cluster(local)
    assert actions(cluster(local, **options)) == [("full", 16, 16)]
    assert ids(local) == list(range(4 * ROWS))


def test_new_files_apart_from_the_rest_are_clustered_alone(engine: str, lake: Lake) -> None:
    fill(lake)
    cluster(lake, engine=engine)
    before = lake.tree()
    for number in range(2):
        lake.write(f"new-{number}.parquet", events(5000 + number * ROWS, times=(2000, 2500)))
    result = cluster(lake, engine=engine)
    assert actions(result) == [("incremental", 18, 2)]
    assert before.items() <= lake.tree().items()
    assert len(lake.files()) == 24
    assert ids(lake) == [*range(4 * ROWS), *range(5000, 5000 + 2 * ROWS)]
    assert actions(cluster(lake, engine=engine)) == [("none", 24, 0)]


def test_only_clustered_files_that_new_ones_overlap_are_rewritten(local: Lake) -> None:
    fill(local)
    cluster(local)
    before = local.tree()
    local.write("new.parquet", events(5000, 200, times=(0, 120)))
    result = cluster(local)
    (decision,) = result.decisions
    assert decision.action == "incremental"
    assert 1 < decision.rewritten < 12
    kept = [name for name in before if name in local.tree()]
    assert len(kept) == 17 - decision.rewritten
    assert ids(local) == [*range(4 * ROWS), *range(5000, 5200)]


def test_new_files_all_over_the_place_rewrite_everything(local: Lake) -> None:
    fill(local)
    cluster(local)
    fill(local, files=3, first=5000)
    assert actions(cluster(local)) == [("full", 19, 19)]
    assert len(ids(local)) == 7 * ROWS


def test_many_small_appends_do_not_leave_many_small_files(local: Lake) -> None:
    """What one addition left small is taken along by the next."""
    fill(local)
    cluster(local)
    for number in range(10):
        times = (2000 + 10 * number, 2010 + 10 * number)
        local.write(f"new-{number}.parquet", events(5000 + 10 * number, 10, times=times))
        assert actions(cluster(local))[0][0] == "incremental"
    assert len(local.files()) <= 16 + 3
    assert ids(local) == [*range(4 * ROWS), *range(5000, 5100)]


def test_dry_run_writes_nothing_and_predicts_what_then_happens(engine: str, lake: Lake) -> None:
    fill(lake, "day=1")
    fill(lake, "day=2", files=2, first=9000)
    before = lake.tree()
    preview = cluster(lake, engine=engine, dry_run=True)
    assert lake.tree() == before
    assert preview.stats.dry_run
    planned = preview.to_dict()["planned_groups"]
    assert [len(group) for group in planned] == [4, 2]
    result = cluster(lake, engine=engine)
    assert actions(preview) == actions(result) == [("full", 4, 4), ("full", 2, 2)]
    assert preview.stats.after_file_count == result.stats.after_file_count == 24
    assert preview.stats.compacted_file_count == result.stats.compacted_file_count == 6
    for predicted, measured in zip(preview.gains, result.gains, strict=True):
        assert predicted.share_before == measured.share_before == pytest.approx(1, abs=0.05)
        assert predicted.share_after == pytest.approx(measured.share_after, abs=0.1)
        assert measured.share_after < 0.6


def test_other_partitions_stay_as_they_are(engine: str, lake: Lake) -> None:
    fill(lake, "day=1")
    fill(lake, "day=10", first=9000)
    before = {name: lake.get(name) for name in lake.files("day=10")}
    result = cluster(lake, engine=engine, partition_filter="day=1")
    assert [one.directory.rpartition("/")[2] for one in result.decisions] == ["day=1"]
    assert {name: lake.get(name) for name in lake.files("day=10")} == before
    assert row_counts(lake, lake.files("day=1")) == [100] * 16


def test_column_of_the_path_is_left_out_with_a_warning(engine: str, local: Lake) -> None:
    fill(local, "day=1")
    result = cluster(local, ["day", "time"], engine=engine)
    assert result.columns == ("time",)
    assert result.to_dict()["zorder_columns"] == ["day", "time"]
    assert "column 'day' is a partition of the path: left out of the key" in result.notes
    assert ids(local) == list(range(4 * ROWS))


def test_column_of_the_path_may_be_missing_beside_the_partitions(local: Lake) -> None:
    fill(local, "day=1", files=2)
    fill(local, files=2, first=9000)
    result = cluster(local, ["day", "time"])
    assert actions(result) == [("full", 2, 2), ("full", 2, 2)]
    assert "column 'day' is a partition of the path: left out of the key" in result.notes


def test_columns_of_the_path_alone_are_refused(local: Lake) -> None:
    fill(local, "day=1")
    with pytest.raises(ValueError, match="All z-order columns are partition columns: day"):
        cluster(local, ["day"])


def test_three_optimizes_by_different_columns_keep_every_row(engine: str, lake: Lake) -> None:
    fill(lake)
    for columns in (["time"], ["symbol", "id"], ["id", "time", "symbol"]):
        assert cluster(lake, columns, engine=engine).stats.compacted_file_count > 0
        assert ids(lake) == list(range(4 * ROWS))
        assert row_counts(lake, lake.files()) == [100] * 16


def test_compacting_with_the_same_targets_leaves_clustered_files(engine: str, local: Lake) -> None:
    fill(local)
    cluster(local, engine=engine, target_rows_per_file=3000)
    before = local.tree()
    assert local.compact(engine, target_rows_per_file=3000).stats.compacted_file_count == 0
    assert local.tree() == before
    assert actions(cluster(local, engine=engine, target_rows_per_file=3000)) == [("none", 1, 0)]


def test_compacting_with_other_targets_forgets_the_layout(local: Lake) -> None:
    fill(local)
    cluster(local)
    local.compact("pyarrow", target_rows_per_file=800)
    assert ids(local) == list(range(4 * ROWS))
    for name in local.files():
        assert b"maintenance_assets:layout" not in (local.open(name).metadata.metadata or {})
    assert actions(cluster(local)) == [("full", 2, 2)]


def test_column_that_some_files_lack_is_null_there(engine: str, lake: Lake) -> None:
    lake.write("a.parquet", events(0).drop_columns(["symbol"]))
    lake.write("b.parquet", events(ROWS))
    lake.write("c.parquet", events(2 * ROWS).drop_columns(["symbol", "time"]))
    cluster(lake, engine=engine)
    table = lake.read()
    assert ids(lake) == list(range(3 * ROWS))
    assert table.column("symbol").null_count == 2 * ROWS
    assert table.column("time").null_count == ROWS


def test_partition_that_lacks_all_columns_of_the_key_is_kept(
    writer: str | Engine, local: Lake
) -> None:
    fill(local, "day=1", files=1)
    for number in range(3):
        ids_alone = events(9000 + 70 * number, 70).select(["id"])
        local.write(f"day=2/part-{number}.parquet", ids_alone)
    result = cluster(local, engine=writer)
    assert actions(result) == [("full", 1, 1), ("full", 3, 3)]
    assert local.column("id", "day=2") == list(range(9000, 9210))
    assert row_counts(local, local.files("day=2")) == [70] * 3
    assert not [note for note in result.engine_notes if "failed" in note]
    assert actions(cluster(local, engine=writer)) == [("none", 4, 0), ("none", 3, 0)]


def test_partition_that_lacks_all_columns_of_the_key_may_exceed_memory(local: Lake) -> None:
    fill(local, "day=1", files=1)
    local.write("day=2/a.parquet", {"id": list(range(9000))})
    cluster(local, target_rows_per_file=3000, memory_budget_mb=0.02)
    assert row_counts(local, local.files("day=2")) == [3000] * 3
    assert local.column("id", "day=2") == list(range(9000))


def test_files_with_narrower_types_are_ordered_with_the_rest(engine: str, local: Lake) -> None:
    narrow = pa.table({"n": pa.array([5, 1, 3], pa.int8())})
    wide = pa.table({"n": pa.array([4, 2**40, 2], pa.int64())})
    local.write("a.parquet", narrow)
    local.write("b.parquet", wide)
    result = cluster(local, ["n"], engine=engine, target_rows_per_file=2)
    assert local.column("n") == [1, 2, 3, 4, 5, 2**40]
    assert "column 'n': int8, int64 become int64" in result.notes
    # Each of the two files holds five of the six values.
    assert result.gains[0].share_before == pytest.approx(5 / 6)


def test_partition_that_cannot_be_merged_is_left_and_the_others_done(local: Lake) -> None:
    fill(local, "day=1")
    local.write("day=2/a.parquet", events(9000))
    local.write("day=2/b.parquet", {"id": [1], "time": ["noon"], "symbol": ["S"]})
    with pytest.raises(IncompleteMaintenanceError, match="column 'time'") as raised:
        cluster(local)
    assert raised.value.result.stats.compacted_file_count == 4
    assert sorted(local.files("day=2")) == ["day=2/a.parquet", "day=2/b.parquet"]
    assert len(local.files("day=1")) == 16


BAD: list[tuple[Any, dict[str, Any], str]] = [
    (["nope"], {}, "Missing z-order columns: nope. Available columns: id, time, symbol"),
    ([], {}, "must name at least one column"),
    ("time", {}, "must be a list of column names, got 'time'"),
    ([1], {}, "must be a list of column names, got 1"),
    (["time", "time"], {}, "names 'time' more than once"),
    ([f"c{n}" for n in range(11)], {}, "at most 10 columns"),
    (KEY, {"curve": "peano"}, "Unknown curve 'peano'. Known curves: hilbert, morton, linear"),
    (KEY, {"target_rows_per_file": 0}, "target_rows_per_file must be > 0"),
    (KEY, {"target_mb_per_file": float("nan")}, "target_mb_per_file must be > 0"),
    (KEY, {"on_progress": 3}, "on_progress must be callable"),
]


@pytest.mark.parametrize(("columns", "options", "message"), BAD)
def test_wrong_arguments_are_refused(local: Lake, columns: Any, options: Any, message: str) -> None:
    fill(local, files=1)
    before = local.tree()
    with pytest.raises(ValueError, match=message):
        cluster(local, columns, **options)
    assert local.tree() == before


@pytest.mark.parametrize(
    "type_",
    [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())],
)
def test_column_without_an_order_is_refused_by_name(local: Lake, type_: Any) -> None:
    local.write("a.parquet", pa.table({"odd": pa.nulls(3, type_)}))
    with pytest.raises(ValueError, match=r"Cannot cluster by 'odd': its type .* has no order"):
        cluster(local, ["odd"])


def test_missing_path_and_filter_without_a_match_are_not_found(local: Lake) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        cluster(local)
    fill(local, "day=1")
    with pytest.raises(FileNotFoundError, match=r"No parquet files found under .* matching filter"):
        cluster(local, partition_filter="day=7")


def test_progress_tells_samples_and_groups(local: Lake) -> None:
    fill(local, "day=1")
    fill(local, "day=2", first=9000)
    seen: list[Progress] = []
    cluster(local, on_progress=seen.append)
    phases = list(dict.fromkeys(step.phase for step in seen))
    assert phases == ["discover", "sample", "execute", "publish", "measure"]
    assert [s.done for s in seen if s.phase == "sample"] == [0, 1, 2]


def test_callback_that_raises_before_publishing_changes_nothing(local: Lake) -> None:
    fill(local)
    before = local.tree()

    def stop(step: Progress) -> None:
        if step.phase == "execute":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        cluster(local, on_progress=stop)
    assert local.tree() == before


def infos() -> Iterator[FileInfo]:
    for day in (2, 1):
        for number in range(3):
            yield FileInfo(f"lake/day={day}/{number}.parquet", 1000, 40)
    yield FileInfo("lake/day=3/empty.parquet", 300, 0)


def test_planning_by_hand_groups_all_files_of_a_partition() -> None:
    plan = plan_optimize_groups(infos(), ["a"], target_rows_per_file=50)
    assert plan["planned_groups"] == [
        [f"lake/day={day}/{number}.parquet" for number in range(3)] for day in (1, 2)
    ]
    assert all(isinstance(group, CompactionGroup) for group in plan["groups"])
    assert plan["groups"][0].output_rows == (40, 40, 40)
    stats = plan["planned_stats"].to_dict()
    assert stats["zorder_columns"] == ["a"]
    assert (stats["before_file_count"], stats["after_file_count"]) == (7, 7)
    assert [(f.path, f.reason) for f in plan["untouched_files"]] == [
        ("lake/day=3/empty.parquet", "empty")
    ]


def test_planning_by_hand_checks_columns_against_a_schema() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    assert plan_optimize_groups([], ["b.c"], sample_schema=schema)["groups"] == []
    with pytest.raises(ValueError, match=r"Missing z-order columns: x. Available columns: a, b.c"):
        plan_optimize_groups(infos(), ["x"], sample_schema=schema)
    with pytest.raises(ValueError, match="at least one"):
        plan_optimize_groups(infos(), [])
