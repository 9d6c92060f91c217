"""The three engines on the same small files, next to what their libraries do alone."""

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import MIB, Case, Line, run_case

FILES, ROWS = 1000, 20_000
ROUNDS = 2
OURS = ("pyarrow", "duckdb", "spark")
ALONE = ("DuckDB COPY", "Polars sink", "Spark coalesce(1).write")
LEAST_TIMES_ALONE = 1.0
MOST_TIMES_COPY = 1.3
LEAST_TIMES_SPARK = 2.0


def compact_on(engine: str, folder: Path) -> dict[str, Any]:
    """Our compaction; for Spark on a session that has already run something."""
    from maintenance_assets import compact
    from maintenance_assets.engines.spark_engine import SparkEngine

    if engine != "spark":
        result = compact(folder, engine=engine)
    else:
        session = _spark()
        result = compact(folder, engine=SparkEngine(session))
        session.stop()
    return {"files": result.stats.after_file_count, "seconds": result.seconds}


def rewrite_alone(tool: str, folder: Path, target: Path) -> dict[str, Any]:
    """A plain copy into one file: no plan, no check, no journal."""
    seconds = {
        "DuckDB COPY": _duckdb_seconds,
        "Polars sink": _polars_seconds,
        "Spark coalesce(1).write": _spark_seconds,
    }[tool](folder, target)
    return {"files": len(list(target.rglob("*.parquet"))), "seconds": seconds}


def _duckdb_seconds(folder: Path, target: Path) -> float:
    import duckdb

    started = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (FROM read_parquet('{folder}/*.parquet')) TO '{target}/out.parquet' "
            "(FORMAT parquet, COMPRESSION snappy)"
        )
    return time.perf_counter() - started


def _polars_seconds(folder: Path, target: Path) -> float:
    import polars as pl

    started = time.perf_counter()
    pl.scan_parquet(folder).sink_parquet(target / "out.parquet", compression="snappy")
    return time.perf_counter() - started


def _spark_seconds(folder: Path, target: Path) -> float:
    session = _spark()
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    started = time.perf_counter()
    session.read.parquet(*files).coalesce(1).write.parquet(f"{target}/out")
    seconds = time.perf_counter() - started
    session.stop()
    return seconds


def _spark() -> Any:
    """A local session, warm: Java, Python workers and the Parquet reader have started."""
    import pyspark.sql

    from maintenance_assets.engines.spark_session import launch_environment

    builder = pyspark.sql.SparkSession.builder.master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    with launch_environment():
        session = builder.getOrCreate()
    session.range(4).mapInArrow(lambda batches: batches, "id long").collect()
    return session


CASES: dict[str, Case] = {
    "compact_on": lambda a: compact_on(a["engine"], Path(a["folder"])),
    "rewrite_alone": lambda a: rewrite_alone(a["tool"], Path(a["folder"]), Path(a["target"])),
}


def three_engines(work: Path) -> list[Line]:
    source = work / "source"
    source.mkdir()
    written = run_case("write_trades", folder=source, files=FILES, rows=ROWS)
    best = _best_of_rounds(work, source)
    case = f"{FILES} files x {ROWS:,} rows ({written['bytes'] / MIB:,.0f} MiB)"
    seconds = {name: found["seconds"] for name, found in best.items()}
    lines = [
        Line(case, name, f"{found['seconds']:.2f} s, {found['files']} files")
        for name, found in best.items()
    ]
    alone = min(seconds["DuckDB COPY"], seconds["Polars sink"]) / seconds["ours on pyarrow"]
    copy = seconds["ours on duckdb"] / seconds["DuckDB COPY"]
    spark = seconds["Spark coalesce(1).write"] / seconds["ours on spark"]
    return [
        *lines,
        Line(
            case,
            "fastest of DuckDB and Polars / ours on PyArrow",
            f"{alone:.2f} x",
            f">= {LEAST_TIMES_ALONE} x",
            alone >= LEAST_TIMES_ALONE,
        ),
        Line(
            case,
            "ours on DuckDB / bare COPY",
            f"{copy:.2f} x",
            f"<= {MOST_TIMES_COPY} x",
            copy <= MOST_TIMES_COPY,
        ),
        Line(
            case,
            "native Spark / ours on Spark",
            f"{spark:.2f} x",
            f">= {LEAST_TIMES_SPARK} x",
            spark >= LEAST_TIMES_SPARK,
        ),
    ]


def _best_of_rounds(work: Path, source: Path) -> dict[str, dict[str, Any]]:
    """All take turns, so that a slow moment of the machine does not hit one of them only."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(ROUNDS):
        for engine in OURS:
            folder = work / "input"
            shutil.copytree(source, folder)
            found = run_case("compact_on", engine=engine, folder=folder)
            _keep_better(best, f"ours on {engine}", found)
            shutil.rmtree(folder)
        for tool in ALONE:
            target = work / "output"
            target.mkdir()
            found = run_case("rewrite_alone", tool=tool, folder=source, target=target)
            _keep_better(best, tool, found)
            shutil.rmtree(target)
    return best


def _keep_better(best: dict[str, dict[str, Any]], name: str, found: dict[str, Any]) -> None:
    if name not in best or found["seconds"] < best[name]["seconds"]:
        best[name] = found


MEASURES = (three_engines,)
