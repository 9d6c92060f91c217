"""Row groups that are encoded anew: each in a small Parquet file of its own, in memory."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.dictionaries import check_indices_of
from maintenance_assets.engines.dictionary_choice import with_useful_dictionaries
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.read_kernel import RowGroups, read_file
from maintenance_assets.engines.stitch_footer import Footer, parse_footer
from maintenance_assets.engines.write_kernel import Cutter, open_writer
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from maintenance_assets.planning.stitching import Span

_IN_MEMORY = "the rows that are encoded anew"


class RunEncoder:
    """Decodes runs and encodes them into good row groups, some at the same time."""

    def __init__(
        self,
        group: RewriteGroup,
        runs: tuple[tuple[Span, ...], ...],
        access: FileAccess,
        memory_bytes: int,
        workers: int,
        pool: Executor,
    ) -> None:
        self._group = group
        self._runs = runs
        self._access = access
        self._batch_bytes = max(1, memory_bytes // 16)
        self._row_group_bytes = min(ROW_GROUP_BYTES, max(1, memory_bytes // (4 * workers)))
        self._workers = workers
        self._pool = pool
        self._open: tuple[int, Cutter] | None = None

    def encode(self, run: int, rows: int) -> Iterator[pa.Buffer]:
        """The next rows of a run, as files of one row group."""
        if self._open is None or self._open[0] != run:
            self.require_end()
            self._open = run, Cutter(self._batches(run), self._group.schema)
        waiting: deque[Future[pa.Buffer]] = deque()
        for table in self._open[1].row_groups(rows, self._row_group_bytes, ROW_GROUP_ROWS):
            waiting.append(self._pool.submit(encode_table, table, self._group))
            # One is encoded while the next is decoded; more only with more workers.
            if len(waiting) >= self._workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def require_end(self) -> None:
        """Raise when rows of the last run are left over."""
        if self._open is not None and self._open[1].has_more():
            raise RewriteError("the sources hold more rows than their footers say")
        self._open = None

    def _batches(self, run: int) -> Iterator[pa.RecordBatch]:
        for span in self._runs[run]:
            file = self._group.files[span.file]
            yield from read_file(
                file,
                self._group.schema,
                self._access,
                self._batch_bytes,
                choose=_always(range(span.first, span.stop)),
            )


def _always(row_groups: range) -> RowGroups:
    return lambda _: row_groups


def encode_table(table: pa.Table, group: RewriteGroup) -> pa.Buffer:
    """A table as a Parquet file of one row group."""
    sink = pa.BufferOutputStream()
    with open_writer(sink, group.schema, with_useful_dictionaries(group.writer, table)) as writer:
        writer.write_table(
            table.replace_schema_metadata(group.schema.metadata), max(1, table.num_rows)
        )
    content = sink.getvalue()
    check_indices_of(pq.ParquetFile(pa.BufferReader(content)), group.schema)
    return content


def empty_footer(schema: pa.Schema, group: RewriteGroup) -> Footer:
    """The footer of a file without rows, as PyArrow writes it."""
    sink = pa.BufferOutputStream()
    with open_writer(sink, schema, group.writer):
        pass
    return memory_footer(sink.getvalue())


def memory_footer(content: Any) -> Footer:
    """The footer of a file in memory."""
    length = int.from_bytes(bytes(content[-8:-4]), "little") + 8
    return parse_footer(bytes(content[len(content) - length :]), _IN_MEMORY, len(content))
