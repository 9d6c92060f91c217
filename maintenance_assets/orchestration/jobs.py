"""Operations as ops in jobs of their own, one of each per dataset."""

import dagster
from pydantic import Field

from maintenance_assets.orchestration.assets import pool_of
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.maintenance import DatasetMaintenance
from maintenance_assets.orchestration.planner import MaintenancePlanner

DATASET_TAG = "maintenance/dataset"
PARTITION_TAG = "maintenance/partition"


class CompactConfig(dagster.Config):
    """What a compaction run can be told."""

    partitions: list[str] = Field(default_factory=list)
    """Partition paths such as `date=2025-11-04`; all of the dataset when empty."""
    dry_run: bool = False
    """Observe what would be done, change nothing."""


class NoConfig(dagster.Config):
    """Nothing to tell."""


def compact_op_name(dataset: DatasetConfig) -> str:
    """The op inside the compaction job, for run config."""
    return f"compact_{dataset.safe_name}"


def compact_run_config(dataset: DatasetConfig, partition: str) -> dagster.RunConfig:
    """Run config for one partition; the empty name is the whole dataset."""
    config = CompactConfig(partitions=[partition] if partition else [])
    return dagster.RunConfig(ops={compact_op_name(dataset): config})


def build_compact_job(dataset: DatasetConfig) -> dagster.JobDefinition:
    """The job `<dataset>__compact`."""

    @dagster.op(name=compact_op_name(dataset), pool=pool_of(dataset))
    def compact_dataset(
        context: dagster.OpExecutionContext,
        config: CompactConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = DatasetMaintenance(dataset, maintenance_planner, maintenance_engines)
        work.compact(context, config.partitions, dry_run=config.dry_run)

    return _job(dataset, "compact", compact_dataset, "Merge small files, split oversized ones.")


def build_recover_job(dataset: DatasetConfig) -> dagster.JobDefinition:
    """The job `<dataset>__recover`."""

    @dagster.op(name=f"recover_{dataset.safe_name}", pool=pool_of(dataset))
    def recover_dataset(
        context: dagster.OpExecutionContext,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        DatasetMaintenance(dataset, maintenance_planner, maintenance_engines).recover(context)

    return _job(dataset, "recover", recover_dataset, "Resolve what interrupted runs left behind.")


def _job(
    dataset: DatasetConfig, operation: str, op: dagster.OpDefinition, text: str
) -> dagster.JobDefinition:
    graph = dagster.GraphDefinition(name=f"{dataset.safe_name}__{operation}", node_defs=[op])
    return graph.to_job(
        description=f"{text} Dataset {dataset.key} at {dataset.path}.",
        executor_def=dagster.in_process_executor,
        tags={DATASET_TAG: dataset.key},
    )


BUILDERS = (build_compact_job, build_recover_job)
"""A new operation joins with one line here."""
