"""Rows into 200 partitions, next to Polars, DuckDB and Spark with their own partitioned writers.

`python -m benchmarks.repartition --rows 1000000` tries it with fewer rows and writes no report.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.engines import _spark
from benchmarks.harness import MIB, Case, Line, PeakMemory, machine, report, run_case

ROWS, FILES, PARTITIONS = 10_000_000, 20, 200
ROUNDS, ROUNDS_ON_SPARK = 3, 2
SEED = 20251103
OURS = ("ours on pyarrow", "ours on duckdb")
OURS_ON_SPARK = "ours on spark"
POLARS, DUCKDB = "Polars sink_parquet", "DuckDB COPY PARTITION_BY"
SPARK = "Spark partitionBy"
ALL_ON_SPARK = (OURS_ON_SPARK, SPARK)
TURNS = (*OURS, POLARS, DUCKDB) * ROUNDS + ALL_ON_SPARK * ROUNDS_ON_SPARK
LEAST_TIMES_PEERS = 1.0
LEAST_TIMES_SPARK = 2.0


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_trades(folder: Path, rows: int) -> dict[str, Any]:
    """A day in each file, as a feed of trades would write it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    products = np.array([f"P{number:03}-USD" for number in range(PARTITIONS)])
    users = np.array([f"user-{number:06}" for number in range(100_000)])
    each = rows // FILES
    for number in range(FILES):
        micros = np.sort(rng.integers(0, 86_400_000_000, each)) + number * 86_400_000_000
        table = pa.table(
            {
                "ts": pa.array(1_762_128_000_000_000 + micros, pa.timestamp("us")),
                "id": np.arange(number * each, (number + 1) * each),
                "product": products[rng.integers(0, PARTITIONS, each)],
                "price": np.round(rng.lognormal(3, 1, each), 2),
                "quantity": rng.integers(1, 100, each).astype("int32"),
                "user": users[rng.integers(0, len(users), each)],
            }
        )
        pq.write_table(table, folder / f"part-{number:04}.parquet")
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def repartition_with(tool: str, folder: Path, target: Path) -> dict[str, Any]:
    """Partition a folder by product with one tool, in its default of zstd."""
    with PeakMemory() as peak:
        seconds = {
            POLARS: _polars_seconds,
            DUCKDB: _duckdb_seconds,
            SPARK: _spark_seconds,
        }.get(tool, lambda *places: _our_seconds(tool.removeprefix("ours on "), *places))(
            folder, target
        )
    files = list(target.rglob("*.parquet"))
    size = sum(path.stat().st_size for path in files)
    return {"seconds": seconds, "files": len(files), "bytes": size, "peak_mb": peak.megabytes}


def _our_seconds(engine: str, folder: Path, target: Path) -> float:
    """Ours: every row is read again and compared before anything is published."""
    from maintenance_assets import repartition
    from maintenance_assets.engines.spark_engine import SparkEngine

    session = _spark() if engine == "spark" else None
    chosen = SparkEngine(session) if session else engine
    result = repartition(folder, target / "out", ["product"], engine=chosen)
    if session:
        session.stop()
    return result.seconds


def _polars_seconds(folder: Path, target: Path) -> float:
    import polars as pl

    started = time.perf_counter()
    by_product = pl.PartitionBy(target / "out", key="product", include_key=True)
    pl.scan_parquet(folder).sink_parquet(by_product, compression="zstd", mkdir=True)
    return time.perf_counter() - started


def _duckdb_seconds(folder: Path, target: Path) -> float:
    import duckdb

    started = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (FROM read_parquet('{folder}/*.parquet')) TO '{target}/out' "
            "(FORMAT parquet, COMPRESSION zstd, PARTITION_BY (product), "
            "WRITE_PARTITION_COLUMNS true)"
        )
    return time.perf_counter() - started


def _spark_seconds(folder: Path, target: Path) -> float:
    session = _spark()
    started = time.perf_counter()
    frame = session.read.parquet(str(folder))
    frame.write.partitionBy("product").option("compression", "zstd").parquet(f"{target}/out")
    seconds = time.perf_counter() - started
    session.stop()
    return seconds


CASES: dict[str, Case] = {
    "write_trades_by_day": lambda a: write_trades(Path(a["folder"]), a["rows"]),
    "repartition_with": lambda a: repartition_with(a["tool"], Path(a["folder"]), Path(a["target"])),
}


# -- measures ----------------------------------------------------------------------------------


def repartition_into_200(work: Path, rows: int = ROWS) -> list[Line]:
    """The best of several rounds, in which all take turns."""
    source = work / "source"
    source.mkdir()
    written = run_case("write_trades_by_day", folder=source, rows=rows)
    best: dict[str, dict[str, Any]] = {}
    for tool in TURNS:
        target = work / "target"
        target.mkdir()
        found = run_case("repartition_with", tool=tool, folder=source, target=target)
        shutil.rmtree(target)
        if tool not in best or found["seconds"] < best[tool]["seconds"]:
            best[tool] = found
    return _lines(f"repartition {rows / 1e6:.0f} M rows ({written['bytes'] / MIB:,.0f} MiB)", best)


def _lines(case: str, best: dict[str, dict[str, Any]]) -> list[Line]:
    seconds = {tool: found["seconds"] for tool, found in best.items()}
    peers = min(seconds[POLARS], seconds[DUCKDB]) / min(seconds[tool] for tool in OURS)
    spark = seconds[SPARK] / seconds[OURS_ON_SPARK]
    return [
        *(Line(case, tool, _text(found)) for tool, found in best.items()),
        _ratio(case, "fastest of Polars and DuckDB / ours", peers, LEAST_TIMES_PEERS),
        _ratio(case, "native Spark / ours on Spark", spark, LEAST_TIMES_SPARK),
    ]


def _text(found: dict[str, Any]) -> str:
    size, peak = found["bytes"] / MIB, found["peak_mb"]
    return f"{found['seconds']:.2f} s, {found['files']} files, {size:,.0f} MiB, peak {peak:,.0f} MB"


def _ratio(case: str, figure: str, times: float, least: float) -> Line:
    return Line(case, figure, f"{times:.2f} x", f">= {least} x", times >= least)


MEASURES = (repartition_into_200,)


def main() -> None:
    """This measure alone, with any number of rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="maintenance-bench-") as folder:
        work = Path(folder) / "data"
        work.mkdir()
        report(repartition_into_200(work, rows), machine(), Console(), save=False)


if __name__ == "__main__":
    main()
