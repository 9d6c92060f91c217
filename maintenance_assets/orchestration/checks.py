"""Asset checks: what is wrong with a dataset, as the UI shows it."""

import dagster

from maintenance_assets.errors import MaintenanceError
from maintenance_assets.orchestration.maintenance import MAX_PARTITION_EVENTS, Target
from maintenance_assets.orchestration.metadata import bullets, shorten
from maintenance_assets.orchestration.planner import MaintenancePlanner

Checks = dagster.AssetChecksDefinition
Result = dagster.AssetCheckResult
WARN, ERROR = dagster.AssetCheckSeverity.WARN, dagster.AssetCheckSeverity.ERROR
EMPTY = "there is no data file yet"


def build_checks(target: Target) -> list[Checks]:
    """The four checks of a dataset."""
    return [_small_files(target), _schema_drift(target), _rows(target), _leftovers(target)]


def _small_files(target: Target) -> Checks:
    @dagster.asset_check(
        asset=target.asset_key, name="small_files", description="Few files could be saved."
    )
    def small_files(maintenance_planner: MaintenancePlanner) -> Result:
        try:
            needy = maintenance_planner.in_need(target.dataset)
        except MaintenanceError as error:
            return Result(passed=False, severity=WARN, description=shorten(str(error)))
        saved = sum(needy.values())
        worst = sorted(needy, key=lambda name: -needy[name])
        table = bullets([f"{name or '(root)'}: {needy[name]}" for name in worst])
        return Result(
            passed=not needy,
            severity=WARN,
            description=f"{len(needy)} partition(s) in need, {saved} files could be saved",
            metadata={
                "partitions_in_need": len(needy),
                "gain": saved,
                "files_to_save": dagster.MetadataValue.md(table or "none"),
            },
        )

    return small_files


def _schema_drift(target: Target) -> Checks:
    @dagster.asset_check(
        asset=target.asset_key,
        name="schema_drift",
        description="The files of each partition can be merged without loss.",
    )
    def schema_drift(maintenance_planner: MaintenancePlanner) -> Result:
        try:
            failures = maintenance_planner.plan(target.dataset).failures
        except FileNotFoundError:
            return Result(passed=True, description=EMPTY)
        except MaintenanceError as error:
            return Result(passed=False, severity=ERROR, description=shorten(str(error)))
        reasons = [failure.reason for failure in failures]
        return Result(
            passed=not reasons,
            severity=ERROR,
            description=shorten(reasons[0]) if reasons else "all schemas can be merged",
            metadata={
                "conflict_count": len(reasons),
                "conflicts": dagster.MetadataValue.md(bullets(reasons) or "none"),
            },
        )

    return schema_drift


def _rows(target: Target) -> Checks:
    @dagster.asset_check(
        asset=target.asset_key,
        name="rows_preserved",
        description="The last run left as many rows as it found, less those it was to delete.",
    )
    def rows_preserved(context: dagster.AssetCheckExecutionContext) -> Result:
        counted = _last_rows(context.instance, target.asset_key)
        if not counted:
            return Result(passed=True, description="no maintenance was recorded yet")
        before, after, expected = (sum(rows) for rows in zip(*counted, strict=True))
        changed = "" if expected == before else f" ({expected:,} expected)"
        return Result(
            # Each partition by itself: what one gained does not make up for another's loss.
            passed=all(after >= expected for _, after, expected in counted),
            severity=ERROR,
            description=f"{before:,} rows before, {after:,} after{changed}",
            metadata={"rows_before": before, "rows_after": after, "events": len(counted)},
        )

    return rows_preserved


def _last_rows(
    instance: dagster.DagsterInstance, key: dagster.AssetKey
) -> list[tuple[int, int, int]]:
    """Rows before, after and expected, of each event of the last run that saw to the dataset."""
    records = instance.fetch_materializations(key, limit=MAX_PARTITION_EVENTS).records
    found = [(record.run_id, record.asset_materialization) for record in records]
    ours = [(run, one) for run, one in found if one is not None and "rows_after" in one.metadata]
    return [_rows_of(one) for run, one in ours if run == ours[0][0]]


def _rows_of(event: dagster.AssetMaterialization) -> tuple[int, int, int]:
    before, after, deleted, inserted = (
        int(str(event.metadata[name].value)) if name in event.metadata else 0
        for name in ("rows", "rows_after", "rows_deleted", "rows_inserted")
    )
    return before, after, before - deleted + inserted


def _leftovers(target: Target) -> Checks:
    dataset = target.dataset

    @dagster.asset_check(
        asset=target.asset_key,
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
