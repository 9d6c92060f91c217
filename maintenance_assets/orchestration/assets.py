"""A dataset as a software-defined asset: materializing it is maintaining it."""

from collections.abc import Iterator
from typing import Any

import dagster

from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.maintenance import DatasetMaintenance
from maintenance_assets.orchestration.planner import MaintenancePlanner

Partitions = dagster.DynamicPartitionsDefinition


def asset_key(dataset: DatasetConfig) -> dagster.AssetKey:
    """The key of a dataset's asset."""
    return dagster.AssetKey(dataset.key.split("/"))


def pool_of(dataset: DatasetConfig) -> str:
    """One run at a time per dataset, as far as Dagster's queue can see."""
    return f"dataset:{dataset.key}"


def partitions_of(dataset: DatasetConfig, columns: list[str]) -> Partitions | None:
    """Partition paths come and go with the data, so their keys are dynamic."""
    return Partitions(name=f"{dataset.safe_name}__partitions") if columns else None


def build_asset(dataset: DatasetConfig, partitions: Partitions | None) -> dagster.AssetsDefinition:
    """The asset of one dataset."""

    # A generator that yields nothing: each partition logs a materialization of its own.
    @dagster.asset(
        key=asset_key(dataset),
        partitions_def=partitions,
        backfill_policy=dagster.BackfillPolicy.single_run() if partitions else None,
        output_required=False,
        pool=pool_of(dataset),
        kinds={"parquet", dataset.engine} - {"auto"},
        owners=dataset.owners,
        tags=dataset.tags,
        group_name=dataset.group,
        description=dataset.description or f"The Parquet dataset at {dataset.path}",
        metadata={"dagster/uri": dataset.path},
    )
    def maintained(
        context: dagster.AssetExecutionContext,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> Iterator[Any]:
        keys = list(context.partition_keys) if context.has_partition_key_range else []
        if context.has_partition_key and not keys:
            keys = [context.partition_key]
        work = DatasetMaintenance(dataset, maintenance_planner, maintenance_engines)
        work.compact(context, keys, dry_run=False)
        yield from ()

    return maintained
