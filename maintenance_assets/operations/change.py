"""What delete, update and upsert do: look, plan, write, verify, back up, publish, report."""

import logging
import os
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from maintenance_assets.engines.insert_kernel import insert_rows
from maintenance_assets.engines.merge_source import forget_sources, stage_source
from maintenance_assets.engines.protocol import (
    Engine,
    Resources,
    RewriteOutcome,
    RewriteTask,
    ScanOutcome,
    ScanTask,
)
from maintenance_assets.engines.scan_kernel import scan_in_threads
from maintenance_assets.errors import (
    ConcurrentChangeError,
    LeaseLostError,
    RewriteError,
    VerificationError,
)
from maintenance_assets.model.changes import MovedFile
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup, WriterOptions
from maintenance_assets.model.policy import codec_name, memory_budget_bytes, worker_count
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.operations.engine_choice import (
    EngineChoice,
    fitting_engine,
    requested_engine,
)
from maintenance_assets.operations.naming import output_name, uuid7
from maintenance_assets.operations.recover import recover_store
from maintenance_assets.operations.results import ChangeResult
from maintenance_assets.operations.survey import (
    ChangeRequest,
    FileChangedError,
    Surveyor,
)
from maintenance_assets.operations.verify import verify_files
from maintenance_assets.planning.bound_changes import BoundChange
from maintenance_assets.planning.change_plan import ChangePlan, Survey, plan_change
from maintenance_assets.planning.changes import Finder, Merging
from maintenance_assets.planning.encoding import writer_options
from maintenance_assets.planning.partitions import PartitionFilter, parse_partition_filter
from maintenance_assets.planning.upsert import BoundUpsert
from maintenance_assets.storage.backups import discard_backup, open_backups, write_backup
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.footers import read_footer
from maintenance_assets.storage.journal import InputEntry, OutputEntry, run_directory
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease
from maintenance_assets.storage.neighbours import refuse_busy_neighbours
from maintenance_assets.storage.publish import Published, groups_by_directory, publish
from maintenance_assets.storage.recovery import recover_run, recover_runs

logger = logging.getLogger(__name__)

ATTEMPTS = 3
_LOOKS = 10
PREFIX = "part"
NEW_DATASET_CODEC = "zstd"


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


