"""What the asset, the ops, the sensor's runs and the schedule's runs all do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster

from maintenance_assets.errors import IncompleteMaintenanceError, LeaseHeldError
from maintenance_assets.model.clustering import Curve
from maintenance_assets.model.progress import Progress
from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.optimize import optimize
from maintenance_assets.operations.recover import recover
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.metadata import bullets, result_metadata, shorten
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.planning.debts import is_text
from maintenance_assets.planning.partitions import exactly

MAX_PARTITION_EVENTS = 100
"""Events of one run: a thousand of them take minutes to store."""
# Dagster has no public name for these: such a key could not be part of a range.
_NOT_IN_KEYS = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")
# An op's and an asset's execution context have no common public type.
Context = Any
Operation = Callable[..., CompactionResult]
"""`compact`, or another that takes the same settings."""
Partitions = dagster.DynamicPartitionsDefinition
Recorded = dict[str | None, dict[str, Any]]
"""Metadata of what was done, by partition; None is the dataset as a whole."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """By which columns and along which curve a dataset is clustered."""

    columns: Sequence[str]
    curve: Curve


@dataclass(frozen=True, slots=True)
class Target:
    """A dataset as Dagster knows it."""

    dataset: DatasetConfig
    partitions: Partitions | None
    """Partition paths come and go with the data, so their keys are dynamic."""

    @classmethod
    def of(cls, dataset: DatasetConfig, partition_columns: Sequence[str]) -> "Target":
        """A dataset with or without partitions."""
        name = f"{dataset.safe_name}__partitions"
        return cls(dataset, Partitions(name=name) if partition_columns else None)

    @property
    def asset_key(self) -> dagster.AssetKey:
        """The key of the dataset's asset."""
        return dagster.AssetKey(self.dataset.key.split("/"))

    def new_keys(self, instance: dagster.DagsterInstance, names: Sequence[str]) -> list[str]:
        """The partitions among these that Dagster does not know yet."""
        if self.partitions is None or self.partitions.name is None:
            return []
        known = set(instance.get_dynamic_partitions(self.partitions.name))
        return [name for name in names if _is_key(name) and name not in known]

    def gone_keys(self, instance: dagster.DagsterInstance, names: Sequence[str]) -> list[str]:
        """The partitions that Dagster knows and that are not among these."""
        if self.partitions is None or self.partitions.name is None:
            return []
        there = set(names)
        known = instance.get_dynamic_partitions(self.partitions.name)
        return [name for name in known if name not in there]

    def event_key(self, partition: str | None) -> str | None:
        """The partition that an event is about, where the asset has such a thing."""
        return partition if self.partitions is not None and _is_key(partition or "") else None


