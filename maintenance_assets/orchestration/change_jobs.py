"""Jobs that change rows or their places: delete, update, upsert, restore and repartition."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import dagster
import pyarrow as pa
from pydantic import Field

from maintenance_assets.operations.delete import delete
from maintenance_assets.operations.repartition import repartition
from maintenance_assets.operations.restore import restore
from maintenance_assets.operations.sources import read_rows
from maintenance_assets.operations.update import update
from maintenance_assets.operations.upsert import upsert
from maintenance_assets.orchestration.assets import pool_of
from maintenance_assets.orchestration.changes import DatasetChanges
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.jobs import dataset_job
from maintenance_assets.orchestration.maintenance import Target
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.variables import filled_path, with_environment
from maintenance_assets.planning.values import sql


class ChangeConfig(dagster.Config):
    """What every change can be told."""

    dry_run: bool = False
    """Count what would change; nothing is touched."""


class DeleteConfig(ChangeConfig):
    """Which rows go."""

    where: str
    """A SQL predicate, such as `symbol = 'ABC' AND price > 10`."""
    partition_filter: dict[str, str] = Field(default_factory=dict)
    """Look only into partitions with these values."""


class UpdateConfig(DeleteConfig):
    """Which rows change, and how."""

    values: dict[str, Any] = Field(default_factory=dict)
    """New values by column."""
    expressions: dict[str, str] = Field(default_factory=dict)
    """SQL expressions by column, such as `best_ask - best_bid`."""


class UpsertConfig(ChangeConfig):
    """Where the new rows are, and what tells two rows apart."""

    source: str
    """A Parquet file or directory, on any store; `${VARIABLE}` is taken from the environment."""
    source_storage_options: dict[str, Any] | None = None
    """For the source's file system, those of the dataset where none are given; `${VARIABLE}` keeps
    secrets out of the run's configuration."""
    key_cols: list[str]
    update_cols: list[str] | None = None
    """Columns that are updated; all of the source that are no keys where none are given."""
    on_duplicates: Literal["error", "last"] = "error"
    """What becomes of a key that the source has twice."""


class RestoreConfig(ChangeConfig):
    """What is taken back."""

    backup_id: str


class RepartitionConfig(ChangeConfig):
    """How rows are put into directories."""

    partition_by: list[str]
    derived: dict[str, str] = Field(default_factory=dict)
    """Columns made by SQL, such as `{"year": "year(traded_at)"}`."""
    target: str | None = None
    """Another directory for the result; the dataset itself is rewritten where none is given."""
    keep_partition_columns: bool = True
    """Write partition columns into the files as well."""
    validate_rows: bool = True
    """Compare row counts and a hash of the content before anything is visible."""


def build_delete_job(target: Target) -> dagster.JobDefinition:
    """The job `<dataset>__delete`."""

    @dagster.op(name=f"delete_{target.dataset.safe_name}", pool=pool_of(target.dataset))
    def delete_rows(
        context: dagster.OpExecutionContext,
        config: DeleteConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = DatasetChanges(target, maintenance_planner, maintenance_engines)
        chosen = config.partition_filter or None
        change = partial(delete, where=config.where, partition_filter=chosen)
        work.change(context, change, dry_run=config.dry_run, is_whole=chosen is None)

    return dataset_job(target.dataset, "delete", delete_rows, "Delete the rows that match.")


def build_update_job(target: Target) -> dagster.JobDefinition:
    """The job `<dataset>__update`."""

    @dagster.op(name=f"update_{target.dataset.safe_name}", pool=pool_of(target.dataset))
    def update_rows(
        context: dagster.OpExecutionContext,
        config: UpdateConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        values = new_values(config.values, config.expressions)
        work = DatasetChanges(target, maintenance_planner, maintenance_engines)
        change = partial(
            update,
            where=config.where,
            values=values,
            partition_filter=config.partition_filter or None,
        )
        is_whole = not config.partition_filter
        work.change(context, change, dry_run=config.dry_run, is_whole=is_whole)

    return dataset_job(target.dataset, "update", update_rows, "Change values of matching rows.")


def new_values(values: dict[str, Any], expressions: dict[str, str]) -> dict[str, Any]:
    """Values and expressions as an update takes them."""
    both = sorted({*values} & {*expressions})
    if both:
        raise dagster.Failure(
            f"column '{both[0]}' has both a value and an expression", allow_retries=False
        )
    return values | {name: sql(text) for name, text in expressions.items()}


def build_upsert_job(target: Target) -> dagster.JobDefinition:
    """The job `<dataset>__upsert`."""

    @dagster.op(name=f"upsert_{target.dataset.safe_name}", pool=pool_of(target.dataset))
    def upsert_rows(
        context: dagster.OpExecutionContext,
        config: UpsertConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = DatasetChanges(target, maintenance_planner, maintenance_engines)
        change = partial(
            upsert,
            new_data=new_rows(config, target.dataset),
            key_cols=config.key_cols,
            update_cols=config.update_cols,
            on_duplicates=config.on_duplicates,
        )
        work.change(context, change, dry_run=config.dry_run)

    return dataset_job(target.dataset, "upsert", upsert_rows, "Insert rows, or update by key.")


def new_rows(config: UpsertConfig, dataset: DatasetConfig) -> pa.RecordBatchReader:
    """The rows of an upsert, from the files that its run names."""
    given = config.source_storage_options
    options = dataset.storage_options if given is None else with_environment(given)
    try:
        return read_rows(filled_path(config.source), storage_options=options or None)
    except (ValueError, FileNotFoundError) as error:
        raise dagster.Failure(f"source: {error}", allow_retries=False) from error


def build_restore_job(target: Target) -> dagster.JobDefinition | None:
    """The job `<dataset>__restore`, where backups are kept."""
    if target.dataset.backup_path is None:
        return None

    @dagster.op(name=f"restore_{target.dataset.safe_name}", pool=pool_of(target.dataset))
    def restore_rows(
        context: dagster.OpExecutionContext,
        config: RestoreConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = DatasetChanges(target, maintenance_planner, maintenance_engines)
        work.restore(context, partial(restore, backup_id=config.backup_id), dry_run=config.dry_run)

    return dataset_job(
        target.dataset, "restore", restore_rows, "Bring back what a change replaced."
    )


def build_repartition_job(target: Target) -> dagster.JobDefinition:
    """The job `<dataset>__repartition`."""

    @dagster.op(name=f"repartition_{target.dataset.safe_name}", pool=pool_of(target.dataset))
    def repartition_dataset(
        context: dagster.OpExecutionContext,
        config: RepartitionConfig,
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = DatasetChanges(target, maintenance_planner, maintenance_engines)
        change = partial(
            repartition,
            target=config.target or target.dataset.directory,
            partition_by=config.partition_by,
            derived=config.derived or None,
            keep_partition_columns=config.keep_partition_columns,
            validate=config.validate_rows,
        )
        work.repartition(context, change, in_place=config.target is None, dry_run=config.dry_run)

    return dataset_job(
        target.dataset, "repartition", repartition_dataset, "Put rows into other directories."
    )


CHANGE_BUILDERS: tuple[Callable[[Target], dagster.JobDefinition | None], ...] = (
    build_delete_job,
    build_update_job,
    build_upsert_job,
    build_restore_job,
    build_repartition_job,
)
