"""Datasets in a `defs.yaml`, as projects made by `dg` have them."""

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dagster
import pytest
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox

from maintenance_assets import DatasetConfigError
from maintenance_assets.orchestration.component import MaintainedDatasets
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import declared, two_days

TYPE = "maintenance_assets.orchestration.component.MaintainedDatasets"


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def put(sandbox: DefsFolderSandbox, folder: str, *datasets: dict[str, Any]) -> None:
    sandbox.scaffold_component(
        MaintainedDatasets,
        defs_path=folder,
        defs_yaml_contents={"type": TYPE, "attributes": {"datasets": list(datasets)}},
    )


def mistake(sandbox: DefsFolderSandbox) -> str:
    """What is wrong, as Dagster tells it: the folder first, then the cause."""
    with (
        pytest.raises(Exception, match="Error while building definitions") as caught,
        sandbox.build_all_defs(),
    ):
        pass
    assert isinstance(caught.value.__cause__, DatasetConfigError)
    return str(caught.value.__cause__)


def mistake_in_template(sandbox: DefsFolderSandbox, folder: str) -> str:
    """What is wrong with a template, as Dagster tells it with the place in the file."""
    with (
        pytest.raises(Exception, match="Error while loading component") as caught,
        sandbox.build_all_defs(),
    ):
        pass
    told = str(caught.value.__cause__)
    assert str(Path("defs", folder, "defs.yaml")) in told
    return told


def test_a_project_declares_datasets(sandbox: DefsFolderSandbox, local: Lake) -> None:
    two_days(local)
    put(sandbox, "lake", declared(local))
    with sandbox.build_all_defs() as defs, dagster.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_job_def("lake__trades__compact")
        assert job.execute_in_process(instance=instance).success
    assert len(local.files()) == 2


def test_two_folders_of_one_project(sandbox: DefsFolderSandbox) -> None:
    put(sandbox, "one", {"key": "one", "path": "data"})
    put(sandbox, "two", {"key": "two", "path": "data"})
    with sandbox.build_all_defs() as defs:
        specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    # A relative path starts at the folder of its defs.yaml.
    for name in ("one", "two"):
        folder = sandbox.defs_folder_path.resolve() / name
        assert specs[name].metadata["dagster/uri"] == str(folder / "data")


def test_a_typo_is_named(sandbox: DefsFolderSandbox) -> None:
    put(sandbox, "lake", {"key": "lake/trades", "path": "/x", "cronn": "@daily"})
    assert "dataset 'lake/trades', field 'cronn': is not known" in mistake(sandbox)


UNSET: list[dict[str, Any]] = [
    {"path": "{{ env.LAKE_NAME }}/trades"},
    {"path": "/data/lake/{{ env.LAKE_NAME }}/trades"},
    {"path": "s3://lake-{{ env.LAKE_NAME }}"},
    {"path": "{{ env.LAKE_NAME }}"},
    {"path": "/data/{{ env.LAKE_NAME | lower }}"},
    {"path": "/data/{{ env.LAKE_NAME ~ '/trades' }}"},
    {"path": "/data/{{ env('LAKE_NAME') }}"},
    {"storage_options": {"client_kwargs": {"region": ["eu", "x-{{ env.LAKE_NAME }}"]}}},
    {"storage_options": {"key": "{{ env.LAKE_NAME }}"}},
    {"description": "{{ env.LAKE_NAME }}"},
    {"cooldown_minutes": "{{ env.LAKE_NAME | float }}"},
    {"owners": ["team:{{ env.LAKE_NAME }}"]},
]


@pytest.mark.parametrize("fields", UNSET, ids=str)
def test_a_variable_of_the_template_that_is_not_set(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.delenv("LAKE_NAME", raising=False)
    put(sandbox, "lake", {"key": "a", "path": "/x", **fields})
    (field,) = fields
    expected = rf"dataset 'a', field '{field}': [Ee]nvironment variable LAKE_NAME is not set"
    assert re.search(expected, mistake_in_template(sandbox, "lake"))


def test_a_template_with_a_mistake_is_named_with_its_dataset(sandbox: DefsFolderSandbox) -> None:
    put(sandbox, "lake", {"key": "a", "path": "{{ lake_root }}"})
    told = mistake_in_template(sandbox, "lake")
    assert "dataset 'a', field 'path': 'lake_root' not found in scope" in told


def test_variables_of_the_template_are_filled_in(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_NAME", "None")  # a name like any other
    monkeypatch.delenv("LAKE_TEAM", raising=False)
    templates = {
        "one": "/lake/{{ env.LAKE_NAME }}/one",
        "two": "/lake/{{ env('LAKE_NAME') }}/two",
        "three": "/lake/{{ env('LAKE_TEAM', 'markets') }}/three",
        "four": "/lake/{{ env.LAKE_TEAM or 'markets' }}/four",
        "five": "{{ context.project_root }}/five",
    }
    put(sandbox, "lake", *({"key": key, "path": path} for key, path in templates.items()))
    with sandbox.build_all_defs() as defs:
        specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert {key: spec.metadata["dagster/uri"] for key, spec in specs.items()} == {
        "one": "/lake/None/one",
        "two": "/lake/None/two",
        "three": "/lake/markets/three",
        "four": "/lake/markets/four",
        "five": f"{sandbox.project_root.resolve()}/five",
    }


def test_a_relative_variable_starts_at_the_folder(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_ROOT", "lake")
    put(sandbox, "lake", {"key": "a", "path": "${LAKE_ROOT}/trades"})
    with sandbox.build_all_defs() as defs:
        (spec,) = defs.resolve_all_asset_specs()
    folder = sandbox.defs_folder_path.resolve() / "lake"
    assert spec.metadata["dagster/uri"] == str(folder / "lake/trades")


def test_the_component_is_registered_for_dg() -> None:
    (found,) = entry_points(group="dagster_dg_cli.registry_modules", name="maintenance_assets")
    assert found.load().MaintainedDatasets is MaintainedDatasets
