"""Other writers and other maintainers at work on the same dataset at the same time."""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.parquet as pq
import pytest

from maintenance_assets.errors import (
    IncompleteMaintenanceError,
    LeaseHeldError,
    UnreadableFileError,
)
from maintenance_assets.model.progress import Progress
from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.recover import recover
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.storage import exchange
from maintenance_assets.storage.discovery import list_dataset
from maintenance_assets.storage.filesystems import open_store
from maintenance_tests import datasets
from maintenance_tests.crash.helpers import (
    COMPACT,
    DATA_DIRECTORIES,
    SMALL_ROWS,
    Driver,
    Layout,
    ids,
    leftovers,
    make,
    report,
    run_module,
    write,
)

LAYOUTS: list[Layout] = ["hive", "flat"]
NEW = range(1000, 1007)
FIRST = range(SMALL_ROWS)
"""The ids of the first small file."""


class Lake:
    """A dataset with a place beside it where writers prepare files."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.root = folder / "lake" / "data"
        self.rows = make(self.root, layout)
        self.staging = folder / "staging"
        self.staging.mkdir()
        self.directory = self.root / DATA_DIRECTORIES[layout][0]
        self.first = self.directory / "small-0.parquet"

    def append(self) -> None:
        write(self.staging / "late.parquet", NEW)
        os.replace(self.staging / "late.parquet", self.directory / "late.parquet")

    def replace_input(self) -> None:
        write(self.staging / "new.parquet", NEW)
        os.replace(self.staging / "new.parquet", self.first)

    def delete_input(self) -> None:
        self.first.unlink()

    def replace_untouched(self) -> None:
        write(self.staging / "new.parquet", NEW)
        os.replace(self.staging / "new.parquet", self.directory / "big.parquet")

    def delete_untouched(self) -> None:
        (self.directory / "big.parquet").unlink()

    def expected(self, action: str) -> list[int]:
        """The ids after an action of a writer."""
        kept = set(range(self.rows))
        if action.endswith("_input"):
            kept -= set(FIRST)
        if action.endswith("_untouched"):
            kept -= set(range(self.rows - 40, self.rows))
        return sorted(kept | (set() if action.startswith("delete") else set(NEW)))


@pytest.fixture(params=LAYOUTS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


ACTIONS = ["append", "replace_input", "delete_input", "replace_untouched", "delete_untouched"]


@pytest.mark.parametrize("action", ACTIONS)
def test_writer_before_the_exchange(
    lake: Lake, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _compact_with(monkeypatch, lake, before=getattr(lake, action))
    _check(lake, lake.expected(action))
    if action.endswith("_input"):
        assert any(str(lake.first) in conflict.paths for conflict in result.conflicts)
        assert any("small-0.parquet" in conflict.reason for conflict in result.conflicts)
    else:
        assert not result.conflicts


@pytest.mark.parametrize("action", ["append", "replace_untouched", "delete_untouched"])
def test_writer_after_the_exchange(
    lake: Lake, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compact_with(monkeypatch, lake, after=getattr(lake, action))
    _check(lake, lake.expected(action))


def test_input_name_written_after_the_exchange(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is free by then: a new file next to the output, or the old one given up for it."""
    result = _compact_with(monkeypatch, lake, after=lake.replace_input)
    found = ids(lake.root)
    added = sorted({*range(lake.rows), *NEW})
    assert found == (lake.expected("replace_input") if result.conflicts else added)
    _check(lake, found)


