"""Clustering of one large group on Spark: jobs that count, and one to split, shuffle and write.

Cells are counted on the executors, so the driver can cut the curve exactly; then every row goes
straight to the task that writes its output. Where rows are many, a job before counts stretches of
the curve, and only the cells of those that are cut come to the driver. Spark sorts nothing by value
and sees no value: it would need types that it does not have, and its order is not everyone's.
"""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maintenance_assets.engines.cluster_kernel import clustering_of
from maintenance_assets.engines.protocol import FileAccess, RewriteOutcome, RewriteTask
from maintenance_assets.engines.spark_failures import redacted
from maintenance_assets.engines.spark_jobs import placed, run_job
from maintenance_assets.engines.spark_kernel import pack
from maintenance_assets.engines.spark_session import Session
from maintenance_assets.engines.spark_shuffle_kernel import (
    BLOCKS_DDL,
    COUNTS_DDL,
    WRITTEN_DDL,
    Job,
    count_kernel,
    split_kernel,
    stretch_kernel,
    write_kernel,
)
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.clustering import (
    CellCounts,
    Cuts,
    Starts,
    StretchCounter,
    Stretches,
    cut,
    starts_of_files,
)
from maintenance_assets.planning.dictionaries import has_nested_dictionary, has_ordered_dictionary

_PORTION_BYTES = 128 * MIB
"""Decoded bytes that one task reads."""
FEW_ROWS = 4 * 1024 * 1024
"""Up to so many rows, the driver has memory for all their cells, and one job less is faster."""


def can_shuffle(group: RewriteGroup) -> bool:
    """Whether blocks of rows can go different ways: categories have to be seen all together."""
    return not has_ordered_dictionary(group.schema) and not has_nested_dictionary(group.schema)


class Shuffle:
    """Clusters one group with many tasks."""

    def __init__(
        self,
        spark: Session,
        task: RewriteTask,
        access: FileAccess,
        gate: str | None,
        memory_bytes: int,
        secrets: Sequence[str],
    ) -> None:
        self._spark = spark
        self._task = task
        self._group = task.group
        self._store = pickle.dumps(access)
        self._gate = gate
        self._memory = memory_bytes
        self._secrets = secrets

    def outcome(self, at_once: int) -> RewriteOutcome:
        """Write the outputs of the group, or say in words why not."""
        job = Job(pack(self._task), self._store, self._gate, max(1, self._memory // at_once))
        try:
            cuts, starts = self._cut(job, at_once)
            rows = self._write(job, cuts, starts, at_once)
        except RewriteError as error:
            return RewriteOutcome(self._task.index, "spark", error=f"RewriteError: {error}")
        return RewriteOutcome(self._task.index, "spark", tuple(row["path"] for row in rows))

    def _cut(self, job: Job, at_once: int) -> tuple[Cuts, list[Starts]]:
        """Where outputs begin, and what each file needs to know about the files before it."""
        payloads = [pickle.dumps(portion) for portion in self._portions(at_once)]
        clustering, total = clustering_of(self._group), self._group.total_rows
        stretches = Stretches.whole(clustering, total)
        if total > FEW_ROWS:
            stretches = self._stretches(job, payloads)
        counts = self._count(job, stretches, payloads)
        try:
            cuts = cut(stretches, CellCounts.total(counts), self._group.output_rows)
        except ValueError as error:
            raise RewriteError(
                f"the sources do not hold as many rows as their footers say: {error}"
            ) from error
        return cuts, starts_of_files(cuts, counts)

    def _stretches(self, job: Job, payloads: list[bytes]) -> Stretches:
        kernel = stretch_kernel(job)
        rows = self._run(lambda: placed(self._spark, payloads).mapInArrow(kernel, COUNTS_DDL))
        output_rows = self._group.output_rows
        counter = StretchCounter(clustering_of(self._group).cell_bits, len(output_rows))
        for row in rows:
            counter.add_counts(
                np.frombuffer(row["cells"], np.int64), np.frombuffer(row["counts"], np.int64)
            )
        found = sum(int(np.frombuffer(row["counts"], np.int64).sum()) for row in rows)
        if found != self._group.total_rows:
            raise RewriteError("the sources do not hold as many rows as their footers say")
        return counter.stretches(output_rows)

    def _count(self, job: Job, stretches: Stretches, payloads: list[bytes]) -> list[CellCounts]:
        kernel = count_kernel(job, stretches)
        rows = self._run(lambda: placed(self._spark, payloads).mapInArrow(kernel, COUNTS_DDL))
        found = {
            row["file"]: CellCounts(
                np.frombuffer(row["cells"], np.uint32), np.frombuffer(row["counts"], np.int64)
            )
            for row in rows
        }
        if len(found) != len(self._group.files) or len(rows) != len(found):
            raise RewriteError(f"executors counted {len(rows)} of {len(self._group.files)} files")
        return [found[number] for number in range(len(found))]

    def _write(self, job: Job, cuts: Cuts, starts: list[Starts], at_once: int) -> list[Any]:
        payloads = [
            pickle.dumps([(number, starts[number]) for number in portion])
            for portion in self._portions(at_once)
        ]
        outputs = len(self._task.staged)
        split, write = split_kernel(job, cuts), write_kernel(job)

        def frame() -> Any:
            blocks = placed(self._spark, payloads).mapInArrow(split, BLOCKS_DDL)
            return blocks.repartitionById(outputs, "output").mapInArrow(write, WRITTEN_DDL)

        rows = sorted(self._run(frame), key=lambda row: row["output"])
        counts = tuple(row["rows"] for row in rows)
        if [row["output"] for row in rows] != [
            *range(outputs)
        ] or counts != self._group.output_rows:
            raise RewriteError(
                f"executors wrote {counts} rows instead of {self._group.output_rows}"
            )
        return rows

    def _run(self, frame: Any) -> list[Any]:
        rows = run_job(self._spark, frame, self._secrets)
        for row in rows:
            if row["error"] is not None:
                raise RewriteError(redacted(row["error"], self._secrets))
        return rows

    def _portions(self, at_once: int) -> list[list[int]]:
        """Numbers of files for each task: about equal, and a few tasks for each core."""
        total = self._group.decoded_bytes
        limit = max(1, min(_PORTION_BYTES, total // (4 * at_once)))
        return list(_cut_by_size([file.decoded_bytes for file in self._group.files], limit))


def _cut_by_size(sizes: Sequence[int], limit: int) -> Iterator[list[int]]:
    portion: list[int] = []
    size = 0
    for number, each in enumerate(sizes):
        portion.append(number)
        size += each
        if size >= limit:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
