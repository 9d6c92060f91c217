"""Rows into the files of their directories: however many there are, in bounded memory."""

import base64
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Semaphore
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.dictionaries import (
    OrderedCategories,
    as_written,
    has_nested_dictionary,
)
from maintenance_assets.engines.dictionary_choice import with_useful_dictionaries
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.row_blocks import (
    Arranged,
    BlocksInMemory,
    Spill,
    Stretches,
    arrange,
)
from maintenance_assets.engines.write_kernel import writer_arguments
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.model.policy import MIB, CompactionPolicy
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from maintenance_assets.planning.file_metadata import (
    ARROW_SCHEMA,
    PANDAS,
    has_range_index,
    with_row_count,
)

logger = logging.getLogger(__name__)

_MOST_OPEN = 64
"""Files that may stay open while more rows come; the others are written in one go at the end."""
_CLOSERS = 8
_REMOTE_BUFFER = 256 * MIB
"""What an open file on an object store may cost in memory."""
_STRETCH = 1.5
"""The rest of a directory goes into its last file rather than into a small one of its own."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A written file: the directory it is meant for, and where it is staged."""

    directory: str
    path: str
    rows: int


def _is_there(file: PlacedFile) -> None:
    """Nothing is to be known of it."""


def closer_count(access: FileAccess, workers: int) -> int:
    """Threads that wait until files are on disk and look into them, so that nobody else has to."""
    return min(_CLOSERS, 4 * workers) if access.is_local else workers


