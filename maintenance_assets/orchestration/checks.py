"""Asset checks: what is wrong with a dataset, as the UI shows it."""

import dagster

from maintenance_assets.orchestration.assets import asset_key
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.metadata import bullets
from maintenance_assets.orchestration.planner import MaintenancePlanner

Checks = dagster.AssetChecksDefinition
Result = dagster.AssetCheckResult
WARN, ERROR = dagster.AssetCheckSeverity.WARN, dagster.AssetCheckSeverity.ERROR


def build_checks(dataset: DatasetConfig) -> list[Checks]:
    """The four checks of a dataset."""
    return [_small_files(dataset), _schema_drift(dataset), _rows(dataset), _leftovers(dataset)]


def _small_files(dataset: DatasetConfig) -> Checks:
    @dagster.asset_check(
        asset=asset_key(dataset), name="small_files", description="Few files could be saved."
    )
    def small_files(maintenance_planner: MaintenancePlanner) -> Result:
        needy = [p for p in maintenance_planner.partitions(dataset) if p.gain >= dataset.min_gain]
        saved = sum(part.gain for part in needy)
        return Result(
            passed=not needy,
            severity=WARN,
            description=f"{len(needy)} partition(s) in need, {saved} files could be saved",
            metadata={"partitions_in_need": len(needy), "gain": saved},
        )

    return small_files


def _schema_drift(dataset: DatasetConfig) -> Checks:
    @dagster.asset_check(
        asset=asset_key(dataset),
        name="schema_drift",
        description="The files of each partition can be merged without loss.",
    )
    def schema_drift(maintenance_planner: MaintenancePlanner) -> Result:
        conflicts = maintenance_planner.conflicts(dataset)
        reasons = [conflict.reason for conflict in conflicts]
        return Result(
            passed=not conflicts,
            severity=ERROR,
            description=reasons[0] if reasons else "all schemas can be merged",
            metadata={"conflicts": dagster.MetadataValue.md(bullets(reasons) or "none")},
        )

    return schema_drift


def _rows(dataset: DatasetConfig) -> Checks:
    @dagster.asset_check(
        asset=asset_key(dataset),
        name="rows_preserved",
        description="The last maintenance left no fewer rows than it found.",
    )
    def rows_preserved(context: dagster.AssetCheckExecutionContext) -> Result:
        event = context.instance.get_latest_materialization_event(asset_key(dataset))
        found = event.asset_materialization if event is not None else None
        if found is None or "rows_after" not in found.metadata:
            return Result(passed=True, description="no maintenance was recorded yet")
        before, after = (int(str(found.metadata[k].value)) for k in ("rows", "rows_after"))
        return Result(
            passed=after >= before,
            severity=ERROR,
            description=f"{before:,} rows before, {after:,} after",
            metadata={"rows_before": before, "rows_after": after},
        )

    return rows_preserved


def _leftovers(dataset: DatasetConfig) -> Checks:
    @dagster.asset_check(
        asset=asset_key(dataset),
        name="leftovers",
        description="No interrupted run waits to be recovered.",
    )
    def leftovers(maintenance_planner: MaintenancePlanner) -> Result:
        runs = maintenance_planner.leftovers(dataset)
        return Result(
            passed=not runs,
            severity=WARN,
            description=f"{len(runs)} interrupted run(s): run {dataset.safe_name}__recover"
            if runs
            else "nothing left behind",
            metadata={"runs": dagster.MetadataValue.md(bullets(runs) or "none")},
        )

    return leftovers
