"""The sensor of a dataset: watches small files, asks for runs, and says why it does not."""

import time

import dagster

from maintenance_assets.orchestration.attempts import last_attempts, run_requests, streak_of
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.maintenance import Target
from maintenance_assets.orchestration.metadata import health_metadata, health_words
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.planning.debts import Sweep, Tick, tick

PartitionsRequest = dagster.AddDynamicPartitionsRequest | dagster.DeleteDynamicPartitionsRequest


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
            maintenance_planner.partitions(dataset, sweep.resume_after),
            sweep,
            dataset.health_policy,
            dataset.tick_limits,
            last_attempts(context.instance, dataset),
            time.time,
            streak_of(context.instance, dataset),
        )
        return _result(target, context.instance, found)

    return small_files


def _result(target: Target, instance: dagster.DagsterInstance, found: Tick) -> dagster.SensorResult:
    return dagster.SensorResult(
        run_requests=run_requests(target.dataset, found.requests, instance),
        skip_reason=None if found.requests else skip_reason(target.dataset, found),
        cursor=found.sweep.to_cursor(),
        dynamic_partitions_requests=_partitions_requests(target, instance, found),
        asset_events=_observations(target, found),
    )


def skip_reason(dataset: DatasetConfig, found: Tick) -> str:
    """Why nothing was asked for; where nothing was found, a wrong path is the likely cause."""
    return found.reason() if found.seen else f"{found.reason()} in '{dataset.shown_path}'"


def _partitions_requests(
    target: Target, instance: dagster.DagsterInstance, found: Tick
) -> list[PartitionsRequest]:
    """New partitions become known, and dropped ones are forgotten: a backfill of all works."""
    if target.partitions is None:
        return []
    requests: list[PartitionsRequest] = []
    new = target.new_keys(instance, found.seen)
    if new:
        requests.append(target.partitions.build_add_request(new))
    gone = target.gone_keys(instance, found.seen) if found.seen_all and found.seen else []
    if gone:
        requests.append(target.partitions.build_delete_request(gone))
    return requests


def _observations(target: Target, found: Tick) -> list[dagster.AssetObservation]:
    """The dataset's health, once per look at all of it and only when it is news."""
    if found.finished is None or not found.changed:
        return []
    metadata = {**health_metadata(found.finished, found.worst), **health_words(found.finished)}
    return [dagster.AssetObservation(target.asset_key, metadata=metadata)]
