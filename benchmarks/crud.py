"""Changing few rows of many: ours, delta-rs, pyiceberg, and all anew with Polars or DuckDB."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.commits import iceberg_catalog
from benchmarks.engines import _spark
from benchmarks.harness import MIB, Case, Line, PeakMemory, run_case

PARTITIONS, ROWS = 200, 50_000
TOUCHED = "day=107"
ROUNDS = 2
SEED = 20251118
PYARROW, DUCKDB, SPARK = (f"ours on {engine}" for engine in ("pyarrow", "duckdb", "spark"))
DELTA, ICEBERG = "delta-rs", "pyiceberg"
POLARS, COPY = "Polars, all anew", "DuckDB COPY, all anew"
Work = Callable[[], int]
LEAST_TIMES_POLARS = 5.0
MOST_TIMES_PARTITION = 6.0
"""What a delete may read, in sizes of the partition that it is about."""


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_days(folder: Path, rows: int) -> dict[str, Any]:
    """One file for each day; the day is in path and file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    names = np.array([f"user-{number:06}" for number in range(100_000)])
    for number in range(PARTITIONS):
        first = number * rows
        table = pa.table(
            {
                "id": pa.array(np.arange(first, first + rows)),
                "price": np.round(rng.lognormal(3, 1, rows), 2),
                "quantity": rng.integers(1, 100, rows).astype("int32"),
                "name": names[rng.integers(0, len(names), rows)],
                "day": [f"{number:03}"] * rows,
            }
        )
        (folder / f"day={number:03}").mkdir()
        pq.write_table(table, folder / f"day={number:03}" / "part-0.parquet")
    return {"bytes": sum(path.stat().st_size for path in folder.rglob("*.parquet"))}


def to_delta(folder: Path) -> dict[str, Any]:
    """A Delta table of the same rows, partitioned by day."""
    import pyarrow.dataset as ds
    from deltalake import write_deltalake

    rows = ds.dataset([str(path) for path in sorted(folder.rglob("*.parquet"))]).to_table()
    shutil.rmtree(folder)
    write_deltalake(str(folder), rows, partition_by=["day"])
    return {}


def to_iceberg(folder: Path) -> dict[str, Any]:
    """An Iceberg table of the very same files, partitioned by day."""
    import pyarrow.parquet as pq
    from pyiceberg.transforms import IdentityTransform

    files = [str(path) for path in sorted(folder.rglob("*.parquet"))]
    catalog = iceberg_catalog(f"sqlite:///{folder}/catalog.db", folder)
    catalog.create_namespace("bench")
    schema = pq.read_schema(files[0])
    table = catalog.create_table("bench.events", schema=schema)
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform(), "day")
    table.add_files(files)
    return {}


def delete_few(tool: str, folder: Path) -> dict[str, Any]:
    """Delete one row in a hundred of one partition."""
    ready: dict[str, Callable[[Path], Work]] = {
        DELTA: _delta_delete,
        ICEBERG: _iceberg_delete,
        POLARS: _polars_delete,
        COPY: _duckdb_delete,
    }
    return _measured(ready[tool](folder) if tool in ready else _our_delete(tool, folder))


def upsert_few(tool: str, folder: Path, rows: int) -> dict[str, Any]:
    """New prices for one row in a hundred of one partition, and as many new rows."""
    news = _news(rows)
    if tool == DELTA:
        return _measured(_delta_merge(folder, news))
    if tool == ICEBERG:
        return _measured(_iceberg_upsert(folder, news))
    if tool == POLARS:
        return _measured(_polars_merge(folder, news))
    return _measured(_our_upsert(tool, folder, news))


def _measured(work: Work) -> dict[str, Any]:
    """Once all is imported and sessions are warm."""
    process = psutil.Process()
    with PeakMemory() as peak:
        before = process.io_counters().read_chars
        started = time.perf_counter()
        changed = work()
        seconds = time.perf_counter() - started
        read = process.io_counters().read_chars - before
    return {"seconds": seconds, "read": read, "rows": changed, "peak_mb": peak.megabytes}