class _ConflictError(Exception):
    """An input is not any more what was planned with: nothing was published, plan again."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Everything that is to be published."""

    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    files: tuple[DataFile, ...]


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
        bound, survey = self._look(here=True)
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
        return self._result(plan, survey)

    def execute(self) -> ChangeResult:
        """Do it as a whole or not at all; again where other writers came between."""
        self.recovered = recover_store(self.store)
        bound, survey = self._look()
        plan = self._plan(bound, survey)
        if plan.is_empty:
            return self._unchanged(plan, survey)
        conflict: _ConflictError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                logger.warning("trying again: %s", conflict)
            try:
                return self._attempt()
            except _ConflictError as error:
                conflict = error
        raise ConcurrentChangeError(
            f"'{self.store.shown}' was changed by other writers in each of {ATTEMPTS} attempts "
            f"({conflict}). Nothing was changed; try again when they have ended."
        ) from conflict

    # -- one attempt -------------------------------------------------------------------------

    def _attempt(self) -> ChangeResult:
        run_id = uuid7()
        with Lease(self.store, run_id, self.request.operation) as lease:
            self.recovered += recover_runs(self.store, lease)
            refuse_busy_neighbours(self.store)
            try:
                # What others did until now is looked at; nobody who respects the lease can come
                # between from here on, and who does not is found out by the version of a file.
                bound, survey = self._look()
                plan = self._plan(bound, survey, run_id)
                if plan.is_empty:
                    return self._unchanged(plan, survey)
                written = self._write(bound, survey, plan, run_id)
                published = self._publish(lease, run_id, survey, written)
            except LeaseLostError:
                raise  # another process may be recovering this run by now: touch nothing
            except BaseException:
                self._clean_up_after_error(lease, run_id)
                raise
        return self._report_result(plan, survey, written, published, run_id)

    def _unchanged(self, plan: ChangePlan, survey: Survey) -> ChangeResult:
        return replace(self._result(plan, survey), stats=replace(plan.stats, dry_run=False))

    def _look(self, *, here: bool = False) -> tuple[BoundChange, Survey]:
        scan = self._scan_here if here else self._scan
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

    def _plan(self, bound: BoundChange, survey: Survey, run_id: str = "") -> ChangePlan:
        run = self.store.path(run_directory(run_id))
        changes = bound.changes(survey.read)
        if isinstance(changes.rule, Merging):
            changes = replace(changes, rule=replace(changes.rule, source=f"{run}/source.arrow"))
        if self.filter is not None:
            for directory in changes.inserted:
                if not self.filter.matches(directory):
                    raise ValueError(
                        f"New rows belong into '{directory}', which is outside of partition_filter "
                        f"{self.filter}: whether their keys exist there is not looked up"
                    )
        plan = plan_change(survey, changes, self.compression, run)
        wider = self.surveyor.widened(survey, plan.emptied) if plan.emptied else survey
        return plan if wider is survey else plan_change(wider, changes, self.compression, run)

    def _engine(self, plan: ChangePlan) -> Engine:
        if self.choice is None:
            self.choice = fitting_engine(plan.groups, self.store, self.resources)
        return self.choice.engine

    # -- writing -----------------------------------------------------------------------------

    def _write(self, bound: BoundChange, survey: Survey, plan: ChangePlan, run_id: str) -> _Written:
        run = self.store.path(run_directory(run_id))
        if isinstance(bound, BoundUpsert) and plan.groups:
            stage_source(bound.source, f"{run}/source.arrow", self.store)
        outputs: list[tuple[str, str, DataFile]] = []
        outputs += self._rewrite(plan, run)
        if isinstance(bound, BoundUpsert):
            outputs += self._insert(bound, survey, run)
        return _Written(
            tuple(InputEntry(self.store.relative(f.path), f.version) for f in plan.inputs),
            tuple(OutputEntry(self.store.relative(staged), final) for staged, final, _ in outputs),
            tuple(file for _, _, file in outputs),
        )

    def _rewrite(self, plan: ChangePlan, run: str) -> list[tuple[str, str, DataFile]]:
        tasks = [
            RewriteTask(
                index,
                group,
                tuple(f"{run}/{output_name(PREFIX)}.staged" for _ in group.output_rows),
            )
            for index, group in enumerate(plan.groups)
        ]
        found: dict[int, list[tuple[str, str, DataFile]]] = {}
        total = sum(group.total_bytes for group in plan.groups)
        done_bytes = 0
        outcomes = self._engine(plan).rewrite(tasks, self.store, self.resources)
        # Closed on the way out, whatever happens: no worker may go on after the clean-up.
        with closing(outcomes):
            for done, outcome in enumerate(outcomes, start=1):
                group = plan.groups[outcome.index]
                found[outcome.index] = self._accept(group, outcome)
                self.engine_notes.update(dict.fromkeys(outcome.notes))
                done_bytes += group.total_bytes
                self._report(Progress("execute", done, len(tasks), done_bytes, total))
        return [output for _, outputs in sorted(found.items()) for output in outputs]

    def _accept(
        self, group: RewriteGroup, outcome: RewriteOutcome
    ) -> list[tuple[str, str, DataFile]]:
        """Verify what an engine wrote; staged path, final name and footer of each file."""
        if outcome.error is not None:
            self._refuse(group, outcome.error)
        rows = [*group.output_rows, *(moved.rows for moved in outcome.moved)]
        paths = [*outcome.written, *(moved.path for moved in outcome.moved)]
        try:
            files = self._verified(group.files, group.schema, paths, rows)
            for path in paths:
                self.store.copy_permissions(group.files[0].path, path)
        except (VerificationError, OSError) as error:
            self._refuse(group, f"{type(error).__name__}: {error}")
        directory = self.store.relative(group.directory)
        finals = [_below(directory, _final_name(path)) for path in outcome.written]
        finals += [_below(moved.directory, output_name(PREFIX)) for moved in outcome.moved]
        return list(zip(paths, finals, files, strict=True))

    def _insert(
        self, bound: BoundUpsert, survey: Survey, run: str
    ) -> list[tuple[str, str, DataFile]]:
        rows = bound.new_rows(survey.read)
        if not len(rows):
            return []
        options = self._options(survey)
        placed = insert_rows(bound, rows, options, run, self.store, self.resources.memory_bytes)
        _require_rows(placed, bound.inserted(survey.read))
        paths = [file.path for file in placed]
        files = self._verified(survey.files, bound.schema, paths, [file.rows for file in placed])
        for path in paths if survey.files else ():
            self.store.copy_permissions(survey.files[0].path, path)
        finals = [_below(file.directory, output_name(PREFIX)) for file in placed]
        return list(zip(paths, finals, files, strict=True))

    def _options(self, survey: Survey) -> WriterOptions:
        if survey.files:
            return replace(writer_options(survey.files, self.compression), sorting=())
        made = writer_options((), self.compression or NEW_DATASET_CODEC)
        return replace(made, store_arrow_schema=True)

    def _verified(
        self, like: Sequence[DataFile], schema: Any, paths: Sequence[str], rows: Sequence[int]
    ) -> list[DataFile]:
        files = []
        for path in paths:
            listed = self.store.stat(path)
            if listed is None:
                raise FileNotFoundError(f"the engine did not write '{path}'")
            files.append(read_footer(self.store, listed))
        verify_files(like, schema, list(zip(files, rows, strict=True)))
        return files

    def _refuse(self, group: RewriteGroup, error: str) -> None:
        """Raise: a conflict where a file was changed under the engine, else what went wrong."""
        for file in group.files:
            listed = self.store.stat(file.path)
            if listed is None or listed.version != file.version:
                raise _ConflictError(f"'{file.path}' was changed while it was read")
        raise RewriteError(f"{error.rstrip('.')}. Nothing was changed.")

    # -- publishing --------------------------------------------------------------------------

    def _publish(self, lease: Lease, run_id: str, survey: Survey, written: _Written) -> Published:
        groups = groups_by_directory(written.inputs, written.outputs)
        operation = self.request.operation
        lease.ensure_held()
        if self.backups is not None:
            write_backup(
                self.backups, self.store, run_id, operation, written.inputs, written.outputs
            )
        try:
            published = publish(
                self.store, lease, run_id, operation, groups, survey.metadata_files, atomic=True
            )
            for _, why in published.conflicts:
                raise _ConflictError(why)
            for _, why in published.denied:
                raise RewriteError(f"{why}. Nothing was changed.")
        except (_ConflictError, RewriteError):
            if self.backups is not None:
                discard_backup(self.backups, run_id)
            raise
        return published

    def _clean_up_after_error(self, lease: Lease, run_id: str) -> None:
        """The error matters more than what it left: the next run recovers that anyway."""
        try:
            recover_run(self.store, lease, run_id)
        except Exception as error:
            logger.warning("left for the next run to recover: %s", error)

    # -- reporting ---------------------------------------------------------------------------

    def _report_result(
        self,
        plan: ChangePlan,
        survey: Survey,
        written: _Written,
        published: Published,
        run_id: str,
    ) -> ChangeResult:
        stats = replace(plan.stats, files_written=len(written.outputs), dry_run=False)
        result = self._result(plan, survey)
        schema = written.files[-1].schema.arrow if written.files else result.schema
        self._report_safely(Progress("publish", len(published.groups), len(published.groups)))
        return replace(
            result,
            stats=stats,
            publish=published.mode,
            backup_id=None if self.backups is None else run_id,
            schema=schema,
        )

    def _result(self, plan: ChangePlan, survey: Survey) -> ChangeResult:
        engine = self._engine(plan)
        self.notes.update(dict.fromkeys(plan.notes))
        return ChangeResult(
            stats=plan.stats,
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


def _require_rows(placed: Sequence[MovedFile], promised: Counter[str]) -> None:
    found: Counter[str] = Counter()
    for file in placed:
        found[file.directory] += file.rows
    if found != promised:
        raise VerificationError("new rows were not written as planned. Nothing was changed.")


def _below(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _final_name(staged: str) -> str:
    """The name before `.staged`, whatever an engine put after that."""
    return staged.rpartition("/")[2].partition(".staged")[0]
