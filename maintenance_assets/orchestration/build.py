"""From declared datasets to Dagster definitions."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import dagster
from dagster_pyspark import LazyPySparkResource

from maintenance_assets.orchestration.assets import build_asset
from maintenance_assets.orchestration.checks import build_checks
from maintenance_assets.orchestration.config import DatasetConfig, parse_datasets
from maintenance_assets.orchestration.engine_resource import LOCAL_SPARK, EngineResource
from maintenance_assets.orchestration.jobs import BUILDERS, build_compact_job
from maintenance_assets.orchestration.maintenance import Target
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.schedules import build_schedule
from maintenance_assets.orchestration.sensors import build_sensor

logger = logging.getLogger(__name__)


def build_definitions(
    datasets: Sequence[DatasetConfig | Mapping[str, Any]],
    resources: Mapping[str, Any] | None = None,
) -> dagster.Definitions:
    """Everything for these datasets, to be used alone or merged into your own Definitions.

    `resources` may replace `maintenance_planner` and `maintenance_engines`; a `pyspark` among
    them is the one that the default engines take their Spark session from.
    """
    given = dict(resources or {})
    used = {**_default_resources(), **given}
    if "pyspark" in given and "maintenance_engines" not in given:
        used["maintenance_engines"] = EngineResource(pyspark=given["pyspark"])
    parts = [_definitions_of(dataset) for dataset in parse_datasets(datasets)]
    return dagster.Definitions.merge(*parts, dagster.Definitions(resources=used))


@cache
def _default_resources() -> Mapping[str, Any]:
    """The same objects at every call: Dagster merges definitions only if they share resources."""
    return {
        "maintenance_planner": MaintenancePlanner(),
        "maintenance_engines": EngineResource(
            pyspark=LazyPySparkResource(spark_config=dict(LOCAL_SPARK))
        ),
    }


def _definitions_of(dataset: DatasetConfig) -> dagster.Definitions:
    target = Target.of(dataset, _partition_columns(dataset))
    jobs = {builder: builder(target) for builder in BUILDERS}
    compact_job = jobs[build_compact_job]
    return dagster.Definitions(
        assets=[build_asset(target)],
        asset_checks=build_checks(target),
        jobs=list(jobs.values()),
        sensors=[build_sensor(target, compact_job)],
        schedules=[build_schedule(dataset, compact_job)],
    )


def _partition_columns(dataset: DatasetConfig) -> list[str]:
    """As declared, else as the first directories show them."""
    if dataset.partition_columns is not None:
        return dataset.partition_columns
    try:
        return MaintenancePlanner().partition_columns(dataset)
    # A store's library raises what it likes, and one store must not take all datasets down.
    except Exception as error:
        logger.warning("dataset '%s' cannot be looked at now: %s", dataset.key, error)
        return []
