"""The engine resource: PyArrow, DuckDB or Spark, the latter started only when there is work."""

from typing import Any

import dagster
from dagster_pyspark import LazyPySparkResource

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.engines.spark_engine import SparkEngine
from maintenance_assets.engines.spark_session import (
    LOCAL_MASTER,
    LOCAL_SETTINGS,
    active_session,
    launch_environment,
)
from maintenance_assets.orchestration.config import DatasetConfig

LOCAL_SPARK = {**LOCAL_SETTINGS, "spark.master": LOCAL_MASTER}


class EngineResource(dagster.ConfigurableResource):  # type: ignore[type-arg]
    """Chooses the engine of a dataset; Spark comes from dagster-pyspark."""

    pyspark: dagster.ResourceDependency[LazyPySparkResource]
    memory_budget_mb: float = 512.0
    strict: bool = False

    def engine_of(self, dataset: DatasetConfig) -> str | Engine:
        """The engine as `compact` takes it; a Spark session is asked for with the first group."""
        return SparkEngine(self.spark_session) if dataset.engine == "spark" else dataset.engine

    def spark_session(self) -> Any:
        """The session of this process, or the one that dagster-pyspark makes."""
        active = active_session()
        if active is not None:
            return active
        with launch_environment():
            return self.pyspark.spark_session
