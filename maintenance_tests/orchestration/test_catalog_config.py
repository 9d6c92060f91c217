"""Declaring datasets of a catalog: every mistake is found at load, and no secret is repeated."""

from pathlib import Path
from typing import Any

import pytest

from maintenance_assets import DatasetConfig, DatasetConfigError, build_definitions
from maintenance_assets.orchestration.config import load_datasets, parse_datasets
from maintenance_assets.orchestration.looks import DirectoryLook
from maintenance_tests.orchestration.location import NAME

GOOD = {"key": "lake/trades", "catalog": "sqlite:///lake/catalog.db"}
SECRET = "s3cr3t-of-nobody"
URI = f"postgresql://me:{SECRET}@db.example.org/lake"
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"catalog": "lake/catalog.db"}, "catalog.uri", "must be 'sqlite:///file'"),
    ({"catalog": "sqlite://lake/catalog.db"}, "catalog.uri", "must be 'sqlite:///file'"),
    ({"catalog": "sqlite://"}, "catalog.uri", "must be 'sqlite:///file'"),
    ({"catalog": "sqlite:///:memory:"}, "catalog.uri", "gone with its process"),
    ({"catalog": "mysql://host/lake"}, "catalog.uri", "must be 'sqlite:///file'"),
    ({"catalog": "sqlite:///${MAINTENANCE_NOT_SET}"}, "catalog.uri", "NOT_SET is not set"),
    ({"catalog": "sqlite:///${MAINTENANCE_EMPTY}/c"}, "catalog.uri", "EMPTY is empty"),
    ({"catalog": f"postgresql://me:{SECRET}@1@host/lake"}, "catalog.uri", "%40 for @"),
    ({"catalog": f"postgresql://me:{SECRET}@host:port/lake"}, "catalog.uri", "must be"),
    ({"catalog": {"uri": URI, "datset": "x"}}, "catalog.datset", "Known fields: uri, dataset"),
    ({"catalog": {"dataset": "x"}}, "catalog.uri", "required"),
    ({"catalog": {"uri": URI, "dataset": "a/b"}}, "catalog.dataset", "may not be like a path"),
    ({"catalog": {"uri": URI, "retain_last": 0}}, "catalog.retain_last", "greater than 0"),
    ({"catalog": {"uri": URI, "expire_after_days": -1}}, "catalog.expire_after_days", "0"),
    ({"catalog": {"uri": URI, "vacuum_after_days": 6}}, "catalog.vacuum_after_days", "to 7"),
    ({"catalog": {"uri": URI, "cleanup_cron": "weekly"}}, "catalog.cleanup_cron", "not a cron"),
    ({"catalog": 3}, "catalog", "valid dictionary"),
    ({"backup_path": "/backups"}, "backup_path", "no use beside a catalog"),
    ({"path": "   "}, "path", "must not be empty"),
]


@pytest.mark.parametrize(("fields", "field", "message"), WRONG, ids=[str(w[0]) for w in WRONG])
def test_a_wrong_field_is_named_with_its_dataset(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], field: str, message: str
) -> None:
    monkeypatch.setenv("MAINTENANCE_EMPTY", "")
    with pytest.raises(DatasetConfigError, match=message) as caught:
        build_definitions([{**GOOD, **fields}])
    assert f"dataset 'lake/trades', field '{field}'" in str(caught.value)
    assert SECRET not in f"{caught.value}{caught.value.__cause__}"


def test_a_dataset_without_path_and_catalog_is_refused() -> None:
    with pytest.raises(DatasetConfigError, match="field 'path': is required without a catalog"):
        parse_datasets([{"key": "a"}])


def test_a_relative_file_starts_at_the_declaration(tmp_path: Path) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text(
        "datasets:\n"
        "  - {key: lake/trades, catalog: 'sqlite:///lake/catalog.db'}\n"
        "  - {key: b, catalog: {uri: 'duckdb:///c.db', dataset: quotes}}\n"
        "  - {key: c, catalog: 'sqlite:////data/c.db'}\n"
    )
    shown = [dataset.shown_path for dataset in load_datasets(file)]
    assert shown == [
        f"sqlite:///{tmp_path}/lake/catalog.db#lake__trades",
        f"duckdb:///{tmp_path}/c.db#quotes",
        "sqlite:////data/c.db#c",
    ]


def test_a_password_is_taken_from_the_environment_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", SECRET)
    uri = "postgresql://me:${LAKE_PASSWORD}@host:5433/lake?password=${LAKE_PASSWORD}"
    (dataset,) = parse_datasets([{**GOOD, "catalog": uri}])
    assert dataset.catalog is not None
    assert dataset.catalog.uri.count(SECRET) == 2
    assert SECRET not in repr(dataset)
    assert dataset.shown_path == "postgresql://host:5433/lake#lake__trades"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sqlite:////lake/c.db", "sqlite:////lake/../lake/c.db"),
        ("postgresql://me@host/lake", "postgresql+psycopg://you@HOST:5432/lake?connect_timeout=3"),
    ],
)
def test_a_dataset_of_a_catalog_is_declared_once(one: str, other: str) -> None:
    datasets = [
        {"key": key, "catalog": {"uri": uri, "dataset": "orders"}}
        for key, uri in (("a", one), ("b", other))
    ]
    with pytest.raises(DatasetConfigError, match="'b', field 'catalog': has the dataset 'orders'"):
        parse_datasets(datasets)
    named = [{"key": key, "catalog": uri} for key, uri in (("a", one), ("b", other))]
    assert len(parse_datasets(named)) == 2


def test_a_directory_of_a_catalog_and_a_plain_one_do_not_overlap() -> None:
    in_catalog = {**GOOD, "path": "/data/trades"}
    with pytest.raises(DatasetConfigError, match="lies in the path of dataset 'lake/trades'"):
        parse_datasets([in_catalog, {"key": "b", "path": "/data/trades/date=1"}])


def test_a_dataset_of_a_catalog_is_not_a_directory_to_work_on() -> None:
    dataset = DatasetConfig.model_validate({**GOOD, "path": "/data/trades"})
    with pytest.raises(ValueError, match="maintained through its catalog"):
        DirectoryLook(dataset).store  # noqa: B018


def test_definitions_load_where_there_is_no_catalog_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "catalog.db"
    repository = build_definitions([{**GOOD, "catalog": f"sqlite:///{file}"}]).get_repository_def()
    assert f"{NAME}__vacuum" in repository.job_names
    assert f"The catalog 'sqlite:///{file}' does not exist" in caplog.text
    assert not file.exists()
