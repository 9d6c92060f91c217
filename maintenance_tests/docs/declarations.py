"""YAML blocks: each is loaded by what will load it, according to the file that it says it is."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import dagster
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from dagster_postgres.storage import DagsterPostgresStorage

from maintenance_assets.orchestration.build import build_definitions
from maintenance_assets.orchestration.config import load_datasets
from maintenance_tests.docs.pages import ROOT, Block

_NAME = re.compile(r"#\s*([\w.-]+\.ya?ml)\b")


def check_yaml(block: Block, folder: Path) -> None:
    """Load a block as the file that its first line names; it is there for what follows."""
    named = _NAME.match(block.first_line)
    assert named, (
        f"{block.where}: the first line must say which file it is, such as # datasets.yaml"
    )
    content = yaml.safe_load(block.text)
    (folder / named[1]).write_text(block.text, encoding="utf-8")
    match named[1]:
        case "datasets.yaml":
            assert load_datasets(folder / named[1])
        case "defs.yaml":
            _load_component(content)
        case "run.yaml":
            _check_run_config(content, folder)
        case "workspace.yaml":
            for entry in content["load_from"]:
                module = entry["python_module"]
                name = module if isinstance(module, str) else module["module_name"]
                assert importlib.util.find_spec(name), name
        case "dagster.yaml":
            _check_instance(content)
        case other:
            raise AssertionError(f"{block.where}: nobody knows how to load {other}")


def _load_component(content: Any) -> None:
    from maintenance_assets.orchestration.component import MaintainedDatasets

    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(MaintainedDatasets, defs_path="lake", defs_yaml_contents=content)
        with sandbox.build_all_defs() as defs:
            assert list(defs.resolve_all_asset_specs())


def _check_run_config(content: Any, folder: Path) -> None:
    """Against the job of the page's datasets that has such an op."""
    datasets = folder / "datasets.yaml"
    defs = build_definitions(load_datasets(datasets))
    (op,) = content["ops"]
    jobs = [job for job in defs.jobs or () if isinstance(job, dagster.JobDefinition)]
    (job,) = (job for job in jobs if op in {node.name for node in job.nodes})
    dagster.validate_run_config(job, content)


def _check_instance(content: Any) -> None:
    shipped = yaml.safe_load((ROOT / "dagster.yaml").read_text(encoding="utf-8"))
    known = {**shipped, "storage": None}
    assert set(content) <= set(known), set(content) - set(known)
    for name, options in content.get("storage", {}).items():
        assert name == "postgres", name
        fields: Any = DagsterPostgresStorage.config_type()
        assert set(options) <= set(fields)
