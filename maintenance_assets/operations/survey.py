"""Looking for the rows that a change means: what is known of a file stays known."""

import logging
import posixpath
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from maintenance_assets.engines.protocol import ScanOutcome, ScanTask
from maintenance_assets.model.changes import FileScan
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.planning.bound_changes import BoundChange
from maintenance_assets.planning.change_plan import Survey, Surveyed, remaining, tells_columns_of
from maintenance_assets.planning.changes import Finder
from maintenance_assets.planning.dataset_columns import DatasetColumns, path_texts
from maintenance_assets.planning.partitions import PartitionFilter
from maintenance_assets.storage.discovery import (
    Listing,
    list_dataset,
    refuse_formats_above,
    select,
    summaries_above,
)
from maintenance_assets.storage.filesystems import Listed, Store
from maintenance_assets.storage.footers import read_footers

logger = logging.getLogger(__name__)

Scan = Callable[[Sequence[ScanTask], Finder], Generator[ScanOutcome, None, None]]


class ChangeRequest(Protocol):
    """What the user wants, before anything of the dataset is known."""

    @property
    def operation(self) -> str:
        """Its name, in leases, journals and backups."""
        ...

    @property
    def creates(self) -> bool:
        """Whether there may be no dataset yet."""
        ...

    @property
    def asked(self) -> tuple[str, ...]:
        """Columns whose ranges help to rule files out."""
        ...

    def bind(self, columns: DatasetColumns, directories: Sequence[str]) -> BoundChange:
        """Bind it to the columns of a dataset; ValueError where it does not fit."""
        ...


class FileChangedError(Exception):
    """A file was replaced or deleted while it was looked into: look again."""


