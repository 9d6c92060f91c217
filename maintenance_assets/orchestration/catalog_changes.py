"""What the jobs that only datasets of a catalog have do, and what they tell Dagster of it."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import dagster

from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_assets.model.lakehouse import Commit
from maintenance_assets.operations.lake_admin import FsckReport, VacuumResult
from maintenance_assets.operations.lake_change import ChangeOutcome
from maintenance_assets.orchestration.catalog_look import OpenDataset, open_dataset
from maintenance_assets.orchestration.catalog_work import AUTHOR, version_metadata
from maintenance_assets.orchestration.changes import log_whole
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_assets.orchestration.failures import told_as_failure
from maintenance_assets.orchestration.maintenance import Context, Target
from maintenance_assets.orchestration.metadata import bullets, column_schema, shorten
from maintenance_assets.orchestration.planner import MaintenancePlanner

_RETRY_TAG = "dagster/retry_number"
Change = Callable[[LakeDataset, Mapping[str, Any]], ChangeOutcome]


class CatalogChanges:
    """Changes of one dataset of a catalog, and the upkeep of its versions."""

    def __init__(
        self, target: Target, planner: MaintenancePlanner, engines: EngineResource
    ) -> None:
        self._target = target
        self.dataset = target.dataset
        self._planner = planner
        self._engines = engines

    @told_as_failure()
    def change(self, context: Context, change: Change, *, dry_run: bool) -> None:
        """Change rows or their places as a version."""
        with open_dataset(self.dataset) as opened:
            outcome = change(opened.lake, self._settings(context, dry_run))
            metadata = _change_metadata(opened.lake, outcome)
        self._log(context, metadata, observed=dry_run)

    @told_as_failure()
    def restore(self, context: Context, version: int) -> None:
        """Make a version that is like an earlier one."""
        with open_dataset(self.dataset) as opened:
            made = opened.lake.restore(version, author=AUTHOR, message=_restored(context, version))
            figures = {"restored_version": version, **_total(opened.lake, made)}
            metadata = {**figures, **version_metadata(opened.lake, made)}
            metadata["dagster/column_schema"] = column_schema(opened.lake.schema())
        self._log(context, metadata, observed=False)

    @told_as_failure()
    def vacuum(
        self, context: Context, retention_days: float | None, *, dry_run: bool, force: bool
    ) -> None:
        """Delete files that no version needs, or say which."""
        with open_dataset(self.dataset) as opened:
            done = _vacuumed(opened, retention_days, dry_run=dry_run, force=force)
            metadata = {**_vacuum_metadata(done), **version_metadata(opened.lake)}
        self._log(context, metadata, observed=True)

    @told_as_failure()
    def expire(
        self,
        context: Context,
        older_than_days: float | None,
        retain_last: int | None,
        *,
        dry_run: bool,
    ) -> None:
        """Give old versions up, or say which."""
        with open_dataset(self.dataset) as opened:
            versions = _expired(opened, older_than_days, retain_last, dry_run=dry_run)
            metadata = {**_expire_metadata(versions, dry_run), **version_metadata(opened.lake)}
        self._log(context, metadata, observed=True)

    @told_as_failure()
    def clean_up(self, context: Context) -> None:
        """Give old versions up, and delete the files that nobody needs any more."""
        with open_dataset(self.dataset) as opened:
            versions = _expired(opened, None, None, dry_run=False)
            done = _vacuumed(opened, None, dry_run=False, force=False)
            metadata = {
                **_expire_metadata(versions, False),
                **_vacuum_metadata(done),
                **version_metadata(opened.lake),
            }
        self._log(context, metadata, observed=True)

    @told_as_failure()
    def fsck(self, context: Context) -> None:
        """Compare the directory with the catalog; problems fail the run."""
        with open_dataset(self.dataset) as opened:
            (report,) = opened.house.fsck(dataset=opened.lake.name).reports
            metadata = {**_fsck_metadata(report), **version_metadata(opened.lake)}
        self._log(context, metadata, observed=True)
        if report.problems:
            told = dagster.MetadataValue.md(bullets(report.problems))
            message = f"{len(report.problems)} problem(s), the first: {report.problems[0]}"
            raise dagster.Failure(shorten(message), {"problems": told}, allow_retries=False)

    def _settings(self, context: Context, dry_run: bool) -> dict[str, Any]:
        return {
            "dry_run": dry_run,
            "compression": self.dataset.compression,
            "target_mb_per_file": self.dataset.target_mb_per_file,
            "target_rows_per_file": self.dataset.target_rows_per_file,
            "memory_budget_mb": self._engines.memory_budget_mb,
            "txn_id": f"dagster-{_first_run(context)}-{context.op_def.name}",
            "author": AUTHOR,
            "message": f"run {context.run.run_id}",
        }

    def _log(self, context: Context, metadata: dict[str, Any], *, observed: bool) -> None:
        log_whole(context, self._target, self._planner, metadata, observed=observed)


def _first_run(context: Context) -> str:
    """The run that Dagster tries again: what it committed before it died, is not done twice."""
    run = context.run
    while _RETRY_TAG in run.tags and run.parent_run_id is not None:
        parent = context.instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return str(run.parent_run_id)
        run = parent
    return str(run.run_id)


def _restored(context: Context, version: int) -> str:
    return f"restore version {version}, run {context.run.run_id}"


def _vacuumed(
    opened: OpenDataset, retention_days: float | None, *, dry_run: bool, force: bool
) -> VacuumResult:
    days = opened.catalog.vacuum_after_days if retention_days is None else retention_days
    (done,) = opened.house.vacuum(
        timedelta(days=days), dry_run=dry_run, force=force, dataset=opened.lake.name
    )
    return done


def _expired(
    opened: OpenDataset, older_than_days: float | None, retain_last: int | None, *, dry_run: bool
) -> tuple[int, ...]:
    days = opened.catalog.expire_after_days if older_than_days is None else older_than_days
    last = opened.catalog.retain_last if retain_last is None else retain_last
    name = opened.lake.name
    found = opened.house.expire_snapshots(timedelta(days=days), last, dataset=name, dry_run=dry_run)
    return found[name]


def _change_metadata(lake: LakeDataset, outcome: ChangeOutcome) -> dict[str, Any]:
    figures = {
        "rows_deleted": outcome.rows_deleted,
        "rows_updated": outcome.rows_updated,
        "rows_inserted": outcome.rows_inserted,
        "files_read": outcome.files_read,
        "files_removed": outcome.files_removed,
        "files_added": outcome.files_added,
        "dry_run": outcome.dry_run,
    }
    version = version_metadata(lake, outcome.version)
    if outcome.dry_run:
        return {**figures, **version}
    schema = {"dagster/column_schema": column_schema(lake.schema())}
    return {**figures, **_rows(lake, outcome), **version, **schema}


def _rows(lake: LakeDataset, outcome: ChangeOutcome) -> dict[str, int]:
    """Rows before and after, by the commit itself: others may have written since."""
    commit = _commit(lake, outcome.version)
    after, before = commit.total_rows, commit.total_rows
    if outcome.version is not None:
        before += commit.rows_removed - commit.rows_added
    return {"rows": before, "rows_after": after, "dagster/row_count": after}


def _total(lake: LakeDataset, version: int) -> dict[str, int]:
    return {"dagster/row_count": _commit(lake, version).total_rows}


def _commit(lake: LakeDataset, version: int | None) -> Commit:
    newest = lake.history(1)[0]
    if version is None or version == newest.version:
        return newest
    return next(commit for commit in lake.history() if commit.version == version)


def _vacuum_metadata(done: VacuumResult) -> dict[str, Any]:
    paths = [tomb.path for tomb in done.files]
    metadata: dict[str, Any] = {
        "dry_run": done.dry_run,
        "vacuumed_files": len(paths),
        "vacuumed_bytes": done.total_bytes,
        "files": dagster.MetadataValue.md(bullets(paths) or "none"),
    }
    if done.recovered:
        given = [f"{one.operation} transaction {one.txn_id}" for one in done.recovered]
        metadata["recovered"] = dagster.MetadataValue.md(bullets(given))
    return metadata


def _expire_metadata(versions: tuple[int, ...], dry_run: bool) -> dict[str, Any]:
    shown = bullets([f"version {version}" for version in versions]) or "none"
    return {
        "dry_run": dry_run,
        "expired_versions": len(versions),
        "versions": dagster.MetadataValue.md(shown),
    }


def _fsck_metadata(report: FsckReport) -> dict[str, Any]:
    return {
        "missing_files": len(report.missing),
        "stray_files": len(report.stray),
        "files_of_wrong_size": len(report.wrong_size),
        "files_to_vacuum": report.waiting,
        "problems": dagster.MetadataValue.md(bullets(report.problems) or "none"),
    }
