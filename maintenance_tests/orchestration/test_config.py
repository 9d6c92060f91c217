"""Declared datasets: every mistake is found at load, with its dataset and field."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml
from pydantic import ValidationError

from maintenance_assets import DatasetConfig, DatasetConfigError, build_definitions
from maintenance_assets.orchestration.config import load_datasets, parse_datasets
from maintenance_assets.storage.filesystems import open_store

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
    ("path", "   ", "must not be empty"),
    ("path", "$HOME/lake", r"'\$HOME' is not filled in, write \$\{HOME\}"),
    ("path", "s3://lake-$STAGE/x", r"write \$\{STAGE\}"),
    ("path", "${MAINTENANCE_EMPTY}/x", "environment variable MAINTENANCE_EMPTY is empty"),
    ("path", "/", "not the root of a file system"),
    ("path", "/data/..", "not the root of a file system"),
    ("path", "file:///", "not the root of a file system"),
    ("path", "s3://", "not the root of a file system"),
    ("path", "/data/*/trades", r"must be one directory: '\*' makes it a pattern"),
    ("path", "/data/trades?", r"must be one directory: '\?'"),
    ("path", "s3://bucket/trades[1]", r"must be one directory: '\['"),
    ("path", "simplecache::s3://bucket/x", "'simplecache' is a cache, which may show old bytes"),
    ("path", "filecache::/data/x", "'filecache' is a cache"),
    ("path", "http://host/x", "a dataset cannot be maintained on 'http://'"),
    ("path", "s3://bucket//x", "must not contain '//'"),
    ("path", "gs://bucket//x", "must not contain '//'"),
    ("path", "memory://bucket/../x", r"must not contain '\.\.'"),
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
    ("partition_columns", ["date", ""], "a name must not be empty"),
    ("partition_columns", ["date", "hour", "date"], "'date' is given twice"),
    ("small_file_mb", -1, "greater than 0"),
    ("min_gain", 0, "greater than 0"),
    ("min_gain", True, "valid integer"),
    ("cooldown_minutes", -1, "greater than or equal to 0"),
    ("sensor_interval_seconds", 0, "greater than 0"),
    ("max_runs_per_tick", 0, "greater than 0"),
    ("sensor_seconds", 0, "greater than 0"),
    ("sensor_seconds", 60, "less than 60"),
    ("max_age_hours", 0, "greater than 0"),
    ("cron", "every day", "'every day' is not a cron schedule"),
    ("cron", "61 * * * *", "is not a cron schedule"),
    ("owners", ["nobody"], "Invalid owner 'nobody'"),
    ("tags", {"a b": "c"}, "invalid tag key"),
    ("group", "a b", "not a valid asset group name"),
    ("description", 3, "valid string"),
    ("target_mb_perfile", 1, "is not known. Known fields: key, catalog, path"),
]


@pytest.mark.parametrize(
    ("field", "value", "message"), WRONG, ids=[f"{f}-{v!r}" for f, v, _ in WRONG]
)
def test_a_wrong_field_is_named_with_its_dataset(
    monkeypatch: pytest.MonkeyPatch, field: str, value: Any, message: str
) -> None:
    monkeypatch.setenv("MAINTENANCE_EMPTY", "")
    with pytest.raises(DatasetConfigError, match=message) as caught:
        build_definitions([{**GOOD, field: value}])
    name = repr(value) if field == "key" else "'lake/trades'"
    assert f"dataset {name}, field '{field}" in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket",
        "s3://bucket/x/",
        "s3://bucket//x",
        "s3://bucket/x//y",
        "s3://bucket/../x",
        "s3://bucket/a..b",
        "memory://x",
        "memory:///x/",
        "memory://x//y",
        "simplecache::memory://x",
        "blockcache::s3://bucket/x",
        "http://host/x",
    ],
)
def test_a_path_is_refused_at_load_as_it_would_be_when_opened(path: str) -> None:
    assert is_refused(lambda: parse_datasets([{**GOOD, "path": path}])) == is_refused(
        lambda: open_store(path)
    )


def is_refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except ValueError:
        return True
    return False


def test_dollars_and_brackets_that_mean_nothing_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ROOT", "/data/$x")
    paths = ["${LAKE_ROOT}/a", "/data/lake [old]/b", "/data/1$/c"]
    datasets = parse_datasets([{"key": f"d{n}", "path": p} for n, p in enumerate(paths)])
    assert [d.path for d in datasets] == ["/data/$x/a", *paths[1:]]


def test_an_empty_variable_is_fine_in_storage_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "")
    (dataset,) = parse_datasets([{**GOOD, "storage_options": {"token": "${LAKE_TOKEN}"}}])
    assert dataset.storage_options == {"token": ""}


class RegisteredFileSystem(fsspec.AbstractFileSystem):
    """A file system of somebody's own."""

    protocol = ("maintenancebyclass", "maintenancebyname")


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        ("maintenancebyclass", RegisteredFileSystem),
        ("maintenancebyname", f"{__name__}.RegisteredFileSystem"),
        ("maintenancemissing", "not.installed.here"),
    ],
)
def test_registered_file_systems_are_known(protocol: str, implementation: Any) -> None:
    fsspec.register_implementation(protocol, implementation)
    (dataset,) = parse_datasets([{**GOOD, "path": f"{protocol}://x"}])
    assert dataset.path == f"{protocol}://x"


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DatasetConfigError, match=r"dataset 'a', field 'path': .*required"):
        parse_datasets([{"key": "a"}])
    with pytest.raises(DatasetConfigError, match="dataset 'number 2', field 'key'"):
        parse_datasets([GOOD, {"path": "/elsewhere"}])


