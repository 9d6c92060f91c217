"""What the asset, the ops, the sensor's runs and the schedule's runs all do."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster

from maintenance_assets.model.progress import Progress
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.orchestration.catalog_work import CatalogWork
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.failures import catalog_as_failure, lease_as_failure
from maintenance_assets.orchestration.metadata import bullets, result_metadata, shorten
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.orchestration.throughput import measured_throughput
from maintenance_assets.orchestration.work import Clustering, DatasetWork, DirectoryWork, Done
from maintenance_assets.planning.debts import is_text
from maintenance_assets.planning.partitions import exactly
from maintenance_assets.planning.worth import cost_words

MAX_PARTITION_EVENTS = 100
"""Events of one run: a thousand of them take minutes to store."""
# Dagster has no public name for these: such a key could not be part of a range.
_NOT_IN_KEYS = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")
# An op's and an asset's execution context have no common public type.
Context = Any
Partitions = dagster.DynamicPartitionsDefinition
Recorded = dict[str | None, dict[str, Any]]
"""Metadata of what was done, by partition; None is the dataset as a whole."""


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

    @catalog_as_failure()
    def compact(self, context: Context, directories: Sequence[str], *, dry_run: bool) -> None:
        """Compact the partitions in these directories, or the whole dataset; log it at once."""
        self._maintain(context, directories, None, dry_run)

    @catalog_as_failure()
    def optimize(
        self, context: Context, directories: Sequence[str], clustering: Clustering, *, dry_run: bool
    ) -> None:
        """Cluster the partitions in these directories, or the whole dataset; log it at once."""
        self._maintain(context, directories, clustering, dry_run)

    def _maintain(
        self,
        context: Context,
        directories: Sequence[str],
        clustering: Clustering | None,
        dry_run: bool,
    ) -> None:
        partitions = [one for directory in directories for one in self._partitions_in(directory)]
        self._introduce(context, partitions or self._all_partitions())
        failed: list[str] = []
        for number, partition in enumerate(partitions or [None]):
            recorded: Recorded = {}
            failed += self._maintain_one(context, partition, recorded, clustering, dry_run)
            if number < MAX_PARTITION_EVENTS:
                self.log(context, recorded, dry_run=dry_run)
        if len(partitions) > MAX_PARTITION_EVENTS:
            context.log.warning(
                f"of {len(partitions)} partitions, the first {MAX_PARTITION_EVENTS} have events"
            )
        _fail(failed)

    @catalog_as_failure()
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
                failed += self._maintain_one(context, partition, recorded, None, dry_run=False)
        _fail(failed)

    @catalog_as_failure()
    def recover(self, context: Context) -> None:
        """Undo or complete what interrupted runs left behind."""
        with lease_as_failure():
            actions = self._work(context).recover()
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
        clustering: Clustering | None,
        dry_run: bool,
    ) -> list[str]:
        """Maintain a partition; what could not be done, in words."""
        before = self._planner.health_of(self._dataset, partition)
        done = self._run(context, partition, clustering, dry_run)
        result = done.result
        where = f"{self._dataset.key}{f' [{partition}]' if partition else ''}"
        context.log.info(f"{where}: {_story(result)}")
        # Before anything else is asked of the store: it is committed.
        recorded[partition] = dict(done.metadata)
        if result is not None:
            recorded[partition] |= result_metadata(result, before)
            recorded[partition] |= self._counts(result, partition)
        if not dry_run:
            after = self._planner.health_of(self._dataset, partition)
            recorded[partition] |= {"health_after": round(after.score, 1)}
        elif result is not None and result.stats.rewritten_bytes:
            recorded[partition] |= {"cost": self._cost(context, result)}
        return list(done.failed)

    def _cost(self, context: Context, result: CompactionResult) -> str:
        """What the work would cost, by what runs on this dataset took before."""
        key = self._target.asset_key
        throughput = measured_throughput(context.instance, key, result.engine)
        return cost_words(result.stats.rewritten_bytes, throughput)

    def _counts(self, result: CompactionResult, partition: str | None) -> dict[str, int]:
        """Rows where Dagster looks for them."""
        if result.stats.dry_run:
            return {}
        if self._target.event_key(partition) is not None:
            return {"dagster/partition_row_count": result.rows_after}
        # Files beside partitions are a part of the dataset that has no name.
        is_whole = partition is None or (partition == "" and self._target.partitions is None)
        return {"dagster/row_count": result.rows_after} if is_whole else {}

    def _work(self, context: Context) -> DatasetWork:
        if self._dataset.catalog is None:
            return DirectoryWork(self._dataset)
        return CatalogWork(self._dataset, f"run {context.run.run_id}")

    def _run(
        self,
        context: Context,
        partition: str | None,
        clustering: Clustering | None,
        dry_run: bool,
    ) -> Done:
        dataset, engines = self._dataset, self._engines
        settings = {
            "engine": engines.engine_of(dataset),
            "target_mb_per_file": dataset.target_mb_per_file,
            "target_rows_per_file": dataset.target_rows_per_file,
            "partition_filter": None if partition is None else exactly(partition),
            "compression": dataset.compression,
            "dry_run": dry_run,
            "memory_budget_mb": engines.memory_budget_mb,
            "strict": engines.strict,
            "on_progress": RunLog(context),
        }
        with lease_as_failure():
            return self._work(context).rewrite(clustering, settings)

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
        # Steps are reported once they are done: the first phase began with this.
        self._began = time.monotonic()

    def __call__(self, step: Progress) -> None:
        tenth = 10 * step.done // step.total if step.total else 0
        if (step.phase, tenth) != self._last:
            self._context.log.info(step.describe(time.monotonic() - self._began))
        self._last = step.phase, tenth
        if step.done == step.total:  # the next phase begins now
            self._began = time.monotonic()


def _fail(failed: Sequence[str]) -> None:
    """Fail the run if anything could not be done; a person has to look at the files."""
    if failed:
        metadata = {"failures": dagster.MetadataValue.md(bullets(failed))}
        raise dagster.Failure(shorten(failed[0]), metadata, allow_retries=False)


def _story(result: CompactionResult | None) -> str:
    if result is None:
        return "there is no file yet"
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
