"""Plans as text: what was written comes back, and nothing else is taken."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pytest

from maintenance_assets.errors import InvalidPlanError
from maintenance_assets.model.plans import GroupFailure
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.model.saved_plans import SavedFile, SavedGroup, SavedPlan
from maintenance_assets.planning.saved_plans import (
    _checksum,
    from_json,
    json_filter,
    to_json,
)

GROUP = SavedGroup(
    directory="date=1",
    inputs=(SavedFile("date=1/a.parquet", 10, 1, "v1"), SavedFile("date=1/b.parquet", 20, 2, "v2")),
    output_rows=(3,),
)
COMPACT = SavedPlan(
    operation="compact",
    dataset="s3://bucket/lake",
    engine="duckdb",
    policy=CompactionPolicy(1000, 5, "zstd"),
    groups=(GROUP,),
    failures=(GroupFailure(("date=2/x.parquet",), "column 'id' is ..."),),
    partition_filter=["date=1", "date=2"],
)
OPTIMIZE = replace(
    COMPACT,
    operation="optimize",
    columns=("ts", "id"),
    curve="morton",
    groups=(
        replace(GROUP, beside=(SavedFile("date=1/c.parquet", 30, 3, "v3"),), grid="0123456789ab"),
    ),
)


@pytest.mark.parametrize("plan", [COMPACT, OPTIMIZE, replace(COMPACT, groups=(), failures=())])
def test_a_plan_comes_back_as_it_was(plan: SavedPlan) -> None:
    assert from_json(to_json(plan)) == plan
    assert from_json(to_json(plan).encode()) == plan


def test_names_that_are_not_utf_8_come_back() -> None:
    odd = SavedFile("date=1/caf\udce9.parquet", 10, 1, "v")
    plan = replace(COMPACT, groups=(replace(GROUP, inputs=(odd,)),))
    assert from_json(to_json(plan)) == plan


def test_figures_of_a_plan() -> None:
    assert (COMPACT.file_count, COMPACT.total_bytes, COMPACT.output_count) == (2, 30, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        ("[]", "it does not hold a plan"),
        ("null", "it does not hold a plan"),
        ('{"kind": "something else"}', "it does not hold a plan"),
    ],
    ids=repr,
)
def test_garbage_is_refused(text: str | bytes, problem: str) -> None:
    with pytest.raises(InvalidPlanError, match=problem):
        from_json(text)


def test_another_format_is_named() -> None:
    text = to_json(COMPACT).replace('"format": 1', '"format": 2')
    with pytest.raises(InvalidPlanError, match="its format is 2, this version reads format 1"):
        from_json(text)


@pytest.mark.parametrize(
    ("old", "new"), [("a.parquet", "z.parquet"), ("duckdb", "spark"), ('"v1"', '"v9"')]
)
def test_an_edited_plan_is_refused(old: str, new: str) -> None:
    with pytest.raises(InvalidPlanError, match="changed after it was saved"):
        from_json(to_json(COMPACT).replace(old, new, 1))


def forged(edit: Callable[[Any], Any], plan: SavedPlan = COMPACT) -> str:
    """A plan with whatever in it, and a checksum that fits."""
    content = json.loads(to_json(plan))
    del content["checksum"]
    edit(content)
    return json.dumps({**content, "checksum": _checksum(content)})


def set_path(path: str) -> Callable[[Any], Any]:
    def edit(content: Any) -> None:
        content["groups"][0]["inputs"][0]["path"] = path
        content["groups"][0]["directory"] = path.rpartition("/")[0]
        del content["groups"][0]["inputs"][1]

    return edit


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../other/a.parquet",
        "date=1/../../a.parquet",
        "a//b.parquet",
        "_maintenance/a.parquet",
        "date=1/.a.parquet",
        "",
    ],
)
def test_a_forged_path_outside_the_data_is_refused(path: str) -> None:
    with pytest.raises(InvalidPlanError, match="not the path of a data file below the root"):
        from_json(forged(set_path(path)))


@pytest.mark.parametrize(
    "edit",
    [
        lambda plan: plan.pop("groups"),
        lambda plan: plan.update(groups="none"),
        lambda plan: plan.update(groups=[{}]),
        lambda plan: plan.update(groups=[3]),
        lambda plan: plan.update(operation="delete"),
        lambda plan: plan.update(curve="circle"),
        lambda plan: plan.update(columns=["id"]),
        lambda plan: plan.update(target_bytes=-1),
        lambda plan: plan.update(target_bytes=None, target_rows=None),
        lambda plan: plan.update(compression="magic"),
        lambda plan: plan["groups"][0].update(output_rows=[]),
        lambda plan: plan["groups"][0].update(output_rows=[True]),
        lambda plan: plan["groups"][0].update(inputs=[]),
        lambda plan: plan["groups"][0].update(directory="date=2"),
        lambda plan: plan["groups"][0]["inputs"][0].update(size_bytes="10"),
        lambda plan: plan["groups"].append(plan["groups"][0]),
    ],
    ids=range(16),
)
def test_a_forged_plan_is_refused(edit: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidPlanError, match=r"The plan cannot be used: .*Save a new one\."):
        from_json(forged(edit))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ("date=1", "date=1"),
        (("a=1", "b=2"), ["a=1", "b=2"]),
        ({"b=2", "a=1"}, ["a=1", "b=2"]),
        (
            {"day": date(2025, 11, 4), "n": [1, None, True]},
            {"day": "2025-11-04", "n": [1, None, True]},
        ),
    ],
)
def test_filters_are_kept_with_the_same_meaning(given: Any, kept: Any) -> None:
    assert json_filter(given) == kept


@pytest.mark.parametrize("given", [{"at": datetime(2025, 11, 4)}, object(), b"x"])
def test_filters_that_json_cannot_keep_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="write it as text"):
        json_filter(given)
