"""Runs in processes of their own: ended in the middle, or started twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster
import pytest

from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration import paused_location
from maintenance_tests.orchestration.location import (
    failure,
    location,
    two_days,
)

PATIENCE_SECONDS = 90


class CommandLine:
    """`dagster job execute` in another process, paused in the middle of a rewrite."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.control = folder / "control"
        self.control.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        self._log = folder / "log"
        variables = {
            "DAGSTER_HOME": str(self.home),
            paused_location.LAKE: lake.url,
            paused_location.CONTROL: str(self.control),
        }
        command = ["job", "execute", "-m", paused_location.__name__, "-j", "lake__trades__compact"]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dagster", *command],
                env=os.environ | variables,
                stdout=log,
                stderr=log,
            )

    def wait_until_paused(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (self.control / "paused").exists():
            assert self.process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.05)

    def let_go(self) -> int:
        (self.control / "go").touch()
        return self.process.wait(PATIENCE_SECONDS)

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE_SECONDS)

    def run_status(self) -> dagster.DagsterRunStatus:
        with dagster.DagsterInstance.from_config(str(self.home)) as instance:
            (run,) = instance.get_runs()
            return run.status


@contextmanager
def command_line(lake: Lake, folder: Path) -> Iterator[CommandLine]:
    started = CommandLine(lake, folder)
    try:
        started.wait_until_paused()
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_ended_in_the_middle_leaves_the_data_as_it_was(
    local: Lake, tmp_path: Path, number: signal.Signals
) -> None:
    two_days(local)
    before = {name: local.get(name) for name in local.files()}
    with command_line(local, tmp_path) as run:
        run.end(number)
        status = run.run_status()
    assert {name: local.get(name) for name in local.files()} == before
    if number is signal.SIGKILL:
        assert status is dagster.DagsterRunStatus.STARTED  # run monitoring finds it later
    else:
        assert status in (dagster.DagsterRunStatus.CANCELED, dagster.DagsterRunStatus.FAILURE)
        assert set(local.tree()) == set(before)  # nothing is left behind either
    with location(local) as place:
        assert place.compact().success
        assert not place.tick().run_requests
    assert local.column("id") == [*range(6), *range(100, 106)]
    assert set(local.tree()) == set(local.files())


def test_a_run_of_the_command_line_and_one_of_the_ui_do_not_overlap(
    local: Lake, tmp_path: Path
) -> None:
    two_days(local)
    with command_line(local, tmp_path) as run, location(local) as place:
        pid = f"pid {run.process.pid}"
        for result in (place.compact(), place.run("recover")):
            assert not result.success
            assert pid in failure(result)
        assert place.materializations() == {}
        assert pid in place.tick().skip_message
        assert run.let_go() == 0
        assert run.run_status() is dagster.DagsterRunStatus.SUCCESS
        assert len(local.files()) == 2
        assert place.compact().success
    assert local.column("id") == [*range(6), *range(100, 106)]
