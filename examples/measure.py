"""What a reader of a dataset sees: files, rows, sums and how long a query takes."""

import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

SUMS = {
    "lake/trades": ("trade_id", "quantity", "round(price * 100)"),
    "lake/quotes": ("quote_id", "quantity", "round(best_bid * 100)"),
    "lake/candles": ("trades", "quantity", "round(high * 100)"),
}


@dataclass(frozen=True, slots=True)
class Measure:
    """A dataset at one moment."""

    files: int
    total_bytes: int
    rows: int
    row_groups: int
    sums: tuple[int, ...]
    query_seconds: float

    @property
    def content(self) -> tuple[int, ...]:
        """What maintenance must not change."""
        return self.rows, *self.sums


def measure(key: str, path: str) -> Measure:
    """Look at a dataset as any other tool would."""
    files = sorted(Path(path).glob("**/[!_.]*.parquet"))
    seconds, (rows, *sums) = min(_query(path, SUMS[key]) for _ in range(3))
    return Measure(
        files=len(files),
        total_bytes=sum(file.stat().st_size for file in files),
        rows=rows,
        row_groups=sum(pq.read_metadata(file).num_row_groups for file in files),
        sums=tuple(sums),
        query_seconds=seconds,
    )


def _query(path: str, columns: tuple[str, ...]) -> tuple[float, tuple[int, ...]]:
    sums = ", ".join(f"CAST(sum({column}) AS HUGEINT)" for column in columns)
    with duckdb.connect() as connection:
        start = time.perf_counter()
        row = connection.execute(
            f"SELECT count(*), {sums} FROM read_parquet(?, hive_partitioning = true)",
            [f"{path}/**/*.parquet"],
        ).fetchone()
        seconds = time.perf_counter() - start
    assert row is not None
    return seconds, row
