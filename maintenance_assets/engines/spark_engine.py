"""Spark: groups travel to the executors as rows and are rewritten there by the kernels.

Only the DataFrame API is used, so classic Spark and Spark Connect both work. How many groups run at
once is up to Spark; the workers write with PyArrow, outside the memory of the Java heap.
"""

import json
import logging
import os
import pickle
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from fsspec.implementations.memory import MemoryFileSystem

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
from maintenance_assets.engines.pyarrow_engine import PyArrowEngine
from maintenance_assets.engines.repartition_kernel import repartition_rows
from maintenance_assets.engines.repartition_task import (
    RepartitionOutcome,
    RepartitionTask,
    Report,
)
from maintenance_assets.engines.scan_kernel import scan_in_threads
from maintenance_assets.engines.spark_failures import redacted, secret_values
from maintenance_assets.engines.spark_jobs import placed, run_job
from maintenance_assets.engines.spark_kernel import OUTPUT_DDL, Kernel, make_kernel, pack
from maintenance_assets.engines.spark_repartition import SparkRepartition, can_shuffle_rows
from maintenance_assets.engines.spark_scan import (
    SCAN_BYTES,
    SCAN_FILES,
    is_worthwhile,
    scan_on_executors,
)
from maintenance_assets.engines.spark_session import Session, SessionSource
from maintenance_assets.engines.spark_shuffle import Shuffle, can_shuffle
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.changes import MovedFile
from maintenance_assets.model.plans import GroupMode, RewriteGroup
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.changes import Finder

logger = logging.getLogger(__name__)

SHUFFLE_BYTES = 128 * MIB
"""Decoded bytes from which a group is clustered by many tasks: below, one is done sooner."""
WAVE_GROUPS = 256
WAVE_BYTES = 32 * MIB
"""Groups of one wave travel together in messages that Spark limits to 128 MiB."""


