"""Datasets in a `defs.yaml`, as projects made by `dg` have them."""

from collections.abc import Iterator
from importlib.metadata import entry_points
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


def test_a_variable_of_the_template_that_is_not_set(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_ROOT", raising=False)
    put(sandbox, "lake", {"key": "a", "path": "{{ env.LAKE_ROOT }}/trades"})
    assert "dataset 'a', field 'path': 'None/trades' comes from an environ" in mistake(sandbox)


def test_the_component_is_registered_for_dg() -> None:
    (found,) = entry_points(group="dagster_dg_cli.registry_modules", name="maintenance_assets")
    assert found.load().MaintainedDatasets is MaintainedDatasets
