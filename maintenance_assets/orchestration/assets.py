"""A dataset as a software-defined asset: materializing it is maintaining it."""

from collections.abc import Iterator

import dagster

from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.maintenance import (
    MAX_PARTITION_EVENTS,
    DatasetMaintenance,
    Recorded,
    Target,
)
from maintenance_assets.orchestration.planner import MaintenancePlanner


class NoConfig(dagster.Config):
    """Refuses what it does not know: a `dry_run` that were ignored would rewrite data."""


def pool_of(dataset: DatasetConfig) -> str:
    """One run at a time per dataset, as far as Dagster's queue can see."""
    return f"dataset:{dataset.key}"


def build_asset(target: Target) -> dagster.AssetsDefinition:
    """The asset of one dataset."""
    dataset, partitions = target.dataset, target.partitions
    by_hundreds = dagster.BackfillPolicy.multi_run(MAX_PARTITION_EVENTS)

    @dagster.asset(
        key=target.asset_key,
        partitions_def=partitions,
        backfill_policy=by_hundreds if partitions else None,
        pool=pool_of(dataset),
        kinds={"parquet", dataset.engine} - {"auto"},
        freshness_policy=dataset.freshness_policy,
        owners=dataset.owners,
        tags=dataset.tags,
        group_name=dataset.group,
        description=dataset.description or f"The Parquet dataset at {dataset.shown_path}",
        metadata={"dagster/uri": dataset.shown_path},
    )
    def maintained(
        context: dagster.AssetExecutionContext,
        config: NoConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> Iterator[dagster.MaterializeResult[None]]:
        keys = list(context.partition_keys) if context.has_partition_key_range else []
        if context.has_partition_key and not keys:
            keys = [context.partition_key]
        work = DatasetMaintenance(target, maintenance_planner, maintenance_engines)
        recorded: Recorded = {}
        try:
            work.compact_exactly(context, keys, recorded)
            for key, metadata in recorded.items():
                context.add_asset_metadata(metadata, partition_key=key)
        except BaseException:
            # What was committed has to be known, whatever became of the rest.
            work.log(context, recorded)
            raise
        yield dagster.MaterializeResult()

    return maintained
