"""Writing what a change has planned, and verifying it, before anything is visible."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from maintenance_assets.engines.insert_kernel import insert_rows
from maintenance_assets.engines.merge_source import stage_source
from maintenance_assets.engines.protocol import Engine, Resources, RewriteOutcome, RewriteTask
from maintenance_assets.errors import RewriteError, VerificationError, in_words
from maintenance_assets.model.changes import MovedFile
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup, WriterOptions
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.operations.naming import output_name
from maintenance_assets.operations.readers import require_same_readers
from maintenance_assets.operations.verify import verify_files
from maintenance_assets.planning.bound_changes import BoundChange
from maintenance_assets.planning.change_plan import ChangePlan, Survey
from maintenance_assets.planning.changes import Merging
from maintenance_assets.planning.encoding import writer_options
from maintenance_assets.planning.upsert import BoundUpsert
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.footers import read_footer
from maintenance_assets.storage.journal import InputEntry, OutputEntry

PREFIX = "part"
NEW_DATASET_CODEC = "zstd"


class ConflictError(Exception):
    """A file is not any more what was planned with: nothing was published, plan again."""


@dataclass(frozen=True, slots=True)
class Written:
    """Everything that is to be published."""

    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    files: tuple[DataFile, ...]
    """The footers of the outputs."""


@dataclass(frozen=True, slots=True)
class _Output:
    """A verified file: where it is staged, where it belongs, and its footer."""

    staged: str
    final: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class ChangeWriter:
    """Writes into the directory of a run."""

    store: Store
    engine: Engine
    resources: Resources
    compression: str | None
    run: str
    report: ProgressCallback
    note: Callable[[str], None]

    def write(self, bound: BoundChange, survey: Survey, plan: ChangePlan) -> Written:
        """Rewrite files and insert rows; all of it or an error."""
        outputs = self._rewrite(bound, plan) if plan.groups else []
        if isinstance(bound, BoundUpsert):
            outputs += self._insert(bound, survey)
        relative = self.store.relative
        return Written(
            tuple(InputEntry(relative(file.path), file.version) for file in plan.inputs),
            tuple(OutputEntry(relative(output.staged), output.final) for output in outputs),
            tuple(output.file for output in outputs),
        )

    # -- files that change -------------------------------------------------------------------

    def _rewrite(self, bound: BoundChange, plan: ChangePlan) -> list[_Output]:
        for group in plan.groups:
            require_same_readers(self.store, group.file_paths())
        rule = plan.groups[0].change.rule if plan.groups[0].change is not None else None
        if isinstance(bound, BoundUpsert) and isinstance(rule, Merging):
            stage_source(bound.source, bound.finder.index, rule, self.store)
        tasks = [self._task(index, group) for index, group in enumerate(plan.groups)]
        found: dict[int, list[_Output]] = {}
        total = sum(group.total_bytes for group in plan.groups)
        done_bytes = 0
        outcomes = self.engine.rewrite(tasks, self.store, self.resources)
        # Closed on the way out, whatever happens: no worker may go on after the clean-up.
        with closing(outcomes):
            for done, outcome in enumerate(outcomes, start=1):
                group = plan.groups[outcome.index]
                found[outcome.index] = self._accept(group, outcome)
                for note in outcome.notes:
                    self.note(note)
                done_bytes += group.total_bytes
                self.report(Progress("execute", done, len(tasks), done_bytes, total))
        if len(found) != len(tasks):
            raise RewriteError("not every group was written. Nothing was changed.")
        return [output for _, outputs in sorted(found.items()) for output in outputs]

    def _task(self, index: int, group: RewriteGroup) -> RewriteTask:
        names = tuple(f"{self.run}/{output_name(PREFIX)}.staged" for _ in group.output_rows)
        return RewriteTask(index, group, names)

    def _accept(self, group: RewriteGroup, outcome: RewriteOutcome) -> list[_Output]:
        """Verify what an engine wrote of a group."""
        if outcome.error is not None:
            raise self._refusal(group, outcome.error)
        directory = self.store.relative(group.directory)
        here = [(path, directory, _final_name(path)) for path in outcome.written]
        moved = [(file.path, file.directory, output_name(PREFIX)) for file in outcome.moved]
        rows = [*group.output_rows, *(file.rows for file in outcome.moved)]
        _require_rows(outcome.moved, dict(group.change.moved) if group.change else {})
        try:
            return self._verified(group.files, group.schema, [*here, *moved], rows)
        except (VerificationError, OSError) as error:
            raise self._refusal(group, in_words(error)) from error

    def _refusal(self, group: RewriteGroup, error: str) -> Exception:
        """A conflict where a file was changed under the engine, else what went wrong."""
        for file in group.files:
            listed = self.store.stat(file.path)
            if listed is None or listed.version != file.version:
                return ConflictError(f"'{file.path}' was changed while it was read")
        return RewriteError(f"{error.rstrip('.')}. Nothing was changed.")

    # -- rows that are new -------------------------------------------------------------------

    def _insert(self, bound: BoundUpsert, survey: Survey) -> list[_Output]:
        rows = bound.new_rows(survey.read)
        if not len(rows):
            return []
        memory = self.resources.memory_bytes
        placed = insert_rows(bound, rows, self._options(survey), self.run, self.store, memory)
        _require_rows(placed, bound.inserted(survey.read))
        self.report(Progress("execute", len(placed), len(placed)))
        files = [(file.path, file.directory, output_name(PREFIX)) for file in placed]
        return self._verified(survey.files, bound.schema, files, [file.rows for file in placed])

    def _options(self, survey: Survey) -> WriterOptions:
        if survey.files:
            return replace(writer_options(survey.files, self.compression), sorting=())
        made = writer_options((), self.compression or NEW_DATASET_CODEC)
        return replace(made, store_arrow_schema=True)

    # -- both --------------------------------------------------------------------------------

    def _verified(
        self,
        like: Sequence[DataFile],
        schema: pa.Schema,
        files: Sequence[tuple[str, str, str]],
        rows: Sequence[int],
    ) -> list[_Output]:
        """Files by staged path, directory and name, once they are found to be as promised."""
        footers = [self._footer(path) for path, _, _ in files]
        verify_files(like, schema, list(zip(footers, rows, strict=True)))
        for path, _, _ in files if like else ():
            self.store.copy_permissions(like[0].path, path)
        return [
            _Output(path, f"{directory}/{name}" if directory else name, footer)
            for (path, directory, name), footer in zip(files, footers, strict=True)
        ]

    def _footer(self, path: str) -> DataFile:
        listed = self.store.stat(path)
        if listed is None:
            raise FileNotFoundError(f"the engine did not write '{path}'")
        return read_footer(self.store, listed)


def _require_rows(placed: Sequence[MovedFile], promised: dict[str, int]) -> None:
    found: Counter[str] = Counter()
    for file in placed:
        found[file.directory] += file.rows
    if found != Counter(promised):
        raise VerificationError("rows were written to other places than planned")


def _final_name(staged: str) -> str:
    """The name before `.staged`, whatever an engine put after that."""
    return staged.rpartition("/")[2].partition(".staged")[0]
