"""Operations as ops in jobs of their own, one of each per dataset."""

from collections.abc import Callable, Sequence

import dagster
from pydantic import Field

from maintenance_assets.orchestration.assets import pool_of
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.maintenance import DatasetMaintenance, Target
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.work import Clustering

DATASET_TAG = "maintenance/dataset"
# A run whose process died is tried again at once. A step that failed would fail again: a conflict
# needs a person, a busy dataset needs time, and the sensor asks again with a pause.
RETRY_TAG = "dagster/retry_on_asset_or_op_failure"


class CompactConfig(dagster.Config):
    """What a compaction run can be told."""

    partitions: list[str] = Field(default_factory=list)
    """Partition paths such as `date=2025-11-04`, or what is above them; `""` for the files of the
    root itself; none at all for the whole dataset."""
    dry_run: bool = False
    """Observe what would be done, change nothing."""


def compact_job_name(dataset: DatasetConfig) -> str:
    """The compaction job of a dataset."""
    return f"{dataset.safe_name}__compact"


def compact_op_name(dataset: DatasetConfig) -> str:
    """The op inside the compaction job, for run config."""
    return f"compact_{dataset.safe_name}"


def compact_run_config(dataset: DatasetConfig, partitions: Sequence[str]) -> dagster.RunConfig:
    """Run config for these partitions; none stand for the whole dataset."""
    config = CompactConfig(partitions=list(partitions))
    return dagster.RunConfig(ops={compact_op_name(dataset): config})


def build_compact_job(target: Target) -> dagster.JobDefinition:
    """The job `<dataset>__compact`."""
    dataset = target.dataset

    @dagster.op(name=compact_op_name(dataset), pool=pool_of(dataset))
    def compact_dataset(
        context: dagster.OpExecutionContext,
        config: CompactConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = DatasetMaintenance(target, maintenance_planner, maintenance_engines)
        work.compact(context, config.partitions, dry_run=config.dry_run)

    return dataset_job(
        dataset, "compact", compact_dataset, "Merge small files, split oversized ones."
    )


class OptimizeConfig(CompactConfig):
    """What a clustering run can be told."""

    zorder_columns: list[str] = Field(default_factory=list)
    """Other columns than those of the dataset's declaration."""


def build_optimize_job(target: Target) -> dagster.JobDefinition | None:
    """The job `<dataset>__optimize`, where columns to cluster by are declared."""
    dataset = target.dataset
    if not dataset.zorder_columns:
        return None

    @dagster.op(name=f"optimize_{dataset.safe_name}", pool=pool_of(dataset))
    def optimize_dataset(
        context: dagster.OpExecutionContext,
        config: OptimizeConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        columns = config.zorder_columns or dataset.zorder_columns
        work = DatasetMaintenance(target, maintenance_planner, maintenance_engines)
        clustering = Clustering(columns, dataset.curve)
        work.optimize(context, config.partitions, clustering, dry_run=config.dry_run)

    return dataset_job(
        dataset,
        "optimize",
        optimize_dataset,
        f"Cluster rows by {', '.join(dataset.zorder_columns)}.",
    )


def build_recover_job(target: Target) -> dagster.JobDefinition:
    """The job `<dataset>__recover`."""
    dataset = target.dataset

    @dagster.op(name=f"recover_{dataset.safe_name}", pool=pool_of(dataset))
    def recover_dataset(
        context: dagster.OpExecutionContext,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        DatasetMaintenance(target, maintenance_planner, maintenance_engines).recover(context)

    text = "Resolve what interrupted runs left behind."
    return dataset_job(dataset, "recover", recover_dataset, text)


def dataset_job(
    dataset: DatasetConfig, operation: str, op: dagster.OpDefinition, text: str
) -> dagster.JobDefinition:
    """A job of one op, in one process, known by its dataset."""
    graph = dagster.GraphDefinition(name=f"{dataset.safe_name}__{operation}", node_defs=[op])
    return graph.to_job(
        description=f"{text} Dataset {dataset.key} at {dataset.shown_path}.",
        executor_def=dagster.in_process_executor,
        tags={DATASET_TAG: dataset.key, RETRY_TAG: "false"},
    )


BUILDERS: tuple[Callable[[Target], dagster.JobDefinition | None], ...] = (
    build_compact_job,
    build_optimize_job,
    build_recover_job,
)
"""A new operation that rewrites files joins with one line here."""
