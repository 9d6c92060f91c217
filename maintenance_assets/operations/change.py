"""What delete, update and upsert do: look, plan, write, verify, back up, publish, report."""

import logging
import os
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from maintenance_assets.engines.merge_source import forget_sources
from maintenance_assets.engines.protocol import Engine, Resources, ScanOutcome, ScanTask
from maintenance_assets.engines.scan_kernel import scan_in_threads
from maintenance_assets.errors import (
    ConcurrentChangeError,
    IncompleteMaintenanceError,
    LeaseLostError,
    RecoveryError,
    RewriteError,
)
from maintenance_assets.model.policy import codec_name, memory_budget_bytes, worker_count
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.operations.change_writing import ChangeWriter, ConflictError, Written
from maintenance_assets.operations.engine_choice import (
    EngineChoice,
    fitting_engine,
    requested_engine,
)
from maintenance_assets.operations.naming import uuid7
from maintenance_assets.operations.recover import recover_store
from maintenance_assets.operations.results import ChangeResult
from maintenance_assets.operations.survey import ChangeRequest, FileChangedError, Surveyor
from maintenance_assets.planning.bound_changes import BoundChange
from maintenance_assets.planning.change_plan import (
    ChangePlan,
    Changes,
    Survey,
    plan_change,
    publishing_order,
)
from maintenance_assets.planning.changes import Finder, Merging
from maintenance_assets.planning.partitions import PartitionFilter, parse_partition_filter
from maintenance_assets.planning.repartitioning import check_lengths
from maintenance_assets.storage.backups import (
    discard_backup,
    open_backups,
    seal_backup,
    write_backup,
)
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.journal import InputEntry, read_journal, run_directory
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease
from maintenance_assets.storage.neighbours import refuse_busy_neighbours
from maintenance_assets.storage.publish import PublishMode, groups_by_directory, publish
from maintenance_assets.storage.recovery import recover_run, recover_runs

logger = logging.getLogger(__name__)

ATTEMPTS = 3
_LOOKS = 10
_SOURCE = "source.arrow"


def run_change(
    request: ChangeRequest,
    path: str | os.PathLike[str],
    *,
    engine: str | Engine,
    partition_filter: Any,
    backup_path: str | os.PathLike[str] | None,
    compression: str | None,
    dry_run: bool,
    filesystem: Any,
    storage_options: Mapping[str, Any] | None,
    memory_budget_mb: float,
    max_workers: int | None,
    strict: bool,
    on_progress: ProgressCallback | None,
) -> ChangeResult:
    """Check what every change takes, and carry it out."""
    started = time.monotonic()
    if on_progress is not None and not callable(on_progress):
        raise ValueError(f"on_progress must be callable, got {on_progress!r}")
    choice, chosen = requested_engine(engine), parse_partition_filter(partition_filter)
    memory = memory_budget_bytes(memory_budget_mb)
    resources = Resources(memory, worker_count(max_workers, os.cpu_count() or 1), strict)
    codec = codec_name(compression)
    store = open_store(path, filesystem, storage_options)
    backups = None
    if backup_path is not None:
        backups = open_backups(backup_path, store, filesystem, storage_options)
    run = ChangeRun(request, store, choice, chosen, resources, codec, backups, on_progress)
    try:
        result = run.preview() if dry_run else run.execute()
    finally:
        forget_sources()
    return replace(result, seconds=time.monotonic() - started)


