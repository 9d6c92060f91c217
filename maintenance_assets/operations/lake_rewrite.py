"""Compact and optimize a catalog dataset: the same plans and engines, committed as a version."""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from maintenance_assets.engines.protocol import Resources, RewriteOutcome, RewriteTask
from maintenance_assets.errors import (
    CommitConflictError,
    UnreadableFileError,
    VerificationError,
    in_words,
)
from maintenance_assets.model.files import DataFile, FileSchema, Snapshot
from maintenance_assets.model.lakehouse import (
    FIELD_ID,
    CatalogFile,
    Change,
    DatasetState,
    NewFile,
)
from maintenance_assets.model.plans import CompactionPlan, GroupFailure, GroupMode, RewriteGroup
from maintenance_assets.model.policy import (
    DEFAULT_MEMORY_BUDGET_MB,
    memory_budget_bytes,
    worker_count,
)
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.model.stats import MaintenanceStats
from maintenance_assets.operations.engine_choice import (
    EngineChoice,
    fitting_engine,
    requested_engine,
)
from maintenance_assets.operations.lake_files import describe_files, listed_of
from maintenance_assets.operations.lake_session import (
    LakeSession,
    LakeTransaction,
    remove_work_folder,
    work_folder,
)
from maintenance_assets.operations.readers import with_readers_apart
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.operations.rewrite import Planner, common_mode
from maintenance_assets.operations.verify import verify_group
from maintenance_assets.planning.compaction import codec_label
from maintenance_assets.planning.partitions import check_filter_keys, parse_partition_filter
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.footers import read_footer, read_footers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """What every rewriting operation on a catalog dataset takes."""

    engine: Any = "pyarrow"
    partition_filter: Any = None
    dry_run: bool = False
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB
    max_workers: int | None = None
    strict: bool = False
    on_progress: ProgressCallback | None = None
    author: str | None = None
    message: str | None = None


def names_in_files(
    columns: Sequence[str], called: Mapping[str, str | None]
) -> tuple[str, ...] | None:
    """Columns (nested ones by dotted path) as some files call them; None if they have none."""
    found, missing = [], []
    for column in columns:
        top = column if column in called else column.partition(".")[0]
        if top not in called:
            missing.append(column)
        elif called[top] is not None:
            found.append(f"{called[top]}{column[len(top) :]}")
    if missing:
        raise ValueError(
            f"Missing z-order columns: {', '.join(missing)}. Available columns: {', '.join(called)}"
        )
    return tuple(found) or None


@dataclass(frozen=True, slots=True)
class Part:
    """Files that may be rewritten together: each name is the same column in all of them."""

    files: tuple[CatalogFile, ...]
    names: dict[str, int]


def split_by_names(files: Sequence[CatalogFile], physical: Any) -> tuple[Part, ...]:
    """Keep files apart in which a name means different columns, or a column has two names."""
    parts: list[tuple[list[CatalogFile], dict[str, int]]] = []
    for file in files:
        schema = physical[file.physical_id]
        # Adopted files may hold columns that the dataset does not have, nor will have.
        names = {**dict.fromkeys(schema.arrow.names, _NO_COLUMN), **dict(schema.mapping)}
        for members, known in parts:
            if _agree(names, known):
                members.append(file)
                known.update(names)
                break
        else:
            parts.append(([file], names))
    return tuple(
        Part(tuple(members), {n: i for n, i in known.items() if i != _NO_COLUMN})
        for members, known in parts
    )


_NO_COLUMN = -1


def _agree(names: dict[str, int], known: dict[str, int]) -> bool:
    called = {field_id: name for name, field_id in known.items() if field_id != _NO_COLUMN}
    return all(
        known.get(name, field_id) == field_id and called.get(field_id, name) == name
        for name, field_id in names.items()
    )


MakePlanner = Callable[[Mapping[str, str | None]], Planner | None]
"""A planner for files in which columns are called so, by their names of today (None: not there);
None where there is nothing to do with such files."""


