"""How large rows become when they are written: a sample of them is, into memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.repartition_task import RepartitionTask
from maintenance_assets.engines.row_flow import RowFlow, portions
from maintenance_assets.planning.placement import partition_directories

SAMPLE_ROWS = 256 * 1024
_PLACES = 16
_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SampleSize:
    """What a sample of rows became."""

    rows: int
    data_bytes: int
    footer_bytes: int
    """Of one file, on average."""


def written_size(
    task: RepartitionTask, access: FileAccess, memory_bytes: int, rows_per_file: int
) -> SampleSize:
    """Write a sample as files of so many rows, each with rows that belong together.

    Where all rows fit into the sample, they are written as they will be, and the size is exact.
    """
    sink = _Memory()
    whole = task.total_rows <= SAMPLE_ROWS
    with PartitionWriter(task.schema, task.writer, sink.name, sink, memory_bytes) as writer:
        rows = 0
        for batch in _sample(task, access):
            codes, directories = partition_directories(batch, task.partition_by)
            rows += batch.num_rows
            written = batch.select(task.schema.names)
            if whole:
                writer.write(written, codes, directories)
                continue
            order = np.argsort([directories[code] for code in codes], kind="stable")
            pieces = np.arange(batch.num_rows) // max(1, rows_per_file)
            names = [f"piece-{rows}-{n}" for n in range(int(pieces[-1]) + 1)]
            writer.write(written.take(pa.array(order)), pieces, names)
        writer.close()
    return sink.measured(rows)


def _sample(task: RepartitionTask, access: FileAccess) -> Iterator[pa.RecordBatch]:
    """All rows, or some from places all over them in one batch."""
    flow = RowFlow(task, access, _BATCH_BYTES)
    everything = portions(task.files, SAMPLE_ROWS // _PLACES)
    if task.total_rows <= SAMPLE_ROWS:
        for portion in everything:
            for batch in flow.batches(portion):
                yield flow.finished(batch)
        return
    places = np.linspace(0, len(everything) - 1, min(_PLACES, len(everything))).astype(int)
    most = SAMPLE_ROWS // len(places)
    found = []
    for place in dict.fromkeys(places.tolist()):
        batch = next(flow.batches(everything[place]), None)
        if batch is not None:
            found.append(flow.finished(batch.slice(0, most)))
    yield pa.concat_batches(found)


@dataclass(slots=True)
class _Memory:
    """Files in memory, of which only sizes are of interest."""

    is_local: bool = True
    fs: Any = None
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def name(self, directory: str) -> str:
        """One path for all: nothing is found by it."""
        return "sample"

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """A buffer that is measured when it is complete."""
        sink = pa.BufferOutputStream()
        yield sink
        content = sink.getvalue()
        metadata = pq.read_metadata(pa.BufferReader(content))
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        data = sum(
            group.column(index).total_compressed_size
            for group in groups
            for index in range(metadata.num_columns)
        )
        self.sizes.append((data, len(content) - data))

    def open_input(self, path: str) -> Any:
        """Nothing is read back."""
        raise FileNotFoundError(path)

    def url(self, path: str) -> str:
        """The path itself."""
        return path

    def make_directory(self, path: str) -> None:
        """There are none."""

    def make_durable(self, path: str) -> None:
        """It is not meant to last."""

    def measured(self, rows: int) -> SampleSize:
        """The sum over all files."""
        data = sum(size for size, _ in self.sizes)
        footers = sum(size for _, size in self.sizes)
        return SampleSize(rows, data, footers // max(1, len(self.sizes)))


def estimated_directories(counts: Sequence[int], share: float) -> int:
    """How many there are, from the rows of those in a sample: many seen once mean many unseen."""
    once, twice = counts.count(1), counts.count(2)
    unseen = once * once / (2 * twice) if twice else once * (once - 1) / 2
    return len(counts) + round(unseen * (1 - share))
