"""The code location that Dagster loads: `datasets.yaml` becomes Definitions."""

import logging
import os
from pathlib import Path

import dagster

from maintenance_assets.orchestration.build import build_definitions
from maintenance_assets.orchestration.config import load_datasets

logger = logging.getLogger(__name__)

VARIABLE = "MAINTENANCE_DATASETS"
FILE = "datasets.yaml"


def datasets_file() -> Path | None:
    """Named by MAINTENANCE_DATASETS, else in the directory that Dagster was started from."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    beside = Path.cwd() / FILE
    return beside if beside.exists() else None


def load() -> dagster.Definitions:
    """Build the definitions; without a file there is nothing to maintain yet."""
    file = datasets_file()
    if file is None:
        logger.warning(
            "no %s in '%s' and %s is not set: no dataset is maintained", FILE, Path.cwd(), VARIABLE
        )
        return dagster.Definitions()
    built = build_definitions(load_datasets(file))
    executor = dagster.Definitions(executor=dagster.in_process_executor)
    return dagster.Definitions.merge(built, executor)


defs = load()
