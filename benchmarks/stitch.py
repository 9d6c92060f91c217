"""Compaction by copying, next to tools that decode, and next to a copy of the bare bytes."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import MIB, Case, Line, PeakMemory, run_case

ROUNDS, ROUNDS_HEALTHY = 2, 3
SCALE = float(os.environ.get("STITCH_SCALE", "1"))
"""A smaller run for a machine that is shared."""
OURS, COPY = "ours", "raw byte copy"
PEERS = ("DuckDB COPY", "Polars sink", "PyArrow write_dataset", "delta-rs compact")
TARGET_MB = 128
LEAST_TIMES_PEER, MOST_TIMES_COPY = 5.0, 3.0
MOST_GROWTH = 1.5

# Name, files, rows of a file, rows of a row group, codec, whether the row groups are healthy.
KINDS: tuple[tuple[str, int, int, int, str, bool], ...] = (
    ("healthy row groups (2 MB), snappy", 24, 900_000, 100_000, "snappy", True),
    ("healthy row groups (1.4 MB), zstd", 24, 900_000, 100_000, "zstd", True),
    ("row groups of 20,000 rows", 200, 40_000, 20_000, "snappy", False),
    ("tiny row groups (1,000 rows)", 200, 10_000, 1_000, "snappy", False),
    ("tiny files (500 rows)", 1000, 500, 500, "snappy", False),
)


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_ticks(
    folder: Path, files: int, rows: int, group_rows: int, codec: str = "snappy"
) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(20251103)
    symbols = np.array([f"SYM-{number:03}" for number in range(300)])
    for number in range(files):
        table = pa.table(
            {
                "trade_id": np.arange(number * rows, (number + 1) * rows),
                "time": pa.array(rng.integers(0, 2_000, rows).cumsum(), pa.timestamp("us", "UTC")),
                "symbol": symbols[rng.integers(0, len(symbols), rows)],
                "price": np.round(100 + rng.standard_normal(rows).cumsum() / 100, 2),
                "quantity": rng.integers(1, 10_000, rows),
                "maker": rng.integers(0, 100_000, rows).astype("int32"),
            }
        )
        path = folder / f"part-{number:04}.parquet"
        pq.write_table(table, path, row_group_size=group_rows, compression=codec)
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def stitch_with(tool: str, folder: Path, target: Path, codec: str = "snappy") -> dict[str, Any]:
    """Make few files of many with one tool; of ours also how, and how much memory it took."""
    _import_all()
    if tool == OURS:
        from maintenance_assets import compact

        with PeakMemory() as peak:
            result = compact(folder, target_mb_per_file=TARGET_MB)
        return {
            "files": result.stats.after_file_count,
            "seconds": result.seconds,
            "mode": result.mode,
            "peak_mb": peak.megabytes,
        }
    rewrite: dict[str, Callable[[Path, Path, str], int]] = {
        COPY: _copy_bytes,
        "DuckDB COPY": _with_duckdb,
        "Polars sink": _with_polars,
        "PyArrow write_dataset": _with_pyarrow,
        "delta-rs compact": _with_delta,
    }
    with PeakMemory() as peak:
        started = time.perf_counter()
        files = rewrite[tool](folder, target, codec)
        seconds = time.perf_counter() - started
    return {"files": files, "seconds": seconds, "peak_mb": peak.megabytes}


def _import_all() -> None:
    """Loading a library is no part of its work."""
    import deltalake  # noqa: F401
    import duckdb  # noqa: F401
    import polars  # noqa: F401
    import pyarrow.dataset  # noqa: F401

    import maintenance_assets.engines.pyarrow_engine  # noqa: F401


def _copy_bytes(folder: Path, target: Path, _: str) -> int:
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        shutil.copyfile(path, target / f"{number}.parquet")
    return _files(target)


def _files(target: Path) -> int:
    return len(list(target.rglob("*.parquet")))


def _with_duckdb(folder: Path, target: Path, codec: str) -> int:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(
            f"COPY (FROM read_parquet('{folder}/*.parquet')) TO '{target}' "
            f"(FORMAT parquet, COMPRESSION {codec}, FILE_SIZE_BYTES '{TARGET_MB}MB', "
            "OVERWRITE_OR_IGNORE)"
        )
    return _files(target)


def _with_polars(folder: Path, target: Path, codec: str) -> int:
    import polars as pl

    pl.scan_parquet(folder).sink_parquet(target / "out.parquet", compression=codec)
    return _files(target)


def _with_pyarrow(folder: Path, target: Path, codec: str) -> int:
    import pyarrow.dataset as ds

    options = ds.ParquetFileFormat().make_write_options(compression=codec)
    rows = 1024 * 1024
    ds.write_dataset(
        ds.dataset(folder, format="parquet"),
        target,
        format="parquet",
        file_options=options,
        max_rows_per_group=rows,
    )
    return _files(target)


def _with_delta(folder: Path, target: Path, codec: str) -> int:
    from deltalake import DeltaTable, WriterProperties

    table = DeltaTable(str(folder))
    properties = WriterProperties(compression=codec.upper())
    table.optimize.compact(target_size=TARGET_MB * MIB, writer_properties=properties)
    return len(table.file_uris())


CASES: dict[str, Case] = {
    "write_ticks": lambda a: write_ticks(**{**a, "folder": Path(a["folder"])}),
    "stitch": lambda a: stitch_with(
        a["tool"], Path(a["folder"]), Path(a["target"]), a.get("codec", "snappy")
    ),
}


# -- measures ----------------------------------------------------------------------------------


def stitching(work: Path) -> list[Line]:
    lines = []
    for name, files, rows, group_rows, codec, healthy in KINDS:
        source = work / "source"
        source.mkdir()
        files = max(2, round(files * SCALE))
        ticks = {"files": files, "rows": rows, "group_rows": group_rows, "codec": codec}
        written = run_case("write_ticks", folder=source, **ticks)
        best = _best_of_rounds(work, source, codec, ROUNDS_HEALTHY if healthy else ROUNDS)
        case = f"{name}: {files} files, {written['bytes'] / MIB:,.0f} MiB"
        lines += _compared(case, best, healthy=healthy)
        shutil.rmtree(source)
    return lines


def _best_of_rounds(work: Path, source: Path, codec: str, rounds: int) -> dict[str, dict[str, Any]]:
    """All take turns, so that a slow moment of the machine does not hit one of them only."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for tool in (OURS, COPY, *PEERS):
            folder, target = work / "input", work / "output"
            shutil.copytree(source, folder)
            target.mkdir()
            if tool == "delta-rs compact":
                run_case("convert_to_delta", folder=folder)
            found = run_case("stitch", tool=tool, folder=folder, target=target, codec=codec)
            if tool not in best or found["seconds"] < best[tool]["seconds"]:
                best[tool] = found
            shutil.rmtree(folder)
            shutil.rmtree(target)
    return best