def rewrite(
    session: LakeSession,
    name: str,
    make_planner: MakePlanner,
    options: RewriteOptions,
) -> tuple[int | None, list[tuple[Planner, "LakeRewrite", CompactionResult]]]:
    """Rewrite what the planner finds; the version that came of it, None when there was nothing."""
    state, files = session.at_newest(
        name, lambda state: (state, in_scope(session, state, options.partition_filter))
    )
    physical = session.reader.physical_schemas(state.dataset_id)
    version = None
    done = []
    for part in split_by_names(files, physical):
        called = {field_id: name for name, field_id in part.names.items()}
        planner = make_planner({c.name: called.get(c.field_id) for c in state.schema.columns})
        if planner is None:
            continue
        run = LakeRewrite(session, state, planner, options, part, physical)
        result = run.preview() if options.dry_run else run.execute()
        version = run.version if run.version is not None else version
        done.append((planner, run, result))
    return version, done


def in_scope(
    session: LakeSession, state: DatasetState, partition_filter: Any
) -> tuple[CatalogFile, ...]:
    """The files of the newest version that a filter means."""
    files = session.reader.files(state.dataset_id, state.head)
    chosen = parse_partition_filter(partition_filter)
    if chosen is None:
        return files
    folders = {file.path.rpartition("/")[0] for file in files}
    check_filter_keys(chosen, folders)
    kept = tuple(f for f in files if chosen.matches(f.path.rpartition("/")[0]))
    if not kept:
        raise FileNotFoundError(
            f"No parquet files found in dataset '{state.name}' matching filter {chosen}"
        )
    return kept


