"""The schedule of a dataset: a run for each partition in need, at a set time."""

import time
from collections.abc import Iterator
from dataclasses import replace

import dagster

from maintenance_assets.orchestration.attempts import last_attempts, run_requests
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.jobs import DATASET_TAG, compact_run_config
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.sensors import skip_reason
from maintenance_assets.planning.debts import MORE, Limits, Sweep, Tick, tick

MAX_RUNS = 100
"""Runs that one tick may ask for; where more is to be done, one run does it all."""
Asked = Iterator[dagster.RunRequest | dagster.SkipReason]


def build_schedule(
    dataset: DatasetConfig, job: dagster.JobDefinition
) -> dagster.ScheduleDefinition:
    """The schedule `<dataset>__scheduled_compaction`; it ships stopped."""

    @dagster.schedule(
        name=f"{dataset.safe_name}__scheduled_compaction",
        cron_schedule=dataset.cron,
        job=job,
        description=f"Compacts the partitions of {dataset.key} that are in need.",
    )
    def scheduled_compaction(
        context: dagster.ScheduleEvaluationContext, maintenance_planner: MaintenancePlanner
    ) -> Asked:
        found = tick(
            maintenance_planner.partitions(dataset),
            Sweep(),
            # The hour was chosen by a person: nothing has to cool down.
            replace(dataset.health_policy, cooldown_seconds=0.0),
            Limits(dataset.sensor_seconds, MAX_RUNS),
            last_attempts(context.instance, dataset),
            time.time,
        )
        if found.finished is None or found.waiting[MORE]:
            # A schedule has no cursor to go on from; a run has all the time it needs.
            yield _whole(dataset, context.scheduled_execution_time.isoformat())
        else:
            yield from _each(dataset, found, context.instance)

    return scheduled_compaction


def build_optimize_schedule(
    dataset: DatasetConfig, job: dagster.JobDefinition | None
) -> list[dagster.ScheduleDefinition]:
    """The schedule `<dataset>__scheduled_optimize`, where a time for it is given.

    One run over the whole dataset: partitions that are clustered already cost a look at a sample.
    """
    if job is None or dataset.optimize_cron is None:
        return []
    return [
        dagster.ScheduleDefinition(
            name=f"{dataset.safe_name}__scheduled_optimize",
            cron_schedule=dataset.optimize_cron,
            job=job,
            tags={DATASET_TAG: dataset.key},
            description=f"Clusters {dataset.key} by {', '.join(dataset.zorder_columns)}.",
        )
    ]


def build_cleanup_schedule(
    dataset: DatasetConfig, job: dagster.JobDefinition | None
) -> list[dagster.ScheduleDefinition]:
    """The schedule `<dataset>__scheduled_cleanup` of a dataset with versions; it ships stopped."""
    if job is None or dataset.catalog is None:
        return []
    return [
        dagster.ScheduleDefinition(
            name=f"{dataset.safe_name}__scheduled_cleanup",
            cron_schedule=dataset.catalog.cleanup_cron,
            job=job,
            tags={DATASET_TAG: dataset.key},
            description=f"Expires old versions of {dataset.key} and deletes what they needed.",
        )
    ]


def _each(dataset: DatasetConfig, found: Tick, instance: dagster.DagsterInstance) -> Asked:
    if not found.requests:
        yield dagster.SkipReason(skip_reason(dataset, found))
    yield from run_requests(dataset, found.requests, instance)


def _whole(dataset: DatasetConfig, at: str) -> dagster.RunRequest:
    return dagster.RunRequest(
        run_key=f"{dataset.key}:{at}",
        run_config=compact_run_config(dataset, []),
        tags={DATASET_TAG: dataset.key},
    )
