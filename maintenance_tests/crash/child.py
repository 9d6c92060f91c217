"""Forks a victim per command that rewrites or recovers and kills itself at a given step."""

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as _warm_parquet  # noqa: F401
from fsspec.implementations import local as _warm_local  # noqa: F401

from maintenance_assets.operations.recover import recover
from maintenance_assets.storage import exchange
from maintenance_assets.storage.filesystems import Store
from maintenance_tests.crash.changes import EXPECTED, change, take_back
from maintenance_tests.crash.helpers import rewrite
from maintenance_tests.crash.thirds import move_by_third
from maintenance_tests.crash.whole import move_rows

_WRAPPED = (
    "fsync",
    "replace",
    "rename",
    "link",
    "unlink",
    "mkdir",
    "makedirs",
    "rmdir",
    "sendfile",
)


class Steps:
    """Counts what touches the disk and dies at the chosen count."""

    def __init__(self, kill_at: int | None, after: bool) -> None:
        self.names: list[str] = []
        self._kill_at = kill_at
        self._after = after
        self._lock = threading.Lock()

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, counted."""

        def counted(*arguments: Any, **named: Any) -> Any:
            # The bytes of a data write would only make the name unreadable.
            shown = "" if name == "write" else _shown(arguments[0])
            with self._lock:
                number = len(self.names)
                self.names.append(f"{name} {shown}")
            if number == self._kill_at and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*arguments, **named)
            finally:
                if number == self._kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        return counted


def _shown(target: Any) -> str:
    """The end of a path, also of an open file."""
    path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
    return "/".join(path.split("/")[-2:])


class CountedSink:
    """An output file whose data writes are steps."""

    def __init__(self, handle: Any, steps: Steps) -> None:
        self._handle = handle
        self.write = steps.wrap("write", handle.write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def install(steps: Steps, *, ordered: bool) -> None:
    """Patch this (forked, short-lived) process."""
    for name in _WRAPPED:
        setattr(os, name, steps.wrap(name, getattr(os, name)))
    exchange.exchange_paths = steps.wrap("exchange", exchange.exchange_paths)
    original = Store.open_output

    @contextlib.contextmanager
    def open_output(self: Store, path: str) -> Iterator[Any]:
        with original(self, path) as handle:
            yield CountedSink(handle, steps)

    Store.open_output = open_output  # type: ignore[method-assign]
    if ordered:
        exchange.can_swap = lambda swap: False


def victim(command: dict[str, Any], pipe: int) -> None:
    """The forked process: does the work, or dies on the way."""
    tempfile.tempdir = command["spill"]
    steps = Steps(command["kill_at"], command["after"])
    install(steps, ordered=command["ordered"])
    if command["action"] == "recover":
        recover(command["root"])
    elif command["action"] in ("move-all", "move-tree"):
        published = move_rows(command["root"], command["action"].removeprefix("move-"))
        assert published.mode == ("ordered" if command["ordered"] else "exchange")
    elif command["action"] in ("repartition", "repartition-beside"):
        move_by_third(command["root"], beside=command["action"].endswith("beside"))
    elif command["action"] == "restore":
        take_back(command["root"])
    elif command["action"] in EXPECTED:
        changed = change(command["action"], command["root"])
        assert changed.publish == ("ordered" if command["ordered"] else "exchange")
    else:
        result = rewrite(command["action"], command["root"])
        assert result.publish == ("ordered" if command["ordered"] else "exchange")
    with os.fdopen(pipe, "w") as report:
        json.dump(steps.names, report)


def run(command: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait, and say how it ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        status = 1
        try:
            victim(command, writing)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as report:
        names = report.read()
    _, status = os.waitpid(pid, 0)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "steps": json.loads(names) if names else [],
    }


def main() -> None:
    """One JSON command per line, one JSON reply per line."""
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
