"""Spark: groups travel to the executors as rows and are rewritten there by the kernels.

Only the DataFrame API is used, so classic Spark and Spark Connect both work. How many groups run at
once is up to Spark; the workers write with PyArrow, outside the memory of the Java heap.
"""

import json
import logging
import os
import pickle
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets.engines.protocol import (
    FileAccess,
    Foresight,
    Resources,
    RewriteOutcome,
    RewriteTask,
)
from maintenance_assets.engines.pyarrow_engine import PyArrowEngine
from maintenance_assets.engines.spark_failures import (
    redacted,
    secret_values,
    summary,
    unavailability,
    whole_text,
)
from maintenance_assets.engines.spark_kernel import INPUT, OUTPUT_DDL, Kernel, make_kernel, pack
from maintenance_assets.engines.spark_session import Session, SessionSource, is_connect
from maintenance_assets.errors import EngineUnavailableError
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.model.policy import MIB

logger = logging.getLogger(__name__)

WAVE_GROUPS = 256
WAVE_BYTES = 32 * MIB
"""Groups of one wave travel together in messages that Spark limits to 128 MiB."""
_CANCEL_SECONDS = 0.5
_CANCEL_ATTEMPTS = 60


class SparkEngine:
    """One Spark task per group, the largest first; outcomes come wave by wave."""

    name = "spark"

    def __init__(self, spark: Session | None = None, remote: str | None = None) -> None:
        self._source = SessionSource(spark, remote)

    def close(self) -> None:
        """Stop the session if this engine started it."""
        self._source.close()

    def __enter__(self) -> "SparkEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def foresee(self, group: RewriteGroup, access: FileAccess, strict: bool) -> Foresight:
        """Known without Spark: a dry run starts no Java."""
        obstacle = executor_obstacle(access)
        if obstacle is None:
            return Foresight(self.name)
        if strict:
            return Foresight(self.name, error=_refusal(obstacle))
        return Foresight("pyarrow", note=_driver_note(obstacle))

    def rewrite(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Generator[RewriteOutcome, None, None]:
        """Rewrite on the executors what they can reach, the rest here."""
        obstacle = executor_obstacle(access)
        if obstacle is None:
            yield from self._on_executors(tasks, access, resources)
        elif resources.strict:
            refusal = _refusal(obstacle)
            yield from (RewriteOutcome(task.index, self.name, error=refusal) for task in tasks)
        else:
            with closing(PyArrowEngine().rewrite(tasks, access, resources)) as outcomes:
                for outcome in outcomes:
                    yield replace(outcome, notes=(*outcome.notes, _driver_note(obstacle)))

    def _on_executors(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Iterator[RewriteOutcome]:
        if not tasks:
            return
        spark = self._source.get()
        ordered = sorted(tasks, key=lambda task: -task.group.total_bytes)
        at_once = min(len(ordered), tasks_at_once(spark, resources.workers))
        with _gate(ordered, access) as gate:
            kernel = make_kernel(pickle.dumps(access), gate, resources.memory_bytes // at_once)
            secrets = secret_values(access.fs, ordered)
            for wave in waves([(task, pack(task)) for task in ordered]):
                yield from _run_wave(spark, kernel, wave, secrets)


Packed = tuple[RewriteTask, bytes]


def executor_obstacle(access: FileAccess) -> str | None:
    """Why executors cannot use a store, if they cannot."""
    fs: Any = access.fs
    while fs is not None:
        if isinstance(fs, MemoryFileSystem):
            return "a memory:// store exists in this process only"
        fs = getattr(fs, "fs", None)
    try:
        pickle.dumps(access)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        return f"this file system cannot be sent to executors ({error})"
    return None


def waves(packed: Sequence[Packed]) -> Iterator[list[Packed]]:
    """Cut into waves that are not too many groups and not too many bytes."""
    wave: list[Packed] = []
    size = 0
    for task, payload in packed:
        if wave and (len(wave) == WAVE_GROUPS or size + len(payload) > WAVE_BYTES):
            yield wave
            wave, size = [], 0
        wave.append((task, payload))
        size += len(payload)
    if wave:
        yield wave


def tasks_at_once(spark: Session, otherwise: int) -> int:
    """How many tasks share the memory of one machine."""
    local = re.match(r"local(?:\[(\d+|\*))?", str(spark.conf.get("spark.master", "")))
    if local is None or str(spark.conf.get("spark.master")).startswith("local-cluster"):
        return max(1, int(spark.conf.get("spark.executor.cores", str(otherwise))))
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


def _run_wave(
    spark: Session, kernel: Kernel, wave: Sequence[Packed], secrets: Sequence[str]
) -> Iterator[RewriteOutcome]:
    try:
        rows = _collect(spark, kernel, [payload for _, payload in wave])
    except _spark_errors() as error:
        text = redacted(whole_text(error), secrets)
        _raise_if_unavailable(text, error if text == whole_text(error) else None)
        why = redacted(summary(error), secrets)
        logger.warning("a Spark job over %d group(s) failed: %s", len(wave), why)
        yield from (RewriteOutcome(task.index, "spark", error=why) for task, _ in wave)
        return
    for row in rows:
        if row["missing"] is not None:
            _raise_if_unavailable(redacted(row["missing"], secrets), None, certain=True)
    for task, _ in wave:
        yield _outcome(task, [row for row in rows if row["index"] == task.index], secrets)


def _collect(spark: Session, kernel: Kernel, payloads: Sequence[bytes]) -> list[Any]:
    """One Spark job: partition n holds group n, and partitions are scheduled in that order."""
    tag = f"maintenance-{uuid4().hex}"
    tagging = _tagging(spark)
    table = pa.table({"position": range(len(payloads)), "payload": payloads}, schema=INPUT)

    def run() -> list[Any]:
        tagging.add(tag)
        frame = spark.createDataFrame(table).repartitionById(len(payloads), "position")
        return list(frame.mapInArrow(kernel, OUTPUT_DDL).collect())

    job = _Job(_with_local_properties(spark, run))
    try:
        return job.result()
    except BaseException:
        # Whatever ends the wait (Ctrl-C too) ends the job: nobody would take what it writes.
        job.stop(lambda: tagging.cancel(tag))
        raise


class _Job:
    """Work in a thread of its own: an interrupted wait must not break the connection to Java."""

    def __init__(self, work: Callable[[], list[Any]]) -> None:
        self._future: Future[list[Any]] = Future()
        self._thread = Thread(target=self._run, args=(work,), name="spark-job", daemon=True)
        self._thread.start()

    def result(self) -> list[Any]:
        """Wait for the work."""
        return self._future.result()

    def stop(self, cancel: Callable[[], object]) -> None:
        """Cancel until it has ended, for it may not have come to Spark yet; then give up."""
        for _ in range(_CANCEL_ATTEMPTS):
            self._thread.join(_CANCEL_SECONDS)
            if not self._thread.is_alive():
                return
            with suppress(*_spark_errors()):
                cancel()
        logger.warning("a cancelled Spark job has not ended yet")

    def _run(self, work: Callable[[], list[Any]]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:
            self._future.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Tagging:
    """How jobs are marked, and ended by their mark."""

    add: Callable[[str], object]
    cancel: Callable[[str], object]


def _tagging(spark: Session) -> _Tagging:
    if is_connect(spark):
        return _Tagging(spark.addTag, spark.interruptTag)
    # Tags of a classic session are known to the thread that made them and to no other.
    return _Tagging(spark.sparkContext.addJobTag, spark.sparkContext.cancelJobsWithTag)


def _with_local_properties(spark: Session, work: Callable[[], list[Any]]) -> Any:
    """The caller's scheduler pool and job group hold for our thread as well."""
    from pyspark import inheritable_thread_target
    from pyspark.sql import is_remote

    return work if is_connect(spark) or is_remote() else inheritable_thread_target(spark)(work)


@contextmanager
def _gate(tasks: Sequence[RewriteTask], access: FileAccess) -> Iterator[str | None]:
    """What tells late attempts that the run is over: see ExecutorAccess."""
    directories = dict.fromkeys(path.rpartition("/")[0] for task in tasks for path in task.staged)
    for directory in directories:
        access.make_directory(directory)
    if access.is_local:
        yield None
        return
    gate = f"{next(iter(directories))}/writing-{uuid4().hex}"
    with access.open_output(gate) as handle:
        handle.write(b"executors may write")
    try:
        yield gate
    finally:
        with suppress(OSError):  # cleaning up after the run takes it away as well
            access.fs.rm_file(gate)


def _outcome(task: RewriteTask, rows: Sequence[Any], secrets: Sequence[str]) -> RewriteOutcome:
    errors = [row["error"] for row in rows if row["error"] is not None]
    if errors:
        return RewriteOutcome(task.index, "spark", error=redacted(errors[0], secrets))
    counts = tuple(row["rows"] for row in rows)
    if counts != task.group.output_rows:
        why = f"RewriteError: executors wrote {counts} rows instead of {task.group.output_rows}"
        return RewriteOutcome(task.index, "spark", error=why)
    notes = tuple(json.loads(rows[0]["notes"] or "[]")) if rows else ()
    return RewriteOutcome(task.index, "spark", tuple(row["path"] for row in rows), notes=notes)


def _raise_if_unavailable(text: str, cause: Exception | None, certain: bool = False) -> None:
    why = unavailability(text)
    if why is None and certain:
        why = (
            f"Spark's executors cannot take the work ({text}). Install the same version of "
            "maintenance-assets there as on the driver"
        )
    if why is not None:
        raise EngineUnavailableError(f"{why}. Nothing was changed.") from cause


def _spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, OSError


def _refusal(obstacle: str) -> str:
    return f"RewriteError: {obstacle} (strict: no other engine may write the group)"


def _driver_note(obstacle: str) -> str:
    return f"PyArrow writes some groups on the driver: {obstacle}"