def _our_engine(tool: str) -> Any:
    from maintenance_assets.engines.registry import get_engine
    from maintenance_assets.engines.spark_engine import SparkEngine

    name = tool.removeprefix("ours on ")
    return SparkEngine(_spark()) if name == "spark" else get_engine(name)


def _our_delete(tool: str, folder: Path) -> Work:
    from maintenance_assets import delete

    where, engine = "id % 100 = 0", _our_engine(tool)
    delete(folder, where, engine=engine, partition_filter="day=000", dry_run=True)
    return lambda: delete(folder, where, engine=engine, partition_filter=TOUCHED).stats.rows_deleted


def _our_upsert(tool: str, folder: Path, news: Any) -> Work:
    from maintenance_assets import upsert

    engine = _our_engine(tool)
    first = {"partition_filter": "day=000", "dry_run": True}
    upsert(folder, news.slice(0, 0), ["id", "day"], engine=engine, **first)

    def work() -> int:
        stats = upsert(folder, news, ["id", "day"], engine=engine).stats
        return stats.rows_updated + stats.rows_inserted

    return work


def _news(rows: int) -> Any:
    import numpy as np
    import pyarrow as pa

    day = int(TOUCHED.removeprefix("day="))
    known = np.arange(day * rows, (day + 1) * rows, 100)
    new = PARTITIONS * rows + np.arange(len(known))
    ids = np.concatenate([known, new])
    days = [f"{day:03}"] * len(ids)
    return pa.table({"id": ids, "price": np.full(len(ids), 1.0), "day": days})


def _delta_delete(folder: Path) -> Work:
    from deltalake import DeltaTable

    where = f"id % 100 = 0 AND day = '{TOUCHED.removeprefix('day=')}'"
    return lambda: int(DeltaTable(str(folder)).delete(where)["num_deleted_rows"])


def _delta_merge(folder: Path, news: Any) -> Work:
    from deltalake import DeltaTable

    same = "t.id = s.id AND t.day = s.day"

    def work() -> int:
        table = DeltaTable(str(folder))
        merge = table.merge(news, same, source_alias="s", target_alias="t")
        updated = merge.when_matched_update({"price": "s.price"})
        columns = {"id": "s.id", "price": "s.price", "day": "s.day"}
        done = updated.when_not_matched_insert(columns).execute()
        return int(done["num_target_rows_updated"] + done["num_target_rows_inserted"])

    return work


def _iceberg_table(folder: Path) -> Any:
    return iceberg_catalog(f"sqlite:///{folder}/catalog.db", folder).load_table("bench.events")


def _iceberg_delete(folder: Path) -> Work:
    """Its expressions know no `%`: the rows are named one by one."""
    from pyiceberg.expressions import And, EqualTo, In

    table, day = _iceberg_table(folder), int(TOUCHED.removeprefix("day="))
    ids = range(day * ROWS, (day + 1) * ROWS, 100)
    where = And(EqualTo("day", f"{day:03}"), In("id", set(ids)))

    def work() -> int:
        table.delete(where)
        return len(ids)

    return work


def _iceberg_upsert(folder: Path, news: Any) -> Work:
    """It wants all columns of the table."""
    import numpy as np
    import pyarrow as pa

    table = _iceberg_table(folder)
    whole = news.append_column("quantity", pa.array(np.ones(len(news), "int32")))
    whole = whole.append_column("name", pa.array(["user-000000"] * len(news)))

    def work() -> int:
        done = table.upsert(whole.select(table.schema().column_names), join_cols=["id", "day"])
        return int(done.rows_updated + done.rows_inserted)

    return work


def _polars_delete(folder: Path) -> Work:
    import polars as pl

    day = TOUCHED.removeprefix("day=")
    gone = (pl.col("id") % 100 == 0) & (pl.col("day") == day)
    return lambda: _sink(_scan(folder).filter(~gone), folder)


def _polars_merge(folder: Path, news: Any) -> Work:
    import polars as pl

    new = pl.LazyFrame(news)
    return lambda: _sink(_scan(folder).update(new, on=["id", "day"], how="full"), folder)


def _scan(folder: Path) -> Any:
    import polars as pl

    return pl.scan_parquet(folder / "**/*.parquet", hive_partitioning=False)


