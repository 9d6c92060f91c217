"""A dataset in a Dagster instance, driven as the UI and the daemon drive it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

import dagster

from maintenance_assets import build_definitions
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_tests.datasets import Lake, one_row_files

KEY = dagster.AssetKey(["lake", "trades"])
NAME = "lake__trades"
DAYS = ("date=2025-11-04", "date=2025-11-05")
AT = datetime(2025, 11, 6, 3, tzinfo=UTC)
PLANNER = {"maintenance_planner": MaintenancePlanner()}


def declared(lake: Lake, **fields: Any) -> dict[str, Any]:
    """The dataset lake/trades at a lake; nothing waits for files to cool down."""
    options = dict(lake.storage_options)
    common = {"key": "lake/trades", "path": lake.url, "engine": "pyarrow", "cooldown_minutes": 0}
    return {**common, **({"storage_options": options} if options else {}), **fields}


def two_days(lake: Lake, count: int = 6) -> None:
    """Two partitions with small files of one row each."""
    for number, day in enumerate(DAYS):
        one_row_files(lake, count, day, start=100 * number)


@dataclass(frozen=True)
class Location:
    """The definitions of one dataset, and the instance that its runs are recorded in."""

    definitions: dagster.Definitions
    instance: dagster.DagsterInstance

    @property
    def repository(self) -> dagster.RepositoryDefinition:
        """All definitions, resolved."""
        return self.definitions.get_repository_def()

    def compact(
        self,
        partitions: Sequence[str] = (),
        *,
        dry_run: bool = False,
        run_key: str | None = None,
    ) -> dagster.ExecuteInProcessResult:
        """Run the compaction job."""
        config = {"partitions": list(partitions), "dry_run": dry_run}
        return self.run(
            "compact",
            {"ops": {f"compact_{NAME}": {"config": config}}},
            {"dagster/run_key": run_key} if run_key else {},
        )

    def run(
        self, operation: str, config: Any = None, tags: dict[str, str] | None = None
    ) -> dagster.ExecuteInProcessResult:
        """Run a job of the dataset."""
        job = self.definitions.resolve_job_def(f"{NAME}__{operation}")
        return job.execute_in_process(
            run_config=config, instance=self.instance, tags=tags, raise_on_error=False
        )

    def materialize(self, **options: Any) -> dagster.ExecuteInProcessResult:
        """Materialize the asset, as the button in the UI does."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, raise_on_error=False, **options)

    def know(self, *partitions: str) -> None:
        """Add partition keys, as a tick of the sensor does."""
        self.instance.add_dynamic_partitions(f"{NAME}__partitions", list(partitions))

    def known(self) -> list[str]:
        """The partition keys that Dagster knows."""
        return list(self.instance.get_dynamic_partitions(f"{NAME}__partitions"))

    def tick(self, cursor: str | None = None) -> Any:
        """One tick of the sensor; new partitions and observations are stored."""
        sensor = self.repository.get_sensor_def(f"{NAME}__small_files")
        with dagster.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            repository_def=self.repository,
            resources=PLANNER,
        ) as context:
            found = sensor.evaluate_tick(context)
        for request in found.dynamic_partitions_requests or []:
            if isinstance(request, dagster.AddDynamicPartitionsRequest):
                self.know(*request.partition_keys)
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition(f"{NAME}__partitions", key)
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        return found

    def evaluate_schedule(self, at: datetime = AT) -> Any:
        """One tick of the schedule."""
        schedule = self.repository.get_schedule_def(f"{NAME}__scheduled_compaction")
        with dagster.build_schedule_context(
            instance=self.instance, scheduled_execution_time=at, resources=PLANNER
        ) as context:
            return schedule.evaluate_tick(context)

    def start(self, run: dagster.DagsterRun) -> None:
        """Let a run begin that no process works on."""
        kind = dagster.DagsterEventType.RUN_START.value
        self.instance.report_dagster_event(dagster.DagsterEvent(kind, run.job_name), run.run_id)

    def pay(self, request: Any) -> dagster.ExecuteInProcessResult:
        """Do the run that a sensor or a schedule asked for."""
        tags = {**request.tags, "dagster/run_key": request.run_key}
        return self.run("compact", request.run_config, tags)

    def materializations(self) -> dict[str | None, dict[str, Any]]:
        """Metadata values of all materializations, the last of each partition."""
        records = self.instance.fetch_materializations(KEY, limit=1000).records
        return {m.partition: plain(m.metadata) for m in map(_materialization, reversed(records))}

    def observations(self) -> list[dict[str, Any]]:
        """Metadata values of all observations, the newest first."""
        records = self.instance.fetch_observations(KEY, limit=1000).records
        found = [record.asset_observation for record in records]
        return [plain(observation.metadata) for observation in found if observation]


def _materialization(record: dagster.EventLogRecord) -> dagster.AssetMaterialization:
    assert record.asset_materialization is not None
    return record.asset_materialization


def plain(metadata: Any) -> dict[str, Any]:
    """Metadata values as Dagster stores them."""
    return {key: value.value for key, value in metadata.items()}


def failure(result: dagster.ExecuteInProcessResult) -> str:
    """Why a run failed, as its failed step says."""
    (event,) = result.get_step_failure_events()
    data: Any = event.event_specific_data
    failed = data.user_failure_data
    return failed.description if failed else data.error.to_string()


def check(place: Location, name: str) -> Any:
    """Evaluate one check as the UI does."""
    selection = dagster.AssetSelection.checks(dagster.AssetCheckKey(KEY, name))
    job = dagster.define_asset_job("checked", selection)
    defs = dagster.Definitions.merge(place.definitions, dagster.Definitions(jobs=[job]))
    result = defs.resolve_job_def("checked").execute_in_process(instance=place.instance)
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.check_name == name
    return evaluation


@contextmanager
def location(lake: Lake, **fields: Any) -> Iterator[Location]:
    """The dataset in an instance of its own."""
    with TemporaryDirectory() as home, dagster.DagsterInstance.local_temp(home) as instance:
        yield Location(build_definitions([declared(lake, **fields)]), instance)
