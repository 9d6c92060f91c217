"""One repartition: lock, look, write, compare, publish, and only then take the source away."""

import logging
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from maintenance_assets.engines.protocol import Engine, Places, Resources
from maintenance_assets.engines.repartition_kernel import write_empty
from maintenance_assets.engines.repartition_task import RepartitionOutcome, RepartitionTask, Report
from maintenance_assets.errors import (
    ConcurrentChangeError,
    IncompleteMaintenanceError,
    LeaseLostError,
    RewriteError,
)
from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.model.progress import Phase, Progress, ProgressCallback
from maintenance_assets.model.repartition import RepartitionStats
from maintenance_assets.operations.engine_choice import EngineChoice, fitting_repartition
from maintenance_assets.operations.naming import uuid7
from maintenance_assets.operations.readers import require_same_readers
from maintenance_assets.operations.recover import recover_store
from maintenance_assets.operations.repartition_plan import (
    Planned,
    Request,
    plan_repartition,
    predicted_rows,
)
from maintenance_assets.operations.repartition_verify import require_all_rows, verify_outcome
from maintenance_assets.operations.results import RepartitionResult
from maintenance_assets.operations.verify import verify_files
from maintenance_assets.planning.packing import Load, output_count
from maintenance_assets.planning.repartitioning import check_lengths
from maintenance_assets.storage.discovery import discover, list_dataset, select
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.footers import read_footers
from maintenance_assets.storage.journal import InputEntry, OutputEntry, run_directory
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease
from maintenance_assets.storage.local_paths import make_directories
from maintenance_assets.storage.neighbours import refuse_busy_neighbours
from maintenance_assets.storage.publish import (
    Published,
    groups_by_directory,
    publish,
    publish_tree,
    require_empty_target,
)
from maintenance_assets.storage.recovery import recover_run, recover_runs

logger = logging.getLogger(__name__)

OPERATION = "repartition"


