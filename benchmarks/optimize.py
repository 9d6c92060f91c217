"""Clustering by `optimize`, next to delta-rs z_order and a plain sort by the same columns."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines import _spark
from benchmarks.harness import MIB, Case, Line, PeakMemory, run_case

SOURCES, OUTPUTS = 200, 100
ROUNDS = 2
LOOKUPS = 500
SEED = 20251103
COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "ES", "FR", "GB", "IT", "NL", "PL", "US")
PYARROW, DUCKDB, SPARK = (f"ours on {engine}" for engine in ("pyarrow", "duckdb", "spark"))
DELTA, SORT = "delta-rs z_order", "Polars sort"
DISTINCT_ID = "id, each value as likely as another"
LEAST_TIMES_DELTA = 1.0
MOST_LARGE_MB = 1600
MOST_TIMES_USUAL = 2.0


@dataclass(frozen=True, slots=True)
class Data:
    """Source files, and what makes each tool write about OUTPUTS of them."""

    source: Path
    rows: int
    bytes: int
    delta_factor: float
    """A target_size of delta-rs is not what its files have on disk: found by trial."""

    @property
    def case(self) -> str:
        return f"optimize {self.rows / 1e6:.0f} M rows ({self.bytes / MIB:,.0f} MiB)"


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_events(folder: Path, rows: int) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    users = np.array([f"user-{number:06}" for number in range(100_000)])
    for number in range(SOURCES):
        micros = rng.integers(0, 30 * 86_400_000_000, rows)
        table = pa.table(
            {
                "ts": pa.array(1_762_128_000_000_000 + micros, pa.timestamp("us")),
                "id": np.minimum(rng.zipf(1.3, rows), 1_000_000),
                "country": np.array(COUNTRIES)[rng.integers(0, len(COUNTRIES), rows)],
                "price": np.round(rng.lognormal(3, 1, rows), 2),
                "quantity": rng.integers(1, 100, rows).astype("int32"),
                "name": users[rng.integers(0, len(users), rows)],
            }
        )
        pq.write_table(table, folder / f"part-{number:04}.parquet")
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def convert_to_delta(folder: Path) -> dict[str, Any]:
    """A Delta table of the very same files."""
    from deltalake import convert_to_deltalake

    convert_to_deltalake(str(folder))
    return {}


def cluster(
    tool: str, folder: Path, columns: list[str], rows: int, target_size: int
) -> dict[str, Any]:
    """Cluster a folder with one tool, into about OUTPUTS files of the codec of the source."""
    with PeakMemory() as peak:
        if tool == DELTA:
            found = _z_order(folder, columns, target_size)
        elif tool == SORT:
            found = _sort(folder, columns, rows // OUTPUTS)
        else:
            found = _optimize(tool.removeprefix("ours on "), folder, columns, rows // OUTPUTS)
    return {**found, "peak_mb": peak.megabytes}


def cluster_by_default(folder: Path, columns: list[str]) -> dict[str, Any]:
    """Ours with nothing said of the size: few large files, whose rows do not fit memory."""
    from maintenance_assets import optimize

    with PeakMemory() as peak:
        result = optimize(folder, columns)
    files, seconds = result.stats.after_file_count, result.seconds
    return {"files": files, "seconds": seconds, "peak_mb": peak.megabytes}


def _optimize(engine: str, folder: Path, columns: list[str], rows: int) -> dict[str, Any]:
    """Ours; for Spark on a session that has already run something."""
    from maintenance_assets import optimize
    from maintenance_assets.engines.spark_engine import SparkEngine

    session = _spark() if engine == "spark" else None
    chosen = SparkEngine(session) if session else engine
    result = optimize(folder, columns, target_rows_per_file=rows, engine=chosen)
    if session:
        session.stop()
    stats = result.stats
    rewritten = stats.compacted_file_count
    return {"files": stats.after_file_count, "seconds": result.seconds, "rewritten": rewritten}


def _z_order(folder: Path, columns: list[str], target_size: int) -> dict[str, Any]:
    from deltalake import DeltaTable, WriterProperties

    snappy = WriterProperties(compression="SNAPPY")
    started = time.perf_counter()
    table = DeltaTable(folder)
    table.optimize.z_order(columns, target_size=target_size, writer_properties=snappy)
    seconds = time.perf_counter() - started
    return {"files": len(table.file_uris()), "seconds": seconds}


def _sort(folder: Path, columns: list[str], rows: int) -> dict[str, Any]:
    """Column after column, in memory; the sources go when the time has been taken."""
    import polars as pl

    sources = list(folder.glob("*.parquet"))
    started = time.perf_counter()
    frame = pl.read_parquet(sources).sort(columns)
    for number, part in enumerate(frame.iter_slices(rows)):
        part.write_parquet(folder / f"sorted-{number:04}.parquet", compression="snappy")
    seconds = time.perf_counter() - started
    for path in sources:
        path.unlink()
    return {"files": len(list(folder.glob("*.parquet"))), "seconds": seconds}


def touched_shares(folder: Path, source: Path, columns: list[str]) -> dict[str, Any]:
    """The share of files whose footers admit a value: the mean over values of random rows."""
    import numpy as np
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    rows = pq.read_table(source, columns=columns)
    asked = {column: rows[column].take(rng.integers(0, len(rows), LOOKUPS)) for column in columns}
    ids = pc.unique(rows["id"])
    asked[DISTINCT_ID] = ids.take(rng.choice(len(ids), LOOKUPS, replace=False))
    footers = [pq.read_metadata(path) for path in _live_files(folder)]
    return {
        name: _share(values.to_pylist(), [_range(footer, name.split(",")[0]) for footer in footers])
        for name, values in asked.items()
    }


def _live_files(folder: Path) -> list[str]:
    """What a reader opens: a Delta table keeps the files it has replaced."""
    from deltalake import DeltaTable

    if DeltaTable.is_deltatable(str(folder)):
        return [uri.removeprefix("file://") for uri in DeltaTable(folder).file_uris()]
    return [str(path) for path in folder.glob("*.parquet")]


def _range(footer: Any, column: str) -> tuple[Any, Any]:
    index = footer.schema.to_arrow_schema().get_field_index(column)
    groups = [footer.row_group(n).column(index).statistics for n in range(footer.num_row_groups)]
    return min(group.min for group in groups), max(group.max for group in groups)


def _share(values: Sequence[Any], ranges: Sequence[tuple[Any, Any]]) -> float:
    hits = sum(bool(low <= value <= high) for value in values for low, high in ranges)
    return hits / (len(values) * len(ranges))


CASES: dict[str, Case] = {
    "write_events": lambda a: write_events(Path(a["folder"]), a["rows"]),
    "convert_to_delta": lambda a: convert_to_delta(Path(a["folder"])),
    "cluster": lambda a: cluster(
        a["tool"], Path(a["folder"]), a["columns"], a["rows"], a["target_size"]
    ),
    "cluster_by_default": lambda a: cluster_by_default(Path(a["folder"]), a["columns"]),
    "touched_shares": lambda a: touched_shares(Path(a["folder"]), Path(a["source"]), a["columns"]),
}


# -- measures ----------------------------------------------------------------------------------


def optimize_two_columns(work: Path) -> list[Line]:
    data = _write(work, 10_000, delta_factor=1.35)
    runs = _rounds(work, data, ["ts", "id"], (PYARROW, DUCKDB, SPARK, DELTA, SORT))
    case = f"{data.case} by ts+id"
    return [*_share_lines(case, runs, {"ts": 20, "id": 30}), *_time_lines(case, runs)]


def optimize_three_columns(work: Path) -> list[Line]:
    data = _write(work, 10_000, delta_factor=1.35)
    runs = _rounds(work, data, ["ts", "country", "id"], (PYARROW, DELTA, SORT), rounds=1)
    case = f"{data.case} by ts+country+id"
    files = ", ".join(f"{tool} {found['files']}" for tool, found in _best(runs).items())
    return [*_share_lines(case, runs, {"country": 45}), Line(case, "files after", files)]


def optimize_large(work: Path) -> list[Line]:
    data, columns = _write(work, 60_000, delta_factor=1.2), ["ts", "id"]
    runs = _rounds(work, data, columns, (DELTA, PYARROW), shares=False)
    # The folder is still as the last of them left it: clustered by ours.
    again = _cluster(work, data, columns, PYARROW)
    peaks = {tool: max(run["peak_mb"] for run in found) for tool, found in runs.items()}
    texts = {tool: f"{peak:,.0f} MB" for tool, peak in peaks.items()}
    limit, small = f"< {MOST_LARGE_MB:,} MB", peaks[PYARROW] < MOST_LARGE_MB
    idle = f"{again['seconds']:.2f} s, {again['rewritten']} files rewritten"
    case = f"{data.case} by ts+id"
    return [
        *_time_lines(case, runs),
        Line(case, f"peak memory, {PYARROW}", texts[PYARROW], limit, small),
        Line(case, f"peak memory, {DELTA}", texts[DELTA]),
        Line(case, f"{PYARROW}, again", idle, "0 files", again["rewritten"] == 0),
        *_default_lines(work, data, columns, _best(runs)[PYARROW]["seconds"]),
    ]


def _default_lines(work: Path, data: Data, columns: list[str], usual: float) -> list[Line]:
    """The default target next to OUTPUTS files: its rows are merged from what was spilled."""
    shutil.rmtree(work / "input", ignore_errors=True)
    shutil.copytree(data.source, work / "input")
    found = run_case("cluster_by_default", folder=work / "input", columns=columns)
    case = f"{data.case} by ts+id, default target"
    seconds, peak, times = found["seconds"], found["peak_mb"], found["seconds"] / usual
    return [
        Line(case, PYARROW, f"{seconds:.2f} s, {found['files']} files"),
        Line(
            case,
            f"time beside {OUTPUTS} files",
            f"{times:.2f} x",
            f"<= {MOST_TIMES_USUAL} x",
            times <= MOST_TIMES_USUAL,
        ),
        Line(
            case,
            f"peak memory, {PYARROW}",
            f"{peak:,.0f} MB",
            f"< {MOST_LARGE_MB:,} MB",
            peak < MOST_LARGE_MB,
        ),
    ]


def _write(work: Path, rows: int, delta_factor: float) -> Data:
    source = work / "source"
    source.mkdir()
    written = run_case("write_events", folder=source, rows=rows)
    return Data(source, SOURCES * rows, written["bytes"], delta_factor)


Runs = dict[str, list[dict[str, Any]]]


def _rounds(
    work: Path,
    data: Data,
    columns: list[str],
    tools: Sequence[str],
    *,
    rounds: int = ROUNDS,
    shares: bool = True,
) -> Runs:
    """All take turns, so that a slow moment of the machine does not hit one of them only."""
    runs: Runs = {tool: [] for tool in tools}
    folder, source = work / "input", data.source
    for tool in tuple(tools) * rounds:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        if tool == DELTA:
            run_case("convert_to_delta", folder=folder)
        found = _cluster(work, data, columns, tool)
        if shares:
            arguments = {"folder": folder, "source": source, "columns": columns}
            found["shares"] = run_case("touched_shares", **arguments)
        runs[tool].append(found)
    return runs


def _cluster(work: Path, data: Data, columns: list[str], tool: str) -> dict[str, Any]:
    size = int(data.delta_factor * data.bytes / OUTPUTS)
    arguments = {"tool": tool, "folder": work / "input", "columns": columns}
    return run_case("cluster", **arguments, rows=data.rows, target_size=size)


def _best(runs: Runs) -> dict[str, dict[str, Any]]:
    return {tool: min(found, key=lambda run: run["seconds"]) for tool, found in runs.items()}


def _share_lines(case: str, runs: Runs, bounds: dict[str, int]) -> list[Line]:
    """A line for each column; ours is the worst of our engines."""
    lines = []
    for column in runs[PYARROW][0]["shares"]:
        worst = {t: 100 * max(run["shares"][column] for run in runs[t]) for t in runs}
        ours = max(share for tool, share in worst.items() if tool.startswith("ours"))
        text = f"{ours:.1f} % ({DELTA} {worst[DELTA]:.1f} %, {SORT} {worst[SORT]:.1f} %)"
        figure, most = f"files touched by a look-up of {column}", bounds.get(column, 100)
        bound = f"<= {most} %" if column in bounds else ""
        lines.append(Line(case, figure, text, bound, ours <= most))
    return lines


def _time_lines(case: str, runs: Runs) -> list[Line]:
    best = _best(runs)
    times = best[DELTA]["seconds"] / best[PYARROW]["seconds"]
    bound, holds = f">= {LEAST_TIMES_DELTA} x", times >= LEAST_TIMES_DELTA
    return [
        *(Line(case, t, f"{b['seconds']:.2f} s, {b['files']} files") for t, b in best.items()),
        Line(case, f"{DELTA} / ours on PyArrow", f"{times:.2f} x", bound, holds),
    ]


MEASURES = (optimize_two_columns, optimize_three_columns, optimize_large)
