"""One layout: the same rows in the same files in the same order, on every engine."""

import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maintenance_assets import optimize, repartition
from maintenance_assets.engines import spark_shuffle
from maintenance_assets.engines.spark_engine import SparkEngine
from maintenance_tests.conftest import ONE_WORKER

COLUMNS = {
    "number": st.none() | st.integers(-3, 3),
    "ratio": st.none() | st.floats(width=32),
    "text": st.none() | st.text("ab€", max_size=3),
    "price": st.none() | st.decimals(-9, 9, places=2),
    "flag": st.none() | st.booleans(),
}
TYPES = {
    "number": pa.int32(),
    "ratio": pa.float32(),
    "text": pa.string(),
    "price": pa.decimal128(20, 2),
    "flag": pa.bool_(),
}
ROW = st.fixed_dictionaries(COLUMNS)
FILES = st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=5).filter(any)
KEYS = st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True)
QUICK = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(root: Path, files: list[list[dict[str, Any]]]) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    schema = pa.schema([("row", pa.int64()), *TYPES.items()])
    row = 0
    for number, rows in enumerate(files):
        numbered = [{"row": row + i, **values} for i, values in enumerate(rows)]
        row += len(rows)
        pq.write_table(pa.Table.from_pylist(numbered, schema), root / f"{number}.parquet")
    return root


def layout(root: Path) -> list[list[int]]:
    """The numbers of the rows of each file, in the order of names."""
    return [
        pq.ParquetFile(path).read(columns=["row"]).column("row").to_pylist()
        for path in sorted(root.glob("*.parquet"))
    ]


@QUICK
@given(files=FILES, keys=KEYS, rows=st.integers(1, 9), curve=st.sampled_from(["hilbert", "morton"]))
def test_duckdb_lays_out_as_pyarrow_does(
    tmp_path: Path, files: Any, keys: list[str], rows: int, curve: Any
) -> None:
    found: list[Any] = []
    for engine in ("pyarrow", "duckdb"):
        root = write(tmp_path / "lake", files)
        result = optimize(root, keys, engine=engine, target_rows_per_file=rows, curve=curve)
        assert result.written_by == {engine: 1}
        found.append(layout(root))
    assert found[0] == found[1]
    assert sorted(row for file in found[0] for row in file) == list(range(sum(map(len, files))))
    assert all(len(file) <= rows for file in found[0])


@pytest.mark.spark
@pytest.mark.slow
@ONE_WORKER
@settings(QUICK, max_examples=6)
@given(
    files=FILES.filter(lambda files: sum(map(len, files)) > 12),
    keys=KEYS,
    few_rows=st.sampled_from([0, spark_shuffle.FEW_ROWS]),
)
def test_a_spark_shuffle_lays_out_as_pyarrow_does(
    tmp_path: Path, spark: Any, monkeypatch: Any, files: Any, keys: list[str], few_rows: int
) -> None:
    monkeypatch.setattr(spark_shuffle, "FEW_ROWS", few_rows)  # more are counted in two steps
    found: list[Any] = []
    for engine in ("pyarrow", SparkEngine(spark, shuffle_bytes=0)):
        root = write(tmp_path / "lake", files)
        optimize(root, keys, engine=engine, target_rows_per_file=5)
        found.append(layout(root))
    assert found[0] == found[1]


@pytest.fixture
def adaptive(spark: Any) -> Any:
    """The session of all tests, merging small shuffle partitions as Spark does by default."""
    merging = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set(merging, "true")
    yield spark
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.unset(merging)


@pytest.mark.spark
@ONE_WORKER
def test_outputs_of_a_shuffle_stay_apart_where_spark_merges_small_partitions(
    tmp_path: Path, adaptive: Any
) -> None:
    engine = SparkEngine(adaptive, shuffle_bytes=0)
    rows = [{"number": n % 7 - 3, "text": "ab"[n % 2]} for n in range(40)]
    root = write(tmp_path / "lake", [rows[:20], rows[20:]])
    result = optimize(root, ["number"], engine=engine, target_rows_per_file=5)
    assert result.written_by == {"spark": 1}
    assert [len(file) for file in layout(root)] == [5] * 8
    assert sorted(row for file in layout(root) for row in file) == list(range(40))
    moved = repartition(root, tmp_path / "moved", ["text"], engine=engine)
    assert (moved.engine, dict(moved.partitions)) == ("spark", {"text=a": 20, "text=b": 20})


@QUICK
@given(files=FILES, keys=KEYS, order=st.randoms(use_true_random=False))
def test_the_order_of_a_listing_does_not_matter(
    tmp_path: Path, files: Any, keys: list[str], order: Any
) -> None:
    """A memory store lists files in the order in which they were written."""
    found: list[Any] = []
    for shuffled in (False, True):
        source = write(tmp_path / "lake", files)
        target = f"memory://{uuid4().hex}"
        store, folder = fsspec.core.url_to_fs(target)
        names = sorted(path.name for path in source.iterdir())
        if shuffled:
            order.shuffle(names)
        for name in names:
            store.pipe_file(f"{folder}/{name}", (source / name).read_bytes())
        optimize(target, keys, target_rows_per_file=4)
        shutil.rmtree(source)
        store.get(f"{folder}/", f"{source}/", recursive=True)
        found.append(layout(source))
        store.rm(folder, recursive=True)
    assert found[0] == found[1]


def trades(rows: int) -> pa.Table:
    random = np.random.default_rng(11)
    start = datetime(2025, 11, 3, tzinfo=UTC)
    times = [start + timedelta(seconds=int(s)) for s in random.integers(0, 86_400, rows)]
    return pa.table(
        {
            "row": range(rows),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "symbol": [f"SYM-{n:03}" for n in random.zipf(1.4, rows) % 200],
            "price": [Decimal(int(n)) / 100 for n in random.integers(0, 10**6, rows)],
        }
    )


@pytest.mark.parametrize("memory_mb", [0.05, 0.5, 512])
def test_memory_decides_nothing_about_the_layout(tmp_path: Path, memory_mb: float) -> None:
    """Little of it only means that rows are spilled and merged."""
    found: list[Any] = []
    for budget in (512, memory_mb):
        root = tmp_path / str(len(found))
        root.mkdir()
        for number in range(4):
            pq.write_table(trades(20_000).slice(number * 5000, 5000), root / f"{number}.parquet")
        optimize(root, ["symbol", "time"], target_rows_per_file=3000, memory_budget_mb=budget)
        found.append(layout(root))
    assert found[0] == found[1]
    assert sorted(row for file in found[1] for row in file) == list(range(20_000))


def test_rows_inside_a_file_are_sorted_by_the_columns(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    pq.write_table(trades(4000), root / "a.parquet")
    optimize(root, ["symbol", "time"], target_rows_per_file=1000)
    for path in root.glob("*.parquet"):
        rows = pq.ParquetFile(path).read(columns=["symbol", "time"]).to_pylist()
        assert [(r["symbol"], r["time"]) for r in rows] == sorted(
            (r["symbol"], r["time"]) for r in rows
        )
