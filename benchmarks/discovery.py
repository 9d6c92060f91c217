"""Finding out what lies in a directory of very many files, next to tools that read every footer."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Case, Line, PeakMemory, run_case

FILES, PARTITIONS = 100_000, 100
ROUNDS = 2
HEALTH, PLAN, AGAIN = "health from listings", "list, footers, plan", "list, footers, plan again"
ARROW, DUCKDB, POLARS = "PyArrow dataset, footers", "DuckDB parquet_file_metadata", "Polars scan"
MOST_HEALTH_SECONDS = 5.0
MOST_PLAN_SECONDS = 20.0
A_DAY = 86_400


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_copies(folder: Path, files: int) -> dict[str, Any]:
    """The same small file over and over, a day old: what is in it takes no time to find."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": pa.array(range(10)), "price": [n / 7 for n in range(10)], "side": ["buy"] * 10}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    content = sink.getvalue().to_pybytes()
    old = time.time() - A_DAY
    for number in range(files):
        partition = folder / f"day={number % PARTITIONS:03}"
        if number < PARTITIONS:
            partition.mkdir()
        path = partition / f"part-{number:06}.parquet"
        path.write_bytes(content)
        os.utime(path, (old, old))
    return {}


def look(tool: str, folder: Path) -> dict[str, Any]:
    """Files and rows that a tool finds, once it is imported."""
    work = _LOOKS[tool](folder)
    with PeakMemory() as peak:
        started = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "found": found, "peak_mb": peak.megabytes}


def _health(folder: Path) -> Callable[[], int]:
    from maintenance_assets.orchestration.config import DatasetConfig
    from maintenance_assets.orchestration.planner import MaintenancePlanner

    dataset = DatasetConfig(key="copies", path=str(folder))
    return lambda: MaintenancePlanner().health_of(dataset).file_count


def _plan(folder: Path) -> Callable[[], int]:
    from maintenance_assets.orchestration.config import DatasetConfig
    from maintenance_assets.orchestration.planner import MaintenancePlanner

    dataset = DatasetConfig(key="copies", path=str(folder))
    return lambda: sum(len(group.files) for group in MaintenancePlanner().plan(dataset).groups)


def _plan_again(folder: Path) -> Callable[[], int]:
    """With what the process remembers of the footers."""
    plan = _plan(folder)
    plan()
    return plan


def _arrow(folder: Path) -> Callable[[], int]:
    import pyarrow.dataset as ds

    return lambda: sum(
        1 for each in ds.dataset(folder).get_fragments() if each.metadata.num_rows >= 0
    )


def _duckdb(folder: Path) -> Callable[[], int]:
    import duckdb

    query = f"SELECT count(num_rows) FROM parquet_file_metadata('{folder}/*/*.parquet')"
    return lambda: int(duckdb.sql(query).fetchall()[0][0])


def _polars(folder: Path) -> Callable[[], int]:
    """Rows alone: which files there are, it does not tell."""
    import polars as pl

    rows = pl.scan_parquet(folder / "*/*.parquet", hive_partitioning=False).select(pl.len())
    return lambda: int(rows.collect().item()) // 10


_LOOKS: dict[str, Callable[[Path], Callable[[], int]]] = {
    HEALTH: _health,
    PLAN: _plan,
    AGAIN: _plan_again,
    ARROW: _arrow,
    DUCKDB: _duckdb,
    POLARS: _polars,
}
CASES: dict[str, Case] = {
    "write_copies": lambda a: write_copies(Path(a["folder"]), a["files"]),
    "look": lambda a: look(a["tool"], Path(a["folder"])),
}


# -- measures ----------------------------------------------------------------------------------


def discovery(work: Path) -> list[Line]:
    run_case("write_copies", folder=work, files=FILES)
    found: dict[str, dict[str, Any]] = {}
    for tool in tuple(_LOOKS) * ROUNDS:
        seen = run_case("look", tool=tool, folder=work)
        if tool not in found or seen["seconds"] < found[tool]["seconds"]:
            found[tool] = seen
    shutil.rmtree(work)
    work.mkdir()
    case = f"{FILES:,} files in {PARTITIONS} partitions"
    health, plan = found[HEALTH]["seconds"], found[PLAN]["seconds"]
    times = min(found[tool]["seconds"] for tool in (ARROW, DUCKDB)) / plan
    complete = all(each["found"] == FILES for each in found.values())
    return [
        *(Line(case, f"{tool}, time and memory", _text(each)) for tool, each in found.items()),
        Line(case, "files found by each", f"{FILES:,}" if complete else "not all", "all", complete),
        _limited(case, HEALTH, health, MOST_HEALTH_SECONDS),
        _limited(case, PLAN, plan, MOST_PLAN_SECONDS),
        Line(case, f"fastest reader of all footers / {PLAN}", f"{times:.2f} x"),
    ]


def _limited(case: str, figure: str, seconds: float, most: float) -> Line:
    return Line(case, figure, f"{seconds:.2f} s", f"< {most:.0f} s", seconds < most)


def _text(found: dict[str, Any]) -> str:
    return f"{found['seconds']:.2f} s, peak {found['peak_mb']:,.0f} MB"


MEASURES = (discovery,)