@dataclass(slots=True)
class LakeRewrite:
    """One rewriting of one part of a dataset."""

    session: LakeSession
    state: DatasetState
    planner: Planner
    options: RewriteOptions
    part: Part
    physical: Any
    version: int | None = None
    after: Snapshot | None = None
    inputs: dict[str, DataFile] = field(default_factory=dict)
    failures: list[GroupFailure] = field(default_factory=list)
    conflicts: list[GroupFailure] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    engine_notes: dict[str, None] = field(default_factory=dict)
    written_by: Counter[str] = field(default_factory=Counter)
    group_modes: Counter[GroupMode] = field(default_factory=Counter)
    choice: EngineChoice | None = None

    def preview(self) -> CompactionResult:
        """A dry run: the plan and its predictions."""
        store = self.session.store(self.state)
        before = self._snapshot(store)
        plan = self._plan(before, store)
        for group in plan.groups:
            seen = self._choose(plan, store).engine.foresee(group, store, self.options.strict)
            self.written_by[seen.engine] += 1
            self.group_modes[group.mode] += 1
            if seen.note:
                self.engine_notes[seen.note] = None
            if seen.error:
                self.failures.append(GroupFailure(tuple(group.file_paths()), seen.error))
        return self._result(before, before, plan, plan.predicted, store)

    def execute(self) -> CompactionResult:
        """Plan, write, verify, and commit what is not in conflict."""
        operation = self.planner.operation
        with self.session.transaction(self.state, operation) as transaction:
            store = transaction.store
            self._keep_alive_only(transaction.ticket.base_version)
            before = self._snapshot(store)
            plan = self._plan(before, store)
            written: dict[int, tuple[DataFile, ...]] = {}
            if plan.groups:
                written = self._write(plan, transaction)
            committed = self._commit(plan, written, transaction) if written else []
            if self.version is None:
                transaction.give_up()
        rewritten = {f.path: f for number in committed for f in plan.groups[number].files}
        self.inputs = rewritten
        added = [file for number in committed for file in written[number]]
        kept = [file for file in before.files if file.path not in rewritten]
        self.after = replace(before, files=(*kept, *added))
        stats = _measured(before, self.after, list(rewritten.values()), added)
        return self._result(before, self.after, plan, stats, store)

    def _keep_alive_only(self, version: int) -> None:
        """Only files of the version that the open transaction protects from vacuum."""
        if version != self.state.head:
            alive = {f.file_id for f in self.session.reader.files(self.state.dataset_id, version)}
            files = tuple(file for file in self.part.files if file.file_id in alive)
            self.part = replace(self.part, files=files)

    def _snapshot(self, store: Store) -> Snapshot:
        listed = [listed_of(store, file) for file in self.part.files]
        files = read_footers(store, listed, self.options.on_progress, self.planner.ranges_of)
        if len(files) != len(listed):
            found = {file.path for file in files}
            missing = [entry.path for entry in listed if entry.path not in found]
            raise FileNotFoundError(
                f"{len(missing)} file(s) of dataset '{self.state.name}' are missing, the first is "
                f"'{missing[0]}'. Run fsck()"
            )
        schemas: dict[tuple[str, int], FileSchema] = {}
        by_path = {store.path(file.path): file.physical_id for file in self.part.files}
        return Snapshot(
            store.root, tuple(self._with_ids(f, by_path[f.path], schemas) for f in files)
        )

    def _with_ids(
        self, file: DataFile, physical_id: int, schemas: dict[tuple[str, int], FileSchema]
    ) -> DataFile:
        """Outputs get the ids that the catalog knows columns by, whatever the sources say."""
        key = file.schema.fingerprint, physical_id
        if key not in schemas:
            ids = dict(self.physical[physical_id].mapping)
            schemas[key] = replace(
                file.schema,
                arrow=_numbered(file.schema.arrow, ids),
                fingerprint=f"{file.schema.fingerprint}-{physical_id}",
            )
        return replace(file, schema=schemas[key])

    def _plan(self, before: Snapshot, store: Store) -> CompactionPlan:
        plan = self.planner.plan(before, store, self._report)
        plan = with_readers_apart(plan, before.files, store)
        self.failures += plan.failures
        for group in plan.groups:
            self.notes.update(dict.fromkeys(group.notes))
        return plan

    def _choose(self, plan: CompactionPlan, store: Store) -> EngineChoice:
        if self.choice is None:
            self.choice = requested_engine(self.options.engine) or fitting_engine(
                plan.groups, store, self._resources()
            )
        return self.choice

    def _resources(self) -> Resources:
        return Resources(
            memory_budget_bytes(self.options.memory_budget_mb),
            worker_count(self.options.max_workers, os.cpu_count() or 1),
            self.options.strict,
        )

    def _write(
        self, plan: CompactionPlan, transaction: LakeTransaction
    ) -> dict[int, tuple[DataFile, ...]]:
        store = transaction.store
        engine = self._choose(plan, store).engine
        final = self._final_paths(plan, transaction)
        tasks = [RewriteTask(n, group, final[n]) for n, group in enumerate(plan.groups)]
        if engine.name == "spark":
            tasks = [_in_work_folder(task, transaction) for task in tasks]
        written: dict[int, tuple[DataFile, ...]] = {}
        outcomes = engine.rewrite(tasks, store, self._resources())
        # Closed on the way out, whatever happens: no worker may go on after the clean-up.
        with closing(outcomes):
            for done, outcome in enumerate(outcomes, start=1):
                self._take(plan.groups[outcome.index], outcome, final, written, store)
                self._report(Progress("execute", done, len(tasks)))
        if engine.name == "spark":
            remove_work_folder(store, transaction.ticket.txn_id)
        return written

    def _final_paths(
        self, plan: CompactionPlan, transaction: LakeTransaction
    ) -> list[tuple[str, ...]]:
        folders = [transaction.store.relative(group.directory) for group in plan.groups]
        counts: Counter[str] = Counter()
        for folder, group in zip(folders, plan.groups, strict=True):
            counts[folder] += len(group.output_rows)
        transaction.reserve(counts, self.planner.prefix)
        return [
            tuple(transaction.stage(folder) for _ in group.output_rows)
            for folder, group in zip(folders, plan.groups, strict=True)
        ]

    def _take(
        self,
        group: RewriteGroup,
        outcome: RewriteOutcome,
        final: Sequence[tuple[str, ...]],
        written: dict[int, tuple[DataFile, ...]],
        store: Store,
    ) -> None:
        """Verify what an engine made of a group."""
        self.engine_notes.update(dict.fromkeys(outcome.notes))
        error = outcome.error
        if error is None:
            try:
                written[outcome.index] = self._accept(
                    group, outcome.written, final[outcome.index], store
                )
                self.written_by[outcome.engine] += 1
                self.group_modes[outcome.mode] += 1
            except (VerificationError, UnreadableFileError, OSError) as problem:
                error = in_words(problem)
        if error is not None:
            self.failures.append(GroupFailure(tuple(group.file_paths()), error))

    def _accept(
        self, group: RewriteGroup, paths: Sequence[str], final: Sequence[str], store: Store
    ) -> tuple[DataFile, ...]:
        for path, wanted in zip(paths, final, strict=True):
            if path != wanted:
                store.move(path, wanted)
            store.copy_permissions(group.files[0].path, wanted, is_copy=True)
        files = []
        for path in final:
            listed = store.stat(path)
            if listed is None:
                raise FileNotFoundError(f"the engine did not write '{path}'")
            files.append(read_footer(store, listed, self.planner.ranges_of))
        verify_group(group, tuple(files))
        return tuple(files)

    def _commit(
        self,
        plan: CompactionPlan,
        written: dict[int, tuple[DataFile, ...]],
        transaction: LakeTransaction,
    ) -> list[int]:
        """Commit all groups; those whose files others replaced meanwhile are dropped."""
        described = {
            number: self._described(files, transaction.store) for number, files in written.items()
        }
        ids = {transaction.store.path(f.path): f.file_id for f in self.part.files}
        while described:
            change = Change(
                self.planner.operation,
                added=tuple(file for files in described.values() for file in files),
                removed=tuple(
                    ids[file.path] for number in described for file in plan.groups[number].files
                ),
                reads="removed",
                data_change=False,
                author=self.options.author,
                message=self.options.message,
            )
            try:
                self.version = transaction.commit(change)
                return list(described)
            except CommitConflictError as error:
                lost = self._lost(plan, list(described), transaction, ids)
                if not lost:
                    raise
                for number in lost:
                    del described[number]
                    paths = tuple(plan.groups[number].file_paths())
                    self.conflicts.append(GroupFailure(paths, str(error)))
        return []

    def _lost(
        self,
        plan: CompactionPlan,
        numbers: Sequence[int],
        transaction: LakeTransaction,
        ids: dict[str, int],
    ) -> list[int]:
        files = self.session.at_newest(
            self.state.name,
            lambda newest: self.session.reader.files(newest.dataset_id, newest.head),
        )
        alive = {file.file_id for file in files}
        return [
            number
            for number in numbers
            if any(ids[file.path] not in alive for file in plan.groups[number].files)
        ]

    def _described(self, files: Sequence[DataFile], store: Store) -> tuple[NewFile, ...]:
        paths = [file.path for file in files]
        return describe_files(store, paths, self.state.schema, self.part.names)

    def _result(
        self,
        before: Snapshot,
        after: Snapshot,
        plan: CompactionPlan,
        stats: MaintenanceStats,
        store: Store,
    ) -> CompactionResult:
        choice = self._choose(plan, store)
        return CompactionResult(
            stats=stats,
            plan=plan,
            engine=choice.engine.name,
            engine_reason=choice.reason,
            rows=before.total_rows,
            rows_after=after.total_rows,
            schema=self.state.schema.arrow,
            dataset=self.state.name,
            seconds=0.0,
            publish="none" if self.version is None else "exchange",
            passes=0 if self.version is None else 1,
            conflicts=tuple(self.conflicts),
            failures=tuple(self.failures),
            notes=tuple(self.notes),
            engine_notes=tuple(self.engine_notes),
            written_by=dict(self.written_by),
            mode=common_mode(self.group_modes),
            modes={str(mode): count for mode, count in self.group_modes.items()},
            mode_reasons=tuple(
                dict.fromkeys(f"{g.mode}: {g.mode_reason}" for g in plan.groups if g.mode_reason)
            ),
        )

    def _report(self, progress: Progress) -> None:
        if self.options.on_progress is not None:
            self.options.on_progress(progress)


