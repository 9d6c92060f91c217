"""What every benchmark needs: cases in fresh processes, peak memory, the report."""

import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("RESULTS.md")
MIB = 1024 * 1024
VERSIONS = (
    "maintenance-assets",
    "pyarrow",
    "duckdb",
    "pyspark",
    "polars",
    "deltalake",
    "pyiceberg",
    "numpy",
    "fsspec",
)
Case = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the report."""

    case: str
    figure: str
    value: str
    bound: str = ""
    holds: bool = True


class PeakMemory:
    """The largest resident size of this process while the block runs."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._peak = 0
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._watcher.join()

    @property
    def megabytes(self) -> float:
        """What polling saw or what the kernel kept count of, whichever is more."""
        # ru_maxrss of a child starts at the size of its parent, which is small here.
        kernel = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return max(self._peak, kernel * (1 if sys.platform == "darwin" else 1024)) / 1e6

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self._peak = max(self._peak, self._process.memory_info().rss)


def run_case(name: str, **arguments: Any) -> dict[str, Any]:
    """A case in a fresh process."""
    texts = {k: str(v) if isinstance(v, Path) else v for k, v in arguments.items()}
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--case", name, json.dumps(texts)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


def machine() -> list[str]:
    memory = psutil.virtual_memory().total / 1024**3
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    return [
        f"- {os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} "
        f"{platform.machine()}",
        f"- Python {platform.python_version()}, {versions}",
        f"- {datetime.now(UTC):%Y-%m-%d}; processes that waited for a core before it began: "
        f"{os.getloadavg()[0]:.1f}",
    ]


def markdown(lines: list[Line], facts: list[str]) -> str:
    rows = [
        f"| {line.case} | {line.figure} | {line.value} | {bound_text(line)} |" for line in lines
    ]
    return "\n".join(
        [
            "# Results of `make bench`",
            "",
            *facts,
            "",
            "| Case | Figure | Measured | Bound |",
            "|---|---|---|---|",
            *rows,
            "",
            "Every case runs in a fresh process, inputs are written by another one. The times of",
            "maintenance_assets include discovery, verification and the journaled publish;",
            "delta-rs commits to its log; the other peers only write a copy.",
            "",
        ]
    )


def bound_text(line: Line) -> str:
    if not line.bound:
        return ""
    return f"{line.bound}: {'kept' if line.holds else 'BROKEN'}"


def report(lines: list[Line], facts: list[str], console: Console, *, save: bool) -> None:
    table = Table("Case", "Figure", "Measured", "Bound")
    for line in lines:
        style = "" if line.holds else "bold red"
        table.add_row(line.case, line.figure, line.value, bound_text(line), style=style)
    console.print(table)
    if save:
        RESULTS.write_text(markdown(lines, facts), encoding="utf-8")
        console.print(f"Written to benchmarks/{RESULTS.name}")
