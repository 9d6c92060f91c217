"""Repartition in one process: read in parallel, gather rows by directory, write, read again."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.dictionaries import check_indices
from maintenance_assets.engines.in_order import in_order
from maintenance_assets.engines.partition_writer import PartitionWriter, PlacedFile
from maintenance_assets.engines.protocol import FileAccess, Places
from maintenance_assets.engines.read_kernel import open_parquet
from maintenance_assets.engines.repartition_task import (
    RepartitionOutcome,
    RepartitionTask,
    Report,
    WrittenPart,
)
from maintenance_assets.engines.row_flow import Placed, RowFlow, portions
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError, VerificationError
from maintenance_assets.model.files import DICTIONARY, DataFile
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES
from maintenance_assets.planning.content_hash import Digest, row_hashes
from maintenance_assets.planning.placement import partition_directories

_PORTION_ROWS = 512 * 1024
_LEAST_PORTION_ROWS = 64 * 1024
_READ_SHARE = 4
"""A quarter of the memory is for rows on their way from the sources."""


def repartition_rows(
    task: RepartitionTask,
    places: Places,
    memory_bytes: int,
    workers: int,
    report: Report,
) -> RepartitionOutcome:
    """Write all rows of the task into the files of their directories."""
    coded = coded_columns(task, places.source)
    readers = reader_count(task, memory_bytes, workers)
    # In each of the streams a batch is read, one is moved and one waits.
    batch_bytes = memory_bytes // (_READ_SHARE * 3 * (readers + 1))
    flow = RowFlow(task, places.source, batch_bytes, coded)
    tally = Tally()
    with PartitionWriter(
        task.schema,
        task.writer,
        task.stage,
        places.target,
        memory_bytes - memory_bytes // _READ_SHARE,
        task.target,
        workers=workers,
    ) as writer:
        rows = portion_rows(task, workers)
        for placed in in_order(flow.placed, portions(task.files, rows), readers):
            writer.add(placed.arranged)
            tally.add(placed)
            report(tally.rows_read)
        files = writer.close()
    parts = read_again(task, files, places.target, memory_bytes, workers)
    return tally.outcome("pyarrow", task, parts)


def reader_count(task: RepartitionTask, memory_bytes: int, workers: int) -> int:
    """How many files may be read at once: of each, a row group is loaded as a whole."""
    largest = max(file.size_bytes // max(1, file.row_group_count) for file in task.files)
    return max(1, min(workers, memory_bytes // (_READ_SHARE * max(1, largest)) - 1))


def portion_rows(task: RepartitionTask, workers: int) -> int:
    """Rows of a portion: several for each worker, and not too few to be worth the while."""
    even = task.total_rows // (4 * workers)
    return max(1, min(task.batch_rows, _PORTION_ROWS, max(_LEAST_PORTION_ROWS, even)))


class Tally:
    """What was read, and what has to be found in each directory."""

    def __init__(self) -> None:
        self.rows_read = 0
        self.read = Digest()
        self.expected: defaultdict[str, Digest] = defaultdict(Digest)

    def add(self, placed: Placed) -> None:
        """Count rows on their way to the writer."""
        self.rows_read += placed.rows_read
        self.read = self.read.plus(placed.read)
        arranged = placed.arranged
        digests = arranged.digests or [Digest(rows) for _, _, rows in arranged.stretches]
        for (directory, _, _), digest in zip(arranged.stretches, digests, strict=True):
            self.expected[directory] = self.expected[directory].plus(digest)

    def include(self, other: "Tally") -> None:
        """Count what somebody else has read."""
        self.rows_read += other.rows_read
        self.read = self.read.plus(other.read)
        for directory, digest in other.expected.items():
            self.expected[directory] = self.expected[directory].plus(digest)

    def outcome(
        self, engine: str, task: RepartitionTask, parts: Sequence[WrittenPart]
    ) -> RepartitionOutcome:
        """What there is to tell, once the number of rows is found to be right."""
        if self.rows_read != task.total_rows:
            raise RewriteError(
                f"the sources hold {self.rows_read} rows, their footers say {task.total_rows}"
            )
        return RepartitionOutcome(
            engine, self.rows_read, self.read, dict(self.expected), tuple(parts)
        )


def write_empty(task: RepartitionTask, access: FileAccess) -> WrittenPart:
    """A file without rows, so that the schema is kept; it lies in the root."""
    path = task.stage("")
    write_files([], task.schema, [(path, 0)], task.writer, access, ROW_GROUP_BYTES)
    return WrittenPart("", path, 0)


# -- reading what was written ------------------------------------------------------------------


def read_again(
    task: RepartitionTask,
    files: Sequence[PlacedFile],
    access: FileAccess,
    memory_bytes: int,
    workers: int,
) -> list[WrittenPart]:
    """The written files with a digest of what is in them, where that is asked for."""
    check_indices(task.schema, [file.path for file in files], access)
    if not task.validate:
        return [WrittenPart(file.directory, file.path, file.rows) for file in files]
    batch_bytes = max(1, memory_bytes // (4 * workers))
    if workers == 1 or len(files) < 2:
        return [_read_part(task, file, access, batch_bytes) for file in files]
    with ThreadPoolExecutor(workers, thread_name_prefix="verify") as pool:
        futures = [pool.submit(_read_part, task, file, access, batch_bytes) for file in files]
        try:
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)


def _read_part(
    task: RepartitionTask, file: PlacedFile, access: FileAccess, batch_bytes: int
) -> WrittenPart:
    try:
        return WrittenPart(
            file.directory, file.path, file.rows, _digest(task, file, access, batch_bytes)
        )
    except (pa.ArrowException, OSError) as error:
        raise VerificationError(
            f"a file for '{file.directory}' cannot be read again: {error}. Nothing was published"
        ) from error


def _digest(
    task: RepartitionTask, file: PlacedFile, access: FileAccess, batch_bytes: int
) -> Digest:
    keys = [name for name in task.partition_by if name in task.schema.names]
    with access.open_input(file.path) as handle:
        metadata = pq.read_metadata(handle)
        rows = _batch_rows(metadata, batch_bytes)
        at_once = rows >= metadata.num_rows
        parquet = pq.ParquetFile(
            handle,
            metadata=metadata,
            read_dictionary=_flat_texts(task.schema, keys),
            # Loaded ahead, row groups stay in memory until all have been read.
            pre_buffer=at_once,
            buffer_size=0 if at_once else MIB,
        )
        total = Digest()
        for batch in parquet.iter_batches(rows, use_threads=False):
            total = total.plus(Digest.of(row_hashes(batch, task.hashed)))
            _require_place(batch, keys, task.partition_by, file.directory)
    return total


def _batch_rows(metadata: Any, batch_bytes: int) -> int:
    row_bytes = sum(
        metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)
    ) // max(1, metadata.num_rows)
    return max(1024, min(256 * 1024, batch_bytes // max(1, 4 * row_bytes)))


def _require_place(
    batch: pa.RecordBatch, keys: Sequence[str], partition_by: Sequence[str], directory: str
) -> None:
    """Rows tell their directory only where they still have all the columns."""
    if len(keys) == len(partition_by) and batch.num_rows:
        _, found = partition_directories(batch, keys)
        if found != (directory,):
            other = next(each for each in found if each != directory)
            raise VerificationError(f"rows of '{other}' were written for '{directory}'")


# -- text as codes -----------------------------------------------------------------------------


def coded_columns(task: RepartitionTask, access: FileAccess) -> tuple[str, ...]:
    """Columns of text that are dictionaries in the files: they stay that until they are written.

    It is a matter of speed alone; what is not worth it is read as it is.
    """
    if task.plan.transform is not None:
        return ()
    taken = {name for _, value in task.plan.derived for name in value.columns}
    stored = task.plan.stored
    in_files = _flat_texts(stored, [n for n in stored.names if n not in taken])
    in_files = [name for name in in_files if all(_codes(file, name) for file in task.files)]
    largest = max(task.files, key=lambda file: file.num_rows)
    if in_files and largest.row_group_count:
        with access.open_input(largest.path) as handle:
            metadata = open_parquet(handle, largest).metadata
        there = [name for name in in_files if largest.has_column(name)]
        in_files = [name for name in there if _is_well_coded(metadata, name)]
    in_paths = [n for n in task.plan.columns.keys if n not in stored.names and n not in taken]
    return (*in_files, *in_paths)


def _flat_texts(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    kinds = (pa.types.is_string, pa.types.is_large_string)
    return [
        name
        for name in names
        if schema.names.count(name) == 1
        and "." not in name
        and any(belongs(schema.field(name).type) for belongs in kinds)
    ]


def _codes(file: DataFile, name: str) -> bool:
    if name not in file.schema.leaf_paths:
        return name not in file.schema.arrow.names
    return file.encodings[file.schema.leaf_paths.index(name)] == DICTIONARY


def _is_well_coded(metadata: Any, name: str) -> bool:
    """Whether codes and dictionary are much smaller than the values would be."""
    group = metadata.row_group(0)
    chunks = (group.column(position) for position in range(metadata.num_columns))
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == name)
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return False
    shortest = min(len(statistics.min_raw), len(statistics.max_raw))
    return bool(2 * chunk.total_uncompressed_size < chunk.num_values * (4 + shortest))