def _numbered(schema: Any, ids: dict[str, int]) -> Any:
    """The schema with these field ids at its top level, and no others there."""
    for position, found in enumerate(schema):
        metadata = {k: v for k, v in (found.metadata or {}).items() if k != FIELD_ID}
        if found.name in ids:
            metadata[FIELD_ID] = str(ids[found.name]).encode()
        schema = schema.set(position, found.with_metadata(metadata or None))
    return schema


def _in_work_folder(task: RewriteTask, transaction: LakeTransaction) -> RewriteTask:
    folder = work_folder(transaction.ticket.txn_id)
    names = [path.rpartition("/")[2] for path in task.staged]
    return replace(
        task, staged=tuple(transaction.store.path(f"{folder}/{name}.staged") for name in names)
    )


def _measured(
    before: Snapshot, after: Snapshot, inputs: Sequence[DataFile], outputs: Sequence[DataFile]
) -> MaintenanceStats:
    return MaintenanceStats(
        before_file_count=len(before.files),
        after_file_count=len(after.files),
        before_total_bytes=before.total_bytes,
        after_total_bytes=after.total_bytes,
        compacted_file_count=len(inputs),
        rewritten_bytes=sum(file.size_bytes for file in inputs),
        compression_codec=codec_label(c for f in outputs or before.files for c in f.codecs),
        dry_run=False,
    )


