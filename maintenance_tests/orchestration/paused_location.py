"""A code location whose runs stop in the middle of a rewrite, until they are let go or ended."""

import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import dagster
from dagster_pyspark import LazyPySparkResource

from maintenance_assets import build_definitions
from maintenance_assets.engines.protocol import Engine, FileAccess, Resources, RewriteTask
from maintenance_assets.engines.protocol import RewriteOutcome as Outcome
from maintenance_assets.engines.pyarrow_engine import PyArrowEngine
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import declared

LAKE, CONTROL = "PAUSED_LAKE", "PAUSED_CONTROL"


class PausingEngine(PyArrowEngine):
    """PyArrow, waiting after the first group is written."""

    def rewrite(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Generator[Outcome, None, None]:
        """Write everything, but hold back what is known of it."""
        control = Path(os.environ[CONTROL])
        for outcome in super().rewrite(tasks, access, resources):
            yield outcome
            (control / "paused").touch()
            while not (control / "go").exists():
                time.sleep(0.02)


class PausingEngines(EngineResource):
    """Gives the pausing engine to every dataset."""

    def engine_of(self, dataset: DatasetConfig) -> str | Engine:
        """The pausing engine."""
        return PausingEngine()


def load() -> dagster.Definitions:
    """The dataset that the environment names."""
    engines = PausingEngines(pyspark=LazyPySparkResource(spark_config={}))
    dataset = declared(Lake(os.environ[LAKE]))
    return build_definitions([dataset], {"maintenance_engines": engines})


defs = load() if LAKE in os.environ else dagster.Definitions()
