"""Looking into many files on Spark's executors."""

import io
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from maintenance_assets.engines.protocol import FileAccess, ScanOutcome, ScanTask
from maintenance_assets.engines.scan_kernel import try_scan
from maintenance_assets.engines.spark_failures import redacted
from maintenance_assets.engines.spark_jobs import placed, run_job
from maintenance_assets.engines.spark_kernel import ExecutorAccess, Kernel, compressed, decompressed
from maintenance_assets.engines.spark_session import Session
from maintenance_assets.errors import RewriteError, UnsupportedDatasetError
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.changes import Finder, RowsByKey

SCAN_FILES = 256
SCAN_BYTES = 1024 * MIB
"""From so many files or bytes of files on, executors look into them."""
MOST_KEY_BYTES = 16 * MIB
"""Keys travel with the function: more of them are looked for on the driver."""
_PORTIONS_PER_SLOT = 4
_OUTPUT = pa.schema([("found", pa.binary()), ("missing", pa.string())])
_DDL = "found binary, missing string"
_KINDS: dict[str, type[Exception]] = {
    error.__name__: error for error in (ValueError, UnsupportedDatasetError, RewriteError)
}


def is_worthwhile(
    tasks: Sequence[ScanTask], finder: Finder, least_files: int, least_bytes: int
) -> bool:
    """Whether a job is sooner done than threads of the driver."""
    if isinstance(finder, RowsByKey) and finder.index.nbytes > MOST_KEY_BYTES:
        return False
    return len(tasks) >= least_files or sum(t.file.size_bytes for t in tasks) >= least_bytes


def scan_on_executors(
    spark: Session,
    tasks: Sequence[ScanTask],
    finder: Finder,
    access: FileAccess,
    memory_bytes: int,
    slots: int,
    secrets: Sequence[str],
) -> Iterator[ScanOutcome]:
    """One Spark job; each of its tasks looks into a portion of the files."""
    kernel = _make_kernel(pickle.dumps(access), compressed(finder), memory_bytes // (8 * slots))
    # Dealt out like cards, the largest first: portions of about the same size.
    ordered = sorted(tasks, key=lambda task: -task.file.size_bytes)
    count = min(len(ordered), _PORTIONS_PER_SLOT * slots)
    payloads = [compressed(ordered[start::count]) for start in range(count)]
    rows = run_job(spark, lambda: placed(spark, payloads).mapInArrow(kernel, _DDL), secrets)
    for row in rows:
        for index, found, kind, text in pickle.loads(row["found"]):
            if found is not None:
                yield ScanOutcome(index, found)
            else:
                error = _KINDS.get(kind, RewriteError)(redacted(text, secrets))
                yield ScanOutcome(index, error=error)


def _make_kernel(store: bytes, finder: bytes, batch_bytes: int) -> Kernel:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column("payload"):
                yield _scan(payload.as_py(), store, finder, max(1, batch_bytes))

    return scan


def _scan(payload: bytes, store: bytes, finder: bytes, batch_bytes: int) -> pa.RecordBatch:
    try:
        tasks: list[ScanTask] = decompressed(payload)
        rule: Finder = decompressed(finder)
        access = ExecutorAccess(pickle.loads(store), None)
    except (ImportError, AttributeError, TypeError) as error:
        # A library is not there, or is of another version than the driver's.
        return _batch(None, f"{type(error).__name__}: {error}")
    access.fs.invalidate_cache()  # a worker process is used again, and so is its file system
    found = [_told(try_scan(task, rule, access, batch_bytes)) for task in tasks]
    sink = io.BytesIO()
    pickle.dump(found, sink)
    return _batch(sink.getvalue(), None)


def _told(outcome: ScanOutcome) -> tuple[int, Any, str, str]:
    """Exceptions do not always survive a journey: their kind and their words do."""
    error = outcome.error
    return outcome.index, outcome.found, type(error).__name__, str(error)


def _batch(found: bytes | None, missing: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"found": found, "missing": missing}], schema=_OUTPUT)
