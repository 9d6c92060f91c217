"""Repartition on Spark: executors read and place rows, a shuffle gathers them, executors write."""

import pickle
import zlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from maintenance_assets.engines.dictionaries import has_nested_dictionary, has_ordered_dictionary
from maintenance_assets.engines.protocol import Places
from maintenance_assets.engines.repartition_kernel import Tally
from maintenance_assets.engines.repartition_task import RepartitionOutcome, RepartitionTask
from maintenance_assets.engines.row_flow import Portion, portions
from maintenance_assets.engines.spark_failures import redacted
from maintenance_assets.engines.spark_jobs import placed, run_job
from maintenance_assets.engines.spark_kernel import compressed
from maintenance_assets.engines.spark_repartition_kernel import (
    BLOCKS_DDL,
    RESULTS_DDL,
    Job,
    Written,
    read_kernel,
    shipped,
    whole_kernel,
    write_kernel,
)
from maintenance_assets.engines.spark_session import Session
from maintenance_assets.errors import RewriteError, VerificationError
from maintenance_assets.model.policy import MIB

_PORTION_BYTES = 128 * MIB
"""Decoded bytes that one task reads, and that one task writes."""
_PORTION_ROWS = 512 * 1024
_MOST_BUCKETS = 4096


def can_shuffle_rows(task: RepartitionTask) -> bool:
    """Whether blocks of rows can go different ways: categories have to be seen all together."""
    return not has_ordered_dictionary(task.schema) and not has_nested_dictionary(task.schema)


class SparkRepartition:
    """Moves the rows of one task."""

    def __init__(
        self,
        spark: Session,
        task: RepartitionTask,
        places: Places,
        gate: str | None,
        memory_bytes: int,
        secrets: Sequence[str],
    ) -> None:
        self._spark = spark
        self._task = task
        self._secrets = secrets
        self._memory = memory_bytes
        self._packed = compressed(shipped(task, _pickled_function(task)))
        self._stores = pickle.dumps(places.source), pickle.dumps(places.target)
        self._gate = gate

    def in_one_task(self) -> RepartitionOutcome:
        """Where there is little, one task is done before others have begun."""
        kernel = whole_kernel(self._job(self._memory, 1))
        payloads = [pickle.dumps(None)]
        rows = self._run(lambda: placed(self._spark, payloads).mapInArrow(kernel, RESULTS_DDL))
        outcome: RepartitionOutcome = pickle.loads(zlib.decompress(rows[0]["found"]))
        return RepartitionOutcome(
            "spark", outcome.rows_read, outcome.read, outcome.expected, outcome.parts
        )

    def shuffled(self, at_once: int) -> RepartitionOutcome:
        """Many tasks read, many write."""
        buckets = self._buckets(at_once)
        job = self._job(max(1, self._memory // at_once), buckets)
        payloads = [pickle.dumps(portion) for portion in self._portions(at_once)]
        read, write = read_kernel(job), write_kernel(job)

        def frame() -> Any:
            blocks = placed(self._spark, payloads).mapInArrow(read, BLOCKS_DDL)
            return blocks.repartitionById(buckets, "bucket").mapInArrow(write, RESULTS_DDL)

        found = [pickle.loads(zlib.decompress(row["found"])) for row in self._run(frame)]
        return self._outcome(found, len(payloads))

    def _outcome(self, found: Sequence[Written], readers: int) -> RepartitionOutcome:
        tallies = [tally for written in found for tally in written.tallies]
        if len(tallies) != readers:
            raise VerificationError(f"{len(tallies)} of {readers} tasks told what they had read")
        total = Tally()
        for tally in tallies:
            total.include(tally)
        parts = sorted(
            (part for written in found for part in written.parts),
            key=lambda part: (part.directory, part.path),
        )
        return total.outcome("spark", self._task, parts)

    def _job(self, memory_bytes: int, buckets: int) -> Job:
        return Job(self._packed, *self._stores, self._gate, memory_bytes, buckets)

    def _buckets(self, at_once: int) -> int:
        needed = -(-self._task.decoded_bytes // _PORTION_BYTES)
        return max(1, min(_MOST_BUCKETS, max(2 * at_once, needed)))

    def _portions(self, at_once: int) -> list[list[tuple[int, Portion]]]:
        """Numbered portions for each task: about equal, and a few tasks for each core."""
        task = self._task
        rows = max(1, min(_PORTION_ROWS, task.total_rows // (4 * at_once)))
        numbered = list(enumerate(portions(task.files, rows)))
        tasks = max(4 * at_once, -(-task.decoded_bytes // _PORTION_BYTES))
        each = max(1, -(-len(numbered) // tasks))
        return [numbered[start : start + each] for start in range(0, len(numbered), each)]

    def _run(self, frame: Any) -> list[Any]:
        rows = run_job(self._spark, frame, self._secrets)
        for row in rows:
            if row["error"] is not None:
                raise RewriteError(redacted(row["error"], self._secrets))
        return rows


def _pickled_function(task: RepartitionTask) -> bytes:
    if task.plan.transform is None:
        return b""
    cloudpickle: Any = import_module("pyspark.cloudpickle")
    try:
        content: bytes = cloudpickle.dumps(task.plan.transform.function)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise RewriteError(f"transform_fn cannot be sent to executors: {error}") from error
    return content
