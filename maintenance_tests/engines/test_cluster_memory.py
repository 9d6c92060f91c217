"""Clustering keeps to its memory budget: the peak of a fresh process, beyond what it had before."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import optimize
from maintenance_assets.engines.cluster_kernel import (
    CellCounter,
    Pool,
    Portion,
    Room,
    split_files,
)
from maintenance_assets.storage.filesystems import open_store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CHILD = """
import resource, sys
import pyarrow as pa, pyarrow.parquet as pq
from maintenance_assets import optimize

def megabytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith(name))

lake, warm, engine, key, budget, rows, dry, files = sys.argv[1:]
options = {"engine": engine, "target_rows_per_file": int(rows), "dry_run": dry == "dry"}
pq.write_table(pa.table({"id": [2, 1], "a": [1, 2], "doc": ["x", "y"]}), f"{warm}/x.parquet")
optimize(warm, ["id"], engine=engine)  # what is loaded once is no part of the measure
resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
with open("/proc/self/clear_refs", "w") as peaks:
    peaks.write("5")
before = megabytes("VmRSS")
result = optimize(lake, key.split(","), memory_budget_mb=float(budget), max_workers=1, **options)
print(megabytes("VmHWM") - before)
"""


def peak_growth(
    lake: Path, key: str, engine: str, budget_mb: float, rows: int, dry: str = "", files: int = 1024
) -> int:
    """Megabytes that an optimize took at its peak."""
    warm = lake.parent / "warm"
    warm.mkdir()
    arguments = [lake, warm, engine, key, budget_mb, rows, dry, files]
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=warm)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def write(lake: Path, tables: list[Any], **options: Any) -> Path:
    lake.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, lake / f"{number:03}.parquet", **options)
    return lake


def seldom_long(rows: int, seed: int) -> pa.Table:
    """A third of the rows have a long value, which a footer does not tell."""
    random = np.random.default_rng(seed)
    words = pa.array(["a", "m" * 2000, "z"])
    codes = pa.array(random.integers(0, 3, rows), pa.int32())
    doc = pa.DictionaryArray.from_arrays(codes, words).cast(pa.string())
    return pa.table({"id": random.integers(0, 10**9, rows), "doc": doc})


def test_rows_are_kept_by_their_size_not_by_a_guess(tmp_path: Path) -> None:
    """470 MB of rows that footers take for 10 MB."""
    tables = [seldom_long(140_000, seed) for seed in range(5)]
    lake = write(tmp_path / "lake", tables, row_group_size=20_000)
    assert peak_growth(lake, "id", "pyarrow", 32, 100_000) < 300


def test_cells_of_all_rows_are_never_in_memory_together(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def pair() -> Any:
        return random.integers(0, 10**9, 150_000).astype("int32")

    lake = write(tmp_path / "lake", [pa.table({"id": pair(), "a": pair()}) for _ in range(30)])
    assert peak_growth(lake, "id,a", "pyarrow", 16, 4000) < 120


def wide(rows: int) -> pa.Table:
    numbers = np.random.default_rng(1).permutation(rows)
    return pa.table({"id": numbers, "doc": [f"{n:09}" + "u" * 400 for n in numbers.tolist()]})


def test_more_runs_than_files_may_be_open_are_merged(tmp_path: Path) -> None:
    """60 MB in one output, spilled half a megabyte at a time."""
    lake = write(tmp_path / "lake", [wide(150_000)], row_group_size=10_000)
    assert peak_growth(lake, "id", "pyarrow", 1, 150_000, files=64) < 190
    (output,) = lake.iterdir()
    assert pq.ParquetFile(output).read()["id"].to_pylist() == list(range(150_000))


def test_a_large_dictionary_is_not_spilled_with_every_part(tmp_path: Path) -> None:
    """Two hundred outputs, and each of their parts had all twenty thousand categories."""
    random, rows = np.random.default_rng(2), 20_000
    users = pa.array([f"user-{number:030}" for number in random.permutation(rows)])
    table = pa.table({"id": random.permutation(rows), "user": users.dictionary_encode()})
    lake = write(tmp_path / "lake", [table])
    (group,) = optimize(lake, ["id"], target_rows_per_file=100, dry_run=True).plan.groups
    store, folder = open_store(lake, None, None), str(tmp_path)
    counter = CellCounter(group, store, 2**24, folder)
    cells = counter.count(0, Room(0))
    cuts, (starts,) = counter.cut([cells], Pool(1))
    parts = list(split_files(group, [Portion(0, starts, cells)], store, 2**24, cuts))
    assert sum(part.num_rows for _, part in parts) == rows
    assert sum(part.nbytes for _, part in parts) < 2 * table.nbytes


def test_a_large_dictionary_is_not_written_with_every_row_group(tmp_path: Path) -> None:
    random, rows = np.random.default_rng(2), 20_000
    users = pa.array([f"user-{number:030}" for number in random.permutation(rows)])
    table = pa.table({"id": random.permutation(rows), "user": users.dictionary_encode()})
    lake = write(tmp_path / "lake", [table])
    before = sum(path.stat().st_size for path in lake.iterdir())
    optimize(lake, ["id"], target_rows_per_file=2000)
    assert sum(path.stat().st_size for path in lake.iterdir()) < 1.5 * before


def test_sample_of_long_values_does_not_decode_a_row_group(tmp_path: Path) -> None:
    """160 MB of values in one row group, of which a sample takes a third."""
    lake = write(tmp_path / "lake", [wide(400_000)], row_group_size=10**7, use_dictionary=False)
    assert peak_growth(lake, "doc", "pyarrow", 32, 100_000, dry="dry") < 330