def test_something_else_than_a_mapping_is_refused() -> None:
    with pytest.raises(DatasetConfigError, match="dataset number 1 must be a mapping, got str"):
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
    unescaped = DatasetConfig(key="a", path="s3://KEY:hun/ter2@bucket/x")
    assert unescaped.shown_path == "s3://bucket/x"


def test_storage_options_are_not_in_what_a_log_says_of_a_dataset() -> None:
    dataset = DatasetConfig(key="a", path="s3://bucket/x", storage_options={"secret": "hunter2"})
    assert "hunter2" not in repr(dataset)


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
    message = r"dataset '\w', field 'path': (is|lies in) the path of dataset '\w'"
    for paths in ((one, other), (other, one)):
        with pytest.raises(DatasetConfigError, match=message):
            parse_datasets([{"key": k, "path": p} for k, p in zip("ab", paths, strict=True)])


def test_neighbours_do_not_overlap() -> None:
    paths = ["/data/x", "/data/xy", "s3://bucket/x", "s3://other/x", "gs://bucket/x"]
    assert len(parse_datasets([{"key": f"d{n}", "path": p} for n, p in enumerate(paths)])) == 5


def on_servers(*options: dict[str, Any]) -> list[dict[str, Any]]:
    """The same path in each of these stores."""
    path = "s3://bucket/trades"
    return [{"key": f"d{n}", "path": path, "storage_options": o} for n, o in enumerate(options)]


def test_the_same_path_on_other_servers_does_not_overlap() -> None:
    one, other = "http://one:9000", "http://other:9000"
    client = {"client_kwargs": {"endpoint_url": other}}
    assert len(parse_datasets(on_servers({}, {"endpoint_url": one}, client))) == 3


@pytest.mark.parametrize(
    "second", [{"client_kwargs": {"endpoint_url": "HTTP://one:9000"}}, {"client_kwargs": None}]
)
def test_one_server_named_in_two_ways_overlaps(
    monkeypatch: pytest.MonkeyPatch, second: dict[str, Any]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one:9000")
    with pytest.raises(DatasetConfigError, match="is the path of"):
        parse_datasets(on_servers({"endpoint_url": "http://one:9000/"}, second))


def test_a_link_to_another_dataset_overlaps(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DatasetConfigError, match="is the path of"):
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


def test_relative_variables_start_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", "lake")
    monkeypatch.setenv("STORE", "s3://bucket")
    monkeypatch.setenv("ROOT", "/data")
    names = ("LAKE", "STORE", "ROOT")
    file = write_yaml(tmp_path, *({"key": n, "path": f"${{{n}}}/x"} for n in names))
    expected = [str(tmp_path / "lake/x"), "s3://bucket/x", "/data/x"]
    assert [d.path for d in load_datasets(file)] == expected


def test_merged_keys_of_yaml_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text(
        "datasets:\n"
        "  - &first {key: a, path: /a, min_gain: 9, engine: duckdb}\n"
        "  - &second {<<: *first, key: b, path: /b, engine: pyarrow}\n"
        "  - {<<: *second, key: c, path: /c}\n"
    )
    assert [(d.key, d.min_gain, d.engine) for d in load_datasets(file)] == [
        ("a", 9, "duckdb"),
        ("b", 9, "pyarrow"),
        ("c", 9, "pyarrow"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasets:\n- key: a\n  path: /a\n  path: /b", "key 'path' is given twice.* line 4"),
        ("datasets: []\ndatasets: []", "key 'datasets' is given twice"),
        ("datasets: [{key: a, storage_options: {b: 1, 'b': 2}}]", "key 'b' is given twice"),
        ("datasets: [", "is not YAML"),
        ("- key: a", "must have one key, `datasets`"),
        ("dataset: []", "must have one key, `datasets`"),
        ("datasets: {}", "`datasets` must be a list"),
        ("", "must have one key, `datasets`"),
        ("datasets: [{key: a, path: 'filecache::/x'}]", "field 'path': 'filecache' is a cache"),
        ("datasets: [{key: a, path: x, engin: spark}]", "dataset 'a', field 'engin': is not known"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text(text)
    with pytest.raises(DatasetConfigError, match=message) as caught:
        load_datasets(file)
    assert str(file) in str(caught.value)


def test_a_file_is_plain_values_of_the_size_that_it_has(tmp_path: Path) -> None:
    bomb = ["  b0: &b0 [x, x, x, x, x, x, x, x, x, x]"]
    bomb += [f"  b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 10)}]" for n in range(1, 12)]
    file = tmp_path / "datasets.yaml"
    head = "datasets:\n- key: a\n  path: /a\n  storage_options:\n"
    file.write_text(head + "\n".join(f"  {line}" for line in bomb))
    with pytest.raises(DatasetConfigError, match="stands for 200,000 values or more"):
        load_datasets(file)
    file.write_text("datasets: [{key: a, path: !!python/object/apply:os.getcwd []}]")
    with pytest.raises(DatasetConfigError, match="is not YAML: could not determine a constructor"):
        load_datasets(file)
    file.write_text("datasets: [{key: a, storage_options: {secret: hunter2hunter2: [}}]")
    with pytest.raises(DatasetConfigError, match="is not YAML") as caught:
        load_datasets(file)
    assert "hunter2" not in str(caught.value)


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
