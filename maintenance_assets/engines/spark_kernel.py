"""What runs on Spark's executors: one group in, one row per written file out."""

import copyreg
import io
import json
import os
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from maintenance_assets.engines.protocol import FileAccess, RewriteTask
from maintenance_assets.engines.pyarrow_engine import rewrite_group
from maintenance_assets.errors import RewriteError

INPUT = pa.schema([("position", pa.int32()), ("payload", pa.binary())])
OUTPUT = pa.schema(
    [
        ("index", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("statistics", pa.string()),
        ("error", pa.string()),
        ("missing", pa.string()),
        ("notes", pa.string()),
        ("mode", pa.string()),
        ("directory", pa.string()),
    ]
)
OUTPUT_DDL = (
    "index int, path string, rows bigint, bytes bigint, statistics string, error string, "
    "missing string, notes string, mode string, directory string"
)
_LONGEST_TEXT = 1024

Kernel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class ExecutorAccess:
    """A store as a task may use it: nothing appears in it once the run is over.

    An attempt may outlive its job (speculation, a lost executor). On a local file system it
    finds the run's directory gone and must not make it again. Object stores have no directories,
    so there a file of the driver, the gate, says whether the run still goes on.
    """

    store: FileAccess
    gate: str | None

    @property
    def is_local(self) -> bool:
        """Whether paths are ordinary local paths."""
        return self.store.is_local

    @property
    def fs(self) -> Any:
        """The file system."""
        return self.store.fs

    def url(self, path: str) -> str:
        """A path with its protocol."""
        return self.store.url(path)

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """A random-access file."""
        return self.store.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """A file to write in a directory that exists; durable on leaving."""
        if self.is_local:
            with open(path, "wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            return
        self._require_gate()
        with self.store.open_output(path) as handle:
            yield handle
        try:
            # Only now is the file to be seen: either the driver saw it before it took the gate
            # away, and cleans it up, or this attempt does.
            self._require_gate()
        except RewriteError:
            self.fs.rm_file(path)
            raise

    def make_directory(self, path: str) -> None:
        """Nothing: the driver makes directories."""

    def make_durable(self, path: str) -> None:
        """Sync a file that somebody else wrote."""
        self.store.make_durable(path)

    def _require_gate(self) -> None:
        if self.gate is None:
            return
        self.fs.invalidate_cache(self.gate.rpartition("/")[0])
        try:
            self.fs.info(self.gate)
        except FileNotFoundError as error:
            raise RewriteError("the run ended before this attempt did") from error


def pack(task: RewriteTask) -> bytes:
    """A task as a cell of a DataFrame; the many files of a group are much alike."""
    return compressed(task)


def unpack(payload: bytes) -> RewriteTask:
    """The task in a cell."""
    task: RewriteTask = decompressed(payload)
    return task


def compressed(value: Any) -> bytes:
    """Something that holds schemas as bytes."""
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink)
    # PyArrow's own pickling forgets the names of list items and that a map is sorted.
    pickler.dispatch_table = copyreg.dispatch_table | {pa.Schema: _reduce_schema}
    pickler.dump(value)
    return zlib.compress(sink.getvalue(), 1)


def decompressed(payload: bytes) -> Any:
    """The same again."""
    return pickle.loads(zlib.decompress(payload))


def _reduce_schema(schema: pa.Schema) -> tuple[Callable[[bytes], pa.Schema], tuple[bytes]]:
    return _read_schema, (schema.serialize().to_pybytes(),)


def _read_schema(content: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(content))


def make_kernel(store: bytes, gate: str | None, memory_bytes: int) -> Kernel:
    """The function for mapInArrow; the pickled store travels in it, not in the data."""

    def rewrite_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column("payload"):
                yield rewrite_payload(payload.as_py(), store, gate, memory_bytes)

    return rewrite_groups


def rewrite_payload(
    payload: bytes, store: bytes, gate: str | None, memory_bytes: int
) -> pa.RecordBatch:
    """Rewrite one group; whatever goes wrong is a row, so that Spark does not try it again."""
    index = -1
    try:
        task = unpack(payload)
        index = task.index
        access = ExecutorAccess(pickle.loads(store), gate)
    except (ImportError, AttributeError, TypeError) as error:
        # A library is not there, or is of another version than the driver's.
        return _batch([{"index": index, "missing": f"{type(error).__name__}: {error}"}])
    try:
        return _batch(_rewrite(task, access, memory_bytes))
    except Exception as error:
        # Not only what the kernels foresee: each store's library has errors of its own.
        return _batch([{"index": index, "error": f"{type(error).__name__}: {error}"}])


def _rewrite(task: RewriteTask, access: ExecutorAccess, memory_bytes: int) -> list[dict[str, Any]]:
    access.fs.invalidate_cache()  # a worker process is used again, and so is its file system
    # Another attempt may be writing the same group at this moment.
    staged = tuple(f"{path}.{uuid4().hex}" for path in task.staged)
    outcome = rewrite_group(replace(task, staged=staged), access, memory_bytes)
    if outcome.error is not None:
        return [{"index": task.index, "error": outcome.error}]
    told = {"index": task.index, "notes": json.dumps(outcome.notes), "mode": outcome.mode}
    written = [(path, None) for path in outcome.written]
    moved = [(file.path, file.directory) for file in outcome.moved]
    return [
        {**told, "directory": directory, **describe(path, access)}
        for path, directory in (*written, *moved)
    ]


def describe(path: str, access: FileAccess) -> dict[str, Any]:
    with access.open_input(path) as handle:
        metadata = pq.ParquetFile(handle).metadata
        size = handle.seek(0, os.SEEK_END)
    return {
        "path": path,
        "rows": metadata.num_rows,
        "bytes": size,
        "statistics": json.dumps(statistics_of(metadata)),
    }


def statistics_of(metadata: Any) -> dict[str, Any]:
    """Row groups of a file and, for each leaf column, its nulls and its range as text."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    leaves = {
        metadata.schema.column(i).path: _leaf([group.column(i) for group in groups])
        for i in range(metadata.num_columns)
    }
    return {"row_groups": [group.num_rows for group in groups], "columns": leaves}


def _leaf(chunks: list[Any]) -> dict[str, Any]:
    found = [chunk.statistics for chunk in chunks]
    nulls = [each.null_count if each and each.has_null_count else None for each in found]
    return {
        "null_count": None if None in nulls else sum(nulls),
        "min": _extreme(found, min, "min"),
        "max": _extreme(found, max, "max"),
    }


def _extreme(found: list[Any], choose: Callable[[Iterable[Any]], Any], which: str) -> str | None:
    """The bound of all row groups, or None when one of them does not tell."""
    if not found or not all(each and each.has_min_max for each in found):
        return None
    try:
        value = choose(getattr(each, which) for each in found)
    except (pa.ArrowException, NotImplementedError, TypeError, ValueError, OverflowError):
        return None  # a type that Python has no value for
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONGEST_TEXT else None


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=OUTPUT)
