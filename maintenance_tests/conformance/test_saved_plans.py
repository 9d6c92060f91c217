"""A saved plan is carried out exactly, or refused with nothing changed."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from maintenance_assets import (
    IncompleteMaintenanceError,
    InvalidPlanError,
    PlanOutdatedError,
    compact,
    execute_plan,
    load_plan,
    optimize,
    save_plan,
)
from maintenance_assets.operations.results import CompactionResult, OptimizeResult
from maintenance_assets.operations.saved_plans import saved_plan
from maintenance_tests.datasets import Lake, one_row_files

DAYS = ("date=1", "date=2")


def filled(lake: Lake) -> Lake:
    for start, day in enumerate(DAYS):
        one_row_files(lake, 5, day, 5 * start)
    return lake


def clusterable(lake: Lake) -> Lake:
    for day in DAYS:
        for number in range(4):
            lake.write(f"{day}/{number}.parquet", {"id": list(range(number, 400, 4))})
    return lake


def preview(lake: Lake, engine: str = "pyarrow") -> CompactionResult:
    return lake.compact(engine, dry_run=True)


def same_as_planned(result: CompactionResult, planned: CompactionResult) -> bool:
    names = ("before_file_count", "after_file_count", "compacted_file_count", "rewritten_bytes")
    return all(getattr(result.stats, n) == getattr(planned.stats, n) for n in names)


def test_a_saved_compaction_is_what_is_done(engine: str, local: Lake, tmp_path: Path) -> None:
    planned = preview(filled(local), engine)
    save_plan(planned, tmp_path / "plan.json")
    result = execute_plan(tmp_path / "plan.json")
    assert result.engine == engine
    assert same_as_planned(result, planned)
    assert local.column("id") == list(range(10))
    assert result.stats.after_file_count == 2


def test_a_saved_clustering_is_what_is_done(engine: str, local: Lake, tmp_path: Path) -> None:
    clusterable(local)
    planned = optimize(local.url, ["id"], engine=engine, target_rows_per_file=100, dry_run=True)
    save_plan(planned, tmp_path / "plan.json")
    result = execute_plan(tmp_path / "plan.json")
    assert isinstance(result, OptimizeResult)
    assert same_as_planned(result, planned)
    assert result.gains[0].share_after < 0.3 < result.gains[0].share_before
    assert local.column("id", DAYS[0]) == list(range(400))
    # What was planned is done: the dataset is clustered, and a new plan is empty.
    again = optimize(local.url, ["id"], target_rows_per_file=100, dry_run=True)
    assert again.plan.is_empty


def test_a_plan_for_a_store_is_found_there_again(lake: Lake) -> None:
    planned = preview(filled(lake))
    options = dict(lake.storage_options) or None
    result = execute_plan(saved_plan(planned), storage_options=options)
    assert same_as_planned(result, planned)
    assert lake.column("id") == list(range(10))


@pytest.mark.parametrize("how", ["rewritten", "touched", "deleted"])
def test_a_plan_is_refused_when_an_input_changed(local: Lake, how: str) -> None:
    plan = saved_plan(preview(filled(local)))
    path = local.path(f"{DAYS[1]}/part-00007.parquet")
    if how == "rewritten":
        local.write(f"{DAYS[1]}/part-00007.parquet", {"id": [7], "name": ["another"]})
    elif how == "touched":
        os.utime(path, ns=(1, 1))
    else:
        os.unlink(path)
    before = local.tree()
    for dry_run in (True, False):
        with pytest.raises(PlanOutdatedError, match=r"part-00007\.parquet' (was changed|is gone)"):
            execute_plan(plan, dry_run=dry_run)
    assert local.tree() == before


def test_a_plan_is_refused_once_it_was_carried_out(local: Lake) -> None:
    plan = saved_plan(preview(filled(local)))
    execute_plan(plan)
    before = local.tree()
    with pytest.raises(PlanOutdatedError, match=r"is gone since it was made \(and 9 more\)"):
        execute_plan(plan)
    assert local.tree() == before


def test_a_clustering_is_refused_when_a_file_beside_it_changed(local: Lake) -> None:
    clusterable(local)
    optimize(local.url, ["id"], target_rows_per_file=100)
    local.write(f"{DAYS[0]}/late.parquet", {"id": [1000, 1001]})
    planned = optimize(local.url, ["id"], target_rows_per_file=100, dry_run=True)
    (group,) = saved_plan(planned).groups
    assert group.beside
    os.utime(local.path(group.beside[0].path), ns=(1, 1))
    with pytest.raises(PlanOutdatedError, match="was changed since it was made"):
        execute_plan(saved_plan(planned))


def test_files_that_came_since_are_left_alone(local: Lake) -> None:
    plan = saved_plan(preview(filled(local)))
    one_row_files(local, 5, DAYS[0], start=100)
    one_row_files(local, 5, "date=3", start=200)
    late = {name for name in local.files() if "part-001" in name or "part-002" in name}
    execute_plan(plan)
    assert late < set(local.files())
    assert len(local.files()) == 2 + 10
    assert sorted(local.column("id")) == [*range(10), *range(100, 105), *range(200, 205)]


def test_a_clustering_ignores_files_that_came_since(local: Lake) -> None:
    clusterable(local)
    plan = saved_plan(optimize(local.url, ["id"], target_rows_per_file=100, dry_run=True))
    local.write(f"{DAYS[0]}/late.parquet", {"id": [1000]})
    execute_plan(plan)
    assert f"{DAYS[0]}/late.parquet" in local.files()
    assert sorted(local.column("id", DAYS[0])) == [*range(400), 1000]


def test_a_plan_keeps_its_scope(local: Lake) -> None:
    filled(local)
    planned = compact(local.url, partition_filter=DAYS[1], dry_run=True)
    result = execute_plan(saved_plan(planned))
    assert same_as_planned(result, planned)
    assert result.stats.before_file_count == 5
    assert len(local.files(DAYS[0])) == 5


def test_an_empty_plan_does_nothing(local: Lake) -> None:
    local.write("a.parquet", {"id": [1]})
    before = local.tree()
    result = execute_plan(saved_plan(preview(local)))
    assert (result.publish, result.stats.compacted_file_count) == ("none", 0)
    assert local.tree() == before


def test_an_empty_clustering_plan_does_nothing(local: Lake) -> None:
    clusterable(local)
    optimize(local.url, ["id"], target_rows_per_file=100)
    before = local.tree()
    planned = optimize(local.url, ["id"], target_rows_per_file=100, dry_run=True)
    assert planned.plan.is_empty
    assert execute_plan(saved_plan(planned)).stats.compacted_file_count == 0
    assert local.tree() == before


def test_a_dry_run_of_a_plan_tells_that_it_holds(local: Lake) -> None:
    planned = preview(filled(local))
    before = local.tree()
    result = execute_plan(saved_plan(planned), dry_run=True)
    assert result.stats.dry_run
    assert same_as_planned(result, planned)
    assert local.tree() == before


def test_what_could_not_be_planned_is_still_told(local: Lake) -> None:
    one_row_files(local, 3, "a=1")
    local.write("a=2/x.parquet", {"id": [1]})
    local.write("a=2/y.parquet", {"id": ["one"]})
    plan = saved_plan(preview(local))
    with pytest.raises(IncompleteMaintenanceError, match="column 'id' is") as caught:
        execute_plan(plan)
    assert caught.value.result.stats.compacted_file_count == 3


def test_a_plan_of_something_else_is_not_carried_out(local: Lake) -> None:
    """Rules that would do other work with the same files: the plan is not theirs."""
    planned = saved_plan(preview(filled(local)))
    group = replace(planned.groups[0], output_rows=(2, 3))
    with pytest.raises(PlanOutdatedError, match="is not what would be done"):
        execute_plan(replace(planned, groups=(group, planned.groups[1])))


def test_only_a_dry_run_can_be_saved(local: Lake, tmp_path: Path) -> None:
    result = compact(filled(local).url)
    with pytest.raises(ValueError, match="only the result of a dry run"):
        save_plan(result, tmp_path / "plan.json")
    assert list(tmp_path.glob("*.json")) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(InvalidPlanError, match=r"The plan '.*plan\.json' cannot be used"):
        load_plan(tmp_path / "plan.json")