class DatasetMaintenance:
    """The operations on one dataset, reporting to Dagster."""

    def __init__(
        self, target: Target, planner: MaintenancePlanner, engines: EngineResource
    ) -> None:
        self._target = target
        self._dataset = target.dataset
        self._planner = planner
        self._engines = engines

    def compact(self, context: Context, directories: Sequence[str], *, dry_run: bool) -> None:
        """Compact the partitions in these directories, or the whole dataset; log it at once."""
        self._maintain(context, directories, compact, dry_run)

    def optimize(
        self, context: Context, directories: Sequence[str], clustering: Clustering, *, dry_run: bool
    ) -> None:
        """Cluster the partitions in these directories, or the whole dataset; log it at once."""
        operation = partial(optimize, zorder_columns=clustering.columns, curve=clustering.curve)
        self._maintain(context, directories, operation, dry_run)

    def _maintain(
        self, context: Context, directories: Sequence[str], operation: Operation, dry_run: bool
    ) -> None:
        partitions = [one for directory in directories for one in self._partitions_in(directory)]
        self._introduce(context, partitions or self._all_partitions())
        failed: list[str] = []
        for number, partition in enumerate(partitions or [None]):
            recorded: Recorded = {}
            failed += self._maintain_one(context, partition, recorded, operation, dry_run)
            if number < MAX_PARTITION_EVENTS:
                self.log(context, recorded, dry_run=dry_run)
        if len(partitions) > MAX_PARTITION_EVENTS:
            context.log.warning(
                f"of {len(partitions)} partitions, the first {MAX_PARTITION_EVENTS} have events"
            )
        _fail(failed)

    def compact_exactly(
        self, context: Context, partitions: Sequence[str], recorded: Recorded
    ) -> None:
        """Compact these partitions, or the whole dataset; `recorded` is filled as it is done."""
        failed: list[str] = []
        scope: Sequence[str | None] = partitions or [None]
        for partition in scope:
            # One that was dropped does not keep the others of a backfill waiting.
            if partition is not None and not self._exists(partition):
                failed.append(self._unknown(partition))
            else:
                failed += self._maintain_one(context, partition, recorded, compact, dry_run=False)
        _fail(failed)

    def recover(self, context: Context) -> None:
        """Undo or complete what interrupted runs left behind."""
        options = self._dataset.storage_options or None
        with lease_as_failure():
            actions = recover(self._dataset.path, storage_options=options).actions
        text = bullets(actions) if actions else "Nothing to recover."
        context.log.info(text)
        context.log_event(
            dagster.AssetObservation(
                self._target.asset_key,
                metadata={
                    "recovered": dagster.MetadataValue.md(text),
                    "recovered_runs": len(actions),
                },
            )
        )

    def log(self, context: Context, recorded: Recorded, *, dry_run: bool = False) -> None:
        """Log what was done as events of the dataset's asset."""
        kind = dagster.AssetObservation if dry_run else dagster.AssetMaterialization
        for partition, metadata in recorded.items():
            key = self._target.event_key(partition)
            context.log_event(kind(self._target.asset_key, metadata=metadata, partition=key))

    def _maintain_one(
        self,
        context: Context,
        partition: str | None,
        recorded: Recorded,
        operation: Operation,
        dry_run: bool,
    ) -> list[str]:
        """Maintain a partition; what could not be done, in words."""
        before = self._planner.health_of(self._dataset, partition)
        failed: list[str] = []
        try:
            result = self._run(context, partition, operation, dry_run)
        except IncompleteMaintenanceError as error:
            result, failed = error.result, [str(error)]
        where = f"{self._dataset.key}{f' [{partition}]' if partition else ''}"
        context.log.info(f"{where}: {_story(result)}")
        # Before anything else is asked of the store: it is committed.
        recorded[partition] = result_metadata(result, before) | self._counts(result, partition)
        if not dry_run:
            after = self._planner.health_of(self._dataset, partition)
            recorded[partition] |= {"health_after": round(after.score, 1)}
        return failed

    def _counts(self, result: CompactionResult, partition: str | None) -> dict[str, int]:
        """Rows where Dagster looks for them."""
        if result.stats.dry_run:
            return {}
        if self._target.event_key(partition) is not None:
            return {"dagster/partition_row_count": result.rows_after}
        # Files beside partitions are a part of the dataset that has no name.
        is_whole = partition is None or (partition == "" and self._target.partitions is None)
        return {"dagster/row_count": result.rows_after} if is_whole else {}

    def _run(
        self, context: Context, partition: str | None, operation: Operation, dry_run: bool
    ) -> CompactionResult:
        dataset, engines = self._dataset, self._engines
        with lease_as_failure():
            return operation(
                dataset.path,
                engine=engines.engine_of(dataset),
                target_mb_per_file=dataset.target_mb_per_file,
                target_rows_per_file=dataset.target_rows_per_file,
                partition_filter=None if partition is None else exactly(partition),
                compression=dataset.compression,
                dry_run=dry_run,
                storage_options=dataset.storage_options or None,
                memory_budget_mb=engines.memory_budget_mb,
                strict=engines.strict,
                on_progress=RunLog(context),
            )

    def _partitions_in(self, directory: str) -> list[str]:
        found = self._planner.partitions_in(self._dataset, directory)
        if not found:
            raise dagster.Failure(self._unknown(directory), allow_retries=False)
        return found

    def _all_partitions(self) -> list[str]:
        if self._target.partitions is None:
            return []
        return [part.partition for part in self._planner.partitions(self._dataset)]

    def _exists(self, partition: str) -> bool:
        return partition in self._planner.partitions_in(self._dataset, partition)

    def _unknown(self, partition: str) -> str:
        return (
            f"dataset '{self._dataset.key}' has no partition '{partition}': no data file lies "
            f"in '{self._dataset.shown_path}/{partition}'"
        )

    def _introduce(self, context: Context, partitions: Sequence[str]) -> None:
        """Dagster takes events of partitions that it does not know, and then does not show them."""
        new = self._target.new_keys(context.instance, partitions)
        if new and self._target.partitions is not None and self._target.partitions.name:
            context.instance.add_dynamic_partitions(self._target.partitions.name, new)


class RunLog:
    """Progress in the run's log: a line at every tenth, not at every file."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._last: tuple[str, int] | None = None

    def __call__(self, step: Progress) -> None:
        tenth = 10 * step.done // step.total if step.total else 0
        if (step.phase, tenth) != self._last:
            self._last = step.phase, tenth
            self._context.log.info(f"{step.phase}: {step.done} of {step.total}")


@contextmanager
def lease_as_failure() -> Iterator[None]:
    """Who holds the dataset is all that there is to say: no stack of calls."""
    try:
        yield
    except LeaseHeldError as error:
        raise dagster.Failure(str(error)) from error


def _fail(failed: Sequence[str]) -> None:
    """Fail the run if anything could not be done; a person has to look at the files."""
    if failed:
        metadata = {"failures": dagster.MetadataValue.md(bullets(failed))}
        raise dagster.Failure(shorten(failed[0]), metadata, allow_retries=False)


def _story(result: CompactionResult) -> str:
    stats = result.stats
    left = [
        f", {len(groups)} group(s) {why}"
        for groups, why in (
            (result.failures, "cannot be merged"),
            (result.conflicts, "changed by another writer meanwhile"),
        )
        if groups
    ]
    if not stats.compacted_file_count:
        nothing = "nothing was done" if left else "nothing to do"
        return f"{nothing}, {stats.before_file_count} files stay as they are{''.join(left)}"
    became = "would become" if stats.dry_run else "became"
    return f"{stats.before_file_count} files {became} {stats.after_file_count}{''.join(left)}"


def _is_key(name: str) -> bool:
    return bool(name) and is_text(name) and not any(text in name for text in _NOT_IN_KEYS)