def _compared(case: str, best: dict[str, dict[str, Any]], *, healthy: bool) -> list[Line]:
    ours, copied = best[OURS], best[COPY]
    fastest = min(PEERS, key=lambda tool: best[tool]["seconds"])
    times_peer = best[fastest]["seconds"] / ours["seconds"]
    times_copy = ours["seconds"] / copied["seconds"]
    least = LEAST_TIMES_PEER if healthy else 1.0
    lines = [
        Line(case, tool, f"{found['seconds']:.2f} s, {found['files']} files")
        for tool, found in best.items()
    ]
    return [
        *lines,
        Line(case, "mode, peak memory", f"{ours['mode']}, {ours['peak_mb']:,.0f} MB"),
        Line(
            case,
            f"fastest peer ({fastest}) / ours",
            f"{times_peer:.2f} x",
            f">= {least:g} x",
            times_peer >= least,
        ),
        Line(
            case,
            "ours / raw byte copy",
            f"{times_copy:.2f} x",
            f"<= {MOST_TIMES_COPY:g} x" if healthy else "",
            not healthy or times_copy <= MOST_TIMES_COPY,
        ),
    ]


def stitching_memory(work: Path) -> list[Line]:
    """Four times the data must not take more memory."""
    peaks = []
    for times in (1, 4):
        folder, target = work / f"input-{times}", work / "unused"
        folder.mkdir()
        run_case("write_ticks", folder=folder, files=4 * times, rows=900_000, group_rows=100_000)
        peaks.append(run_case("stitch", tool=OURS, folder=folder, target=target)["peak_mb"])
        shutil.rmtree(folder)
    growth = peaks[1] / peaks[0]
    text = f"{peaks[0]:,.0f} -> {peaks[1]:,.0f} MB"
    return [Line("stitching 4 x the data", "peak memory", text, "flat", growth <= MOST_GROWTH)]


MEASURES = (stitching, stitching_memory)