@dataclass(slots=True)
class ChangeRun:
    """One call: its settings, and what has happened so far."""

    request: ChangeRequest
    store: Store
    choice: EngineChoice | None
    filter: PartitionFilter | None
    resources: Resources
    compression: str | None
    backups: Store | None
    on_progress: ProgressCallback | None
    recovered: tuple[str, ...] = ()
    notes: dict[str, None] = field(default_factory=dict)
    engine_notes: dict[str, None] = field(default_factory=dict)
    surveyor: Surveyor = field(init=False)

    def __post_init__(self) -> None:
        self.surveyor = Surveyor(self.request, self.store, self.filter, self._report)

    def preview(self) -> ChangeResult:
        """A dry run: exact figures; nothing is written, and no engine is started."""
        bound, survey = self._look(self._scan_here)
        plan = self._plan(bound, survey)
        engine = self._engine(plan)
        for group in plan.groups:
            seen = engine.foresee(group, self.store, self.resources.strict)
            if seen.error:
                raise RewriteError(seen.error)
            if seen.note:
                self.engine_notes[seen.note] = None
        if self.store.exists(self.store.path(WORK_DIRECTORY)):
            self.notes["a run is under way or was interrupted; a real run recovers it first"] = None
        return replace(self._result(plan, survey), stats=plan.stats)

    def execute(self) -> ChangeResult:
        """Do it as a whole or not at all; again where other writers came between."""
        self.recovered = recover_store(self.store)
        bound, survey = self._look(self._scan)
        plan = self._plan(bound, survey)
        if plan.is_empty:
            return self._result(plan, survey)
        is_new = not self.store.exists(self.store.root)
        try:
            return self._try_several_times()
        finally:
            if is_new:  # nothing is left of a dataset that did not come to be
                self.store.remove_if_empty(self.store.root)

    def _try_several_times(self) -> ChangeResult:
        conflict: ConflictError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                logger.warning("trying again: %s", conflict)
            try:
                return self._attempt()
            except ConflictError as error:
                conflict = error
        raise ConcurrentChangeError(
            f"'{self.store.shown}' was changed by other writers in each of {ATTEMPTS} attempts "
            f"({conflict}). Nothing was changed; try again when they have ended."
        ) from conflict

    def _attempt(self) -> ChangeResult:
        run_id = uuid7()
        written: Written | None = None
        mode: PublishMode = "ordered"
        with Lease(self.store, run_id, self.request.operation) as lease:
            self.recovered += recover_runs(self.store, lease)
            refuse_busy_neighbours(self.store)
            try:
                # What came until now is looked at as well. Nobody who respects the lease can come
                # between from here on; who does not is found out by the versions of the files.
                bound, survey = self._look(self._scan)
                plan = self._plan(bound, survey, run_id)
                if plan.is_empty:
                    return self._result(plan, survey)
                written = self._writer(plan, run_id).write(bound, survey, plan)
                mode = self._publish(lease, run_id, survey, plan, written)
            except LeaseLostError:
                raise  # another process may be recovering this run by now: touch nothing
            except BaseException as error:
                self._clean_up_after_error(lease, run_id)
                if written is not None and self._is_pending(run_id):
                    if not isinstance(error, Exception):
                        raise
                    raise self._pending_error(plan, survey, run_id, error) from error
                told = isinstance(error, ConflictError | RewriteError)
                if told or written is None or not self._is_done(written):
                    self._discard_backup(run_id)
                    raise
                if not isinstance(error, Exception):
                    raise
                logger.warning("completed in spite of an error", exc_info=True)
        return self._published(plan, survey, written, mode, run_id)

    def _is_done(self, written: Written) -> bool:
        """Whether a change became visible, and as a whole, before something went wrong."""
        stat, path = self.store.stat, self.store.path
        left = [entry for entry in written.inputs if _has_version(stat(path(entry.path)), entry)]
        return not left and all(stat(path(output.final)) for output in written.outputs)

    def _is_pending(self, run_id: str) -> bool:
        """Whether the next run will decide what becomes of this one."""
        try:
            return read_journal(self.store, run_id) is not None
        except (OSError, RecoveryError):
            return True  # it cannot be known: what it replaced has to be kept

    def _pending_error(
        self, plan: ChangePlan, survey: Survey, run_id: str, error: Exception
    ) -> IncompleteMaintenanceError:
        result = self._result(plan, survey)
        backup_id = None if self.backups is None else run_id
        return IncompleteMaintenanceError(
            f"The {self.request.operation} of '{self.store.shown}' was interrupted while it was "
            f"made visible: {str(error).rstrip('.')}. Do not repeat it: run recover(), which "
            "completes it or takes it back as a whole, and look at the rows then.",
            replace(result, backup_id=backup_id),
        )

    def _discard_backup(self, run_id: str) -> None:
        if self.backups is not None:
            discard_backup(self.backups, run_id)

    # -- looking -----------------------------------------------------------------------------

    def _look(self, scan: Any) -> tuple[BoundChange, Survey]:
        for _ in range(_LOOKS):
            try:
                return self.surveyor.look(scan)
            except FileChangedError as error:
                logger.info("looking again: %s", error)
        raise ConcurrentChangeError(
            f"'{self.store.shown}' changes faster than it can be read. Nothing was changed; try "
            "again when its writers have ended."
        )

    def _scan(
        self, tasks: Sequence[ScanTask], finder: Finder
    ) -> Generator[ScanOutcome, None, None]:
        if self.choice is None:
            return self._scan_here(tasks, finder)
        return self.choice.engine.scan(tasks, finder, self.store, self.resources)

    def _scan_here(
        self, tasks: Sequence[ScanTask], finder: Finder
    ) -> Generator[ScanOutcome, None, None]:
        return scan_in_threads(tasks, finder, self.store, self.resources)

    # -- planning ----------------------------------------------------------------------------

    def _plan(self, bound: BoundChange, survey: Survey, run_id: str = "") -> ChangePlan:
        run = self.store.path(run_directory(run_id))
        changes = bound.changes(survey.read)
        if isinstance(changes.rule, Merging):
            changes = replace(changes, rule=replace(changes.rule, source=f"{run}/{_SOURCE}"))
        self._refuse_outside(changes, survey)
        if self.store.is_local:
            check_lengths(sorted(changes.directories))
        plan = plan_change(survey, changes, self.compression, run)
        wider = self.surveyor.widened(survey, plan.emptied) if plan.emptied else survey
        return plan if wider is survey else plan_change(wider, changes, self.compression, run)

    def _refuse_outside(self, changes: Changes, survey: Survey) -> None:
        """New rows are new only if their keys are nowhere else, where nobody has looked."""
        directories, rule = changes.inserted, changes.rule
        if directories and self.filter is not None and survey.others:
            keys = set(rule.keys if isinstance(rule, Merging) else ())
            if not self.filter.keys or not keys.issuperset(self.filter.keys):
                raise ValueError(
                    f"{sum(directories.values())} row(s) are new in partition_filter "
                    f"{self.filter}, but their keys may be in other partitions, which are not "
                    "looked into. Leave partition_filter out, or have its columns among key_cols"
                )
        for directory in directories:
            if self.filter is not None and not self.filter.matches(directory):
                raise ValueError(
                    f"New rows belong into '{directory}', which is outside of partition_filter "
                    f"{self.filter}: whether their keys exist there is not looked up"
                )

    def _engine(self, plan: ChangePlan) -> Engine:
        if self.choice is None:
            self.choice = fitting_engine(plan.groups, self.store, self.resources)
        return self.choice.engine

    # -- writing and publishing --------------------------------------------------------------

    def _writer(self, plan: ChangePlan, run_id: str) -> ChangeWriter:
        return ChangeWriter(
            store=self.store,
            engine=self._engine(plan),
            resources=self.resources,
            compression=self.compression,
            run=self.store.path(run_directory(run_id)),
            report=self._report,
            note=lambda text: self.engine_notes.update({text: None}),
        )

    def _publish(
        self, lease: Lease, run_id: str, survey: Survey, plan: ChangePlan, written: Written
    ) -> PublishMode:
        store, operation = self.store, self.request.operation
        by_directory = {
            group.directory: group for group in groups_by_directory(written.inputs, written.outputs)
        }
        groups = [by_directory[name] for name in publishing_order(plan, by_directory)]
        lease.ensure_held()
        made = None
        if self.backups is not None:
            inputs, outputs = written.inputs, written.outputs
            made = write_backup(self.backups, store, run_id, operation, inputs, outputs)
        published = publish(
            store, lease, run_id, operation, groups, survey.metadata_files, atomic=True
        )
        for _, why in published.denied:
            raise RewriteError(f"{why}. Nothing was changed.")
        for _, why in published.conflicts:
            raise ConflictError(why)
        if self.backups is not None and made is not None:
            seal_backup(self.backups, store, made)
        return published.mode

    def _clean_up_after_error(self, lease: Lease, run_id: str) -> None:
        """The error matters more than what it left: the next run recovers that anyway."""
        try:
            recover_run(self.store, lease, run_id)
        except Exception as error:
            logger.warning("left for the next run to recover: %s", error)

    # -- reporting ---------------------------------------------------------------------------

    def _published(
        self,
        plan: ChangePlan,
        survey: Survey,
        written: Written,
        mode: PublishMode,
        run_id: str,
    ) -> ChangeResult:
        result = self._result(plan, survey)
        self._report_safely(Progress("publish", len(plan.inputs), len(plan.inputs)))
        return replace(
            result,
            stats=replace(result.stats, files_written=len(written.outputs)),
            publish=mode,
            backup_id=None if self.backups is None else run_id,
            schema=written.files[-1].schema.arrow if written.files else result.schema,
        )

    def _result(self, plan: ChangePlan, survey: Survey) -> ChangeResult:
        engine = self._engine(plan)
        self.notes.update(dict.fromkeys(plan.notes))
        return ChangeResult(
            stats=replace(plan.stats, dry_run=False),
            engine=engine.name,
            engine_reason="" if self.choice is None else self.choice.reason,
            files_pruned=len(survey.files) - len(survey.read),
            schema=survey.files[-1].schema.arrow if survey.files else None,
            notes=tuple(self.notes),
            engine_notes=tuple(self.engine_notes),
            recovered=self.recovered,
        )

    def _report(self, progress: Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)

    def _report_safely(self, progress: Progress) -> None:
        """Before publishing, a callback that raises cancels the run; afterwards it is too late."""
        try:
            self._report(progress)
        except Exception:
            logger.exception("the progress callback failed after the files were published")


def _has_version(listed: Listed | None, entry: InputEntry) -> bool:
    return listed is not None and listed.version == entry.version
