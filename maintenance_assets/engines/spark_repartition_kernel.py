"""What runs on executors when rows are repartitioned: read, place and send; gather and write.

Rows travel as blocks of Arrow data, each for one bucket of directories, so every type arrives as it
left: Spark moves blocks between machines and never looks inside.
"""

import io
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from maintenance_assets.engines.dictionaries import has_dictionary, written_form
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import FileAccess, Places
from maintenance_assets.engines.read_again import Inspector, written_parts
from maintenance_assets.engines.repartition_kernel import Tally, repartition_rows
from maintenance_assets.engines.repartition_task import RepartitionTask, WrittenPart
from maintenance_assets.engines.row_blocks import Arranged
from maintenance_assets.engines.row_flow import Placed, Portion, RowFlow
from maintenance_assets.engines.spark_kernel import ExecutorAccess, Kernel, decompressed
from maintenance_assets.errors import in_words

BLOCKS = pa.schema(
    [
        ("bucket", pa.int32()),
        ("place", pa.int64()),
        ("block", pa.binary()),
        ("about", pa.binary()),
        ("error", pa.string()),
        ("missing", pa.string()),
    ]
)
BLOCKS_DDL = "bucket int, place bigint, block binary, about binary, error string, missing string"
RESULTS = pa.schema([("found", pa.binary()), ("error", pa.string()), ("missing", pa.string())])
RESULTS_DDL = "found binary, error string, missing string"
_MOST_BLOCK_BYTES = 4 * 1024 * 1024
"""Spark puts blocks into batches of 64 MiB: several of them should fit."""
_BATCH_SHIFT = 24
"""A place is the number of a portion and, in the lower bits, of the block in it."""
Row = dict[str, Any]
Stretches = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class ShippedFunction:
    """A function as bytes: executors do not have the module of a script."""

    content: bytes

    @cached_property
    def _function(self) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = pickle.loads(self.content)
        return found

    def __call__(self, rows: Any) -> Any:
        return self._function(rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return ShippedFunction, (self.content,)


@dataclass(frozen=True, slots=True)
class Job:
    """What every task is told; it travels inside the kernels."""

    task: bytes
    source: bytes
    target: bytes
    gate: str | None
    memory_bytes: int
    buckets: int = 1

    def open(self) -> tuple[RepartitionTask, Places]:
        """The rows to move, and the stores."""
        source: FileAccess = pickle.loads(self.source)
        target = ExecutorAccess(pickle.loads(self.target), self.gate)
        for access in (source, target):
            access.fs.invalidate_cache()  # a worker process is used again, and so is its store
        return decompressed(self.task), Places(source, target)


def whole_kernel(job: Job) -> Kernel:
    """Everything in one task."""

    def work(_: Any) -> Iterator[Row]:
        task, places = job.open()
        outcome = repartition_rows(task, places, job.memory_bytes, 1, _ignore)
        yield {"found": zlib.compress(pickle.dumps(outcome), 1)}

    return _over_payloads(work, RESULTS)


def _ignore(rows: int) -> None:
    """Nobody can be told from here."""


# -- reading and sending -----------------------------------------------------------------------


def read_kernel(job: Job) -> Kernel:
    """Portions in; blocks of rows out, each for one bucket, and what was read."""

    def work(numbered: Sequence[tuple[int, Portion]]) -> Iterator[Row]:
        task, places = job.open()
        flow = RowFlow(task, places.source, job.memory_bytes // 8)
        tally = Tally()
        for number, portion in numbered:
            sent = 0
            for placed in flow.placed(portion):
                tally.add(placed)
                for bucket, arranged in _by_bucket(placed, job.buckets):
                    for row in _blocks(arranged):
                        yield {"bucket": bucket, "place": (number << _BATCH_SHIFT) + sent, **row}
                        sent += 1
        bucket = numbered[0][0] % job.buckets if numbered else 0
        yield {"bucket": bucket, "place": 0, "about": pickle.dumps(tally)}

    return _over_payloads(work, BLOCKS)


def bucket_of(directory: str, buckets: int) -> int:
    """The same everywhere: Python's own hash differs between processes."""
    return zlib.crc32(directory.encode()) % buckets


def _by_bucket(placed: Placed, buckets: int) -> Iterator[tuple[int, Arranged]]:
    """The rows of a batch for each bucket, still together by directory."""
    arranged = placed.arranged
    chosen: dict[int, list[tuple[str, int, int]]] = {}
    for stretch in arranged.stretches:
        chosen.setdefault(bucket_of(stretch[0], buckets), []).append(stretch)
    for bucket, stretches in sorted(chosen.items()):
        parts = [arranged.batch.slice(start, rows) for _, start, rows in stretches]
        starts = _starts([rows for _, _, rows in stretches])
        moved = tuple(
            (directory, start, rows)
            for (directory, _, rows), start in zip(stretches, starts, strict=True)
        )
        yield bucket, Arranged(parts[0] if len(parts) == 1 else pa.concat_batches(parts), moved)


def _starts(counts: Sequence[int]) -> list[int]:
    found, start = [], 0
    for count in counts:
        found.append(start)
        start += count
    return found


def _blocks(arranged: Arranged) -> Iterator[Row]:
    """Cut into blocks that are not too large, each with its stretches."""
    batch = arranged.batch
    most = max(1, _MOST_BLOCK_BYTES * batch.num_rows // max(1, batch.nbytes))
    for first in range(0, batch.num_rows, most):
        part = batch.slice(first, most)
        about = pickle.dumps(_cut(arranged.stretches, first, part.num_rows))
        yield {"block": _encoded(part), "about": about}


def _cut(stretches: Stretches, first: int, rows: int) -> Stretches:
    found = []
    for directory, start, count in stretches:
        begin, end = max(start, first), min(start + count, first + rows)
        if begin < end:
            found.append((directory, begin - first, end - begin))
    return tuple(found)


def _encoded(batch: pa.RecordBatch) -> bytes:
    if has_dictionary(batch.schema):
        # A dictionary travels with each block: without the values of rows that are elsewhere.
        arrays = [written_form(array, array.type) for array in batch.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


# -- gathering and writing ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has written, and the tallies of readers that came its way."""

    parts: tuple[WrittenPart, ...]
    tallies: tuple[Tally, ...]


def write_kernel(job: Job) -> Kernel:
    """All blocks of some buckets in, one row about what was written out."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            row = _write(batches, job)
        except Exception as error:
            # Not only what the kernels foresee: each store's library has errors of its own.
            row = {"error": in_words(error)}
        yield pa.RecordBatch.from_pylist([row], RESULTS)

    return write


def _write(batches: Iterator[pa.RecordBatch], job: Job) -> Row:
    task, places = job.open()
    tallies: list[Tally] = []
    with PartitionWriter(
        task.schema,
        task.writer,
        task.stage,
        places.target,
        job.memory_bytes,
        task.target,
        inspect=Inspector.of(task, places.target, job.memory_bytes, 1),
    ) as writer:
        for batch in batches:
            for row in batch.to_pylist():
                if row["error"] is not None or row["missing"] is not None:
                    return {"error": row["error"], "missing": row["missing"]}
                about = pickle.loads(row["about"])
                if row["block"] is None:
                    tallies.append(about)
                    continue
                with pa.ipc.open_stream(row["block"]) as block:
                    writer.add(Arranged(block.read_next_batch(), about), row["place"])
        parts = written_parts(writer)
    written = Written(tuple(parts), tuple(tallies))
    return {"found": zlib.compress(pickle.dumps(written), 1)}


def _over_payloads(work: Callable[[Any], Iterator[Row]], schema: pa.Schema) -> Kernel:
    """A kernel over pickled payloads; what goes wrong is a row: Spark need not try it again."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column("payload"):
                for row in _reported(work, payload.as_py()):
                    # The first column may say where a row goes; an error may go anywhere.
                    base = {"bucket": 0} if "bucket" in schema.names else {}
                    yield pa.RecordBatch.from_pylist([{**base, **row}], schema)

    return run


def _reported(work: Callable[[Any], Iterator[Row]], payload: bytes) -> Iterator[Row]:
    try:
        yield from work(pickle.loads(payload))
    except (ImportError, AttributeError, TypeError) as error:
        # A library is not there, or is of another version than the driver's.
        yield {"missing": f"{type(error).__name__}: {error}"}
    except Exception as error:
        # Not only what the kernels foresee: each store's library has errors of its own.
        yield {"error": in_words(error)}


def shipped(task: RepartitionTask, pickled: bytes) -> RepartitionTask:
    """The task with the user's function as bytes."""
    if task.plan.transform is None:
        return task
    transform = replace(task.plan.transform, function=ShippedFunction(pickled))
    return replace(task, plan=replace(task.plan, transform=transform))
