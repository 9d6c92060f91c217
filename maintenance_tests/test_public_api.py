"""The public names, their signatures and what importing them costs."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import maintenance_assets
from maintenance_assets import Progress, compact, compact_parquet_dataset_pyarrow

PUBLIC = sorted(maintenance_assets.__all__)
NEEDED = {
    "CompactionGroup",
    "DatasetStatus",
    "FileInfo",
    "InvalidPlanError",
    "MaintenanceStats",
    "PlanOutdatedError",
    "SavedPlan",
    "collect_dataset_stats_pyarrow",
    "compact",
    "compact_parquet_dataset_pyarrow",
    "execute_plan",
    "load_plan",
    "plan_compaction_groups",
    "recover",
    "save_plan",
    "status",
}
HEAVY = ("pyspark", "duckdb", "pandas", "polars", "dagster")
REQUIRED = Parameter.empty


def write_files(root: Path, count: int = 4) -> None:
    root.mkdir(parents=True)
    for number in range(count):
        pq.write_table(pa.table({"n": [number]}), root / f"{number}.parquet")


def signature(name: str) -> dict[str, Parameter]:
    return dict(inspect.signature(getattr(maintenance_assets, name)).parameters)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_importable(name: str) -> None:
    found = getattr(importlib.import_module("maintenance_assets"), name)
    assert found.__name__ == name


def test_the_promised_names_are_public() -> None:
    assert set(PUBLIC) >= NEEDED
    assert len(PUBLIC) == len(set(PUBLIC))


def test_star_import_and_unknown_names() -> None:
    namespace: dict[str, Any] = {}
    exec("from maintenance_assets import *", namespace)
    assert set(PUBLIC) <= set(namespace)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = maintenance_assets.nonsense


def run_fresh(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return result.stdout.strip()


def loaded(code: str, names: tuple[str, ...]) -> str:
    return run_fresh(f"import sys\n{code}\nprint([m for m in {names!r} if m in sys.modules])")


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded("import maintenance_assets", (*HEAVY, "pyarrow", "fsspec", "numpy")) == "[]"


def test_using_the_package_loads_no_other_engine() -> None:
    assert loaded("from maintenance_assets import *", HEAVY) == "[]"


def test_compacting_with_pyarrow_loads_no_other_engine(tmp_path: Path) -> None:
    write_files(tmp_path / "lake")
    code = (
        "from maintenance_assets import compact\n"
        f"assert compact({str(tmp_path / 'lake')!r}).stats.after_file_count == 1"
    )
    assert loaded(code, HEAVY) == "[]"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "collect_dataset_stats_pyarrow",
            {"path": REQUIRED, "filesystem": None, "partition_filter": None},
        ),
        (
            "plan_compaction_groups",
            {"file_infos": REQUIRED, "target_mb_per_file": None, "target_rows_per_file": None},
        ),
        (
            "compact_parquet_dataset_pyarrow",
            {
                "path": REQUIRED,
                "target_mb_per_file": None,
                "target_rows_per_file": None,
                "partition_filter": None,
                "compression": None,
                "dry_run": False,
                "filesystem": None,
            },
        ),
    ],
)
def test_signatures_of_the_functions_the_seeds_name(name: str, expected: dict[str, Any]) -> None:
    parameters = signature(name)
    assert {key: value.default for key, value in parameters.items()} == expected
    assert list(parameters) == list(expected)
    assert {p.kind for p in parameters.values()} == {Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize("name", ["compact", "recover", "status"])
def test_the_neutral_operations_take_a_path_and_named_options(name: str) -> None:
    path, *options = signature(name).values()
    assert (path.name, path.default) == ("path", REQUIRED)
    assert path.kind is Parameter.POSITIONAL_OR_KEYWORD
    assert all(option.kind is Parameter.KEYWORD_ONLY for option in options)
    assert all(option.default is not REQUIRED for option in options)


def test_compact_has_every_option_of_its_pyarrow_twin() -> None:
    neutral = signature("compact")
    assert neutral["engine"].default == "pyarrow"
    for name, parameter in signature("compact_parquet_dataset_pyarrow").items():
        assert neutral[name].default == parameter.default


def test_the_values_are_built_as_designed() -> None:
    file = maintenance_assets.FileInfo("a/b.parquet", 10, 1)
    assert (file.path, file.size_bytes, file.num_rows) == ("a/b.parquet", 10, 1)
    assert maintenance_assets.FileInfo(path="a", size_bytes=1, num_rows=1).directory == ""
    assert maintenance_assets.CompactionGroup(files=(file,)).file_paths() == ["a/b.parquet"]


def members(thing: Any) -> list[tuple[str, Any]]:
    return [
        (name, member)
        for name, member in vars(thing).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property | classmethod))
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_thing_says_what_it_is(name: str) -> None:
    thing = getattr(maintenance_assets, name)
    documented = [(name, thing), *(members(thing) if inspect.isclass(thing) else ())]
    for label, member in documented:
        text = inspect.getdoc(member) or ""
        assert len(text.split()) >= 2, f"{label} has no docstring"
        # A dataclass without a docstring gets its signature as one.
        assert not text.startswith(f"{label}("), f"{label} has no docstring"


def test_the_package_says_what_it_is() -> None:
    assert maintenance_assets.__doc__
    assert maintenance_assets.__version__.count(".") == 2


def test_a_callback_follows_every_phase(tmp_path: Path) -> None:
    for day in ("1", "2"):
        write_files(tmp_path / "lake" / f"day={day}")
    seen: list[Progress] = []
    compact(tmp_path / "lake", on_progress=seen.append)
    assert all(isinstance(step, Progress) for step in seen)
    phases = ["discover", "execute", "publish", "measure"]
    assert list(dict.fromkeys(step.phase for step in seen)) == phases
    for step in seen:
        assert step.done >= 0
        assert step.total == 0 or step.done <= step.total
        assert 0 <= step.bytes_done <= step.bytes_total
    last = [step for step in seen if step.phase == "execute"][-1]
    assert (last.done, last.bytes_done) == (last.total, last.bytes_total) == (2, last.bytes_total)
    published = [step for step in seen if step.phase == "publish"][-1]
    assert published.done == published.total


def test_a_dry_run_only_discovers(tmp_path: Path) -> None:
    write_files(tmp_path / "lake")
    before = sorted(path.name for path in (tmp_path / "lake").iterdir())
    seen: list[Progress] = []
    compact(tmp_path / "lake", dry_run=True, on_progress=seen.append)
    assert {step.phase for step in seen} == {"discover"}
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == before


@pytest.mark.parametrize("function", [compact, compact_parquet_dataset_pyarrow])
@pytest.mark.parametrize("name", ["target_mb_per_file", "target_rows_per_file"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"], ids=repr)
def test_bad_targets_are_refused_before_any_input_output(
    function: Callable[..., Any], name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"{name} must be > 0"):
        function("/nowhere/at/all", **{name: value})


@pytest.mark.parametrize("phase", ["discover", "execute"])
def test_a_callback_that_raises_before_publishing_cancels(tmp_path: Path, phase: str) -> None:
    write_files(tmp_path / "lake")
    before = sorted(path.name for path in (tmp_path / "lake").iterdir())

    def cancel(step: Progress) -> None:
        if step.phase == phase:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        compact(tmp_path / "lake", on_progress=cancel)
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == before


def test_a_callback_that_raises_after_publishing_changes_nothing(tmp_path: Path) -> None:
    write_files(tmp_path / "lake")

    def fail(step: Progress) -> None:
        if step.phase in ("publish", "measure"):
            raise RuntimeError("too late")

    assert compact(tmp_path / "lake", on_progress=fail).stats.after_file_count == 1


def test_a_callback_must_be_callable(tmp_path: Path) -> None:
    write_files(tmp_path / "lake")
    with pytest.raises(ValueError, match="on_progress must be callable, got 3"):
        compact(tmp_path / "lake", on_progress=3)  # type: ignore[arg-type]


def test_names_are_found_by_completion_before_first_use() -> None:
    assert (
        run_fresh("import maintenance_assets as m\nprint(sorted({*m.__all__} - {*dir(m)}))") == "[]"
    )


def test_a_result_is_short_to_print(tmp_path: Path) -> None:
    write_files(tmp_path / "lake", 50)
    assert len(repr(compact(tmp_path / "lake", dry_run=True))) < 1000
