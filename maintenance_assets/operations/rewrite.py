"""What every rewriting operation does: discover, plan, execute, verify, commit, report."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from maintenance_assets.engines.protocol import Engine, Resources, RewriteOutcome, RewriteTask
from maintenance_assets.errors import (
    LeaseLostError,
    UnreadableFileError,
    VerificationError,
    in_words,
)
from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.model.plans import CompactionPlan, GroupFailure, GroupMode, RewriteGroup
from maintenance_assets.model.policy import memory_budget_bytes, worker_count
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.model.stats import MaintenanceStats
from maintenance_assets.operations.engine_choice import (
    EngineChoice,
    fitting_engine,
    requested_engine,
)
from maintenance_assets.operations.naming import output_name, uuid7
from maintenance_assets.operations.readers import with_readers_apart
from maintenance_assets.operations.recover import recover_store
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.operations.verify import verify_group
from maintenance_assets.planning.compaction import codec_label
from maintenance_assets.planning.partitions import PartitionFilter, parse_partition_filter
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.footers import read_footer
from maintenance_assets.storage.journal import (
    GroupEntry,
    InputEntry,
    OutputEntry,
    run_directory,
)
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease
from maintenance_assets.storage.neighbours import refuse_busy_neighbours
from maintenance_assets.storage.publish import Published, publish
from maintenance_assets.storage.recovery import recover_run, recover_runs

logger = logging.getLogger(__name__)

Written = dict[GroupEntry, tuple[RewriteGroup, tuple[DataFile, ...]]]
"""What was written and verified: by journal entry, the group and its outputs."""


class Planner(Protocol):
    """What makes one rewriting operation differ from another."""

    @property
    def operation(self) -> str:
        """Its name, in leases and journals."""
        ...

    @property
    def prefix(self) -> str:
        """What the names of its outputs begin with."""
        ...

    @property
    def max_passes(self) -> int:
        """How often it may plan again on what it has written."""
        ...

    @property
    def ranges_of(self) -> tuple[str, ...]:
        """Columns whose ranges it wants to know."""
        ...

    def plan(self, snapshot: Snapshot, store: Store, report: ProgressCallback) -> CompactionPlan:
        """What to do with the dataset as it is; it may look into files, and say how far it is."""
        ...


def open_run(
    planner: Planner,
    path: str | os.PathLike[str],
    *,
    engine: str | Engine,
    partition_filter: Any,
    filesystem: Any,
    storage_options: Mapping[str, Any] | None,
    memory_budget_mb: float,
    max_workers: int | None,
    strict: bool,
    on_progress: ProgressCallback | None,
) -> "RewriteRun":
    """Check what every rewriting operation takes; nothing is read yet."""
    if on_progress is not None and not callable(on_progress):
        raise ValueError(f"on_progress must be callable, got {on_progress!r}")
    return RewriteRun(
        planner=planner,
        choice=requested_engine(engine),
        filter=parse_partition_filter(partition_filter),
        resources=Resources(
            memory_budget_bytes(memory_budget_mb),
            worker_count(max_workers, os.cpu_count() or 1),
            strict,
        ),
        store=open_store(path, filesystem, storage_options),
        on_progress=on_progress,
    )


@dataclass(slots=True)
class RewriteRun:
    """One call of an operation: its settings, and what has happened so far."""

    planner: Planner
    choice: EngineChoice | None
    filter: PartitionFilter | None
    resources: Resources
    store: Store
    on_progress: ProgressCallback | None
    recovered: tuple[str, ...] = ()
    failures: list[GroupFailure] = field(default_factory=list)
    conflicts: list[GroupFailure] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    engine_notes: dict[str, None] = field(default_factory=dict)
    modes: set[str] = field(default_factory=set)
    passes: int = 0
    inputs: dict[str, DataFile] = field(default_factory=dict)
    """Original files that were rewritten; outputs of an earlier pass do not count."""
    outputs: dict[str, DataFile] = field(default_factory=dict)
    """What was written and is not yet rewritten again."""
    codecs: set[str] = field(default_factory=set)
    written_by: Counter[str] = field(default_factory=Counter)
    group_modes: Counter[GroupMode] = field(default_factory=Counter)
    mode_reasons: dict[str, None] = field(default_factory=dict)
    after: Snapshot | None = None
    """The files in scope once the work is done."""
    seen: Mapping[str, DataFile] = field(default_factory=dict)
    """Files whose footers were read: one that has not changed since is not read again."""
    before_publish: Callable[[str, Sequence[GroupEntry]], None] | None = None
    """Told of a run and of everything that it is about to publish."""

    def preview(self) -> CompactionResult:
        """A dry run: the plan and its predictions; nothing is written."""
        snapshot, plan = self._plan()
        self.failures += plan.failures
        self._note(plan.groups)
        self._foresee(plan, self._choose(plan).engine)
        if self.store.exists(self.store.path(WORK_DIRECTORY)):
            self.notes["a run is under way or was interrupted; a real run recovers it first"] = None
        return self._result(snapshot, plan, plan.predicted, snapshot)

    def _choose(self, plan: CompactionPlan) -> EngineChoice:
        """The engine for this call, decided by its first plan."""
        if self.choice is None:
            self.choice = fitting_engine(plan.groups, self.store, self.resources)
        return self.choice

    def _foresee(self, plan: CompactionPlan, engine: Engine) -> None:
        for group in plan.groups:
            seen = engine.foresee(group, self.store, self.resources.strict)
            self.written_by[seen.engine] += 1
            self._count_mode(group, group.mode)
            if seen.note:
                self.engine_notes[seen.note] = None
            if seen.error:
                self.failures.append(GroupFailure(tuple(group.file_paths()), seen.error))

    def execute(self) -> CompactionResult:
        """Run until planning finds nothing more to do."""
        self.recovered = recover_store(self.store)
        before, first = self._plan()
        self.failures += first.failures
        try:
            after = self._run_passes(before, first)
        except Exception as error:
            if not self.inputs:
                raise
            # What became visible has to be told, whatever went wrong behind it.
            logger.warning("stopped after a part was committed", exc_info=True)
            # An error that says so speaks of what it stopped, not of what came before.
            reason = str(error).replace(" Nothing was changed.", "")
            why = f"stopped after {len(self.inputs)} files were rewritten: {reason}"
            self.failures.append(GroupFailure((), why))
            after = self._as_written(before)
        self.after = after
        return self._result(before, first, self._measured(before, after), after)

    def _run_passes(self, before: Snapshot, first: CompactionPlan) -> Snapshot:
        """Carry out plan after plan; the dataset as it is then."""
        after, plan = before, first
        while not plan.is_empty:
            published = self._pass(plan)
            self.passes += 1
            after = self._discover(self._report_measuring)
            # A conflict will not go away by trying at once; merged files may now fit together.
            if not published or self.conflicts or self.passes == self.planner.max_passes:
                break
            plan = self.planner.plan(after, self.store, self._report_measuring)
            plan = with_readers_apart(plan, after.files, self.store)
            plan = plan.without({path for failure in self.failures for path in failure.paths})
        return after

    def _as_written(self, before: Snapshot) -> Snapshot:
        """The dataset as it should be now, from what was published, without looking."""
        kept = [file for file in before.files if file.path not in self.inputs]
        return replace(before, files=(*kept, *self.outputs.values()))

    def _plan(self) -> tuple[Snapshot, CompactionPlan]:
        snapshot = self._discover(self.on_progress)
        plan = self.planner.plan(snapshot, self.store, self._report)
        return snapshot, with_readers_apart(plan, snapshot.files, self.store)

    def _discover(self, report: ProgressCallback | None) -> Snapshot:
        found = discover(self.store, self.filter, report, self.planner.ranges_of, self.seen)
        self.seen = found.by_path()
        return found

    def _pass(self, plan: CompactionPlan) -> bool:
        """Execute and publish one plan; whether anything became visible."""
        run_id = uuid7()
        with Lease(self.store, run_id, self.planner.operation) as lease:
            self.recovered += recover_runs(self.store, lease)
            refuse_busy_neighbours(self.store)
            try:
                written = self._write(plan, run_id)
                if self.before_publish is not None:
                    self.before_publish(run_id, list(written))
                published = publish(
                    self.store,
                    lease,
                    run_id,
                    self.planner.operation,
                    list(written),
                    plan.metadata_files,
                )
            except LeaseLostError:
                raise  # another process may be recovering this run by now: touch nothing
            except BaseException:
                self._clean_up_after_error(lease, run_id)
                raise
        self._account(published, written)
        return bool(published.groups)

    def _write(self, plan: CompactionPlan, run_id: str) -> Written:
        tasks = [self._task(index, group, run_id) for index, group in enumerate(plan.groups)]
        total = sum(group.total_bytes for group in plan.groups)
        done_bytes = 0
        written: Written = {}
        outcomes = self._choose(plan).engine.rewrite(tasks, self.store, self.resources)
        # Closed on the way out, whatever happens: no worker may go on after the clean-up.
        with closing(outcomes):
            for done, outcome in enumerate(outcomes, start=1):
                group = plan.groups[outcome.index]
                self._take(group, outcome, written)
                done_bytes += group.total_bytes
                self._report(Progress("execute", done, len(tasks), done_bytes, total))
        return written

    def _take(self, group: RewriteGroup, outcome: RewriteOutcome, written: Written) -> None:
        """Check what an engine made of a group."""
        error = outcome.error
        if error is None:
            error = self._accept(group, outcome.written, written)
        if error is None:
            self.written_by[outcome.engine] += 1
            self._count_mode(group, outcome.mode)
        else:
            self._blame(group, error)
        self.engine_notes.update(dict.fromkeys(outcome.notes))

    def _count_mode(self, group: RewriteGroup, mode: GroupMode) -> None:
        self.group_modes[mode] += 1
        if group.mode_reason:
            self.mode_reasons[f"{group.mode}: {group.mode_reason}"] = None

    def _blame(self, group: RewriteGroup, error: str) -> None:
        """A group whose files were changed under the engine is a conflict, not a failure."""
        for file in group.files:
            listed = self.store.stat(file.path)
            if listed is None or listed.version != file.version:
                why = f"'{file.path}' was changed by another writer while it was read"
                self.conflicts.append(GroupFailure(tuple(group.file_paths()), why))
                return
        self.failures.append(GroupFailure(tuple(group.file_paths()), error))

    def _task(self, index: int, group: RewriteGroup, run_id: str) -> RewriteTask:
        """Outputs are named in the order of the plan: sorted by name, rows keep their order."""
        staged = tuple(
            self.store.path(f"{run_directory(run_id)}/{output_name(self.planner.prefix)}.staged")
            for _ in group.output_rows
        )
        return RewriteTask(index, group, staged)

    def _accept(
        self,
        group: RewriteGroup,
        paths: Sequence[str],
        written: Written,
    ) -> str | None:
        """Verify what an engine wrote and note it for publishing, or say what is wrong."""
        try:
            files = tuple(self._read_written(path) for path in paths)
            verify_group(group, files)
            for path in paths:
                self.store.copy_permissions(group.files[0].path, path)
        except (VerificationError, UnreadableFileError, OSError) as error:
            return in_words(error)
        written[_entry(self.store, group, paths)] = (group, files)
        return None

    def _read_written(self, path: str) -> DataFile:
        listed = self.store.stat(path)
        if listed is None:
            raise FileNotFoundError(f"the engine did not write '{path}'")
        return read_footer(self.store, listed, self.planner.ranges_of)

    def _account(
        self,
        published: Published,
        written: Written,
    ) -> None:
        for entry in published.groups:
            group, files = written[entry]
            self.inputs.update(
                (file.path, file) for file in group.files if file.path not in self.outputs
            )
            for file in group.files:
                self.outputs.pop(file.path, None)
            finals = [self.store.path(output.final) for output in entry.outputs]
            placed = [replace(f, path=path) for f, path in zip(files, finals, strict=True)]
            self.outputs.update((file.path, file) for file in placed)
            self.codecs |= {codec for file in files for codec in file.codecs}
            self._note([group])
        self.seen = {**self.seen, **self.outputs}
        self.conflicts += [
            GroupFailure(tuple(self.store.path(i.path) for i in entry.inputs), why)
            for entry, why in published.conflicts
        ]
        self.failures += [
            GroupFailure(tuple(self.store.path(i.path) for i in entry.inputs), why)
            for entry, why in published.denied
        ]
        for conflict in self.conflicts:
            logger.warning("group left as it was: %s", conflict.reason)
        self.modes.add(published.mode)
        self._report_safely(Progress("publish", len(published.groups), len(written)))

    def _clean_up_after_error(self, lease: Lease, run_id: str) -> None:
        """The error matters more than what it left: the next run recovers that anyway."""
        try:
            recover_run(self.store, lease, run_id)
        except Exception as error:
            logger.warning("left for the next run to recover: %s", error)

    def _measured(self, before: Snapshot, after: Snapshot) -> MaintenanceStats:
        codecs = self.codecs or {codec for file in before.files for codec in file.codecs}
        return MaintenanceStats(
            before_file_count=len(before.files),
            after_file_count=len(after.files),
            before_total_bytes=before.total_bytes,
            after_total_bytes=after.total_bytes,
            compacted_file_count=len(self.inputs),
            rewritten_bytes=sum(file.size_bytes for file in self.inputs.values()),
            compression_codec=codec_label(codecs),
            dry_run=False,
        )

    def _result(
        self, before: Snapshot, plan: CompactionPlan, stats: MaintenanceStats, after: Snapshot
    ) -> CompactionResult:
        return CompactionResult(
            stats=stats,
            plan=plan,
            engine=self._choose(plan).engine.name,
            engine_reason=self._choose(plan).reason,
            rows=before.total_rows,
            rows_after=after.total_rows,
            schema=after.files[-1].schema.arrow if after.files else None,
            seconds=0.0,
            publish="ordered"
            if "ordered" in self.modes
            else "exchange"
            if "exchange" in self.modes
            else "none",
            passes=self.passes,
            conflicts=tuple(self.conflicts),
            failures=tuple(self.failures),
            notes=tuple(self.notes),
            engine_notes=tuple(self.engine_notes),
            recovered=self.recovered,
            written_by=dict(self.written_by),
            mode=common_mode(self.group_modes),
            modes={str(mode): count for mode, count in self.group_modes.items()},
            mode_reasons=tuple(self.mode_reasons),
        )

    def _note(self, groups: Sequence[RewriteGroup]) -> None:
        self.notes.update(dict.fromkeys(note for group in groups for note in group.notes))

    def _report(self, progress: Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)

    def _report_measuring(self, progress: Progress) -> None:
        self._report_safely(replace(progress, phase="measure"))

    def _report_safely(self, progress: Progress) -> None:
        """Before publishing, a callback that raises cancels the run; afterwards it is too late."""
        try:
            self._report(progress)
        except Exception:
            logger.exception("the progress callback failed after the files were published")


def _entry(store: Store, group: RewriteGroup, paths: Sequence[str]) -> GroupEntry:
    directory = store.relative(group.directory)
    prefix = f"{directory}/" if directory else ""
    return GroupEntry(
        directory=directory,
        inputs=tuple(InputEntry(store.relative(f.path), f.version) for f in group.files),
        outputs=tuple(
            OutputEntry(store.relative(path), prefix + _final_name(path)) for path in paths
        ),
    )


def common_mode(modes: Mapping[GroupMode, int]) -> Literal[GroupMode, "none"]:
    """One word for all groups: where some are copied and some encoded, it is some of each."""
    return next(iter(modes), "none") if len(modes) < 2 else "hybrid"


def _final_name(staged: str) -> str:
    """The name before `.staged`, whatever an engine put after that."""
    return staged.rpartition("/")[2].partition(".staged")[0]


def failure_message(result: CompactionResult) -> str:
    failed = result.failures
    done = result.stats.compacted_file_count
    if not failed[-1].paths:  # no group's fault
        return failed[-1].reason
    return (
        f"{len(failed)} group(s) were left as they were: {failed[0].reason.rstrip('.')}"
        + (f" (and {len(failed) - 1} more, see .result.failures)" if len(failed) > 1 else "")
        + f". The other groups are committed: {done} file(s) rewritten."
    )
