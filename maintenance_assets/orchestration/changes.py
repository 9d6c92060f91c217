"""What the jobs that change rows or their places do, and what they tell Dagster of it."""

from collections.abc import Callable
from typing import Any

import dagster

from maintenance_assets.operations.restore import RestoreResult
from maintenance_assets.operations.results import ChangeResult, RepartitionResult
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.failures import told_as_failure
from maintenance_assets.orchestration.maintenance import Context, RunLog, Target
from maintenance_assets.orchestration.metadata import bullets, column_schema
from maintenance_assets.orchestration.planner import MaintenancePlanner


class DatasetChanges:
    """Changes of one dataset, reporting to Dagster."""

    def __init__(
        self, target: Target, planner: MaintenancePlanner, engines: EngineResource
    ) -> None:
        self._target = target
        self._dataset = target.dataset
        self._planner = planner
        self._engines = engines

    def change(
        self,
        context: Context,
        operation: Callable[..., ChangeResult],
        *,
        dry_run: bool,
        is_whole: bool = True,
    ) -> None:
        """Delete, update or upsert rows, of some partitions or of the whole dataset."""
        with told_as_failure():
            result = operation(
                self._dataset.directory,
                backup_path=self._dataset.backup_path,
                dry_run=dry_run,
                **self._settings(context),
            )
        self._log(context, _change_metadata(result, is_whole=is_whole), dry_run=dry_run)

    def restore(
        self, context: Context, operation: Callable[..., RestoreResult], *, dry_run: bool
    ) -> None:
        """Take a change back."""
        with told_as_failure():
            result = operation(
                self._dataset.directory,
                backup_path=self._dataset.backup_path,
                dry_run=dry_run,
                storage_options=self._dataset.storage_options or None,
            )
        self._log(context, _restore_metadata(result), dry_run=dry_run)

    def repartition(
        self,
        context: Context,
        operation: Callable[..., RepartitionResult],
        *,
        in_place: bool,
        dry_run: bool,
    ) -> None:
        """Put rows into other directories; a copy elsewhere leaves the dataset as it is."""
        with told_as_failure():
            result = operation(
                self._dataset.directory,
                target_mb_per_file=self._dataset.target_mb_per_file,
                target_rows_per_file=self._dataset.target_rows_per_file,
                dry_run=dry_run,
                **self._settings(context),
            )
        self._log(context, _repartition_metadata(result), dry_run=dry_run or not in_place)

    def _settings(self, context: Context) -> dict[str, Any]:
        return {
            "engine": self._engines.engine_of(self._dataset),
            "compression": self._dataset.compression,
            "storage_options": self._dataset.storage_options or None,
            "memory_budget_mb": self._engines.memory_budget_mb,
            "strict": self._engines.strict,
            "on_progress": RunLog(context),
        }

    def _log(self, context: Context, metadata: dict[str, Any], *, dry_run: bool) -> None:
        log_whole(context, self._target, self._planner, metadata, observed=dry_run)


def log_whole(
    context: Context,
    target: Target,
    planner: MaintenancePlanner,
    metadata: dict[str, Any],
    *,
    observed: bool,
) -> None:
    """One event of the dataset as a whole; partitions that came with it become known."""
    partitions = target.partitions
    if partitions is not None and partitions.name is not None:
        there = [part.partition for part in planner.partitions(target.dataset)]
        new = target.new_keys(context.instance, there)
        if new:
            context.instance.add_dynamic_partitions(partitions.name, new)
    kind = dagster.AssetObservation if observed else dagster.AssetMaterialization
    context.log_event(kind(target.asset_key, metadata=metadata))


def _change_metadata(result: ChangeResult, *, is_whole: bool) -> dict[str, Any]:
    rows = {"rows": result.stats.rows_before}
    # With a filter, the figures are those of a part of the dataset.
    if not result.stats.dry_run and is_whole:
        rows["dagster/row_count"] = result.stats.rows_after
    return result.to_dict() | rows | _run_metadata(result)


def _repartition_metadata(result: RepartitionResult) -> dict[str, Any]:
    figures = result.to_dict()
    rows = {"rows": figures["rows_read"], "rows_after": figures["rows_written"]}
    return figures | rows | _run_metadata(result)


def _restore_metadata(result: RestoreResult) -> dict[str, Any]:
    metadata = result.to_dict() | {"publish": result.publish, "seconds": round(result.seconds, 3)}
    return metadata | _texts({"recovered": result.recovered})


def _run_metadata(result: ChangeResult | RepartitionResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "engine": result.engine,
        "publish": result.publish,
        "seconds": round(result.seconds, 3),
    }
    if result.schema is not None:
        metadata["dagster/column_schema"] = column_schema(result.schema)
    notes = (*result.notes, *result.engine_notes)
    return metadata | _texts({"notes": notes, "recovered": result.recovered})


def _texts(texts: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    found = {name: lines for name, lines in texts.items() if lines}
    return {name: dagster.MetadataValue.md(bullets(lines)) for name, lines in found.items()}
