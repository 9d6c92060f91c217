"""Jobs of datasets in a catalog: changes are versions, and versions have to be cleared away."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster
from pydantic import Field

from maintenance_assets.orchestration.assets import NoConfig, pool_of
from maintenance_assets.orchestration.catalog_changes import CatalogChanges
from maintenance_assets.orchestration.change_jobs import (
    ChangeConfig,
    UpsertConfig,
    new_rows,
    new_values,
)
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.jobs import dataset_job
from maintenance_assets.orchestration.maintenance import Context, Target
from maintenance_assets.orchestration.planner import MaintenancePlanner


class LakeDeleteConfig(ChangeConfig):
    """Which rows go; the catalog knows in which files they can be."""

    where: str
    """A SQL predicate, such as `symbol = 'ABC' AND price > 10`."""


class LakeUpdateConfig(LakeDeleteConfig):
    """Which rows change, and how."""

    values: dict[str, Any] = Field(default_factory=dict)
    """New values by column."""
    expressions: dict[str, str] = Field(default_factory=dict)
    """SQL expressions by column, such as `best_ask - best_bid`."""


class LakeRepartitionConfig(ChangeConfig):
    """How rows are put into directories."""

    partition_by: list[str]


class VersionConfig(dagster.Config):
    """What the dataset is to be again."""

    version: int


class VacuumConfig(dagster.Config):
    """Which files may be deleted."""

    dry_run: bool = True
    """Only say which: deleting has to be asked for."""
    retention_days: float | None = Field(None, ge=0)
    """Since they were replaced; as declared where not given."""
    force: bool = False
    """Say so for less than a week: nobody may be reading then."""


class ExpireConfig(ChangeConfig):
    """Which versions may be given up."""

    older_than_days: float | None = Field(None, ge=0)
    """Since they were replaced; as declared where not given."""
    retain_last: int | None = Field(None, ge=1)
    """As declared where not given."""


def _delete(work: CatalogChanges, context: Context, config: LakeDeleteConfig) -> None:
    work.change(
        context, lambda lake, options: lake.delete(config.where, **options), dry_run=config.dry_run
    )


def _update(work: CatalogChanges, context: Context, config: LakeUpdateConfig) -> None:
    values = new_values(config.values, config.expressions)
    work.change(
        context,
        lambda lake, options: lake.update(config.where, values, **options),
        dry_run=config.dry_run,
    )


def _upsert(work: CatalogChanges, context: Context, config: UpsertConfig) -> None:
    rows = new_rows(config, work.dataset)
    work.change(
        context,
        lambda lake, options: lake.upsert(
            rows,
            config.key_cols,
            config.update_cols,
            on_duplicates=config.on_duplicates,
            **options,
        ),
        dry_run=config.dry_run,
    )


def _repartition(work: CatalogChanges, context: Context, config: LakeRepartitionConfig) -> None:
    work.change(
        context,
        lambda lake, options: lake.repartition(config.partition_by, **options),
        dry_run=config.dry_run,
    )


def _restore(work: CatalogChanges, context: Context, config: VersionConfig) -> None:
    work.restore(context, config.version)


def _vacuum(work: CatalogChanges, context: Context, config: VacuumConfig) -> None:
    work.vacuum(context, config.retention_days, dry_run=config.dry_run, force=config.force)


def _expire(work: CatalogChanges, context: Context, config: ExpireConfig) -> None:
    days, last = config.older_than_days, config.retain_last
    work.expire(context, days, last, dry_run=config.dry_run)


def _clean_up(work: CatalogChanges, context: Context, config: NoConfig) -> None:
    work.clean_up(context)


def _fsck(work: CatalogChanges, context: Context, config: NoConfig) -> None:
    work.fsck(context)


@dataclass(frozen=True, slots=True)
class CatalogOperation:
    """One job, what it can be told, and what it does."""

    name: str
    config: type[dagster.Config]
    run: Callable[[CatalogChanges, Context, Any], None]
    text: str


CLEANUP = "cleanup"
CATALOG_OPERATIONS = (
    CatalogOperation("delete", LakeDeleteConfig, _delete, "Delete the rows that match."),
    CatalogOperation("update", LakeUpdateConfig, _update, "Change values of matching rows."),
    CatalogOperation("upsert", UpsertConfig, _upsert, "Insert rows, or update by key."),
    CatalogOperation(
        "repartition", LakeRepartitionConfig, _repartition, "Put rows into other directories."
    ),
    CatalogOperation("restore", VersionConfig, _restore, "Be like an earlier version again."),
    CatalogOperation("vacuum", VacuumConfig, _vacuum, "Delete files that no version needs."),
    CatalogOperation("expire", ExpireConfig, _expire, "Give up old versions."),
    CatalogOperation(CLEANUP, NoConfig, _clean_up, "Expire and vacuum, as declared."),
    CatalogOperation("fsck", NoConfig, _fsck, "Compare the directory with the catalog."),
)


def build_catalog_jobs(target: Target) -> dict[str, dagster.JobDefinition]:
    """The jobs that only a dataset of a catalog has, by operation."""
    if target.dataset.catalog is None:
        return {}
    return {operation.name: _job(target, operation) for operation in CATALOG_OPERATIONS}


def _job(target: Target, operation: CatalogOperation) -> dagster.JobDefinition:
    """The job `<dataset>__<operation>`; Dagster reads from the annotation what it can be told."""
    dataset, told = target.dataset, operation.config

    @dagster.op(name=f"{operation.name}_{dataset.safe_name}", pool=pool_of(dataset))
    def work_on_catalog(
        context: dagster.OpExecutionContext,
        config: told,  # type: ignore[valid-type]
        maintenance_planner: MaintenancePlanner,
        maintenance_engines: EngineResource,
    ) -> None:
        work = CatalogChanges(target, maintenance_planner, maintenance_engines)
        operation.run(work, context, config)

    return dataset_job(dataset, operation.name, work_on_catalog, operation.text)
