"""From declared datasets to Dagster definitions."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from threading import Thread
from typing import Any

import dagster
from dagster_pyspark import LazyPySparkResource

from maintenance_assets.orchestration.assets import build_asset
from maintenance_assets.orchestration.catalog_jobs import CLEANUP, build_catalog_jobs
from maintenance_assets.orchestration.change_jobs import CHANGE_BUILDERS
from maintenance_assets.orchestration.checks import build_checks
from maintenance_assets.orchestration.config import DatasetConfig, parse_datasets
from maintenance_assets.orchestration.engine_resource import LOCAL_SPARK, EngineResource
from maintenance_assets.orchestration.jobs import BUILDERS, build_compact_job, build_optimize_job
from maintenance_assets.orchestration.maintenance import Target
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.schedules import (
    build_cleanup_schedule,
    build_optimize_schedule,
    build_schedule,
)
from maintenance_assets.orchestration.sensors import build_sensor
from maintenance_assets.storage.discovery import DATA_SUFFIX
from maintenance_assets.storage.filesystems import Store

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Definitions must load even where a store takes connections and never answers."""


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
    checked = parse_datasets(datasets)
    columns = _columns_of_all(checked)
    parts = [_definitions_of(dataset, columns[dataset.key]) for dataset in checked]
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


def _definitions_of(dataset: DatasetConfig, columns: Sequence[str]) -> dagster.Definitions:
    target = Target.of(dataset, columns)
    # With a catalog, changes are versions: other jobs, of the same names.
    builders = BUILDERS if dataset.catalog is not None else (*BUILDERS, *CHANGE_BUILDERS)
    built = {builder: builder(target) for builder in builders}
    jobs = {builder: job for builder, job in built.items() if job is not None}
    compact_job, optimize_job = jobs[build_compact_job], built[build_optimize_job]
    catalog_jobs = build_catalog_jobs(target)
    return dagster.Definitions(
        assets=[build_asset(target)],
        asset_checks=build_checks(target),
        jobs=[*jobs.values(), *catalog_jobs.values()],
        sensors=[build_sensor(target, compact_job)],
        schedules=[
            build_schedule(dataset, compact_job),
            *build_optimize_schedule(dataset, optimize_job),
            *build_cleanup_schedule(dataset, catalog_jobs.get(CLEANUP)),
        ],
    )


def _columns_of_all(datasets: Iterable[DatasetConfig]) -> dict[str, list[str]]:
    """Partition columns by dataset. A store that hangs is waited for once, not per dataset."""
    hanging: set[tuple[str, ...]] = set()
    return {dataset.key: _partition_columns(dataset, hanging) for dataset in datasets}


def _partition_columns(dataset: DatasetConfig, hanging: set[tuple[str, ...]]) -> list[str]:
    """As declared, else as the first directories show them."""
    if dataset.partition_columns is not None:
        return dataset.partition_columns
    server = dataset.place[:2]
    try:
        if server in hanging:
            raise TimeoutError
        return _found_columns(dataset)
    except TimeoutError:
        if not dataset.is_local:  # one slow mount says nothing about the others
            hanging.add(server)
        problem = f"its store gave no answer in {LOOK_SECONDS:g} seconds"
    # A store's library raises what it likes, and one store must not take all datasets down.
    except Exception as error:
        problem = f"the dataset cannot be looked at now ({error})"
    logger.warning(
        "dataset '%s', field 'partition_columns': %s and it is taken for one without partitions. "
        "Declare partition_columns.",
        dataset.key,
        problem,
    )
    return []


def _found_columns(dataset: DatasetConfig) -> list[str]:
    if dataset.is_local:
        planner = MaintenancePlanner()
        if not planner.store(dataset).exists(planner.store(dataset).root):
            raise FileNotFoundError(f"'{dataset.shown_path}' does not exist")
        return planner.partition_columns(dataset)
    found: Future[list[str]] = Future()
    # A daemon, and not an executor's thread: nobody waits for it when Python ends.
    Thread(target=_look, args=(dataset, found), name=f"look {dataset.key}", daemon=True).start()
    return found.result(LOOK_SECONDS)


def _look(dataset: DatasetConfig, found: "Future[list[str]]") -> None:
    try:
        # Connecting belongs to it: some file systems do that when they are made.
        planner = MaintenancePlanner()
        if dataset.catalog is not None:
            found.set_result(planner.partition_columns(dataset))
        else:
            found.set_result(_hive_columns(planner.store(dataset)))
    except BaseException as error:
        found.set_exception(error)


def _hive_columns(store: Store) -> list[str]:
    """One listing for each level of the first directory: a store may hold millions of files."""
    folder, columns = store.root, []
    while name := _first_directory(store.children(folder)):
        folder = f"{folder}/{name}"
        if "=" in name:
            columns.append(name.partition("=")[0])
    return columns


def _first_directory(names: Iterable[str]) -> str | None:
    """A name tells what is data; of the others, one with a value is surely a partition."""
    possible = [n for n in names if not n.startswith(("_", ".")) and not n.endswith(DATA_SUFFIX)]
    return min(possible, key=lambda name: ("=" not in name, name), default=None)
