"""The schedule of a dataset: a run for each partition in need, at a set time."""

import time
from collections.abc import Iterator

import dagster

from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.jobs import DATASET_TAG, PARTITION_TAG, compact_run_config
from maintenance_assets.orchestration.planner import MaintenancePlanner

MAX_RUNS = 100
"""Runs that one tick may ask for; the rest is in need at the next tick as well."""


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
    ) -> Iterator[dagster.RunRequest | dagster.SkipReason]:
        deadline = time.monotonic() + dataset.sensor_seconds
        seen, needy = 0, []
        for part in maintenance_planner.partitions(dataset):
            seen += 1
            if part.gain >= dataset.min_gain:
                needy.append(part)
            if time.monotonic() > deadline:
                context.log.warning(f"out of time after '{part.partition}': the rest waits")
                break
        if not needy:
            yield dagster.SkipReason(
                f"{seen} partition(s) looked at, none would save {dataset.min_gain} files or more"
            )
        at = context.scheduled_execution_time.isoformat()
        for part in sorted(needy, key=lambda part: -part.gain)[:MAX_RUNS]:
            yield dagster.RunRequest(
                run_key=f"{dataset.key}:{part.partition}:{at}",
                run_config=compact_run_config(dataset, part.partition),
                tags={DATASET_TAG: dataset.key, PARTITION_TAG: part.partition or "(all)"},
            )

    return scheduled_compaction
