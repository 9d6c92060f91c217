"""Running a Spark job so that it ends when nobody waits for it any more."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow as pa

from maintenance_assets.engines.spark_failures import (
    redacted,
    summary,
    unavailability,
    whole_text,
)
from maintenance_assets.engines.spark_kernel import INPUT
from maintenance_assets.engines.spark_session import Session, is_connect
from maintenance_assets.errors import EngineUnavailableError, RewriteError

logger = logging.getLogger(__name__)

_CANCEL_SECONDS = 0.5
_CANCEL_ATTEMPTS = 60


def placed(spark: Session, payloads: Sequence[bytes]) -> Any:
    """A DataFrame whose partition n holds payload n alone."""
    table = pa.table({"position": range(len(payloads)), "payload": payloads}, schema=INPUT)
    return spark.createDataFrame(table).repartitionById(len(payloads), "position")


def run_job(spark: Session, frame: Callable[[], Any], secrets: Sequence[str]) -> list[Any]:
    """The rows of a job; RewriteError when it failed, EngineUnavailableError when none can run."""
    try:
        rows = collect(spark, frame)
    except spark_errors() as error:
        text = redacted(whole_text(error), secrets)
        hidden = text != whole_text(error)
        _raise_if_unavailable(text, None if hidden else error)
        # Without its cause, which would show what was taken out of the text.
        raise RewriteError(redacted(summary(error), secrets)) from None
    for row in rows:
        if row["missing"] is not None:
            _raise_if_unavailable(redacted(row["missing"], secrets), None, certain=True)
    return rows


def collect(spark: Session, frame: Callable[[], Any]) -> list[Any]:
    """The rows of a DataFrame that is made for it."""
    tag = f"maintenance-{uuid4().hex}"
    tagging = _tagging(spark)

    def run() -> list[Any]:
        tagging.add(tag)
        return list(frame().collect())

    job = _Job(_with_local_properties(spark, run))
    try:
        return job.result()
    except BaseException:
        # Whatever ends the wait (Ctrl-C too) ends the job: nobody would take what it writes.
        job.stop(lambda: tagging.cancel(tag))
        raise


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises when a job fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, OSError


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
            with suppress(*spark_errors()):
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


def _raise_if_unavailable(text: str, cause: Exception | None, certain: bool = False) -> None:
    why = unavailability(text)
    if why is None and certain:
        why = (
            f"Spark's executors cannot take the work ({text}). Install the same version of "
            "maintenance-assets there as on the driver"
        )
    if why is not None:
        raise EngineUnavailableError(f"{why}. Nothing was changed.") from cause
