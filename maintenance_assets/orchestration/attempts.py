"""Debts as runs: what a run is tagged with, and what Dagster remembers about it.

Runs are remembered by Dagster, so nothing about them has to be kept in a cursor: sensor and
schedule see each other's runs, and a cursor that is lost costs nothing.
"""

import time
from collections.abc import Callable, Sequence

import dagster

from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.jobs import DATASET_TAG, compact_job_name, compact_run_config
from maintenance_assets.orchestration.throughput import measured_throughput
from maintenance_assets.planning.debts import Attempt, Request, RunStatus, Streak
from maintenance_assets.planning.worth import Throughput, cost_words

PARTITION_TAG = "maintenance/partition"
DEBT_TAG = "maintenance/debt"
ATTEMPT_TAG = "maintenance/attempt"
REASON_TAG = "maintenance/reason"
COST_TAG = "maintenance/cost"
ROOT = "."
"""As which the dataset's root itself is shown among its partitions."""
LOST_SECONDS = 6 * 3600.0
"""A run that began so long ago, on a dataset that nobody holds: its process is gone."""
_STREAK = 20
_ENDED: dict[dagster.DagsterRunStatus, RunStatus] = {
    dagster.DagsterRunStatus.SUCCESS: "done",
    dagster.DagsterRunStatus.FAILURE: "failed",
    dagster.DagsterRunStatus.CANCELED: "failed",
}


def run_requests(
    dataset: DatasetConfig, requests: Sequence[Request], instance: dagster.DagsterInstance
) -> list[dagster.RunRequest]:
    """Debts as runs of the compaction job; their tags say why, and what each will cost."""
    if not requests:
        return []
    key = dagster.AssetKey(dataset.key.split("/"))
    throughput = measured_throughput(instance, key, dataset.engine)
    return [_run_request(dataset, request, throughput) for request in requests]


def _run_request(
    dataset: DatasetConfig, request: Request, throughput: Throughput
) -> dagster.RunRequest:
    return dagster.RunRequest(
        run_key=request.run_key(dataset.key),
        run_config=compact_run_config(dataset, [request.partition]),
        tags={
            DATASET_TAG: dataset.key,
            PARTITION_TAG: request.partition or ROOT,
            DEBT_TAG: request.fingerprint,
            ATTEMPT_TAG: str(request.attempt),
            REASON_TAG: request.reason,
            COST_TAG: cost_words(request.size_bytes, throughput),
        },
    )


def last_attempts(
    instance: dagster.DagsterInstance, dataset: DatasetConfig
) -> Callable[[str], Attempt | None]:
    """Looks the newest run of a partition's debts up."""

    def last_attempt(partition: str) -> Attempt | None:
        filters = dagster.RunsFilter(
            job_name=compact_job_name(dataset),
            tags={DATASET_TAG: dataset.key, PARTITION_TAG: partition or ROOT},
        )
        records = instance.get_run_records(filters, limit=1)
        return _attempt(records[0]) if records else None

    return last_attempt


def streak_of(instance: dagster.DagsterInstance, dataset: DatasetConfig) -> Streak:
    """How many of the dataset's newest compactions failed."""
    filters = dagster.RunsFilter(job_name=compact_job_name(dataset), statuses=list(_ENDED))
    failures, last_at = 0, 0.0
    for record in instance.get_run_records(filters, limit=_STREAK):
        if _status(record) == "done":
            break
        failures, last_at = failures + 1, max(last_at, _time(record))
    return Streak(failures, last_at)


def _attempt(record: dagster.RunRecord) -> Attempt:
    tags = record.dagster_run.tags
    number = tags.get(ATTEMPT_TAG, "")
    return Attempt(
        fingerprint=tags.get(DEBT_TAG, ""),
        number=int(number) if number.isdecimal() else 0,
        status=_status(record),
        at=_time(record),
    )


def _status(record: dagster.RunRecord) -> RunStatus:
    ended = _ENDED.get(record.dagster_run.status)
    if ended is not None:
        return ended
    is_lost = record.start_time is not None and time.time() - record.start_time > LOST_SECONDS
    return "failed" if is_lost else "under way"


def _time(record: dagster.RunRecord) -> float:
    return record.end_time or record.create_timestamp.timestamp()