@pytest.mark.parametrize("when", ["before", "after"])
def test_several_changes_at_once(lake: Lake, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict is undone by a second exchange; late files must survive that one too."""

    def change() -> None:
        write(lake.directory / "more.parquet", range(2000, 2003))
        if when == "before":
            lake.replace_input()

    _compact_with(monkeypatch, lake, **{when: change})
    expected = lake.expected("replace_input") if when == "before" else list(range(lake.rows))
    _check(lake, sorted([*expected, *range(2000, 2003)]))


@pytest.mark.parametrize("action", ["append", "replace_untouched", "delete_untouched"])
def test_writer_at_the_exchange_back(
    lake: Lake, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict (an input deleted) makes a second exchange; the writer acts right before it."""
    real = exchange.exchange_paths
    calls = 0

    def exchange_paths(left: str, right: str) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            # Only the first directory of the dataset is of interest.
            lake.delete_input()
        if calls == 2:
            getattr(lake, action)()
        return real(left, right)

    if lake.directory != lake.root:
        (lake.root / "p=1" / "small-1.parquet").rename(lake.directory / "moved-1.parquet")
        (lake.root / "p=1" / "small-2.parquet").rename(lake.directory / "moved-2.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(exchange, "exchange_paths", exchange_paths)
        result = compact(lake.root, **COMPACT)
    assert result.conflicts and calls >= 2
    _check(lake, sorted(set(lake.expected(action)) - set(FIRST)))


@pytest.mark.parametrize("action", ["replace_input", "delete_input"])
def test_input_changed_while_written(lake: Lake, action: str) -> None:
    result = _compact_at_execute(lake, getattr(lake, action))
    assert any(str(lake.first) in conflict.paths for conflict in result.conflicts)
    assert any("small-0.parquet" in conflict.reason for conflict in result.conflicts)
    if action == "replace_input":
        assert ids(lake.root).count(NEW[0]) == 1
    _check(lake, lake.expected(action))


@pytest.mark.parametrize("action", ACTIONS)
def test_input_changed_in_ordered_mode(
    lake: Lake, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "can_swap", lambda swap: False)
    _compact_at_execute(lake, getattr(lake, action))
    _check(lake, lake.expected(action))


@pytest.mark.parametrize("kind", ["rename", "direct"])
def test_appends_while_compacting(lake: Lake, kind: str) -> None:
    directories = ["p=0", "p=1"] if (lake.root / "p=0").is_dir() else [""]
    plan = {"kind": kind, "start": 1000, "files": 60, "rows": 3, "directories": directories}
    writer = _start_writer(lake, plan)
    try:
        for _ in range(2000):
            if writer.poll() is not None:
                break
            try:
                compact(lake.root, target_rows_per_file=100_000)
            except (UnreadableFileError, IncompleteMaintenanceError) as error:
                # A file that is still being written, seen before or after a commit.
                assert kind == "direct"
                assert "cannot be read as Parquet" in str(error)
        report(writer)
    finally:
        writer.kill()
        writer.wait()
    _check(lake, [*range(lake.rows), *range(1000, 1180)])


@pytest.mark.parametrize("kind", ["replace", "delete"])
def test_random_changes_while_compacting(tmp_path: Path, kind: str) -> None:
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        lake = Lake(folder, LAYOUTS[attempt % 2])
        paths = [f.relative_to(lake.root).as_posix() for f in lake.directory.glob("small*")]
        old = {path: ids_of(lake.root / path) for path in sorted(paths)}
        plan = {"kind": kind, "start": 1000, "rows": 4, "paths": sorted(paths), "pause": 0.03}
        writer = _start_writer(lake, plan)
        try:
            # A change in the middle of the rewrite is a failure of its group, not a conflict.
            with contextlib.suppress(IncompleteMaintenanceError):
                compact(lake.root, **COMPACT)
            done = report(writer)["done"]
        finally:
            writer.kill()
            writer.wait()
        expected = set(range(lake.rows))
        for path in done:
            expected -= set(old[path])
            if kind == "replace":
                start = 1000 + 4 * sorted(paths).index(path)
                expected |= set(range(start, start + 4))
        _check(lake, sorted(expected))


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_several_compactions_at_once(tmp_path: Path, layout: Layout, processes: int) -> None:
    for attempt in range(4):
        root = tmp_path / str(attempt) / "data"
        rows = make(root, layout)
        started = [run_module("compactor", str(root)) for _ in range(processes)]
        try:
            ends = _race(started)
        finally:
            for process in started:
                process.communicate(timeout=60)
        pids = {end["pid"] for end in ends}
        for end in ends:
            assert end["end"] in ("worked", "nothing", "held"), end
            if end["end"] == "held":
                assert any(f"pid {pid}" in end["message"] for pid in pids - {end["pid"]}), end
        assert ids(root) == list(range(rows))
        compact(root, **COMPACT)
        assert ids(root) == list(range(rows))
        assert not leftovers(root)


def test_lease_of_a_dead_process_is_taken_over(lake: Lake) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    _write_lease(lake.root, _this_host(), process.pid, time.time() + 3600)
    assert compact(lake.root, **COMPACT).passes
    _check(lake, list(range(lake.rows)))


def test_lease_of_another_host_blocks_until_it_expires(lake: Lake) -> None:
    path = _write_lease(lake.root, "elsewhere/1", 4711, time.time() + 3600)
    before = sorted(lake.root.glob("**/*.parquet"))
    with pytest.raises(LeaseHeldError, match="elsewhere, pid 4711"):
        compact(lake.root, **COMPACT)
    with pytest.raises(LeaseHeldError, match="elsewhere, pid 4711"):
        recover(lake.root)
    assert sorted(lake.root.glob("**/*.parquet")) == before
    assert path.exists()
    # A little over the time may be a clock that is wrong.
    _write_lease(lake.root, "elsewhere/1", 4711, time.time() - 60)
    with pytest.raises(LeaseHeldError, match="elsewhere, pid 4711"):
        compact(lake.root, **COMPACT)
    _write_lease(lake.root, "elsewhere/1", 4711, time.time() - 3600)
    assert compact(lake.root, **COMPACT).passes
    _check(lake, list(range(lake.rows)))


# An input's name is gone by then: it can be written anew, but not deleted.
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("action", [action for action in ACTIONS if action != "delete_input"])
def test_writer_between_crash_and_recovery(tmp_path: Path, layout: Layout, action: str) -> None:
    """Killed right after an exchange; a writer comes; only then somebody recovers."""
    lake = Lake(tmp_path, layout)
    _crash_after_exchange(tmp_path, lake, layout)
    assert not lake.first.exists()
    getattr(lake, action)()
    seen = ids(lake.root)
    recover(lake.root)
    # Whatever a reader saw after the writer was done, recovery must not change.
    _check(lake, seen)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_output_deleted_between_crash_and_recovery(tmp_path: Path, layout: Layout) -> None:
    """One of two outputs is deleted by a user: the rows of the other one must stay."""
    lake = Lake(tmp_path, layout)
    for number in range(12):
        start = 2000 + number * SMALL_ROWS
        write(lake.directory / f"extra-{number}.parquet", range(start, start + SMALL_ROWS))
    _crash_after_exchange(tmp_path, lake, layout)
    outputs = sorted(lake.directory.glob("compact-*.parquet"))
    assert len(outputs) >= 2
    outputs[0].unlink()
    seen = ids(lake.root)
    recover(lake.root)
    assert set(seen) <= set(ids(lake.root))


def _crash_after_exchange(folder: Path, lake: Lake, layout: Layout) -> None:
    twin_folder = folder / "twin"
    twin_folder.mkdir()
    twin = Lake(twin_folder, layout)
    for path in lake.root.glob("**/extra-*.parquet"):
        write(twin.root / path.relative_to(lake.root), ids_of(path))
    with Driver() as driver:
        steps = driver.steps(twin.root, "compact", ordered=False)
        number = max(i for i, name in enumerate(steps) if name.startswith("exchange"))
        driver.kill(lake.root, "compact", number, after=True, ordered=False)


def ids_of(path: Path) -> list[int]:
    """The ids in one file."""
    found: list[int] = pq.ParquetFile(path).read().column("id").to_pylist()
    return found


def _compact_with(
    monkeypatch: pytest.MonkeyPatch,
    lake: Lake,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> CompactionResult:
    """Compact with a writer's action around the exchange of the first directory."""
    real = exchange.exchange_paths
    acted: list[str] = []

    def exchange_paths(left: str, right: str) -> bool:
        mine = left == str(lake.directory) and not acted
        if mine:
            acted.append(left)
        if mine and before is not None:
            before()
        done = real(left, right)
        if mine and after is not None:
            after()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(exchange, "exchange_paths", exchange_paths)
        result = compact(lake.root, **COMPACT)
    assert acted
    return result


def _compact_at_execute(lake: Lake, action: Callable[[], None]) -> CompactionResult:
    """Compact with a writer's action when everything is written and nothing is published."""
    acted: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        if progress.phase == "execute" and progress.done == progress.total and not acted:
            acted.append(progress)
            action()

    result = compact(lake.root, on_progress=on_progress, **COMPACT)
    assert acted
    return result


def _check(lake: Lake, expected: list[int]) -> None:
    assert ids(lake.root) == expected
    compact(lake.root, **COMPACT)
    assert ids(lake.root) == expected
    assert not leftovers(lake.root)


def _start_writer(lake: Lake, plan: dict[str, Any]) -> "subprocess.Popen[str]":
    writer = run_module("writer", str(lake.root), str(lake.staging), json.dumps(plan))
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def _race(started: "list[subprocess.Popen[str]]") -> list[dict[str, Any]]:
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in started if process.stdout]


def _this_host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _write_lease(root: Path, host: str, pid: int, expires_at: float) -> Path:
    run_id = "0195d2a0-0000-7000-8000-000000000000"
    path = root / "_maintenance" / "leases" / f"{run_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = {
        "run_id": run_id,
        "operation": "compact",
        "host": host,
        "pid": pid,
        "process": "start:1",
        "expires_at": expires_at,
    }
    path.write_text(json.dumps(holder))
    return path


def test_a_listing_beside_a_writer_of_temporary_files(tmp_path: Path) -> None:
    """Names come and go between the listing of a directory and the look at its files."""
    lake = datasets.Lake(str(tmp_path / "lake"))
    datasets.one_row_files(lake, 3, "p=0")
    folder, stop = tmp_path / "lake" / "p=0", Event()

    def scribble() -> None:
        for number in count():
            if stop.is_set():
                return
            (folder / f".{number}.tmp").write_bytes(b"x")
            (folder / f".{number}.tmp").unlink()

    with ThreadPoolExecutor(1) as pool:
        scribbling = pool.submit(scribble)
        try:
            found = {len(list_dataset(open_store(lake.url)).data) for _ in range(2000)}
        finally:
            stop.set()
        scribbling.result()
    assert found == {3}
