"""Very many partitions, few open files and little memory: measured in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_tests.datasets import Lake

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CHILD = """
import resource, sys
import pyarrow as pa, pyarrow.parquet as pq
from maintenance_assets import repartition

def megabytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith(name))

lake, target, warm, budget, files, engine = sys.argv[1:]
pq.write_table(pa.table({"k": [2, 1], "doc": ["x", "y"]}), f"{warm}/x.parquet")
repartition(warm, f"{warm}-moved", ["k"], engine=engine)  # what is loaded once is not measured
resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
with open("/proc/self/clear_refs", "w") as peaks:
    peaks.write("5")
before = megabytes("VmRSS")
repartition(lake, target, ["k"], engine=engine, memory_budget_mb=float(budget), max_workers=2)
print(megabytes("VmHWM") - before)
"""


def peak_growth(
    folder: Path, *, budget_mb: float, files: int = 1024, engine: str = "pyarrow"
) -> int:
    """Megabytes that a repartition took at its peak."""
    warm = folder / "warm"
    warm.mkdir()
    arguments = [folder / "lake", folder / "target", warm, budget_mb, files, engine]
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=warm)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def write(folder: Path, tables: list[Any], **options: Any) -> None:
    (folder / "lake").mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / "lake" / f"{number:03}.parquet", **options)


def test_five_thousand_partitions_with_few_open_files(tmp_path: Path) -> None:
    keys = np.random.default_rng(0).permutation(np.repeat(np.arange(5100), 3))
    write(tmp_path, [pa.table({"k": keys, "row": np.arange(len(keys))})])
    assert peak_growth(tmp_path, budget_mb=64, files=64) < 250
    target = Lake(str(tmp_path / "target"))
    names = target.files()
    assert len(names) == 5100
    assert target.column("row", "k=77") == np.flatnonzero(keys == 77).tolist()


def numbers(rows: int, seed: int, partitions: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {f"c{n}": random.random(rows) for n in range(9)}
    return pa.table({"k": random.integers(0, partitions, rows), **columns})


@pytest.mark.parametrize("partitions", [3, 300])
def test_rows_beyond_the_budget_are_spilled(tmp_path: Path, partitions: int) -> None:
    """240 MB of rows, in few large directories or in many small ones."""
    tables = [numbers(300_000, seed, partitions) for seed in range(10)]
    write(tmp_path, tables, row_group_size=50_000)
    assert peak_growth(tmp_path, budget_mb=48) < 200
    target = Lake(str(tmp_path / "target"))
    rows = [target.open(name).metadata.num_rows for name in target.files()]
    assert sum(rows) == 3_000_000
    assert len({name.rpartition("/")[0] for name in target.files()}) == partitions


def test_long_values_are_counted_by_their_size(tmp_path: Path) -> None:
    """200 MB of text that footers take for much less."""
    random = np.random.default_rng(0)
    words = pa.array(["a" * 500, "b" * 1500, "c"])
    codes = pa.array(random.integers(0, 3, 300_000), pa.int32())
    doc = pa.DictionaryArray.from_arrays(codes, words).cast(pa.string())
    table = pa.table({"k": random.integers(0, 50, 300_000), "doc": doc})
    write(tmp_path, [table], row_group_size=50_000)
    assert peak_growth(tmp_path, budget_mb=32) < 200


def test_spilled_files_are_gone_afterwards(tmp_path: Path, monkeypatch: Any) -> None:
    from maintenance_assets import repartition

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    write(tmp_path, [numbers(20_000, 1, 5)])
    repartition(tmp_path / "lake", tmp_path / "target", ["k"], memory_budget_mb=0.5)
    assert list((tmp_path / "temp").iterdir()) == []
