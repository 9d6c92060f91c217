"""Declared datasets: every mistake is found at load, with its dataset and field."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from maintenance_assets import DatasetConfig, DatasetConfigError, build_definitions
from maintenance_assets.orchestration.config import load_datasets, parse_datasets

GOOD = {"key": "lake/trades", "path": "/data/trades"}
WRONG: list[tuple[str, Any, str]] = [
    ("key", "lake//trades", "joined by '/'"),
    ("key", "lake/two words", "joined by '/'"),
    ("key", "lake__trades", "single underscores"),
    ("key", 3, "valid string"),
    ("path", "", "must not be empty"),
    ("path", None, "valid string"),
    ("path", "s4://bucket/x", "no file system is known for 's4://'"),
    ("path", "${MAINTENANCE_NOT_SET}/x", "environment variable MAINTENANCE_NOT_SET is not set"),
    ("storage_options", {"key": "${MAINTENANCE_NOT_SET}"}, "MAINTENANCE_NOT_SET is not set"),
    ("storage_options", {"a": [{"b": "${MAINTENANCE_NOT_SET}"}]}, "MAINTENANCE_NOT_SET is not"),
    ("storage_options", "key", "valid dictionary"),
    ("engine", "polars", "'spark', 'duckdb', 'pyarrow' or 'auto'"),
    ("target_mb_per_file", 0, "greater than 0"),
    ("target_mb_per_file", float("nan"), "greater than 0|finite"),
    ("target_mb_per_file", float("inf"), "finite"),
    ("target_mb_per_file", True, "valid number"),
    ("target_mb_per_file", "128", "valid number"),
    ("target_rows_per_file", 1.5, "valid integer"),
    ("target_rows_per_file", -1, "greater than 0"),
    ("compression", "rar", "rar"),
    ("zorder_columns", "id", "valid list"),
    ("partition_columns", "date", "valid list"),
    ("small_file_mb", -1, "greater than 0"),
    ("min_gain", 0, "greater than 0"),
    ("min_gain", True, "valid integer"),
    ("cooldown_minutes", -1, "greater than or equal to 0"),
    ("sensor_interval_seconds", 0, "greater than 0"),
    ("max_runs_per_tick", 0, "greater than 0"),
    ("sensor_seconds", 0, "greater than 0"),
    ("max_age_hours", 0, "greater than 0"),
    ("cron", "every day", "'every day' is not a cron schedule"),
    ("cron", "61 * * * *", "is not a cron schedule"),
    ("owners", ["nobody"], "Invalid owner 'nobody'"),
    ("tags", {"a b": "c"}, "invalid tag key"),
    ("group", "a b", "not a valid asset group name"),
    ("description", 3, "valid string"),
    ("target_mb_perfile", 1, "is not known. Known fields: key, path"),
]


@pytest.mark.parametrize(
    ("field", "value", "message"), WRONG, ids=[f"{f}-{v!r}" for f, v, _ in WRONG]
)
def test_a_wrong_field_is_named_with_its_dataset(field: str, value: Any, message: str) -> None:
    with pytest.raises(DatasetConfigError, match=message) as caught:
        build_definitions([{**GOOD, field: value}])
    name = repr(value) if field == "key" else "'lake/trades'"
    assert f"dataset {name}, field '{field}" in str(caught.value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DatasetConfigError, match=r"dataset 'a', field 'path': .*required"):
        parse_datasets([{"key": "a"}])
    with pytest.raises(DatasetConfigError, match="dataset 'number 2', field 'key'"):
        parse_datasets([GOOD, {"path": "/elsewhere"}])


def test_something_else_than_a_mapping_is_refused() -> None:
    with pytest.raises(DatasetConfigError, match="dataset number 1 must be a mapping, got 'x'"):
        parse_datasets(["x"])  # type: ignore[list-item]


def test_small_must_not_exceed_the_target() -> None:
    with pytest.raises(DatasetConfigError, match="small_file_mb must not exceed the target"):
        parse_datasets([{**GOOD, "target_mb_per_file": 1, "small_file_mb": 2}])


def test_a_secret_is_not_repeated_in_the_message() -> None:
    with pytest.raises(DatasetConfigError) as caught:
        parse_datasets([{**GOOD, "storage_options": "hunter2"}])
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"
    with pytest.raises(ValidationError) as direct:
        DatasetConfig(key="a", path="/a", storage_options="hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(direct.value)


def test_a_password_in_a_path_is_not_shown() -> None:
    dataset = DatasetConfig(key="a", path="ftp://me:hunter2@host/x")
    assert dataset.shown_path == "ftp://host/x"


def test_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ROOT", "s3://bucket")
    monkeypatch.setenv("LAKE_KEY", "k")
    (dataset,) = parse_datasets(
        [{"key": "a", "path": "${LAKE_ROOT}/a", "storage_options": {"key": "${LAKE_KEY}", "n": 1}}]
    )
    assert dataset.path == "s3://bucket/a"
    assert dataset.storage_options == {"key": "k", "n": 1}


def test_a_pathlib_path_is_taken(tmp_path: Path) -> None:
    (dataset,) = parse_datasets([{"key": "a", "path": tmp_path}])
    assert dataset.path == str(tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("lake/trades", "lake/trades", "dataset 'lake/trades', field 'key': is declared twice"),
        ("a_/b", "a/_b", "dataset 'a/_b', field 'key': .* named like those of 'a_/b'"),
    ],
)
def test_names_that_meet_are_refused(first: str, second: str, message: str) -> None:
    with pytest.raises(DatasetConfigError, match=message):
        parse_datasets([{"key": first, "path": "/x"}, {"key": second, "path": "/y"}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/x", "/data/x"),
        ("/data/x/", "/data/x/y"),
        ("/data/x/y", "file:///data/x"),
        ("/data/x/../y", "/data/y/z"),
        ("s3://bucket", "s3://bucket/trades"),
        ("s3a://bucket/a", "s3://bucket/a/b"),
        ("memory://x", "memory://x/y"),
    ],
)
def test_overlapping_paths_are_refused(one: str, other: str) -> None:
    message = r"dataset '\w', field 'path': lies in the path of dataset '\w'"
    for paths in ((one, other), (other, one)):
        with pytest.raises(DatasetConfigError, match=message):
            parse_datasets([{"key": k, "path": p} for k, p in zip("ab", paths, strict=True)])


def test_neighbours_do_not_overlap() -> None:
    paths = ["/data/x", "/data/xy", "s3://bucket/x", "s3://other/x", "gs://bucket/x"]
    assert len(parse_datasets([{"key": f"d{n}", "path": p} for n, p in enumerate(paths)])) == 5


def test_a_link_to_another_dataset_overlaps(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DatasetConfigError, match="lies in the path"):
        parse_datasets([{"key": n, "path": str(tmp_path / n)} for n in ("real", "link")])


def write_yaml(folder: Path, *datasets: dict[str, Any]) -> Path:
    file = folder / "datasets.yaml"
    file.write_text(yaml.safe_dump({"datasets": list(datasets)}))
    return file


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    file = write_yaml(
        tmp_path, {"key": "a", "path": "lake/a"}, {"key": "b", "path": "s3://bucket/b"}
    )
    assert [d.path for d in load_datasets(file)] == [str(tmp_path / "lake/a"), "s3://bucket/b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasets: [", "is not YAML"),
        ("- key: a", "must have one key, `datasets`"),
        ("dataset: []", "must have one key, `datasets`"),
        ("datasets: {}", "`datasets` must be a list"),
        ("", "must have one key, `datasets`"),
        ("datasets: [{key: a, path: x, engin: spark}]", "dataset 'a', field 'engin': is not known"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text(text)
    with pytest.raises(DatasetConfigError, match=message) as caught:
        load_datasets(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetConfigError, match=r"none\.yaml' does not exist"):
        load_datasets(tmp_path / "none.yaml")


def validate(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """What `dagster` itself says of the shipped code location."""
    command = ["definitions", "validate", "-m", "maintenance_assets.definitions"]
    (folder / "home").mkdir()
    clean = {k: v for k, v in os.environ.items() if k != "MAINTENANCE_DATASETS"}
    return subprocess.run(
        [sys.executable, "-m", "dagster", *command],
        cwd=folder,
        env=clean | {"DAGSTER_HOME": str(folder / "home")} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_dagster_loads_the_file_of_the_variable(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file = write_yaml(tmp_path / "elsewhere", {"key": "lake/trades", "path": "trades"})
    done = validate(tmp_path, MAINTENANCE_DATASETS=str(file))
    assert done.returncode == 0, done.stderr
    assert "Validation successful" in done.stdout + done.stderr


def test_dagster_shows_what_is_wrong_with_the_file_beside_it(tmp_path: Path) -> None:
    write_yaml(tmp_path, {"key": "lake/trades", "path": "trades", "engin": "spark"})
    done = validate(tmp_path)
    assert done.returncode != 0
    assert "dataset 'lake/trades', field 'engin': is not known" in done.stdout + done.stderr


def test_the_readme_explains_every_field() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    _, reference = readme.split("### datasets.yaml")
    table = reference.split("###")[0]
    assert [field for field in DatasetConfig.model_fields if f"`{field}`" not in table] == []