def combined(results: Sequence[CompactionResult], started: float) -> CompactionResult:
    """Several parts of a dataset as one result; usually there is one."""
    first = results[0]
    stats = [result.stats for result in results]
    planned = [g for s in stats for g in s.planned_groups or ()]
    total = replace(
        first.stats,
        before_file_count=sum(s.before_file_count for s in stats),
        after_file_count=sum(s.after_file_count for s in stats),
        before_total_bytes=sum(s.before_total_bytes for s in stats),
        after_total_bytes=sum(s.after_total_bytes for s in stats),
        compacted_file_count=sum(s.compacted_file_count for s in stats),
        rewritten_bytes=sum(s.rewritten_bytes for s in stats),
        compression_codec=codec_label(
            name for s in stats for name in (s.compression_codec or "").split("+") if name
        ),
        planned_groups=planned if first.stats.dry_run else None,
    )
    plans = [result.plan for result in results]
    plan = replace(
        first.plan,
        groups=tuple(group for plan in plans for group in plan.groups),
        untouched=tuple(file for plan in plans for file in plan.untouched),
        failures=tuple(failure for plan in plans for failure in plan.failures),
    )
    modes: Counter[Any] = Counter()
    for result in results:
        modes.update(result.modes)
    return replace(
        first,
        plan=plan,
        mode=common_mode(modes),
        modes=dict(modes),
        stats=total,
        rows=sum(result.rows for result in results),
        rows_after=sum(result.rows_after for result in results),
        conflicts=tuple(c for result in results for c in result.conflicts),
        failures=tuple(f for result in results for f in result.failures),
        notes=tuple(dict.fromkeys(n for result in results for n in result.notes)),
        engine_notes=tuple(dict.fromkeys(n for result in results for n in result.engine_notes)),
        seconds=time.monotonic() - started,
    )