@dataclass(slots=True)
class Surveyor:
    """Looks at a dataset, and again where it has changed since."""

    request: ChangeRequest
    store: Store
    filter: PartitionFilter | None
    report: ProgressCallback
    scopes: dict[str, DataFile] = field(default_factory=dict)
    """Files in scope whose footers were read."""
    others: dict[str, DataFile] = field(default_factory=dict)
    """The same out of scope, where they had to be."""
    scans: dict[tuple[str, str], FileScan] = field(default_factory=dict)
    """What was found, by path and version."""
    columns: DatasetColumns | None = None
    out_of_scope: Sequence[Listed] = ()

    def look(self, scan: Scan) -> tuple[BoundChange, Survey]:
        """Everything a plan needs to know of the dataset as it is now."""
        listing = self._list()
        chosen = self._chosen(listing)
        in_scope = {entry.path for entry in chosen}
        self.out_of_scope = [entry for entry in listing.data if entry.path not in in_scope]
        files = self._footers(chosen, self.scopes, self.request.asked)
        columns, bound = self._bind(files, listing)
        if columns != self.columns:
            self.scans.clear()  # with other columns, the same words may mean other rows
            self.columns = columns
        read = self._scan(files, columns, bound, scan)
        above = summaries_above(self.store)
        survey = Survey(
            columns,
            files,
            len(self.out_of_scope),
            read,
            (*listing.metadata_files, *above),
        )
        return bound, survey

    def widened(self, survey: Survey, emptied: Sequence[DataFile]) -> Survey:
        """Look out of scope as well, where files go that may be the last to tell of a column."""
        if not survey.others or tells_columns_of(remaining(survey, emptied), emptied):
            return survey
        for count in (1, None):
            others = self._footers(self.out_of_scope[:count], self.others, ())
            survey = replace(survey, known_others=others)
            if tells_columns_of(remaining(survey, emptied), emptied):
                break
        return survey

    # -- what there is -----------------------------------------------------------------------

    def _list(self) -> Listing:
        if self.request.creates and not self.store.exists(self.store.root):
            refuse_formats_above(self.store)
            return Listing((), ())
        return list_dataset(self.store)

    def _chosen(self, listing: Listing) -> tuple[Listed, ...]:
        if self.request.creates and not listing.data:
            return ()
        return select(self.store, listing.data, self.filter)

    def _footers(
        self, chosen: Sequence[Listed], known: dict[str, DataFile], asked: tuple[str, ...]
    ) -> tuple[DataFile, ...]:
        """The files of a listing; only footers of new ones are read."""
        new = [e for e in chosen if e.path not in known or known[e.path].version != e.version]
        found = {file.path: file for file in read_footers(self.store, new, self.report, asked)}
        new_paths = {entry.path for entry in new}
        kept = {entry.path: known[entry.path] for entry in chosen if entry.path not in new_paths}
        known.clear()
        known.update({**kept, **found})
        return tuple(known[entry.path] for entry in chosen if entry.path in known)

    # -- what it means -----------------------------------------------------------------------

    def _bind(
        self, files: Sequence[DataFile], listing: Listing
    ) -> tuple[DatasetColumns, BoundChange]:
        directories = sorted({self._directory(entry.path) for entry in listing.data})
        columns = DatasetColumns.of(files, directories)
        try:
            bound = self.request.bind(columns, directories)
            if not self.out_of_scope or not bound.added:
                return columns, bound
        except ValueError:
            if not self.out_of_scope:
                raise
        # A column that is unknown here may be known to the other partitions.
        wider = (*files, *self._footers(self.out_of_scope, self.others, ()))
        columns = DatasetColumns.of(wider, directories)
        return columns, self.request.bind(columns, directories)

    def _directory(self, path: str) -> str:
        return self.store.relative(posixpath.dirname(path))

    # -- where it is -------------------------------------------------------------------------

    def _scan(
        self, files: Sequence[DataFile], columns: DatasetColumns, bound: BoundChange, scan: Scan
    ) -> tuple[Surveyed, ...]:
        tasks = []
        for number, file in enumerate(files):
            task = self._task(number, file, columns, bound)
            if task is not None:
                tasks.append(task)
        waiting = [task for task in tasks if self._key(task) not in self.scans]
        self._run(waiting, bound, scan)
        return tuple(
            Surveyed(task.file, task.directory, task.constants, self.scans[self._key(task)])
            for task in tasks
        )

    def _key(self, task: ScanTask) -> tuple[str, str]:
        return task.file.path, task.file.version

    def _task(
        self, number: int, file: DataFile, columns: DatasetColumns, bound: BoundChange
    ) -> ScanTask | None:
        """How to look into a file; None where no row of it can be meant."""
        directory = self._directory(file.path)
        columns.refuse_disagreement(directory, file, bound.used)
        constants = columns.constants(directory, file, bound.rule.schema.names)
        ranges = {found.column: found for found in file.ranges}
        if not file.num_rows or not bound.finder.may_match(ranges, constants):
            return None
        return ScanTask(
            number,
            file,
            directory,
            self.request.asked,
            constants,
            path_texts(directory, bound.used & {*file.schema.arrow.names}),
        )

    def _run(self, tasks: Sequence[ScanTask], bound: BoundChange, scan: Scan) -> None:
        by_index = {task.index: task for task in tasks}
        total = sum(task.file.size_bytes for task in tasks)
        done_bytes = 0
        with closing(scan(tasks, bound.finder)) as outcomes:
            for done, outcome in enumerate(outcomes, start=1):
                task = by_index[outcome.index]
                if outcome.found is None:
                    self._raise(task.file, outcome.error)
                else:
                    self.scans[self._key(task)] = outcome.found
                done_bytes += task.file.size_bytes
                self.report(Progress("scan", done, len(tasks), done_bytes, total))

    def _raise(self, file: DataFile, error: Exception | None) -> None:
        """A file that was changed under our eyes is no fault of anyone."""
        listed = self.store.stat(file.path)
        if listed is None or listed.version != file.version:
            raise FileChangedError(f"'{file.path}' was changed while it was read") from error
        raise error or RuntimeError(f"'{file.path}' was not looked into")
