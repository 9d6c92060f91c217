"""Processes with Spark in them, as the tests see them: children, clusters, a Connect server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark

from maintenance_assets.engines.java import find_java
from maintenance_tests.datasets import Lake
from maintenance_tests.servers import HOST, free_ports
from maintenance_tests.spark.child import ANSWER
from maintenance_tests.spark_sessions import FAST

CLUSTER = {
    **FAST,
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    # Wait for both executors: the first one alone would get all tasks.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE_SECONDS = 120


class Child:
    """A process of `child.py`, and the text that it and its Java wrote."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, **variables: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "child.log"
        command = [sys.executable, "-m", "maintenance_tests.spark.child"]
        self._log = open(self.log, "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, *([json.dumps(dict(settings))] if settings else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | variables,
        )
        self.receive()

    def compact(self, lake: Lake, **options: Any) -> dict[str, Any]:
        """Compact there, and wait for the answer."""
        self.send(lake, **options)
        return self.receive()

    def optimize(self, lake: Lake, columns: list[str], **options: Any) -> dict[str, Any]:
        """Cluster there by a shuffle, however little data there is, and wait for the answer."""
        self.send(lake, columns=columns, **options)
        return self.receive()

    def send(
        self,
        lake: Lake,
        control: Path | None = None,
        columns: list[str] | None = None,
        **options: Any,
    ) -> None:
        """Ask for a compaction, or for clustering by columns."""
        if lake.storage_options:
            options["storage_options"] = dict(lake.storage_options)
        request: dict[str, Any] = {"url": lake.url, "options": options}
        if columns is not None:
            request["columns"] = columns
        if control is not None:
            request["control"] = str(control)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return answer
        raise AssertionError(f"the child ended: {self.log.read_text()[-3000:]}")

    def close(self) -> None:
        """Let it end by itself, or not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        end(self._process)
        self._process.stdout.close()
        self._log.close()


@contextmanager
def child(
    folder: Path, settings: Mapping[str, str] | None = None, **variables: str
) -> Iterator[Child]:
    """A child process, ended at the end."""
    started = Child(folder, settings, **variables)
    try:
        yield started
    finally:
        started.close()


def end(process: "subprocess.Popen[Any]") -> None:
    """Wait for a process, and kill it with its own children when it does not end."""
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
        process.wait(10)


def spark_home(folder: Path) -> Path:
    """Spark as a home of its own: a local cluster writes its work directory into it."""
    home = folder / "spark"
    home.mkdir(parents=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server in a process of its own; its address."""
    (port,) = free_ports(1)
    arguments = [
        f"--conf={name}={value}"
        for name, value in {
            **settings,
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(port),
        }.items()
    ]
    home = Path(pyspark.__file__).parent
    variables = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    variables["SPARK_CONNECT_MODE"] = "0"  # this is the server, and no client
    environment = find_java(os.environ).apply_to(os.environ | variables)
    with open(folder / "server.log", "wb") as log:
        # As start-connect-server.sh does, which would stay between us and the Java process.
        process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), "--class", SERVER, *arguments, "spark-internal"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        try:
            _wait_until_it_listens(process, port, folder / "server.log")
            yield f"sc://{HOST}:{port}"
        finally:
            process.terminate()
            end(process)


def _wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    import socket

    def listens() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"the server ended: {log.read_text()[-3000:]}")
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) == 0

    wait_for(listens)


def wait_for(condition: Callable[[], Any]) -> Any:
    """What the condition gives once it is true; an error when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")
