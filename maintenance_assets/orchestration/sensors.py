"""The sensor of a dataset: watches small files, asks for runs, and says why it does not."""

import time
from collections.abc import Sequence

import dagster

from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.jobs import DATASET_TAG, PARTITION_TAG, compact_run_config
from maintenance_assets.orchestration.maintenance import Target
from maintenance_assets.orchestration.metadata import health_metadata
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.planning.debts import Limits, Request, RunStatus, Sweep, Tick, tick

RUN_KEY_TAG = "dagster/run_key"
_ENDED: dict[dagster.DagsterRunStatus, RunStatus] = {
    dagster.DagsterRunStatus.SUCCESS: "done",
    dagster.DagsterRunStatus.FAILURE: "failed",
    dagster.DagsterRunStatus.CANCELED: "failed",
}


def build_sensor(target: Target, job: dagster.JobDefinition) -> dagster.SensorDefinition:
    """The sensor `<dataset>__small_files`; it ships stopped."""
    dataset = target.dataset

    @dagster.sensor(
        name=f"{dataset.safe_name}__small_files",
        job=job,
        minimum_interval_seconds=dataset.sensor_interval_seconds,
        description=f"Asks for compaction where {dataset.key} has too many small files.",
    )
    def small_files(
        context: dagster.SensorEvaluationContext, maintenance_planner: MaintenancePlanner
    ) -> dagster.SensorResult:
        busy = maintenance_planner.busy(dataset)
        if busy:
            return dagster.SensorResult(skip_reason=busy, cursor=context.cursor)
        sweep = Sweep.from_cursor(context.cursor)
        found = tick(
            dataset.key,
            maintenance_planner.partitions(dataset, sweep.resume_after),
            sweep,
            dataset.health_policy,
            Limits(dataset.sensor_seconds, dataset.max_runs_per_tick),
            lambda key: _run_status(context.instance, key),
            time.time,
        )
        return _result(target, context.instance, found)

    return small_files


def _run_status(instance: dagster.DagsterInstance, run_key: str) -> RunStatus:
    runs = instance.get_runs(filters=dagster.RunsFilter(tags={RUN_KEY_TAG: run_key}), limit=1)
    if not runs:
        return "unknown"
    return _ENDED.get(runs[0].status, "under way")


def _result(target: Target, instance: dagster.DagsterInstance, found: Tick) -> dagster.SensorResult:
    return dagster.SensorResult(
        run_requests=[_run_request(target.dataset, request) for request in found.requests],
        skip_reason=None if found.requests else found.reason(),
        cursor=found.sweep.to_cursor(),
        dynamic_partitions_requests=_new_partitions(target, instance, found.seen),
        asset_events=_observations(target, found),
    )


def _run_request(dataset: DatasetConfig, request: Request) -> dagster.RunRequest:
    return dagster.RunRequest(
        run_key=request.run_key,
        run_config=compact_run_config(dataset, request.partition),
        tags={
            DATASET_TAG: dataset.key,
            PARTITION_TAG: request.partition or "(all)",
            "maintenance/reason": request.reason,
        },
    )


def _new_partitions(
    target: Target, instance: dagster.DagsterInstance, seen: Sequence[str]
) -> list[dagster.AddDynamicPartitionsRequest]:
    new = target.new_keys(instance, seen)
    if not new or target.partitions is None:
        return []
    return [target.partitions.build_add_request(new)]


def _observations(target: Target, found: Tick) -> list[dagster.AssetObservation]:
    """The dataset's health, once per look at all of it and only when it is news."""
    if found.finished is None or not found.changed:
        return []
    metadata = health_metadata(found.finished, found.worst)
    return [dagster.AssetObservation(target.asset_key, metadata=metadata)]
