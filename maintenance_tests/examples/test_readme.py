"""Every Python example of the README runs as it is written, on a small lake of that name."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
START = datetime(2025, 11, 4)


def fill(lake: Lake) -> None:
    """Two days of trades in ten small files each."""
    for day in range(2):
        for number in range(10):
            ids = range(100 * (10 * day + number), 100 * (10 * day + number) + 100)
            columns = {
                "trade_id": pa.array(ids, pa.int64()),
                "traded_at": [START + timedelta(days=day, seconds=i) for i in ids],
                "symbol": [("ABC", "XYZ", "QRS")[i % 3] for i in ids],
                "price": [None if i % 50 == 0 else i / 7 for i in ids],
                "size": [float(i % 9 - 1) for i in ids],
            }
            lake.write(f"date=2025-11-0{4 + day}/part-{number}.parquet", columns)


def name_of(block: str) -> str:
    lines = (line for line in block.splitlines() if not line.startswith(("import", "from", " ")))
    return next(line for line in lines if line)[:40]


@pytest.mark.spark
@ONE_WORKER
@pytest.mark.parametrize("block", BLOCKS, ids=map(name_of, BLOCKS))
def test_example_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(Lake(str(tmp_path / "lake" / "trades")))
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_there_are_examples_of_every_operation() -> None:
    text = "\n".join(BLOCKS)
    for name in ("compact", "optimize", "repartition", "delete", "update", "upsert", "restore"):
        assert re.search(rf"\b{name}\(", text), name
