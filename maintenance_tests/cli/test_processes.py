"""What only a process of its own can show: signals, pipes, terminals, imports."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import compact, recover
from maintenance_tests.cli.shell import command, run_process
from maintenance_tests.datasets import Lake, one_row_files

HEAVY = ("dagster", "pyspark", "duckdb", "pandas", "polars", "sqlalchemy", "pydantic")
SECONDS = 60.0


def big_lake(root: Path, partitions: int = 24) -> int:
    """So much that a signal arrives while it is rewritten; the sum of its ids."""
    table = pa.table(
        {"id": list(range(60_000)), "text": [f"text {n * 7919}" for n in range(60_000)]}
    )
    for number in range(partitions):
        folder = root / f"p={number:02}"
        folder.mkdir(parents=True)
        for part in range(3):
            pq.write_table(table, folder / f"{part}.parquet")
    return partitions * 3 * sum(range(60_000))


def total(root: Path) -> int:
    files = sorted(root.glob("p=*/*.parquet"))
    return sum(sum(pq.read_table(file, columns=["id"])["id"].to_pylist()) for file in files)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, "the command was done before the signal"
        assert time.monotonic() < end
        time.sleep(0.002)


def is_writing(root: Path) -> bool:
    return any(root.glob("_maintenance/*/*.staged*"))


@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["SIGINT", "SIGTERM", "SIGKILL"],
)
def test_a_signal_leaves_every_row_and_a_dataset_that_recovers(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    root = tmp_path / "lake"
    expected = big_lake(root)
    words = command("compact", root, "--max-workers", 1, "--compression", "zstd")
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as run:
        wait_until(lambda: is_writing(root), run)
        run.send_signal(sent)
        out, err = run.communicate(timeout=SECONDS)
    assert (run.returncode, out) == (code, "")
    if sent is not signal.SIGKILL:
        assert err.startswith("parquet-maintenance: error: interrupted")
        assert len(err.splitlines()) == 1
        assert not (root / "_maintenance").exists()
    assert total(root) == expected
    recover(root)
    assert not (root / "_maintenance").exists()
    compact(root)
    assert total(root) == expected


def without_a_reader(*words: object) -> "subprocess.CompletedProcess[str]":
    """A command whose stdout nobody reads."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        command(*words), stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=SECONDS
    )
    os.close(theirs)
    return done


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    one_row_files(Lake(str(tmp_path / "lake")), 3)
    done = without_a_reader("status", tmp_path / "lake")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_code_is_that_of_the_work_whoever_reads(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    one_row_files(lake, 3, "a=1")
    lake.write("a=2/x.parquet", {"id": [1]})
    lake.write("a=2/y.parquet", {"id": ["one"]})
    done = without_a_reader("compact", lake.url)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1


def on_a_terminal(*words: object) -> str:
    """What a command writes to stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=theirs):
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], SECONDS)[0]:
            try:
                content = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not content:
                break
            seen += content
    os.close(ours)
    return seen.decode()


def test_long_work_draws_bars_on_a_terminal_alone(tmp_path: Path) -> None:
    one_row_files(Lake(str(tmp_path / "a")), 3)
    one_row_files(Lake(str(tmp_path / "b")), 3)
    drawn = on_a_terminal("compact", tmp_path / "a")
    assert "reading footers" in drawn
    assert "rewriting" in drawn
    assert on_a_terminal("compact", tmp_path / "b", "--no-progress") == ""


def loaded_by(*words: str) -> list[str]:
    """Heavy libraries that a command loads."""
    code = (
        "import sys\n"
        "from maintenance_assets.cli.main import main\n"
        f"main({list(words)!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    found: list[str] = eval(done.stderr.splitlines()[-1])
    return found


def test_commands_load_no_engine_that_they_do_not_use(tmp_path: Path) -> None:
    one_row_files(Lake(str(tmp_path / "lake")), 3)
    lake = str(tmp_path / "lake")
    assert loaded_by("--version") == []
    assert loaded_by("status", lake) == []
    assert loaded_by("compact", lake) == []


def test_messages_and_reports_go_where_they_belong(tmp_path: Path) -> None:
    one_row_files(Lake(str(tmp_path / "lake")), 3)
    ran = run_process("compact", tmp_path / "lake", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["after_file_count"] == 1
