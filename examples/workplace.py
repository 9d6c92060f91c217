"""Where the example runs: a Dagster home, the lake, and datasets that fit this machine."""

import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from maintenance_assets.engines.java import find_java
from maintenance_assets.errors import EngineUnavailableError

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".dagster_home"
DATASETS = ROOT / "datasets.yaml"


def prepare(home: Path = HOME) -> str | None:
    """Set up a home and this process's environment; says why Spark is replaced, if it is."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", home)
    os.environ["DAGSTER_HOME"] = str(home.resolve())
    no_java = missing_java()
    if not os.environ.get("MAINTENANCE_DATASETS"):
        os.environ["MAINTENANCE_DATASETS"] = str(_datasets_file(home.resolve(), no_java))
    return no_java


def missing_java() -> str | None:
    """Why Spark cannot run here; None if it can."""
    try:
        find_java(os.environ)
    except EngineUnavailableError as error:
        return str(error)
    return None


def _datasets_file(home: Path, no_java: str | None) -> Path:
    """The shipped one, unless the lake is elsewhere or Spark cannot run."""
    lake = os.environ.get("MAINTENANCE_LAKE")
    if not lake and no_java is None:
        return DATASETS
    content = yaml.safe_load(DATASETS.read_text(encoding="utf-8"))
    for dataset in content["datasets"]:
        _adapt(dataset, Path(lake or ROOT / "demo_lake").resolve(), no_java is not None)
    file = home / "datasets.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file


def _adapt(dataset: dict[str, Any], lake: Path, without_java: bool) -> None:
    dataset["path"] = str(lake / Path(dataset["path"]).name)
    if without_java and dataset["engine"] == "spark":
        dataset["engine"] = "duckdb"
