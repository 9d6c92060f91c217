"""Calling the command line, in this process or in one of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from maintenance_assets.cli.main import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a call."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What was printed for machines."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr."""
        (line,) = self.err.splitlines()
        return line.removeprefix("parquet-maintenance: error: ")


class Shell:
    """Commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> Ran:
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        seen = self._capsys.readouterr()
        return Ran(code, seen.out, seen.err)


def command(*words: object) -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-m", "maintenance_assets.cli", *(str(word) for word in words)]


def run_process(*words: object, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command in a process of its own."""
    done = subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(environment or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr)