def _sink(frame: Any, folder: Path) -> int:
    import polars as pl

    target = folder.with_name("anew")
    by_day = pl.PartitionBy(target, key="day", include_key=True)
    frame.sink_parquet(by_day, compression="snappy", mkdir=True)
    return len(list(target.iterdir()))


def _duckdb_delete(folder: Path) -> Work:
    import duckdb

    target = folder.with_name("anew")
    where = f"(id % 100 = 0 AND day = '{TOUCHED.removeprefix('day=')}') IS NOT TRUE"
    source = f"read_parquet('{folder}/*/*.parquet', hive_partitioning = false)"
    options = "COMPRESSION snappy, PARTITION_BY (day), WRITE_PARTITION_COLUMNS true"
    command = f"COPY (FROM {source} WHERE {where}) TO '{target}' (FORMAT parquet, {options})"

    def work() -> int:
        with duckdb.connect() as connection:
            connection.execute(command)
        return len(list(target.iterdir()))

    return work


CASES: dict[str, Case] = {
    "write_days": lambda a: write_days(Path(a["folder"]), a["rows"]),
    "to_delta": lambda a: to_delta(Path(a["folder"])),
    "to_iceberg": lambda a: to_iceberg(Path(a["folder"])),
    "delete_few": lambda a: delete_few(a["tool"], Path(a["folder"])),
    "upsert_few": lambda a: upsert_few(a["tool"], Path(a["folder"]), a["rows"]),
}


# -- measures ----------------------------------------------------------------------------------


def crud_delete(work: Path) -> list[Line]:
    source, size = _write(work)
    case = f"delete 1 % of 1 of {PARTITIONS} partitions ({size / MIB:,.0f} MiB)"
    tools = (PYARROW, DUCKDB, SPARK, DELTA, ICEBERG, POLARS, COPY)
    best = _rounds(work, source, "delete_few", tools)
    times = best[POLARS]["seconds"] / best[PYARROW]["seconds"]
    partition = sum(path.stat().st_size for path in (source / TOUCHED).iterdir())
    read = best[PYARROW]["read"] / partition
    return [
        *_lines(case, best),
        Line(
            case,
            f"{POLARS} / {PYARROW}",
            f"{times:.1f} x",
            f">= {LEAST_TIMES_POLARS} x",
            times >= LEAST_TIMES_POLARS,
        ),
        Line(
            case,
            f"read by {PYARROW}",
            f"{read:.1f} partitions",
            f"<= {MOST_TIMES_PARTITION}",
            read <= MOST_TIMES_PARTITION,
        ),
    ]


def crud_upsert(work: Path) -> list[Line]:
    source, size = _write(work)
    case = f"upsert of {ROWS // 50:,} rows into {PARTITIONS} partitions ({size / MIB:,.0f} MiB)"
    tools = (PYARROW, DUCKDB, SPARK, DELTA, ICEBERG, POLARS)
    return _lines(case, _rounds(work, source, "upsert_few", tools, rows=ROWS))


def _write(work: Path) -> tuple[Path, int]:
    source = work / "source"
    source.mkdir()
    return source, run_case("write_days", folder=source, rows=ROWS)["bytes"]


def _rounds(
    work: Path, source: Path, name: str, tools: tuple[str, ...], **arguments: Any
) -> dict[str, dict[str, Any]]:
    """All take turns, so that a slow moment of the machine does not hit one of them only."""
    best: dict[str, dict[str, Any]] = {}
    for tool in tools * ROUNDS:
        folder = work / "input"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(work / "anew", ignore_errors=True)
        shutil.copytree(source, folder)
        if tool == DELTA:
            run_case("to_delta", folder=folder)
        if tool == ICEBERG:
            run_case("to_iceberg", folder=folder)
        found = run_case(name, tool=tool, folder=folder, **arguments)
        if tool not in best or found["seconds"] < best[tool]["seconds"]:
            best[tool] = found
    return best


def _lines(case: str, best: dict[str, dict[str, Any]]) -> list[Line]:
    return [
        Line(case, tool, f"{found['seconds']:.2f} s, {found['read'] / MIB:,.1f} MiB read")
        for tool, found in best.items()
    ]


MEASURES = (crud_delete, crud_upsert)