class SparkEngine:
    """One Spark task per group, the largest first; outcomes come wave by wave."""

    name = "spark"

    def __init__(
        self,
        spark: Session | None = None,
        remote: str | None = None,
        shuffle_bytes: int = SHUFFLE_BYTES,
        scan_files: int = SCAN_FILES,
    ) -> None:
        self._source = SessionSource(spark, remote)
        self._shuffle_bytes = shuffle_bytes
        self._scan_files = scan_files

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

    def scan(
        self, tasks: Sequence[ScanTask], finder: Finder, access: FileAccess, resources: Resources
    ) -> Generator[ScanOutcome, None, None]:
        """Look into many files on the executors, into a few here."""
        reachable = executor_obstacle(access) is None
        if not reachable or not is_worthwhile(tasks, finder, self._scan_files, SCAN_BYTES):
            yield from scan_in_threads(tasks, finder, access, resources)
            return
        spark = self._source.get()
        slots = tasks_at_once(spark, resources.workers)
        secrets = secret_values(access.fs, [task.file.path for task in tasks])
        yield from scan_on_executors(
            spark, tasks, finder, access, resources.memory_bytes, slots, secrets
        )

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
            secrets = secret_values(access.fs, [path for task in ordered for path in task.staged])
            shuffled = [task for task in ordered if self._is_shuffled(task)]
            for task in shuffled:
                shuffle = Shuffle(spark, task, access, gate, resources.memory_bytes, secrets)
                yield shuffle.outcome(tasks_at_once(spark, resources.workers))
            whole = [task for task in ordered if not self._is_shuffled(task)]
            for wave in waves([(task, pack(task)) for task in whole]):
                yield from _run_wave(spark, kernel, wave, secrets)

    def foresee_repartition(self, task: RepartitionTask, places: Places, strict: bool) -> Foresight:
        """Known without Spark, as for groups."""
        obstacle = executor_obstacle(places.source) or executor_obstacle(places.target)
        if obstacle is None:
            return Foresight(self.name)
        if strict:
            return Foresight(self.name, error=_refusal(obstacle))
        return Foresight("pyarrow", note=_driver_note(obstacle))

    def repartition(
        self, task: RepartitionTask, places: Places, resources: Resources, report: Report
    ) -> RepartitionOutcome:
        """Read, shuffle and write on the executors; in one task where there is little."""
        seen = self.foresee_repartition(task, places, resources.strict)
        if seen.error is not None:
            raise RewriteError(seen.error)
        if seen.engine != self.name:
            memory, workers = resources.memory_bytes, resources.workers
            outcome = repartition_rows(task, places, memory, workers, report)
            return replace(outcome, notes=(*outcome.notes, str(seen.note)))
        spark, staging = self._source.get(), task.stage("").rpartition("/")[0]
        paths = [staging, *(file.path for file in task.files)]
        secrets = dict.fromkeys(
            (*secret_values(places.source.fs, paths), *secret_values(places.target.fs, paths))
        )
        with gate_at([staging], places.target) as gate:
            move = SparkRepartition(
                spark, task, places, gate, resources.memory_bytes, tuple(secrets)
            )
            if task.decoded_bytes <= self._shuffle_bytes or not can_shuffle_rows(task):
                outcome = move.in_one_task()
            else:
                outcome = move.shuffled(tasks_at_once(spark, resources.workers))
        report(outcome.rows_read)
        return outcome

    def _is_shuffled(self, task: RewriteTask) -> bool:
        """Whether the rows of a group are clustered by many tasks rather than by one."""
        group = task.group
        return (
            group.clustering is not None
            and len(group.output_rows) > 1
            and group.decoded_bytes > self._shuffle_bytes
            and can_shuffle(group)
        )


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
    """One Spark job: partition n holds group n, and partitions are scheduled in that order."""
    payloads = [payload for _, payload in wave]
    try:
        rows = run_job(
            spark, lambda: placed(spark, payloads).mapInArrow(kernel, OUTPUT_DDL), secrets
        )
    except RewriteError as error:
        logger.warning("a Spark job over %d group(s) failed: %s", len(wave), error)
        yield from (RewriteOutcome(task.index, "spark", error=str(error)) for task, _ in wave)
        return
    for task, _ in wave:
        yield _outcome(task, [row for row in rows if row["index"] == task.index], secrets)


@contextmanager
def _gate(tasks: Sequence[RewriteTask], access: FileAccess) -> Iterator[str | None]:
    """What tells late attempts that the run is over: see ExecutorAccess."""
    directories = dict.fromkeys(path.rpartition("/")[0] for task in tasks for path in task.staged)
    changes = (task.group.change for task in tasks)
    directories |= dict.fromkeys(change.staging for change in changes if change is not None)
    with gate_at(list(directories), access) as gate:
        yield gate


@contextmanager
def gate_at(directories: Sequence[str], access: FileAccess) -> Iterator[str | None]:
    """The same for these directories, which are made."""
    for directory in directories:
        access.make_directory(directory)
    if access.is_local:
        yield None
        return
    gate = f"{directories[0]}/writing-{uuid4().hex}"
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
    here = [row for row in rows if row["directory"] is None]
    counts = tuple(row["rows"] for row in here)
    if counts != task.group.output_rows:
        why = f"RewriteError: executors wrote {counts} rows instead of {task.group.output_rows}"
        return RewriteOutcome(task.index, "spark", error=why)
    notes = tuple(json.loads(rows[0]["notes"] or "[]")) if rows else ()
    moved = tuple(
        MovedFile(row["directory"], row["path"], row["rows"])
        for row in rows
        if row["directory"] is not None
    )
    written = tuple(row["path"] for row in here)
    mode: GroupMode = rows[0]["mode"] if rows else "encode"
    return RewriteOutcome(task.index, "spark", written, notes=notes, moved=moved, mode=mode)


def _refusal(obstacle: str) -> str:
    return f"{obstacle} (strict: no other engine may write the group)"


def _driver_note(obstacle: str) -> str:
    return f"PyArrow writes some groups on the driver: {obstacle}"
