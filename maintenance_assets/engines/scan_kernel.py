"""Looking for the rows that a change means: of each file only the columns that decide."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from maintenance_assets.engines.protocol import FileAccess, Resources, ScanOutcome, ScanTask
from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.engines.row_views import view_rows, with_constants
from maintenance_assets.errors import MaintenanceError
from maintenance_assets.model.changes import FileScan
from maintenance_assets.planning.changes import Finder, RowsByKey, RowsWhere
from maintenance_assets.planning.column_ranges import column_ranges
from maintenance_assets.planning.dataset_columns import refuse_other_values
from maintenance_assets.planning.key_index import NONE


def scan_in_threads(
    tasks: Sequence[ScanTask], finder: Finder, access: FileAccess, resources: Resources
) -> Generator[ScanOutcome, None, None]:
    """Look into files, the largest first; outcomes come in any order."""
    ordered = sorted(tasks, key=lambda task: -task.file.size_bytes)
    at_once = max(1, min(resources.workers, len(ordered)))
    share = max(1, resources.memory_bytes // (8 * at_once))
    with ThreadPoolExecutor(at_once, thread_name_prefix="scan") as pool:
        futures = [pool.submit(try_scan, task, finder, access, share) for task in ordered]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def try_scan(task: ScanTask, finder: Finder, access: FileAccess, batch_bytes: int) -> ScanOutcome:
    """Look into one file; what goes wrong is reported for it alone."""
    try:
        return ScanOutcome(task.index, scan_file(task, finder, access, batch_bytes))
    except (MaintenanceError, ValueError, pa.ArrowException, OSError) as error:
        return ScanOutcome(task.index, error=error)


def scan_file(task: ScanTask, finder: Finder, access: FileAccess, batch_bytes: int) -> FileScan:
    """Count the rows of a file that are meant, and say where they will belong."""
    names = [field.name for field in finder.schema if field.name not in task.constants]
    if not names:
        return _scan_constant(task, finder)
    found = _Found(finder, task)
    for batch in _read(task, finder, access, batch_bytes, names):
        found.add(with_constants(batch, finder.schema, task.constants, batch.num_rows))
    return found.result()


def _read(
    task: ScanTask, finder: Finder, access: FileAccess, batch_bytes: int, names: list[str]
) -> Iterator[pa.RecordBatch]:
    held = pa.schema([field for field in finder.schema if field.name in names])

    def choose(metadata: Any) -> list[int]:
        return [
            index
            for index in range(metadata.num_row_groups)
            if finder.may_match(_ranges(metadata, task, index), task.constants)
        ]

    for batch in read_file(task.file, held, access, batch_bytes, names, choose):
        for name, text in task.path_texts.items():
            if name in names:
                column = batch.column(batch.schema.get_field_index(name))
                refuse_other_values(column, text, name, task.file.path)
        yield batch


def _ranges(metadata: Any, task: ScanTask, group: int) -> Mapping[str, Any]:
    found = column_ranges(metadata, task.file.schema, task.ranges_of, [group])
    return {range_.column: range_ for range_ in found}


def _scan_constant(task: ScanTask, finder: Finder) -> FileScan:
    """No column that decides is in the file: what holds for one row holds for all."""
    found = _Found(finder, task)
    one_row = pa.RecordBatch.from_pydict({"row": [0]})
    found.add(view_rows(one_row, finder.schema, task.constants, task.file.path))
    one, rows = found.result(), task.file.num_rows
    return FileScan(
        one.matches * rows,
        tuple((directory, rows) for directory, _ in one.moved),
        None if one.source_rows is None else np.repeat(one.source_rows, rows),
    )


@dataclass(slots=True)
class _Found:
    """What was found in a file so far."""

    finder: Finder
    task: ScanTask
    matches: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    source_rows: list[Any] = field(default_factory=list)

    def add(self, view: pa.RecordBatch) -> None:
        """Look at more rows."""
        match self.finder:
            case RowsWhere():
                self._add_where(self.finder, view)
            case RowsByKey(index):
                rows = index.find(view)
                self.source_rows.append(rows[rows != NONE])
            case _:
                assert_never(self.finder)

    def _add_where(self, finder: RowsWhere, view: pa.RecordBatch) -> None:
        mask = finder.predicate.mask(view)
        matches = mask.true_count
        self.matches += matches
        if not matches or finder.moves is None:
            return
        rows = view.filter(mask)
        values = pa.RecordBatch.from_arrays(
            [value.evaluate(rows) for _, value in finder.moving],
            names=[name for name, _ in finder.moving],
        )
        codes, directories = finder.moves.targets(values, self.task.directory)
        for code, count in enumerate(np.bincount(codes, minlength=len(directories)).tolist()):
            if count and directories[code] != self.task.directory:
                self.moved[directories[code]] += count

    def result(self) -> FileScan:
        """All of it."""
        if isinstance(self.finder, RowsWhere):
            return FileScan(self.matches, tuple(sorted(self.moved.items())))
        rows = np.concatenate([np.zeros(0, np.int64), *self.source_rows])
        return FileScan(len(rows), (), rows)
