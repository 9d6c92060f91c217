"""DuckDB: COPY where it keeps everything, else its reader or the PyArrow kernels."""

import logging
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from threading import Semaphore
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines import duckdb_sql as sql
from maintenance_assets.engines.change_kernel import change_of
from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.duckdb_capability import (
    change_obstacle,
    copy_obstacle,
    float_columns,
    read_obstacle,
    sort_obstacle,
)
from maintenance_assets.engines.duckdb_cluster import cluster_by_sorting
from maintenance_assets.engines.duckdb_repartition import (
    repartition_by_sorting,
    repartition_obstacle,
)
from maintenance_assets.engines.page_checksums import verify_page_checksums
from maintenance_assets.engines.protocol import (
    FileAccess,
    Foresight,
    Places,
    Resources,
    RewriteOutcome,
    RewriteTask,
    ScanOutcome,
    ScanTask,
)
from maintenance_assets.engines.pyarrow_engine import (
    encoded_note,
    rewrite_group,
    try_stitching,
)
from maintenance_assets.engines.read_kernel import MAX_BATCH_ROWS
from maintenance_assets.engines.repartition_kernel import repartition_rows
from maintenance_assets.engines.repartition_task import (
    RepartitionOutcome,
    RepartitionTask,
    Report,
)
from maintenance_assets.engines.scan_kernel import scan_in_threads
from maintenance_assets.engines.spill_folders import spill_folder
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError, in_words
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.changes import Finder
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES
from maintenance_assets.planning.fidelity import schema_difference
from maintenance_assets.planning.file_metadata import with_row_count

logger = logging.getLogger(__name__)

_VECTOR_ROWS = 2048
_MOST_GROUP_ROWS = 240 * 1024
"""DuckDB holds a row group per thread before it writes: larger ones take a fifth longer."""
_LEAST_MEMORY = 128 * MIB
LARGE_GROUP = 32 * MIB
"""DuckDB cannot work with less."""


