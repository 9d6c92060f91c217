"""Datasets with dense ids, exact readers, and the child driver seen from the tests."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets import CompactionResult, compact, optimize

Layout = Literal["hive", "flat"]
TARGET_ROWS = 40
SMALL_ROWS = 5
COMPACT: dict[str, Any] = {"target_rows_per_file": TARGET_ROWS, "max_workers": 1}
KEY = ("check", "id")
DATA_DIRECTORIES: dict[Layout, tuple[str, ...]] = {"hive": ("p=0", "p=1"), "flat": ("",)}


def rewrite(action: str, root: str | Path) -> CompactionResult:
    """Compact (also by copying alone) or optimize as all crash tests do."""
    if action != "optimize":
        return compact(root, mode="stitch" if action == "stitch" else "auto", **COMPACT)
    return optimize(root, KEY, **COMPACT)


def table(ids: Iterable[int]) -> pa.Table:
    """Rows whose second column can be checked against the first."""
    values = list(ids)
    return pa.table({"id": pa.array(values, pa.int64()), "check": [f"row {i}" for i in values]})


def write(path: Path, ids: Iterable[int]) -> None:
    """One data file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(ids), path)


def make(root: Path, layout: Layout) -> int:
    """Small files in each directory and one file of the target size; the number of rows."""
    start = 0
    for directory in DATA_DIRECTORIES[layout]:
        for index in range(3):
            write(root / directory / f"small-{index}.parquet", range(start, start + SMALL_ROWS))
            start += SMALL_ROWS
    for directory in DATA_DIRECTORIES[layout][:1]:
        write(root / directory / "big.parquet", range(start, start + TARGET_ROWS))
        start += TARGET_ROWS
        (root / directory / "notes.txt").write_text("not data")
    return start


def visible_files(root: Path) -> list[Path]:
    """What a reader's glob finds outside hidden directories."""
    return sorted(
        path
        for path in root.glob("**/*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
    )


def ids(root: Path) -> list[int]:
    """The multiset of ids in a dataset, sorted; every row is checked against its id."""
    found: list[int] = []
    for path in visible_files(root):
        with pa.OSFile(str(path), "rb") as handle:
            rows = pq.ParquetFile(handle).read(use_threads=False).to_pydict()
        assert rows["check"] == [f"row {i}" for i in rows["id"]]
        found += rows["id"]
    return sorted(found)


def leftovers(root: Path) -> list[str]:
    """Anything of ours that should be gone: work directory, siblings, hidden or strange files."""
    inside = [
        str(path.relative_to(root))
        for path in root.glob("**/*")
        if any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
        or (path.is_file() and path.suffix not in (".parquet", ".txt"))
    ]
    beside = [path.name for path in root.parent.iterdir() if path.name.startswith(f".{root.name}")]
    return inside + beside


class Driver:
    """A warm process that forks one victim per command."""

    def __enter__(self) -> "Driver":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "maintenance_tests.crash.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def steps(self, root: Path, action: str, *, ordered: bool) -> list[str]:
        """Run to the end and name every step on the way."""
        reply = self._run(root, action, ordered, None, after=False)
        assert reply["status"] == 0, reply
        steps: list[str] = reply["steps"]
        return steps

    def kill(self, root: Path, action: str, step: int, *, after: bool, ordered: bool) -> None:
        """Run until a step and die there by SIGKILL."""
        reply = self._run(root, action, ordered, step, after=after)
        assert reply["status"] == -9, (reply, step, after)

    def _run(
        self, root: Path, action: str, ordered: bool, kill_at: int | None, *, after: bool
    ) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        command = {
            "root": str(root),
            "action": action,
            "ordered": ordered,
            "kill_at": kill_at,
            "after": after,
        }
        # What other killed runs spilled would be swept by this one: steps that nobody counted.
        with tempfile.TemporaryDirectory() as spill:
            self._process.stdin.write(json.dumps({**command, "spill": spill}) + "\n")
            self._process.stdin.flush()
            reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply


class Scratch:
    """A fresh copy of a dataset for every try, removed before the next one."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._template = folder / "template" / "data"
        self.rows = make(self._template, layout)
        self._tries = folder / "tries"

    def fresh(self) -> Path:
        """A new copy, alone in its parent directory."""
        if self._tries.exists():
            shutil.rmtree(self._tries)
        root = self._tries / "data"
        shutil.copytree(self._template, root)
        return root


def run_module(module: str, *arguments: str) -> "subprocess.Popen[str]":
    """A helper process of this package."""
    return subprocess.Popen(
        [sys.executable, "-m", f"maintenance_tests.crash.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def report(process: "subprocess.Popen[str]", timeout: float = 120) -> dict[str, Any]:
    """What a helper process says at its end (its last line is JSON)."""
    out, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, out
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return result


def show(problems: Sequence[str]) -> str:
    """The first problems, for the message of an assertion."""
    return f"{len(problems)} problem(s):\n" + "\n".join(problems[:12])
