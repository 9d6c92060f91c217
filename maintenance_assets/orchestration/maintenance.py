"""What the asset, the ops, the sensor's runs and the schedule's runs all do."""

import logging
from collections.abc import Sequence
from typing import Any

import dagster

from maintenance_assets.errors import IncompleteMaintenanceError, LeaseHeldError
from maintenance_assets.model.progress import Progress
from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.recover import recover
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.metadata import bullets, compaction_metadata
from maintenance_assets.orchestration.planner import MaintenancePlanner, compaction_arguments

logger = logging.getLogger(__name__)
MAX_PARTITION_EVENTS = 100
"""Events of one run: a thousand of them take minutes to store."""
# An op's and an asset's execution context have no common public type.
Context = Any


class DatasetMaintenance:
    """The operations on one dataset, reporting to Dagster."""

    def __init__(
        self, dataset: DatasetConfig, planner: MaintenancePlanner, engines: EngineResource
    ) -> None:
        self._dataset = dataset
        self._planner = planner
        self._engines = engines
        self._key = dagster.AssetKey(dataset.key.split("/"))

    def compact(self, context: Context, partitions: Sequence[str], *, dry_run: bool) -> None:
        """Compact the given partitions one by one, or the whole dataset in one go."""
        self._refuse_unknown(partitions)
        if len(partitions) > MAX_PARTITION_EVENTS:
            context.log.info(
                f"{len(partitions)} partitions: the first {MAX_PARTITION_EVENTS} get events"
            )
        failed: list[str] = []
        for number, partition in enumerate(partitions or [None]):
            try:
                self._compact_one(context, partition, dry_run, number < MAX_PARTITION_EVENTS)
            except IncompleteMaintenanceError as error:
                failed.append(str(error))
        if failed:
            # Trying again would find the same files: a person has to look.
            raise dagster.Failure(failed[0], {"failures": bullets(failed)}, allow_retries=False)

    def recover(self, context: Context) -> None:
        """Undo or complete what interrupted runs left behind."""
        options = self._dataset.storage_options or None
        actions = recover(self._dataset.path, storage_options=options).actions
        text = bullets(actions) if actions else "Nothing to recover."
        context.log_event(
            dagster.AssetObservation(
                self._key, metadata={"recovered": dagster.MetadataValue.md(text)}
            )
        )

    def _compact_one(
        self, context: Context, partition: str | None, dry_run: bool, with_event: bool
    ) -> None:
        before = self._planner.health_of(self._dataset, partition)
        try:
            result = self._planned_or_done(context, partition, dry_run)
        except IncompleteMaintenanceError as error:
            self._report(context, error.result, before, partition, with_event)
            raise
        except LeaseHeldError as error:
            raise dagster.Failure(str(error)) from error
        self._report(context, result, before, partition, with_event)

    def _planned_or_done(
        self, context: Context, partition: str | None, dry_run: bool
    ) -> CompactionResult:
        if dry_run:
            return self._planner.preview(self._dataset, partition)
        return compact(
            self._dataset.path,
            engine=self._engines.engine_of(self._dataset),
            memory_budget_mb=self._engines.memory_budget_mb,
            strict=self._engines.strict,
            on_progress=_Log(context),
            **compaction_arguments(self._dataset, partition),
        )

    def _report(
        self,
        context: Context,
        result: CompactionResult,
        before: Any,
        partition: str | None,
        with_event: bool,
    ) -> None:
        stats = result.stats
        where = f"{self._dataset.key}{f' [{partition}]' if partition else ''}"
        if not stats.compacted_file_count:
            context.log.info(f"{where}: nothing to do, {stats.before_file_count} files are fine")
        else:
            would = "would become" if stats.dry_run else "became"
            context.log.info(
                f"{where}: {stats.before_file_count} files {would} {stats.after_file_count}"
            )
        if not with_event:
            return
        after = None if stats.dry_run else self._planner.health_of(self._dataset, partition)
        metadata = compaction_metadata(result, before, after, partition)
        kind = dagster.AssetObservation if stats.dry_run else dagster.AssetMaterialization
        context.log_event(kind(self._key, metadata=metadata, partition=partition))

    def _refuse_unknown(self, partitions: Sequence[str]) -> None:
        for partition in partitions:
            if not self._planner.has_partition(self._dataset, partition):
                raise dagster.Failure(
                    f"dataset '{self._dataset.key}' has no partition '{partition}': no data file "
                    f"lies in '{self._dataset.path}/{partition}'",
                    allow_retries=False,
                )


class _Log:
    """Progress in the run's log: a line at every tenth, not at every file."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._last: tuple[str, int] | None = None

    def __call__(self, step: Progress) -> None:
        tenth = 10 * step.done // step.total if step.total else 0
        if (step.phase, tenth) != self._last:
            self._last = step.phase, tenth
            self._context.log.info(f"{step.phase}: {step.done} of {step.total}")