@dataclass(slots=True)
class RepartitionRun:
    """One call: its settings, and what has happened so far."""

    request: Request
    source: Store
    target: Store
    choice: EngineChoice | None
    resources: Resources
    on_progress: ProgressCallback | None
    recovered: tuple[str, ...] = ()
    notes: dict[str, None] = field(default_factory=dict)
    engine_notes: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.in_place:
            if self.request.delete_source:
                raise ValueError("delete_source has no meaning where target is source")
        elif _share_files(self.source, self.target):
            raise ValueError(
                f"source '{self.source.shown}' and target '{self.target.shown}' lie inside each "
                "other: choose a target beside the source, or the source itself"
            )

    @property
    def in_place(self) -> bool:
        """Whether the old files are to be replaced."""
        return _same_store(self.source, self.target) and self.source.root == self.target.root

    # -- looking only ------------------------------------------------------------------------

    def preview(self) -> RepartitionResult:
        """A dry run: what there is is counted, and nothing is written."""
        if not self.in_place:
            require_empty_target(self.target)
        snapshot = discover(self.source, on_progress=self.on_progress)
        require_same_readers(self.source, [file.path for file in snapshot.files])
        planned = plan_repartition(self.request, snapshot, self.source, "")
        seen = self._engine(planned.task).foresee_repartition(
            planned.task, Places(self.source, self.target), self.resources.strict
        )
        if seen.error:
            raise RewriteError(seen.error)
        if seen.note:
            self.engine_notes[seen.note] = None
        rows = self._predict(planned, snapshot)
        if self.source.exists(self.source.path(WORK_DIRECTORY)):
            self.notes["a run is under way or was interrupted; a real run recovers it first"] = None
        files = sum(_file_count(count, snapshot, self.request.policy) for count in rows.values())
        stats = RepartitionStats(
            partitions_created=len(rows),
            files_read=len(snapshot.files),
            files_written=max(1, files),
            rows_read=snapshot.total_rows,
            rows_written=snapshot.total_rows,
            bytes_before=snapshot.total_bytes,
            bytes_after=snapshot.total_bytes,
            errors=0,
            dry_run=True,
        )
        return self._result(planned, stats, rows, seen.engine, planned.task.schema)

    def _predict(self, planned: Planned, snapshot: Snapshot) -> Counter[str]:
        rows, is_counted = predicted_rows(
            planned, self.source, self.resources, self._reporter("scan", snapshot)
        )
        check_lengths(tuple(rows))
        if not is_counted:
            note = "partitions are those of a sample: transform_fn was not run over all rows"
            self.notes[note] = None
        return rows

    # -- doing it ----------------------------------------------------------------------------

    def execute(self) -> RepartitionResult:
        """All or nothing; the source goes last, if it is to go."""
        select(self.source, list_dataset(self.source).data, None)  # before a lease makes its root
        self.recovered = recover_store(self.source)
        existed = self.target.exists(self.target.root)
        if not self.in_place:
            self.recovered += recover_store(self.target)
            require_empty_target(self.target)
        run_id = uuid7()
        try:
            with self._leases(run_id) as (source_lease, target_lease):
                result, snapshot = self._attempt(run_id, target_lease)
                if self.request.delete_source and source_lease is not None:
                    result = self._delete_source(result, snapshot, run_id, source_lease)
        finally:
            if not existed:  # stays if anything was published
                self.target.remove_if_empty(self.target.root)
        if result.source_deleted:
            self.source.remove_if_empty(self.source.root)
        return result

    @contextmanager
    def _leases(self, run_id: str) -> Iterator[tuple[Lease | None, Lease]]:
        """Nobody else maintains either of the two meanwhile."""
        with ExitStack() as stack:
            source = self._source_lease(stack, run_id)
            target = source
            if target is None or not self.in_place:
                if self.source.is_local and self.target.is_local:
                    # Rows that few may read stay so.
                    make_directories(self.target.root, self.source.root)
                target = stack.enter_context(Lease(self.target, run_id, OPERATION))
                self.recovered += recover_runs(self.target, target)
                refuse_busy_neighbours(self.target)
            yield source, target

    def _source_lease(self, stack: ExitStack, run_id: str) -> Lease | None:
        try:
            lease = stack.enter_context(Lease(self.source, run_id, OPERATION))
        except PermissionError:
            if self.in_place or self.request.delete_source:
                raise
            note = "the source may not be written to: no lease keeps others from maintaining it"
            self.notes[note] = None
            return None
        self.recovered += recover_runs(self.source, lease)
        refuse_busy_neighbours(self.source)
        return lease

    def _attempt(self, run_id: str, lease: Lease) -> tuple[RepartitionResult, Snapshot]:
        try:
            snapshot = discover(self.source, on_progress=self.on_progress)
            require_same_readers(self.source, [file.path for file in snapshot.files])
            staging = self.target.path(run_directory(run_id))
            planned = plan_repartition(self.request, snapshot, self.source, staging)
            outcome = self._write(planned.task, snapshot)
            written = self._accept(planned.task, outcome, staging)
            self._require_unchanged(snapshot)
            published = self._publish(lease, run_id, snapshot, outcome)
        except LeaseLostError:
            raise  # another process may be recovering this run by now: touch nothing
        except BaseException:
            self._clean_up_after_error(lease, run_id)
            raise
        return self._measured(planned, outcome, snapshot, written, published), snapshot

    def _engine(self, task: RepartitionTask) -> Engine:
        if self.choice is None:
            self.choice = fitting_repartition(task, self.source, self.target, self.resources)
        return self.choice.engine

    def _write(self, task: RepartitionTask, snapshot: Snapshot) -> RepartitionOutcome:
        engine = self._engine(task)
        places = Places(self.source, self.target)
        report = self._reporter("execute", snapshot)
        try:
            outcome: RepartitionOutcome = engine.repartition(task, places, self.resources, report)
            if not outcome.parts:
                outcome = replace(outcome, parts=(write_empty(task, self.target),))
        except (RewriteError, pa.ArrowException, OSError) as error:
            self._require_unchanged(snapshot)
            if isinstance(error, RewriteError):
                raise
            raise RewriteError(f"{type(error).__name__}: {error}. Nothing was changed") from error
        self.engine_notes.update(dict.fromkeys(outcome.notes))
        return outcome

    def _accept(
        self, task: RepartitionTask, outcome: RepartitionOutcome, staging: str
    ) -> tuple[DataFile, ...]:
        """Compare what was written with what was to be: rows, their content, schema, metadata."""
        verify_outcome(task, outcome)
        if self.in_place and self.request.validate:
            require_all_rows(outcome)
        check_lengths([part.directory for part in outcome.parts] if self.target.is_local else [])
        listed = {entry.path: entry for entry in self.target.find(staging)}
        missing = [part.path for part in outcome.parts if part.path not in listed]
        if missing:
            raise RewriteError(f"the engine did not write '{missing[0]}'. Nothing was changed")
        files = read_footers(self.target, [listed[part.path] for part in outcome.parts])
        found = {file.path: file for file in files}
        promised = [(found[part.path], part.rows) for part in outcome.parts]
        verify_files(task.files if task.plan.transform is None else (), task.schema, promised)
        if self.source.is_local:
            for part in outcome.parts:
                like = task.files[0].path
                self.target.copy_permissions(like, part.path, is_copy=not self.in_place)
        return files

    def _require_unchanged(self, snapshot: Snapshot) -> None:
        """Raise where a source is not what was read; what came since is told."""
        now = {entry.path: entry.version for entry in list_dataset(self.source).data}
        for file in snapshot.files:
            if now.get(file.path) != file.version:
                what = "replaced" if file.path in now else "deleted"
                raise ConcurrentChangeError(
                    f"'{file.path}' was {what} by another writer while it was repartitioned. "
                    "Nothing was changed; run the operation again."
                )
        late = sorted(now.keys() - {file.path for file in snapshot.files})
        if late:
            where = "stay where they are" if self.in_place else "are not in the target"
            self.notes[
                f"{len(late)} file(s) were added to the source meanwhile and {where}, the first is "
                f"'{late[0]}'"
            ] = None

    # -- publishing --------------------------------------------------------------------------

    def _publish(
        self, lease: Lease, run_id: str, snapshot: Snapshot, outcome: RepartitionOutcome
    ) -> Published:
        published = publish_tree(
            self.target,
            lease,
            run_id,
            OPERATION,
            _inputs(self.source, snapshot) if self.in_place else (),
            [_output(self.target, part.directory, part.path) for part in outcome.parts],
            snapshot.metadata_files if self.in_place else (),
        )
        for _, why in published.conflicts:
            raise ConcurrentChangeError(f"{why}. Nothing was changed; run the operation again.")
        for _, why in published.denied:
            raise RewriteError(f"{why}. Nothing was changed.")
        if self.in_place:
            _remove_empty(self.source, snapshot)
        return published

    def _delete_source(
        self, result: RepartitionResult, snapshot: Snapshot, run_id: str, lease: Lease
    ) -> RepartitionResult:
        """Take the source away, now that all of it is in the target; what came later stays."""
        if result.stats.rows_written != result.stats.rows_read:
            raise IncompleteMaintenanceError(
                f"'{self.target.shown}' is complete, but the source was not deleted: transform_fn "
                f"made {result.stats.rows_written} row(s) of {result.stats.rows_read}. Delete "
                f"'{self.source.shown}' yourself if that is what you want.",
                result,
            )
        groups = groups_by_directory(_inputs(self.source, snapshot), ())
        published = publish(
            self.source, lease, run_id, OPERATION, groups, snapshot.metadata_files, atomic=True
        )
        for _, why in (*published.conflicts, *published.denied):
            raise IncompleteMaintenanceError(
                f"'{self.target.shown}' is complete, but the source was not deleted: {why}", result
            )
        _remove_empty(self.source, snapshot)
        return replace(result, source_deleted=True)

    def _clean_up_after_error(self, lease: Lease, run_id: str) -> None:
        """The error matters more than what it left: the next run recovers that anyway."""
        try:
            recover_run(self.target, lease, run_id)
        except Exception as error:
            logger.warning("left for the next run to recover: %s", error)

    # -- reporting ---------------------------------------------------------------------------

    def _measured(
        self,
        planned: Planned,
        outcome: RepartitionOutcome,
        snapshot: Snapshot,
        written: Sequence[DataFile],
        published: Published,
    ) -> RepartitionResult:
        rows: Counter[str] = Counter()
        for part in outcome.parts:
            rows[part.directory] += part.rows
        stats = RepartitionStats(
            partitions_created=len(rows),
            files_read=len(snapshot.files),
            files_written=len(written),
            rows_read=outcome.rows_read,
            rows_written=rows.total(),
            bytes_before=snapshot.total_bytes,
            bytes_after=sum(file.size_bytes for file in written),
            errors=0,
            dry_run=False,
        )
        self._report_safely(Progress("publish", len(published.groups), len(published.groups)))
        schema = written[-1].schema.arrow
        result = self._result(planned, stats, rows, outcome.engine, schema)
        return replace(result, publish=published.mode, validated=self.request.validate)

    def _result(
        self,
        planned: Planned,
        stats: RepartitionStats,
        rows: Counter[str],
        engine: str,
        schema: pa.Schema,
    ) -> RepartitionResult:
        for directory in sorted(rows):
            if any(segment.endswith("=") for segment in directory.split("/")):
                note = f"Spark refuses datasets with an empty partition value, here '{directory}'"
                self.notes[note] = None
                break
        return RepartitionResult(
            stats=stats,
            engine=engine,
            engine_reason="" if self.choice is None else self.choice.reason,
            partitions=tuple(sorted(rows.items())),
            schema=schema,
            notes=tuple(dict.fromkeys([*planned.notes, *self.notes])),
            engine_notes=tuple(self.engine_notes),
            recovered=self.recovered,
        )

    def _reporter(self, phase: Phase, snapshot: Snapshot) -> Report:
        """Turns rows that are done into a share of the bytes."""
        total, size = snapshot.total_rows, snapshot.total_bytes

        def report(rows: int) -> None:
            if self.on_progress is not None:
                self.on_progress(Progress(phase, rows, total, size * rows // max(1, total), size))

        return report

    def _report_safely(self, progress: Progress) -> None:
        """Before publishing, a callback that raises cancels the run; afterwards it is too late."""
        try:
            if self.on_progress is not None:
                self.on_progress(progress)
        except Exception:
            logger.exception("the progress callback failed after the files were published")


def _inputs(store: Store, snapshot: Snapshot) -> list[InputEntry]:
    return [InputEntry(store.relative(file.path), file.version) for file in snapshot.files]


def _output(store: Store, directory: str, staged: str) -> OutputEntry:
    name = posixpath.basename(staged).partition(".staged")[0]
    return OutputEntry(store.relative(staged), f"{directory}/{name}" if directory else name)


def _remove_empty(store: Store, snapshot: Snapshot) -> None:
    """Directories in which nothing is left, from the inside out; the root itself stays."""
    directories = {store.relative(file.directory) for file in snapshot.files}
    above = {
        "/".join(segments[:depth])
        for segments in (directory.split("/") for directory in directories)
        for depth in range(1, len(segments) + 1)
    }
    for directory in sorted(above - {""}, key=lambda each: -each.count("/")):
        store.remove_if_empty(store.path(directory))


def _file_count(rows: int, snapshot: Snapshot, policy: CompactionPolicy) -> int:
    share = snapshot.total_bytes * rows // max(1, snapshot.total_rows)
    return output_count(Load(share, rows), policy)


def _same_store(one: Store, other: Store) -> bool:
    return one.is_local == other.is_local and type(one.fs) is type(other.fs)


def _share_files(one: Store, other: Store) -> bool:
    if not _same_store(one, other):
        return False
    return any(
        outer == inner or inner.startswith(f"{outer.rstrip('/')}/")
        for outer, inner in ((one.root, other.root), (other.root, one.root))
    )
