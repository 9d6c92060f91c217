"""Repartition in one process: read in parallel, gather rows by directory, write, read again."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from maintenance_assets.engines.in_order import in_order
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import FileAccess, Places
from maintenance_assets.engines.read_again import Inspector, flat_texts, written_parts
from maintenance_assets.engines.read_kernel import open_parquet
from maintenance_assets.engines.repartition_task import (
    RepartitionOutcome,
    RepartitionTask,
    Report,
    WrittenPart,
)
from maintenance_assets.engines.row_flow import Placed, RowFlow, portions
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DICTIONARY, DataFile
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES
from maintenance_assets.planning.content_hash import Digest

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
    # Each reader has a batch that is read, one that is moved and one that waits.
    batch_bytes = memory_bytes // (_READ_SHARE * 3 * readers)
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
        inspect=Inspector.of(task, places.target, memory_bytes, workers),
    ) as writer:
        rows = portion_rows(task, workers)
        for placed in in_order(flow.placed, portions(task.files, rows), readers):
            writer.add(placed.arranged)
            tally.add(placed)
            report(tally.rows_read)
        parts = written_parts(writer)
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


# -- text as codes -----------------------------------------------------------------------------


def coded_columns(task: RepartitionTask, access: FileAccess) -> tuple[str, ...]:
    """Columns of text that are dictionaries in the files: they stay that until they are written.

    It is a matter of speed alone; what is not worth it is read as it is.
    """
    if task.plan.transform is not None:
        return ()
    taken = {name for _, value in task.plan.derived for name in value.columns}
    stored = task.plan.stored
    in_files = flat_texts(stored, [n for n in stored.names if n not in taken])
    in_files = [name for name in in_files if all(_codes(file, name) for file in task.files)]
    largest = max(task.files, key=lambda file: file.num_rows)
    if in_files and largest.row_group_count:
        with access.open_input(largest.path) as handle:
            metadata = open_parquet(handle, largest).metadata
        there = [name for name in in_files if largest.has_column(name)]
        in_files = [name for name in there if _is_well_coded(metadata, name)]
    in_paths = [n for n in task.plan.columns.keys if n not in stored.names and n not in taken]
    return (*in_files, *in_paths)


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
