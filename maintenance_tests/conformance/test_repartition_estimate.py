"""What the estimate promises is what the repartition makes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintenance_assets import Repartitioner, repartition
from maintenance_assets.engines.size_sample import estimated_directories
from maintenance_assets.operations import repartition_estimate
from maintenance_tests.datasets import Lake


def write_events(lake: Lake, rows: int, files: int, **options: Any) -> None:
    rng = np.random.default_rng(7)
    for part in range(files):
        table = pa.table(
            {
                "id": np.arange(rows) + part * rows,
                "shop": rng.integers(0, 20, rows),
                "name": np.char.add("user-", rng.integers(0, 5000, rows).astype(str)),
                "price": np.round(rng.lognormal(3, 1, rows), 2),
            }
        )
        lake.write(f"day={part:02}/a.parquet", table, **options)


def test_the_guides_keys_are_filled(local: Lake, tmp_path: Path) -> None:
    write_events(local, 1000, 2)
    target = tmp_path / "target"
    estimate = Repartitioner(local.url, str(target), ["day", "shop"]).estimate_size()
    assert estimate["num_partitions"] == 40
    assert estimate["total_rows"] == 2000
    assert estimate["avg_rows_per_partition"] == 50
    assert estimate["partition_cols"] == ["day", "shop"]
    assert set(estimate) == {
        "num_partitions",
        "total_rows",
        "avg_rows_per_partition",
        "estimated_size_mb",
        "partition_cols",
    }
    assert not target.exists()


def test_a_small_dataset_is_estimated_to_the_byte(local: Lake, tmp_path: Path) -> None:
    write_events(local, 2000, 3)
    target = Lake(str(tmp_path / "target"))
    estimate = Repartitioner(local.url, target.url, ["shop"]).estimate_size()
    repartition(local.url, target.url, ["shop"])
    written = target.total_bytes() / 2**20
    # Footers are counted by their average size.
    assert estimate["estimated_size_mb"] == pytest.approx(written, rel=0.01)


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_sample_is_close_to_what_is_written(
    local: Lake, tmp_path: Path, compression: str
) -> None:
    write_events(local, 100_000, 6, row_group_size=20_000)
    target = Lake(str(tmp_path / "target"))
    asked = Repartitioner(local.url, target.url, ["shop"], compression=compression)
    estimate = asked.estimate_size()
    repartition(local.url, target.url, ["shop"], compression=compression)
    assert estimate["estimated_size_mb"] == pytest.approx(target.total_bytes() / 2**20, rel=0.15)
    assert estimate["num_partitions"] == 20


def test_partitions_of_very_many_rows_are_guessed_from_some_files(
    local: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_events(local, 1000, 10)
    monkeypatch.setattr(repartition_estimate, "MOST_COUNTED_ROWS", 5000)
    estimate = repartition_estimate.estimate_repartition(local.url, ["shop"])
    assert (estimate.num_partitions, estimate.is_exact) == (20, False)


def test_values_seen_once_mean_others_that_were_not_seen() -> None:
    assert estimated_directories([5, 9, 7], 0.1) == 3
    # All seen once, in a tenth of the rows: far more than these.
    assert estimated_directories([1] * 100, 0.1) > 1000
    assert estimated_directories([1] * 100, 1.0) == 100


def test_missing_columns_are_named(local: Lake, tmp_path: Path) -> None:
    write_events(local, 10, 1)
    with pytest.raises(ValueError, match="not found in data: hour"):
        Repartitioner(local.url, str(tmp_path / "t"), ["hour"]).estimate_size()
