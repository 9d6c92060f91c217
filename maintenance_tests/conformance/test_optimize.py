"""Clustered rows: cut along a curve, sorted inside a file, the same on every engine and store."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from maintenance_assets import (
    DuckDBParquetHandler,
    OptimizeResult,
    SparkParquetHandler,
    optimize,
    optimize_parquet_dataset_pyarrow,
)
from maintenance_assets.engines.protocol import Engine
from maintenance_assets.engines.spark_engine import SparkEngine
from maintenance_tests.conftest import ENGINES, ONE_WORKER
from maintenance_tests.datasets import Lake, row_counts

LAYOUT = b"maintenance_assets:layout"
OPTIMIZED = (
    r"optimized-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.parquet"
)
CANONICAL = {
    "before_file_count",
    "after_file_count",
    "before_total_bytes",
    "after_total_bytes",
    "compacted_file_count",
    "rewritten_bytes",
    "compression_codec",
    "dry_run",
    "zorder_columns",
}
CURVES: tuple[Any, ...] = ("hilbert", "morton", "linear")
SHUFFLE = pytest.param("shuffle", marks=[pytest.mark.spark, ONE_WORKER])
WRITERS = [*ENGINES, SHUFFLE]
NAN = float("nan")


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str | Engine:
    """An engine; Spark twice, for it shuffles what is large."""
    return writer_named(request.param, request)


def writer_named(name: str, request: pytest.FixtureRequest) -> str | Engine:
    """The engine of a parameter of `WRITERS`."""
    if name in ("spark", "shuffle"):
        request.getfixturevalue("spark")  # the engine takes the active session
    return SparkEngine(shuffle_bytes=0) if name == "shuffle" else name


def cluster(
    lake: Lake, engine: str | Engine, columns: Sequence[str], **options: Any
) -> OptimizeResult:
    """Cluster a lake."""
    options.setdefault("storage_options", dict(lake.storage_options) or None)
    return optimize(lake.url, columns, engine=engine, **options)


def events(rows: int, seed: int = 0) -> pa.Table:
    """Rows in the order of their arrival; half of them belong to a few users."""
    rng = np.random.default_rng(seed)
    heavy, rare = rng.integers(0, 20, rows), rng.integers(20, 100_000, rows)
    return pa.table(
        {
            "ts": pa.array(np.arange(rows) * 1000, pa.timestamp("ms")),
            "user": pa.array(np.where(rng.random(rows) < 0.5, heavy, rare)),
            "n": pa.array(np.arange(rows)),
        }
    )


def write_parts(lake: Lake, table: Any, parts: int, directory: str = "", **options: Any) -> None:
    """A table as files of equally many rows."""
    prefix = f"{directory}/" if directory else ""
    size = -(-table.num_rows // parts)
    for part in range(parts):
        rows = table.slice(part * size, size)
        lake.write(f"{prefix}part-{part:03}.parquet", rows, **options)


def shuffled(table: Any, seed: int = 0) -> Any:
    """The same rows in another order."""
    return table.take(np.random.default_rng(seed).permutation(table.num_rows))


def contents(lake: Lake, column: str) -> list[list[Any]]:
    """What each file holds of a column; neither files nor rows of one have an order here."""
    return sorted(
        sorted(lake.open(name).read().column(column).to_pylist()) for name in lake.files()
    )


def ranges(lake: Lake, column: str) -> list[tuple[Any, Any]]:
    """The least and the largest value of each file, from the statistics in its footer."""
    found = []
    for name in lake.files():
        footer = lake.open(name).metadata
        at = footer.schema.names.index(column)
        chunks = [footer.row_group(g).column(at).statistics for g in range(footer.num_row_groups)]
        assert all(chunk.has_min_max for chunk in chunks)
        found.append((min(c.min for c in chunks), max(c.max for c in chunks)))
    return found


def share_touched(lake: Lake, column: str) -> float:
    """The share of files that a look-up of one value opens, on average over rows."""
    bounds = ranges(lake, column)
    values = np.array(lake.column(column))
    hits = sum(((values >= low) & (values <= high)).sum() for low, high in bounds)
    return float(hits) / len(values) / len(bounds)


def layout(lake: Lake, name: str) -> Any:
    return json.loads(lake.open(name).schema_arrow.metadata[LAYOUT])


# --- where rows go ---------------------------------------------------------------------------


def test_lookups_touch_few_files_by_either_column(engine: str, local: Lake) -> None:
    write_parts(local, shuffled(events(40_000)), 40)
    assert min(share_touched(local, "ts"), share_touched(local, "user")) > 0.9
    result = cluster(local, engine, ["ts", "user"], target_rows_per_file=1000)
    assert len(local.files()) == 40
    assert share_touched(local, "ts") <= 0.35
    assert share_touched(local, "user") <= 0.35
    assert [gain.column for gain in result.gains] == ["ts", "user"]
    for gain in result.gains:
        assert gain.share_before > 0.9
        assert gain.share_after == pytest.approx(share_touched(local, gain.column), abs=0.08)
        assert gain.depth_after == pytest.approx(40 * gain.share_after)


@pytest.mark.parametrize("curve", CURVES)
def test_all_engines_cut_at_the_same_rows(engine: str, local: Lake, curve: str) -> None:
    table = shuffled(events(5000))
    found: list[list[list[Any]]] = []
    for name in ("pyarrow", engine):
        lake = local.below(f"{name}-{len(found)}")
        write_parts(lake, table, 7)
        result = cluster(lake, name, ["ts", "user"], target_rows_per_file=600, curve=curve)
        assert (result.curve, result.columns) == (curve, ("ts", "user"))
        found.append(contents(lake, "n"))
    assert found[0] == found[1]
    assert sorted(n for file in found[0] for n in file) == list(range(5000))
    assert max(map(len, found[0])) <= 600


def test_shuffle_cuts_where_pyarrow_does(writer: str | Engine, local: Lake) -> None:
    # Many ties: equal keys must not go different ways either.
    table = pa.table({"k": [n % 7 for n in range(900)], "n": list(range(900))})
    for name, by in (("a", "pyarrow"), ("b", writer)):
        write_parts(local.below(name), table, 5)
        cluster(local.below(name), by, ["k"], target_rows_per_file=100)
    assert row_counts(local, local.files("a")) == row_counts(local, local.files("b")) == [100] * 9
    assert contents(local.below("a"), "k") == contents(local.below("b"), "k")
    assert contents(local.below("a"), "n") == contents(local.below("b"), "n")


def test_many_files_are_clustered_on_every_store(engine: str, lake: Lake) -> None:
    table = shuffled(events(400))
    write_parts(lake, table, 8)
    result = cluster(lake, engine, ["ts", "user"], target_rows_per_file=100)
    assert row_counts(lake, lake.files()) == [100] * 4
    assert sorted(lake.column("n")) == list(range(400))
    assert list(lake.tree()) == lake.files()
    assert all(re.fullmatch(OPTIMIZED, name) for name in lake.files())
    assert result.decisions[0].action == "full"


def test_stats_are_canonical_and_measured_on_disk(engine: str, lake: Lake) -> None:
    write_parts(lake, events(60), 6)
    before = lake.total_bytes()
    stats = cluster(lake, engine, ["user"], target_rows_per_file=20).to_dict()
    assert stats == {
        "before_file_count": 6,
        "after_file_count": 3,
        "before_total_bytes": before,
        "after_total_bytes": lake.total_bytes(),
        "compacted_file_count": 6,
        "rewritten_bytes": before,
        "compression_codec": "snappy",
        "dry_run": False,
        "zorder_columns": ["user"],
    }


class ReversedFiles(LocalFileSystem):
    """Lists names last to first, as a store may."""

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        return super().ls(path, detail=detail, **options)[::-1]

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        found = super().find(path, *args, **options)
        return dict(reversed(found.items())) if isinstance(found, dict) else found[::-1]


def test_listing_order_changes_nothing(engine: str, local: Lake) -> None:
    table = shuffled(events(900))
    for name in "ab":
        write_parts(local.below(name), table, 9)
    cluster(local.below("a"), engine, ["ts", "user"], target_rows_per_file=100)
    reverse = ReversedFiles(skip_instance_cache=True)
    cluster(
        local.below("b"),
        engine,
        ["ts", "user"],
        target_rows_per_file=100,
        filesystem=reverse,
        storage_options=None,
    )
    assert contents(local.below("a"), "n") == contents(local.below("b"), "n")


@pytest.mark.parametrize("curve", CURVES)
def test_rows_of_a_file_are_sorted_by_the_columns(
    writer: str | Engine, local: Lake, curve: str
) -> None:
    a: list[Any] = [n * 7919 % 11 if n % 10 else None for n in range(400)]
    b: list[Any] = [[NAN, None, 0.5, float("-inf"), 2.0][n * 31 % 5] for n in range(400)]
    write_parts(local, pa.table({"a": a, "b": b, "n": list(range(400))}), 5)
    cluster(local, writer, ["a", "b"], curve=curve, target_rows_per_file=90)
    assert sorted(local.column("n")) == list(range(400))
    for name in local.files():
        table = local.open(name).read()
        pairs = list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
        keys = [(sort_key(x), sort_key(y)) for x, y in pairs]
        assert keys == sorted(keys)


def sort_key(value: Any) -> tuple[int, Any]:
    """Ascending, then NaN, then nulls."""
    if value is None:
        return (2, 0)
    return (1, 0) if isinstance(value, float) and np.isnan(value) else (0, value)


def test_one_column_gives_files_that_do_not_overlap(writer: str | Engine, local: Lake) -> None:
    write_parts(local, shuffled(events(1000)), 4)
    cluster(local, writer, ["n"], target_rows_per_file=300)
    assert sorted(ranges(local, "n")) == [(0, 249), (250, 499), (500, 749), (750, 999)]


def test_linear_curve_orders_by_the_first_column_first(engine: str, local: Lake) -> None:
    table = pa.table({"a": [n % 4 for n in range(80)], "b": [79 - n for n in range(80)]})
    write_parts(local, table, 4)
    cluster(local, engine, ["a", "b"], curve="linear", target_rows_per_file=20)
    assert sorted(ranges(local, "a")) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_row_bound_is_hard(writer: str | Engine, local: Lake) -> None:
    # A single heavy value fits no file.
    write_parts(local, pa.table({"k": [1] * 95 + [2] * 5, "n": list(range(100))}), 3)
    cluster(local, writer, ["k"], target_rows_per_file=30)
    assert sorted(row_counts(local, local.files())) == [25, 25, 25, 25]
    assert sorted(local.column("n")) == list(range(100))


def test_byte_target_is_met_within_a_tenth(engine: str, local: Lake) -> None:
    # 800 kB in files of 256 KiB: 3.05 files, and a target is no bound.
    values = np.random.default_rng(0).integers(0, 2**62, 100_000)
    local.write("a.parquet", {"id": values}, compression="none", use_dictionary=False)
    cluster(local, engine, ["id"], target_mb_per_file=0.25)
    sizes = [len(local.get(name)) for name in local.files()]
    assert len(sizes) == 3
    assert max(sizes) < 1.1 * 0.25 * 1024 * 1024
    assert sorted(local.column("id")) == sorted(values.tolist())


def test_full_file_has_eight_row_groups_with_indexes(writer: str | Engine, local: Lake) -> None:
    write_parts(local, events(2000), 4, write_statistics=False)
    cluster(local, writer, ["ts", "user"], target_rows_per_file=1000)
    for name in local.files():
        footer = local.open(name).metadata
        assert footer.num_rows == 1000
        assert footer.num_row_groups >= 8
        for number in range(footer.num_row_groups):
            for at in range(footer.num_columns):
                chunk = footer.row_group(number).column(at)
                assert chunk.statistics.has_min_max
                assert chunk.has_column_index
                assert chunk.has_offset_index


@pytest.mark.parametrize("curve", CURVES)
def test_layout_is_recorded_in_the_file(writer: str | Engine, local: Lake, curve: str) -> None:
    write_parts(local, events(100), 2)
    cluster(local, writer, ["user", "ts"], curve=curve, target_rows_per_file=50)
    for name in local.files():
        found = layout(local, name)
        assert (found["curve"], found["columns"]) == (curve, ["user", "ts"])
        assert found["bits"] > 0


def test_nested_field_is_a_column_of_the_key(writer: str | Engine, lake: Lake) -> None:
    rows = [{"a": {"b": n * 37 % 100, "c": "x"}, "n": n} for n in range(99)]
    rows.append({"a": None, "n": 99})
    write_parts(lake, pa.Table.from_pylist(rows), 5)
    result = cluster(lake, writer, ["a.b"], target_rows_per_file=50)
    assert result.columns == ("a.b",)
    low, high = sorted(
        ([row["b"] if row else None for row in lake.open(name).read()["a"].to_pylist()])
        for name in lake.files()
    )
    assert low == list(range(50))
    assert high == [*range(50, 63), *range(64, 100), None]  # n = 99 would have been 63
    assert sorted(lake.column("n")) == list(range(100))


def test_field_with_a_dot_in_its_name_goes_before_a_nested_one(
    writer: str | Engine, local: Lake
) -> None:
    rows = [{"a.b": n, "a": {"b": -(n % 10)}} for n in range(40)]
    write_parts(local, pa.Table.from_pylist(rows), 4)
    cluster(local, writer, ["a.b"], target_rows_per_file=20)
    assert contents(local, "a.b") == [list(range(20)), list(range(20, 40))]


def test_strings_with_a_shared_prefix_are_told_apart(writer: str | Engine, local: Lake) -> None:
    # Sixteen equal bytes: more than any fixed-size key of a prefix would hold.
    names = [f"https://example.com/{n * 7919 % 1000:04}" for n in range(1000)]
    write_parts(local, pa.table({"url": names}), 4)
    cluster(local, writer, ["url"], target_rows_per_file=100)
    bounds = sorted(ranges(local, "url"))
    assert [int(low[-4:]) for low, _ in bounds] == list(range(0, 1000, 100))
    assert [int(high[-4:]) for _, high in bounds] == list(range(99, 1000, 100))


# --- inputs at the edge ----------------------------------------------------------------------

ODD: dict[str, list[Any]] = {
    "all null": [None] * 40,
    "constant": [7.0] * 40,
    "NaN": [NAN] * 40,
    "NaN and null": [NAN, None] * 20,
    "one value and nulls": [None] * 39 + [1.0],
    "infinities": [float("inf"), float("-inf"), 0.0, -0.0] * 10,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_columns_keep_every_row(writer: str | Engine, local: Lake, name: str) -> None:
    column = pa.array(ODD[name], pa.float64(), from_pandas=False)
    write_parts(local, pa.table({"x": column, "n": list(range(40))}), 4)
    cluster(local, writer, ["x"], target_rows_per_file=15)
    assert sorted(row_counts(local, local.files())) == [13, 13, 14]
    found = dict(zip(local.column("n"), map(repr, local.column("x")), strict=True))
    assert found == {n: repr(ODD[name][n]) for n in range(40)}


@pytest.mark.parametrize("value", [1, None])
def test_single_row_is_kept(engine: str, lake: Lake, value: int | None) -> None:
    lake.write("a.parquet", pa.table({"id": pa.array([value], pa.int64())}))
    cluster(lake, engine, ["id"])
    assert lake.column("id") == [value]


def test_empty_files_among_full_ones_disappear(engine: str, lake: Lake) -> None:
    schema = pa.schema([("id", pa.decimal128(9, 2)), ("n", pa.int64())])
    lake.write("a.parquet", schema.empty_table())
    lake.write("b.parquet", pa.table({"id": [Decimal(2), Decimal(1)], "n": [0, 1]}, schema))
    cluster(lake, engine, ["id"])
    assert lake.open(lake.only_file()).read()["n"].to_pylist() == [1, 0]


def test_empty_files_alone_are_left(engine: str, lake: Lake) -> None:
    for name in "ab":
        lake.write(f"{name}.parquet", pa.table({"id": pa.array([], pa.int64())}))
    before = lake.tree()
    stats = cluster(lake, engine, ["id"]).stats
    assert (stats.compacted_file_count, stats.after_file_count) == (0, 2)
    assert lake.tree() == before


def test_small_budget_and_workers_change_nothing(writer: str | Engine, local: Lake) -> None:
    table = shuffled(events(3000))
    options: list[dict[str, Any]] = [{}, {"memory_budget_mb": 0.05, "max_workers": 2}]
    for name, more in zip("ab", options, strict=True):
        write_parts(local.below(name), table, 6, row_group_size=100)
        columns = ["ts", "user"]
        cluster(local.below(name), writer, columns, target_rows_per_file=400, **more)
    assert contents(local.below("a"), "n") == contents(local.below("b"), "n")


# --- the seeds' names ------------------------------------------------------------------------


def test_seed_function_returns_the_canonical_dict(local: Lake) -> None:
    write_parts(local, events(30), 3)
    stats = optimize_parquet_dataset_pyarrow(local.url, ["user"], compression="zstd")
    assert set(stats) == CANONICAL
    assert (stats["after_file_count"], stats["compression_codec"]) == (1, "zstd")
    assert stats["zorder_columns"] == ["user"]


@pytest.mark.parametrize("engine", ENGINES[1:], indirect=True)
def test_handler_clusters_with_its_engine(engine: str, local: Lake) -> None:
    write_parts(local, events(30), 3)
    chosen = {"duckdb": DuckDBParquetHandler, "spark": SparkParquetHandler}[engine]
    with chosen() as handler:
        planned = handler.optimize_parquet_dataset(local.url, ["user"], dry_run=True)
        stats = handler.optimize_parquet_dataset(local.url, ["user"], target_rows_per_file=10)
    assert (set(stats), set(planned)) == (CANONICAL, CANONICAL | {"planned_groups"})
    assert (stats["after_file_count"], len(local.files())) == (3, 3)