class PartitionWriter:
    """Writes rows into one or more files per directory; rows of a directory keep their order.

    `stage` gives the path of a new file for a directory. `write` and `add` are called in the order
    of the rows; `close` ends all files and says what was written.
    """

    def __init__(
        self,
        schema: pa.Schema,
        options: WriterOptions,
        stage: Callable[[str], str],
        access: FileAccess,
        memory_bytes: int,
        target: CompactionPolicy | None = None,
        folder: str | None = None,
        *,
        workers: int = 1,
        row_group_rows: int | None = None,
        inspect: Callable[[PlacedFile], Any] = _is_there,
    ) -> None:
        self._form = _Form.of(schema, options, access, memory_bytes, target or CompactionPolicy())
        if row_group_rows is not None:
            self._form = replace(self._form, group_rows=min(self._form.group_rows, row_group_rows))
        self._stage = stage
        self._limit = max(1, memory_bytes * 7 // 10)
        self._workers = workers
        self._spill = Spill(folder, max(1, memory_bytes // 8))
        self._memory = BlocksInMemory(self._spill)
        self._categories = OrderedCategories(schema)
        self._buckets: dict[str, _Bucket] = {}
        self._comes_in_order = True
        self._inspect = inspect
        closers = closer_count(access, workers)
        self._closers = ThreadPoolExecutor(closers, thread_name_prefix="close")
        self._room = Semaphore(2 * closers)
        self._most_open = _MOST_OPEN if access.is_local else max(1, memory_bytes // _REMOTE_BUFFER)

    def write(self, batch: pa.RecordBatch, codes: Any, directories: Sequence[str]) -> None:
        """Add rows; row i belongs into the directory of number `codes[i]`."""
        self.add(arrange(batch, codes, directories))

    def add(self, arranged: Arranged, order: int | None = None) -> None:
        """Add rows that are together by directory already.

        Where batches do not come in the order of their rows, each needs to say its place.
        """
        self._comes_in_order = self._comes_in_order and order is None
        if not arranged.batch.num_rows:
            return
        self._categories.check(arranged.batch)
        block = self._memory.add(arranged.batch)
        for directory, start, rows in arranged.stretches:
            bucket = self._buckets.get(directory)
            if bucket is None:
                bucket = self._buckets[directory] = _Bucket(Stretches(directory))
            bucket.rest.add(block, start, rows, order or 0)
        if self._memory.size > self._limit:
            self._make_room()

    def close(self) -> tuple[PlacedFile, ...]:
        """Write all that is left; the files of each directory in the order of its rows."""
        return tuple(file for file, _ in self.close_and_inspect())

    def close_and_inspect(self) -> list[tuple[PlacedFile, Any]]:
        """The same, with what `inspect` found in each file as soon as it was complete."""
        try:
            self.finish(list(self._buckets))
        finally:
            self._end()  # waits until all is on disk
        buckets = [bucket for _, bucket in sorted(self._buckets.items())]
        return [closing.result() for bucket in buckets for closing in bucket.closing]

    def finish(self, directories: Sequence[str]) -> None:
        """Write all rows of some directories: there are no more to come."""
        buckets = [self._buckets[directory] for directory in directories]
        # The largest first, so that no big one is left for the end.
        self._for_each(sorted(buckets, key=lambda bucket: -bucket.rest.nbytes), self._finish)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Let go of everything, also when something went wrong."""
        for bucket in self._buckets.values():
            if bucket.file is not None:
                bucket.file.abandon()
                bucket.file = None
        self._closers.shutdown()
        self._spill.close()

    def _make_room(self) -> None:
        """Write what makes whole row groups, spill the rest."""
        if self._comes_in_order:
            self._write_full(list(self._buckets.values()))
        rests = [bucket.rest for _, bucket in sorted(self._buckets.items())]
        self._memory.shrink(rests, self._limit // 2)

    def _write_full(self, buckets: Sequence["_Bucket"]) -> None:
        full = [bucket for bucket in buckets if self._form.is_full(bucket.rest)]
        free = self._most_open - sum(bucket.file is not None for bucket in buckets)
        full.sort(key=lambda bucket: (bucket.file is None, -bucket.rest.nbytes))
        already_open = sum(bucket.file is not None for bucket in full)
        self._for_each(full[: already_open + max(0, free)], self._write_full_groups)

    def _for_each(self, buckets: Sequence["_Bucket"], work: Callable[["_Bucket"], None]) -> None:
        if self._workers == 1 or len(buckets) < 2:
            for bucket in buckets:
                work(bucket)
            return
        with ThreadPoolExecutor(self._workers, thread_name_prefix="partition") as pool:
            futures = [pool.submit(work, bucket) for bucket in buckets]
            try:
                for future in futures:
                    future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _write_full_groups(self, bucket: "_Bucket") -> None:
        while self._form.is_full(bucket.rest):
            self._write_group(bucket)

    def _finish(self, bucket: "_Bucket") -> None:
        if not self._comes_in_order:
            bucket.rest.bring_into_order()
        while bucket.rest.rows:
            self._write_group(bucket)
        self._close_file(bucket)

    def _write_group(self, bucket: "_Bucket") -> None:
        """Write one row group, into the file that is open or into a new one."""
        if bucket.file is not None and self._form.is_complete(bucket.file, bucket.rest):
            self._close_file(bucket)
        group = self._form.take_group(bucket.rest, bucket.file.rows if bucket.file else 0)
        if bucket.file is None:
            directory = bucket.rest.directory
            bucket.file = _OpenFile(directory, self._stage(directory), self._form, group)
        bucket.file.write(group)
        self._spill.let_go()

    def _close_file(self, bucket: "_Bucket") -> None:
        if bucket.file is not None:
            file, bucket.file = bucket.file, None
            self._room.acquire()
            bucket.closing.append(self._closers.submit(self._closed, file))

    def _closed(self, file: "_OpenFile") -> tuple[PlacedFile, Any]:
        try:
            placed = file.close()
            return placed, self._inspect(placed)
        finally:
            self._room.release()


@dataclass(slots=True)
class _Bucket:
    """A directory: rows that are not written yet, the file that is open, files that are full."""

    rest: Stretches
    file: "_OpenFile | None" = None
    closing: list[Future[tuple[PlacedFile, Any]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Form:
    """How files and row groups are cut and encoded."""

    schema: pa.Schema
    options: WriterOptions
    access: FileAccess
    target: CompactionPolicy
    group_bytes: int
    group_rows: int
    one_group: bool
    """PyArrow cannot read a nested dictionary over several row groups."""
    numbers_rows: bool
    """A pandas range index says how many rows a file has."""
    known: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What the writer is told, by the magnitude of the first row group."""

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        options: WriterOptions,
        access: FileAccess,
        memory_bytes: int,
        target: CompactionPolicy,
    ) -> "_Form":
        return cls(
            schema,
            options,
            access,
            target,
            min(ROW_GROUP_BYTES, max(1, memory_bytes // 4)),
            min(ROW_GROUP_ROWS, target.target_rows or ROW_GROUP_ROWS),
            has_nested_dictionary(schema),
            has_range_index(schema),
        )

    def arguments(self, group: pa.Table) -> dict[str, Any]:
        """What the writer of a file is told, which begins with this row group.

        Columns repeat as much in one directory as in another: one of each magnitude is looked at.
        """
        magnitude = group.num_rows.bit_length()
        found = self.known.get(magnitude)
        if found is None:
            options = with_useful_dictionaries(self.options, group)
            found = self.known[magnitude] = writer_arguments(self.schema, options)
        return found

    def is_full(self, rest: Stretches) -> bool:
        """Whether there is enough for a row group."""
        return rest.rows >= self.group_rows or rest.nbytes >= self.group_bytes

    def is_complete(self, file: "_OpenFile", rest: Stretches) -> bool:
        """Whether the next row group belongs into another file."""
        target_rows, target_bytes = self.target.target_rows, self.target.target_bytes
        if self.one_group or (target_rows is not None and file.rows >= target_rows):
            return True
        if target_bytes is None:
            return False
        expected = file.expected_bytes(min(rest.nbytes, self.group_bytes))
        if not self.is_full(rest):  # nothing comes behind it
            return file.size + expected > _STRETCH * target_bytes
        return file.size + expected // 2 >= target_bytes

    def take_group(self, rest: Stretches, rows_in_file: int) -> pa.Table:
        """The next row group of a directory."""
        most = self.group_rows
        if self.target.target_rows is not None:
            most = min(most, self.target.target_rows - rows_in_file)
        taken: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < most and size < self.group_bytes and rest.rows:
            before = rest.nbytes
            part = rest.take(most - rows)
            taken.append(part)
            rows += part.num_rows
            size += before - rest.nbytes
        return as_written(taken, self.schema)


class _OpenFile:
    """A file that is being written."""

    def __init__(self, directory: str, path: str, form: _Form, first: pa.Table) -> None:
        self._directory = directory
        self._path = path
        self._form = form
        self._metadata = dict(form.schema.metadata or {})
        if form.numbers_rows:
            del self._metadata[PANDAS]  # only known at the end
        self.rows = 0
        self._decoded = 0
        self._stack = ExitStack()
        try:
            self._sink = self._stack.enter_context(form.access.open_output(path))
            schema = form.schema.with_metadata(self._metadata or None)
            self._writer = pq.ParquetWriter(self._sink, schema, **form.arguments(first))
            self._stack.enter_context(self._writer)
        except BaseException:
            self._stack.close()
            raise

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def expected_bytes(self, decoded: int) -> int:
        """What so many decoded bytes would add, going by what they did so far."""
        return decoded * self.size // max(1, self._decoded)

    def write(self, group: pa.Table) -> None:
        """Write one row group."""
        named = group.replace_schema_metadata(self._metadata or None)
        self._writer.write_table(named, max(1, group.num_rows))
        self.rows += group.num_rows
        self._decoded += group.nbytes

    def close(self) -> PlacedFile:
        """End the file."""
        schema = with_row_count(self._form.schema, self.rows)
        metadata = schema.metadata or {}
        if not self._form.options.store_arrow_schema and metadata:
            # pyarrow leaves all metadata out together with the Arrow schema.
            self._writer.add_key_value_metadata(metadata)
        elif self._form.numbers_rows:
            stored = base64.b64encode(schema.serialize().to_pybytes())
            pandas = metadata[PANDAS]
            self._writer.add_key_value_metadata({PANDAS: pandas, ARROW_SCHEMA: stored})
        self._stack.close()
        return PlacedFile(self._directory, self._path, self.rows)

    def abandon(self) -> None:
        """Let go of a file that nobody will want."""
        try:
            self._stack.close()
        except (OSError, pa.ArrowException) as error:
            logger.info("'%s' was abandoned: %s", self._path, error)