class DuckDBEngine:
    """Each group is one COPY; what COPY would change goes another way, and says so."""

    name = "duckdb"

    def foresee(self, group: RewriteGroup, access: FileAccess, strict: bool) -> Foresight:
        """Obstacles are known before anything is read."""
        if group.change is not None:
            return self._foresee_whole(change_obstacle(group), strict)
        if group.clustering is not None:
            return self._foresee_whole(sort_obstacle(group), strict)
        if _is_stitched(group, strict):
            return Foresight("duckdb")
        obstacle = copy_obstacle(group)
        if obstacle is None:
            return Foresight("duckdb")
        if strict:
            return Foresight("duckdb", error=_refusal(obstacle))
        if read_obstacle(group) is None:
            return Foresight("duckdb-arrow", note=_through_arrow_note(obstacle))
        return Foresight("pyarrow", note=_pyarrow_note(obstacle))

    def _foresee_whole(self, obstacle: str | None, strict: bool) -> Foresight:
        """What DuckDB does itself, or PyArrow does."""
        if obstacle is None:
            return Foresight("duckdb")
        if strict:
            return Foresight("duckdb", error=_refusal(obstacle))
        return Foresight("pyarrow", note=_pyarrow_note(obstacle))

    def rewrite(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Generator[RewriteOutcome, None, None]:
        """Rewrite the largest groups first."""
        ordered = sorted(tasks, key=lambda task: -task.group.total_bytes)
        workers = max(1, min(resources.workers, len(ordered)))
        if any(task.group.clustering for task in ordered):
            workers = 1  # one sort keeps all threads busy and has all the memory
        with (
            _connect(access, resources) as connection,
            ThreadPoolExecutor(workers, thread_name_prefix="rewrite") as pool,
        ):
            at_a_time = 1 if _are_large(ordered) else workers
            share = resources.memory_bytes // workers
            rewriter = _Rewriter(connection, access, resources, share, at_a_time)
            futures = [pool.submit(rewriter.rewrite, task) for task in ordered]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def scan(
        self, tasks: Sequence[ScanTask], finder: Finder, access: FileAccess, resources: Resources
    ) -> Generator[ScanOutcome, None, None]:
        """Look into files with the kernels that all engines share."""
        return scan_in_threads(tasks, finder, access, resources)

    def foresee_repartition(self, task: RepartitionTask, places: Places, strict: bool) -> Foresight:
        """Rows have to pass through DuckDB."""
        obstacle = repartition_obstacle(task)
        if obstacle is None:
            return Foresight(self.name)
        if strict:
            return Foresight(self.name, error=_refusal(obstacle))
        return Foresight("pyarrow", note=_pyarrow_note(obstacle))

    def repartition(
        self, task: RepartitionTask, places: Places, resources: Resources, report: Report
    ) -> RepartitionOutcome:
        """DuckDB sorts by directory between our kernels; what it cannot keep, PyArrow writes."""
        seen = self.foresee_repartition(task, places, resources.strict)
        if seen.error is not None:
            raise RewriteError(seen.error)
        memory, workers = resources.memory_bytes, resources.workers
        if seen.engine != self.name:
            outcome = repartition_rows(task, places, memory, workers, report)
            return replace(outcome, notes=(*outcome.notes, str(seen.note)))
        half = replace(resources, memory_bytes=memory // 2)
        with _connect(places.source, half) as connection, connection.cursor() as cursor:
            try:
                return repartition_by_sorting(task, places, cursor, memory // 2, workers, report)
            except duckdb.Error as error:
                raise RewriteError(f"DuckDB failed: {_first_line(error)}") from error


class _Rewriter:
    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        access: FileAccess,
        resources: Resources,
        share: int,
        copies_at_a_time: int,
    ) -> None:
        self._connection = connection
        self._copying = Semaphore(copies_at_a_time)
        self._access = access
        self._strict = resources.strict
        self._workers = resources.workers
        self._share = share

    def rewrite(self, task: RewriteTask) -> RewriteOutcome:
        """By COPY, else by DuckDB's reader, else by PyArrow; strict mode takes no detour."""
        if task.group.change is not None:
            return self._change(task)
        if task.group.clustering is not None:
            return self._cluster(task)
        if not _is_stitched(task.group, self._strict):
            return self._encode(task)
        try:
            obstacle = try_stitching(task, self._access, self._share)
        except (RewriteError, pa.ArrowException, OSError, ValueError) as error:
            return RewriteOutcome(task.index, "duckdb", error=in_words(error))
        if obstacle is None:
            return RewriteOutcome(task.index, "duckdb", task.staged, mode=task.group.mode)
        outcome = self._encode(task)
        return replace(outcome, notes=(encoded_note(obstacle), *outcome.notes))

    def _encode(self, task: RewriteTask) -> RewriteOutcome:
        obstacle = copy_obstacle(task.group)
        if obstacle is None:
            try:
                self._verify_inputs(task)
                return self._copy(task)
            except (duckdb.Error, RewriteError, pa.ArrowException, OSError) as error:
                obstacle = f"DuckDB failed: {_first_line(error)}"
        if self._strict:
            return RewriteOutcome(task.index, "duckdb", error=_refusal(obstacle))
        return self._detour(task, obstacle)

    def _detour(self, task: RewriteTask, obstacle: str) -> RewriteOutcome:
        if read_obstacle(task.group) is None:
            try:
                self._verify_inputs(task)
                return self._through_arrow(task, obstacle)
            except (duckdb.Error, RewriteError, pa.ArrowException, OSError) as error:
                obstacle = f"DuckDB failed: {_first_line(error)}"
        # What could be copied would have been by now.
        plain = replace(task, group=replace(task.group, mode="encode"))
        outcome = rewrite_group(plain, self._access, self._share)
        return replace(outcome, notes=(*outcome.notes, _pyarrow_note(obstacle)))

    def _cluster(self, task: RewriteTask) -> RewriteOutcome:
        """Sorted by DuckDB between our kernels, else clustered by PyArrow."""
        obstacle = sort_obstacle(task.group)
        if obstacle is None:
            try:
                with self._connection.cursor() as cursor:
                    cluster_by_sorting(task, self._access, cursor, self._share, self._workers)
                return RewriteOutcome(task.index, "duckdb", task.staged)
            except (duckdb.Error, RewriteError, pa.ArrowException, OSError) as error:
                obstacle = f"DuckDB failed: {_first_line(error)}"
        if self._strict:
            return RewriteOutcome(task.index, "duckdb", error=_refusal(obstacle))
        outcome = rewrite_group(task, self._access, self._share, self._workers)
        return replace(outcome, notes=(*outcome.notes, _pyarrow_note(obstacle)))

    def _change(self, task: RewriteTask) -> RewriteOutcome:
        """Deleted by COPY, else changed by PyArrow."""
        obstacle = change_obstacle(task.group)
        if obstacle is None:
            try:
                self._verify_inputs(task)
                return self._copy_without(task)
            except (duckdb.Error, RewriteError, pa.ArrowException, OSError) as error:
                obstacle = f"DuckDB failed: {_first_line(error)}"
        if self._strict:
            return RewriteOutcome(task.index, "duckdb", error=_refusal(obstacle))
        outcome = rewrite_group(task, self._access, self._share)
        return replace(outcome, notes=(*outcome.notes, _pyarrow_note(obstacle)))

    def _copy_without(self, task: RewriteTask) -> RewriteOutcome:
        """COPY of the rows that stay."""
        group, change = task.group, change_of(task.group)
        (file,), (path,), (rows,) = group.files, task.staged, group.output_rows
        schema = with_row_count(group.schema, rows)
        constants = {name: value.as_py() for name, value in change.constants.items()}
        condition = change.rule.predicate.duckdb_sql()
        query = sql.select_without(self._access.url(file.path), schema, condition, constants)
        with self._connection.cursor() as cursor:
            self._copy_to(cursor, query, path, rows, schema, group)
            self._refuse_nan(cursor, task)
        return RewriteOutcome(task.index, "duckdb", task.staged)

    def _verify_inputs(self, task: RewriteTask) -> None:
        for file in task.group.files:
            verify_page_checksums(file, self._access)

    def _copy(self, task: RewriteTask) -> RewriteOutcome:
        group = task.group
        with self._connection.cursor() as cursor:
            for path, rows, (files, offset) in _parts(task):
                schema = with_row_count(group.schema, rows)
                urls = [self._access.url(file) for file in files]
                whole = len(task.staged) == 1
                query = sql.select(urls, schema, offset, None if whole else rows)
                self._copy_to(cursor, query, path, rows, schema, group)
            self._refuse_nan(cursor, task)
        return RewriteOutcome(task.index, "duckdb", task.staged)

    def _copy_to(
        self,
        cursor: duckdb.DuckDBPyConnection,
        query: str,
        path: str,
        rows: int,
        schema: pa.Schema,
        group: RewriteGroup,
    ) -> None:
        self._access.make_directory(path.rpartition("/")[0])
        url = self._access.url(path)
        command = sql.copy(query, url, schema, group.writer, _group_rows(group))
        with self._copying:
            cursor.execute(command)
        self._access.make_durable(path)
        self._check(path, schema, rows)

    def _refuse_nan(self, cursor: duckdb.DuckDBPyConnection, task: RewriteTask) -> None:
        """COPY's dictionaries take every NaN for the same, whatever its bits."""
        columns = float_columns(task.group.schema)
        urls = [self._access.url(path) for path in task.staged]
        if columns and cursor.execute(sql.any_nan(urls, columns)).fetchone() is not None:
            raise RewriteError("there are NaN values, whose bits COPY does not keep")

    def _check(self, path: str, schema: pa.Schema, rows: int) -> None:
        """Compare with the plan now, while there still is another way to write the group."""
        with self._access.open_input(path) as handle:
            parquet = pq.ParquetFile(handle)
            if parquet.metadata.num_rows != rows:
                found = parquet.metadata.num_rows
                raise RewriteError(f"COPY wrote {found} rows instead of {rows}")
            difference = schema_difference(parquet.schema_arrow, schema)
            if difference:
                raise RewriteError(difference)

    def _through_arrow(self, task: RewriteTask, obstacle: str) -> RewriteOutcome:
        group = task.group
        with self._connection.cursor() as cursor:
            urls = [self._access.url(file.path) for file in group.files]
            reader = cursor.sql(sql.select(urls, group.schema)).to_arrow_reader(MAX_BATCH_ROWS)
            try:
                _require_names(reader.schema, group.schema)
                write_files(
                    (conform_batch(batch, group.schema, "the group") for batch in reader),
                    group.schema,
                    list(zip(task.staged, group.output_rows, strict=True)),
                    group.writer,
                    self._access,
                    row_group_bytes=min(ROW_GROUP_BYTES, max(1, self._share // 4)),
                )
            finally:
                reader.close()  # an undrained reader blocks its connection
        notes = (_through_arrow_note(obstacle),)
        return RewriteOutcome(task.index, "duckdb-arrow", task.staged, notes=notes)


@contextmanager
def _connect(access: FileAccess, resources: Resources) -> Iterator[duckdb.DuckDBPyConnection]:
    with spill_folder("duckdb") as spill:
        config: dict[str, Any] = {
            "memory_limit": f"{max(_LEAST_MEMORY, resources.memory_bytes) // MIB}MiB",
            "temp_directory": spill,
            "threads": resources.workers,
            "preserve_insertion_order": True,
            # Nothing is ever downloaded: other stores come through fsspec.
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(":memory:", config=config) as connection:
            # From statistics DuckDB concludes that a column without nulls is required.
            # Global, since each group has a cursor of its own.
            connection.execute("SET GLOBAL disabled_optimizers = 'statistics_propagation'")
            connection.execute("SET GLOBAL TimeZone = 'UTC'")
            # Geometry columns are bytes to us; DuckDB would decode and encode them anew.
            connection.execute("SET GLOBAL enable_geoparquet_conversion = false")
            if not access.is_local:
                connection.register_filesystem(access.fs)
            yield connection


def _parts(task: RewriteTask) -> Iterator[tuple[str, int, tuple[list[str], int]]]:
    """For each output: its path, its rows, the files they are in and how many rows to skip."""
    files = task.group.files
    start = index = 0
    first_row = 0
    for path, rows in zip(task.staged, task.group.output_rows, strict=True):
        while index < len(files) and first_row + files[index].num_rows <= start:
            if start == 0 and rows == 0:
                break
            first_row += files[index].num_rows
            index += 1
        needed, covered = [], first_row
        for file in files[index:]:
            needed.append(file.path)
            covered += file.num_rows
            if covered >= start + rows and len(task.staged) > 1:
                break
        yield path, rows, (needed, start - first_row)
        start += rows


def _require_names(found: pa.Schema, planned: pa.Schema) -> None:
    """A name that DuckDB changed would look like a column that is missing, and become null."""
    if found.names != planned.names or not all(
        _same_names(found.field(i).type, planned.field(i).type) for i in range(len(planned))
    ):
        raise RewriteError("DuckDB changed the names of columns or fields")


def _same_names(found: Any, planned: Any) -> bool:
    if found.num_fields != planned.num_fields:
        return False
    structs = pa.types.is_struct(found) and pa.types.is_struct(planned)
    return all(
        (not structs or found.field(i).name == planned.field(i).name)
        and _same_names(found.field(i).type, planned.field(i).type)
        for i in range(found.num_fields)
    )


def _group_rows(group: RewriteGroup) -> int:
    """Rows of a row group of about the usual size, in whole vectors."""
    decoded = sum(file.decoded_bytes for file in group.files)
    row_bytes = max(1, decoded // max(1, group.total_rows))
    # DuckDB closes a row group at the first vector that reaches the limit.
    rows = min(_MOST_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes) - _VECTOR_ROWS
    return max(1, rows // _VECTOR_ROWS) * _VECTOR_ROWS


def _is_stitched(group: RewriteGroup, strict: bool) -> bool:
    """Copying bytes is nobody's engine; what is encoded in between would be PyArrow's work."""
    return group.mode == "stitch" or (group.mode == "hybrid" and not strict)


def _are_large(tasks: Sequence[RewriteTask]) -> bool:
    """Whether one COPY keeps all threads busy: two would only be in each other's way."""
    return sum(task.group.total_bytes for task in tasks) >= LARGE_GROUP * len(tasks)


def _refusal(obstacle: str) -> str:
    return f"{obstacle} (strict: no other engine may write the group)"


def _pyarrow_note(obstacle: str) -> str:
    return f"PyArrow writes some groups: {obstacle}"


def _through_arrow_note(obstacle: str) -> str:
    return f"DuckDB reads some groups and PyArrow writes them: {obstacle}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
