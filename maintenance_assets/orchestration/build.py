"""From declared datasets to Dagster definitions."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import dagster
from dagster_pyspark import LazyPySparkResource

from maintenance_assets.orchestration.assets import build_asset, partitions_of
from maintenance_assets.orchestration.checks import build_checks
from maintenance_assets.orchestration.config import DatasetConfig, parse_datasets
from maintenance_assets.orchestration.engine_resource import LOCAL_SPARK, EngineResource
from maintenance_assets.orchestration.jobs import BUILDERS, build_compact_job
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.schedules import build_schedule
from maintenance_assets.orchestration.sensors import build_sensor

logger = logging.getLogger(__name__)


def build_definitions(
    datasets: Sequence[DatasetConfig | Mapping[str, Any]],
    resources: Mapping[str, Any] | None = None,
) -> dagster.Definitions:
    """Everything for these datasets, to be used alone or merged into your own Definitions.

    `resources` may replace `maintenance_planner`, `maintenance_engines` and `pyspark`.
    """
    parsed = parse_datasets(datasets)
    parts = [_definitions_of(dataset) for dataset in parsed]
    given = {**_default_resources(), **(resources or {})}
    return dagster.Definitions.merge(*parts, dagster.Definitions(resources=given))


def _default_resources() -> dict[str, Any]:
    pyspark = LazyPySparkResource(spark_config=LOCAL_SPARK)
    return {
        "maintenance_planner": MaintenancePlanner(),
        "maintenance_engines": EngineResource(pyspark=pyspark),
    }


def _definitions_of(dataset: DatasetConfig) -> dagster.Definitions:
    partitions = partitions_of(dataset, _partition_columns(dataset))
    jobs = {builder: builder(dataset) for builder in BUILDERS}
    compact_job = jobs[build_compact_job]
    return dagster.Definitions(
        assets=[build_asset(dataset, partitions)],
        asset_checks=build_checks(dataset),
        jobs=list(jobs.values()),
        sensors=[build_sensor(dataset, compact_job, partitions)],
        schedules=[build_schedule(dataset, compact_job)],
    )


def _partition_columns(dataset: DatasetConfig) -> list[str]:
    """As declared, else as the first directories show them."""
    if dataset.partition_columns is not None:
        return dataset.partition_columns
    try:
        return MaintenancePlanner().partition_columns(dataset)
    except OSError as error:
        logger.warning("dataset '%s' cannot be looked at now: %s", dataset.key, error)
        return []
