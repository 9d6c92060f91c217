"""Whoever stops waiting stops the job, and nothing is left of it."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from maintenance_assets import compact
from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.spark.pausing_files import PausingFileSystem
from maintenance_tests.spark.processes import wait_for

pytestmark = [pytest.mark.spark, ONE_WORKER]


class Interrupted(BaseException):
    """As Dagster interrupts a run; Spark's own handler for Ctrl-C plays no part in it."""


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def send_once_writing(control: Path) -> None:
    wait_for(lambda: (control / "first").exists() and (control / "first").read_text())
    os.kill(os.getpid(), signal.SIGUSR1)


def test_interrupted_wait_ends_the_job(spark: Any, local: Lake, tmp_path: Path) -> None:
    one_row_files(local, 3)
    before = local.tree()
    former = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send_once_writing, args=(tmp_path,))
    sender.start()
    try:
        with pytest.raises(Interrupted):
            compact(local.url, engine="spark", filesystem=PausingFileSystem(control=str(tmp_path)))
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, former)
    # Without a cancelled job the worker would wait for ever: nobody lets it go.
    assert wait_for(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    worker = int((tmp_path / "first").read_text())
    wait_for(lambda: not psutil.pid_exists(worker))
    assert local.tree() == before
    assert spark.range(3).count() == 3
