"""Compacts a small fragmented lake of market trades and checks that nothing is lost.

Run it with `make demo`; `--files`, `--rows` and `--engine` change the exercise.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from maintenance_assets import MaintenanceStats, compact
from maintenance_assets.model.progress import Progress

LAKE = Path(__file__).resolve().parent.parent / "demo_lake" / "trades"
FIRST_DAY = date(2025, 11, 3)
DAYS = 6
SYMBOLS = ("BTC-USD", "ETH-USD", "SOL-USD", "ADA-USD", "XRP-USD")
SEED = 20251103


@dataclass(frozen=True, slots=True)
class Measure:
    """What a reader of the lake sees at one moment."""

    files: int
    total_bytes: int
    rows: int
    row_groups: int
    quantity_sum: int
    trade_id_sum: int
    query_seconds: float

    @property
    def content(self) -> tuple[int, int, int]:
        return self.rows, self.quantity_sum, self.trade_id_sum


def main() -> int:
    args = parse_arguments()
    console = Console()
    write_lake(LAKE, file_count=args.files, row_count=args.rows)
    before = measure(LAKE)
    names_before = set(parquet_files(LAKE))
    console.print(f"A lake of {before.files:,} files, {before.rows:,} rows, in demo_lake/trades")

    plan = compact(LAKE, engine=args.engine, target_mb_per_file=args.target_mb, dry_run=True)
    console.print(
        f"Dry run: would rewrite {plan.stats.compacted_file_count:,} files "
        f"({mib(plan.stats.rewritten_bytes)}) in {len(plan.stats.planned_groups or ()):,} groups; "
        f"{plan.stats.before_file_count:,} files would become {plan.stats.after_file_count:,}"
    )
    if set(parquet_files(LAKE)) != names_before:
        return fail(console, "the dry run changed the files of the lake")

    with progress_bar(console) as bar:
        result = compact(
            LAKE, engine=args.engine, target_mb_per_file=args.target_mb, on_progress=follow(bar)
        )

    after = measure(LAKE)
    console.print(comparison(before, after))
    console.print(
        f"Compacted {result.stats.compacted_file_count:,} files in {result.seconds:.2f} s "
        f"with {args.engine}, codec {result.stats.compression_codec}, publish {result.publish}"
    )
    problems = differences(before, after, result.stats)
    for problem in problems:
        fail(console, problem)
    if problems:
        return 1
    console.print("[green]Rows and column sums are unchanged.[/green]")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=600, help="small files to write")
    parser.add_argument("--rows", type=int, default=300_000, help="rows over all files")
    parser.add_argument("--engine", default="pyarrow", help="engine that carries out the plan")
    parser.add_argument("--target-mb", type=float, default=128, help="target size of a file, MiB")
    args = parser.parse_args()
    partitions = DAYS * len(SYMBOLS)
    if args.files < partitions or args.rows < args.files:
        parser.error(f"needs at least {partitions} files and one row per file")
    return args


def write_lake(root: Path, *, file_count: int, row_count: int) -> None:
    """Writes the same trades every time, spread over many small files."""
    shutil.rmtree(root, ignore_errors=True)
    rng = np.random.default_rng(SEED)
    partitions = [
        (FIRST_DAY + timedelta(days=day), symbol) for day in range(DAYS) for symbol in SYMBOLS
    ]
    for day, symbol in partitions:
        (root / f"date={day}" / f"symbol={symbol}").mkdir(parents=True)
    bounds = np.linspace(0, row_count, file_count + 1).astype(np.int64)
    for number in range(file_count):
        day, symbol = partitions[number % len(partitions)]
        trades = make_trades(rng, day, first_id=int(bounds[number]), end_id=int(bounds[number + 1]))
        target = root / f"date={day}" / f"symbol={symbol}" / f"part-{number:05d}.parquet"
        pq.write_table(trades, target, compression="zstd")


def make_trades(rng: np.random.Generator, day: date, *, first_id: int, end_id: int) -> pa.Table:
    count = end_id - first_id
    microseconds = np.sort(rng.integers(0, 86_400_000_000, count))
    return pa.table(
        {
            "trade_id": np.arange(first_id, end_id, dtype=np.int64),
            "traded_at": np.datetime64(day, "us") + microseconds.astype("timedelta64[us]"),
            "price": np.round(rng.lognormal(4.0, 0.02, count), 4),
            "quantity": rng.integers(1, 10_000, count),
            "side": pa.array(np.where(rng.random(count) < 0.5, "buy", "sell")),
        }
    )


def parquet_files(root: Path) -> list[Path]:
    return sorted(root.glob("date=*/symbol=*/*.parquet"))


def measure(root: Path) -> Measure:
    files = parquet_files(root)
    seconds, (rows, quantity_sum, trade_id_sum) = min(query(root) for _ in range(3))
    return Measure(
        files=len(files),
        total_bytes=sum(file.stat().st_size for file in files),
        rows=rows,
        row_groups=sum(pq.read_metadata(file).num_row_groups for file in files),
        quantity_sum=quantity_sum,
        trade_id_sum=trade_id_sum,
        query_seconds=seconds,
    )


def query(root: Path) -> tuple[float, tuple[int, int, int]]:
    """Times one reader that counts and sums over the whole lake."""
    with duckdb.connect() as connection:
        start = time.perf_counter()
        row = connection.execute(
            "SELECT count(*), sum(quantity), sum(trade_id) FROM read_parquet(?)",
            [str(root / "date=*" / "symbol=*" / "*.parquet")],
        ).fetchone()
        seconds = time.perf_counter() - start
    assert row is not None
    return seconds, (row[0], row[1], row[2])


def progress_bar(console: Console) -> ProgressBar:
    return ProgressBar(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def follow(bar: ProgressBar) -> Callable[[Progress], None]:
    """Gives each phase of the operation a line of its own."""
    tasks: dict[str, TaskID] = {}

    def show(progress: Progress) -> None:
        phase = str(progress.phase)
        if phase not in tasks:
            tasks[phase] = bar.add_task(phase, total=None)
        bar.update(tasks[phase], completed=progress.done, total=progress.total or None)

    return show


def comparison(before: Measure, after: Measure) -> Table:
    table = Table(title="market trades, before and after compaction")
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    table.add_row("files", f"{before.files:,}", f"{after.files:,}")
    table.add_row("bytes", f"{before.total_bytes:,}", f"{after.total_bytes:,}")
    table.add_row("rows", f"{before.rows:,}", f"{after.rows:,}")
    table.add_row("row groups", f"{before.row_groups:,}", f"{after.row_groups:,}")
    table.add_row(
        "mean file size",
        mib(before.total_bytes / before.files),
        mib(after.total_bytes / after.files),
    )
    table.add_row(
        "count and sum (DuckDB)", f"{before.query_seconds:.3f} s", f"{after.query_seconds:.3f} s"
    )
    return table


def differences(before: Measure, after: Measure, stats: MaintenanceStats) -> list[str]:
    """Everything that should hold after a compaction and does not."""
    problems = []
    if after.content != before.content:
        problems.append(f"the data changed: {before.content} became {after.content}")
    if after.files >= before.files:
        problems.append(f"{before.files} files became {after.files}: nothing was compacted")
    reported = (stats.after_file_count, stats.after_total_bytes)
    if reported != (after.files, after.total_bytes):
        problems.append(f"reported {reported}, measured {(after.files, after.total_bytes)}")
    return problems


def mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.3f} MiB"


def fail(console: Console, problem: str) -> int:
    console.print(f"[red]FAILED:[/red] {problem}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
