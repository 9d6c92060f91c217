"""Discovery, planning and compaction on PyArrow, next to other tools."""

import random
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import MIB, Case, Line, PeakMemory, run_case

PEERS = ("maintenance_assets", "pyarrow", "duckdb", "polars")
ROUNDS = 2


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_one_row_files(folder: Path, count: int) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(count):
        table = pa.table({"id": [number], "price": [number / 7], "symbol": ["BTC-USD"]})
        pq.write_table(table, folder / f"part-{number:05}.parquet")
    return {}


def write_constant_files(folder: Path, files: int, rows: int) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    batch = 1_000_000
    columns: dict[str, Any] = {f"i{n}": pa.repeat(pa.scalar(n), batch) for n in range(6)}
    columns |= {f"d{n}": pa.repeat(pa.scalar(n + 0.5), batch) for n in range(6)}
    columns |= {f"s{n}": pa.repeat(pa.scalar("a constant text"), batch) for n in range(2)}
    table = pa.table(columns)
    for number in range(files):
        with pq.ParquetWriter(folder / f"part-{number}.parquet", table.schema) as writer:
            for _ in range(rows // files // batch):
                writer.write_table(table)
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def write_trades(folder: Path, files: int, rows: int) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(20251103)
    symbols = np.array(["BTC-USD", "ETH-USD", "SOL-USD", "ADA-USD", "XRP-USD"])
    for number in range(files):
        steps = rng.integers(0, 2_000, rows).cumsum()
        table = pa.table(
            {
                "trade_id": np.arange(number * rows, (number + 1) * rows),
                "time": pa.array(1_762_128_000_000_000 + steps, pa.timestamp("us", "UTC")),
                "symbol": symbols[rng.integers(0, 5, rows)],
                "side": np.array(["buy", "sell"])[rng.integers(0, 2, rows)],
                "price": np.round(100 + rng.standard_normal(rows).cumsum() / 100, 2),
                "quantity": rng.integers(1, 10_000, rows),
                "maker": rng.integers(0, 100_000, rows).astype("int32"),
            }
        )
        pq.write_table(table, folder / f"part-{number:04}.parquet")
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def compact_folder(folder: Path) -> dict[str, Any]:
    from maintenance_assets import compact

    result = compact(folder)
    return {"files": result.stats.after_file_count, "seconds": result.seconds}


def compact_with_peak(folder: Path) -> dict[str, Any]:
    with PeakMemory() as peak:
        found = compact_folder(folder)
    return {**found, "peak_mb": peak.megabytes}


def plan_many(files: int, partitions: int) -> dict[str, Any]:
    from maintenance_assets import FileInfo, plan_compaction_groups

    rng = random.Random(files)
    infos = [
        FileInfo(
            f"lake/part={number % partitions:02}/{number:06}.parquet",
            rng.randint(1_000_000, 120_000_000),
            rng.randint(10_000, 1_000_000),
        )
        for number in range(files)
    ]
    started = time.perf_counter()
    plan = plan_compaction_groups(infos, 128)
    seconds = time.perf_counter() - started
    total = sum(info.size_bytes for info in infos)
    outputs = plan["planned_stats"].after_file_count
    return {"seconds": seconds, "files": outputs, "bound": -(-total // (128 * MIB))}


def rewrite_with(peer: str, folder: Path, target: Path) -> dict[str, Any]:
    """Compact a folder with one tool; the same codec and one output where it can be asked for."""
    if peer == "maintenance_assets":
        return compact_folder(folder)
    rewrite = {"pyarrow": _with_pyarrow, "duckdb": _with_duckdb, "polars": _with_polars}[peer]
    started = time.perf_counter()
    rewrite(folder, target)
    seconds = time.perf_counter() - started
    return {"files": len(list(target.rglob("*.parquet"))), "seconds": seconds}


def _with_pyarrow(folder: Path, target: Path) -> None:
    import pyarrow.dataset as ds

    source = ds.dataset(folder, format="parquet")
    options = ds.ParquetFileFormat().make_write_options(compression="snappy")
    rows = 1024 * 1024
    ds.write_dataset(
        source, target, format="parquet", file_options=options, max_rows_per_group=rows
    )


def _with_duckdb(folder: Path, target: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (FROM read_parquet('{folder}/*.parquet')) TO '{target}/out.parquet' "
            "(FORMAT parquet, COMPRESSION snappy)"
        )


def _with_polars(folder: Path, target: Path) -> None:
    import polars as pl

    pl.scan_parquet(folder).sink_parquet(target / "out.parquet", compression="snappy")


CASES: dict[str, Case] = {
    "write_one_row_files": lambda a: write_one_row_files(Path(a["folder"]), a["count"]),
    "write_constant_files": lambda a: write_constant_files(
        Path(a["folder"]), a["files"], a["rows"]
    ),
    "write_trades": lambda a: write_trades(Path(a["folder"]), a["files"], a["rows"]),
    "compact": lambda a: compact_folder(Path(a["folder"])),
    "compact_with_peak": lambda a: compact_with_peak(Path(a["folder"])),
    "plan": lambda a: plan_many(a["files"], a["partitions"]),
    "rewrite": lambda a: rewrite_with(a["peer"], Path(a["folder"]), Path(a["target"])),
}


# -- measures ----------------------------------------------------------------------------------


def one_row_files(work: Path) -> list[Line]:
    run_case("write_one_row_files", folder=work, count=1000)
    found = run_case("compact", folder=work)
    groups = row_groups(work)
    return [
        Line("1000 one-row files", "time", f"{found['seconds']:.2f} s"),
        Line(
            "1000 one-row files",
            "files, row groups",
            f"{found['files']}, {groups}",
            "1, 1",
            (found["files"], groups) == (1, 1),
        ),
    ]


def row_groups(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_row_groups for path in folder.rglob("*.parquet"))


def constant_columns(work: Path) -> list[Line]:
    written = run_case("write_constant_files", folder=work, files=8, rows=24_000_000)
    found = run_case("compact_with_peak", folder=work)
    case = f"24 M rows of constants ({written['bytes'] / 1024:,.0f} KiB)"
    return [
        Line(
            case,
            "peak memory",
            f"{found['peak_mb']:,.0f} MB",
            "< 900 MB",
            found["peak_mb"] < 900,
        ),
        Line(case, "time", f"{found['seconds']:.2f} s"),
        Line(case, "files after", str(found["files"])),
    ]


def planning(_: Path) -> list[Line]:
    lines = []
    for files, limit in ((20_000, 2), (100_000, 10)):
        found = run_case("plan", files=files, partitions=50)
        case = f"plan {files:,} files, 50 partitions"
        seconds = found["seconds"]
        lines.append(Line(case, "time", f"{seconds:.2f} s", f"< {limit} s", seconds < limit))
        share = found["files"] / found["bound"]
        lines.append(Line(case, "files / lower bound", f"{share:.3f}", "<= 1.1", share <= 1.1))
    return lines


def next_to_peers(work: Path) -> list[Line]:
    source = work / "source"
    source.mkdir()
    written = run_case("write_trades", folder=source, files=200, rows=50_000)
    case = f"200 files x 50,000 rows ({written['bytes'] / MIB:,.0f} MiB)"
    best: dict[str, dict[str, Any]] = {}
    # Peers take turns, so that a slow moment of the machine does not hit one of them only.
    for _ in range(ROUNDS):
        for peer in PEERS:
            folder, target = work / "input", work / "output"
            shutil.copytree(source, folder)
            target.mkdir()
            found = run_case("rewrite", peer=peer, folder=folder, target=target)
            if peer not in best or found["seconds"] < best[peer]["seconds"]:
                best[peer] = found
            shutil.rmtree(folder)
            shutil.rmtree(target)
    ours = best["maintenance_assets"]["seconds"]
    lines = []
    for peer in PEERS:
        found = best[peer]
        text = f"{found['seconds']:.2f} s, {found['files']} files"
        if peer != "maintenance_assets":
            text += f" (ours takes {ours / found['seconds']:.2f} x)"
        lines.append(Line(case, f"{peer}, best of {ROUNDS}", text))
    return lines


MEASURES = (one_row_files, constant_columns, planning, next_to_peers)
