"""A directory belongs to a catalog or is a plain one: never both at a time."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import (
    Lakehouse,
    LeaseHeldError,
    UnsupportedDatasetError,
    compact,
    delete,
    optimize,
    recover,
    repartition,
    update,
    upsert,
)
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import open_store
from maintenance_assets.storage.lease import Lease

ROWS = {"id": [1], "day": ["a"]}
PLAIN: dict[str, Callable[[str], Any]] = {
    "compact": compact,
    "optimize": lambda path: optimize(path, ["id"]),
    "repartition": lambda path: repartition(path, path, ["id"]),
    "repartition from": lambda path: repartition(path, f"{path}-copy", ["id"], delete_source=True),
    "delete": lambda path: delete(path, "id = 1"),
    "update": lambda path: update(path, "id = 1", {"id": 2}),
    "upsert": lambda path: upsert(path, pa.table(ROWS), ["id"]),
}


def tree(folder: Path) -> list[str]:
    return sorted(str(p) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("operation", PLAIN)
@pytest.mark.parametrize("below", ["", "day=a"])
def test_plain_operations_refuse_the_directory_of_a_catalog(
    small: Lakehouse, operation: str, below: str
) -> None:
    orders = small.create_dataset("orders", data=ROWS, partition_by=["day"])
    for number in range(3):
        orders.append({"id": [number], "day": ["a"]})
    before = tree(Path(orders.path))
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        PLAIN[operation](os.path.join(orders.path, below).rstrip("/"))
    assert tree(Path(orders.path)) == before
    assert small.fsck().problems == ()


def test_a_directory_above_is_refused_as_well(small: Lakehouse) -> None:
    orders = small.create_dataset("orders", data=ROWS)
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        compact(os.path.dirname(orders.path))


def plain(folder: Path) -> str:
    folder.mkdir()
    for number in range(6):
        pq.write_table(pa.table({"id": [number]}), folder / f"{number}.parquet")
    return str(folder)


def test_a_directory_that_is_adopted_while_it_is_planned_is_left_alone(
    small: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plain(tmp_path / "raw")

    def adopted_meanwhile(*arguments: Any) -> Any:
        snapshot = discover(*arguments)
        small.register("raw", path)
        return snapshot

    monkeypatch.setattr("maintenance_assets.operations.rewrite.discover", adopted_meanwhile)
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        compact(path)
    assert small.fsck().problems == ()
    assert small.dataset("raw").read().num_rows == 6


def test_a_directory_under_maintenance_is_not_adopted(small: Lakehouse, tmp_path: Path) -> None:
    path = plain(tmp_path / "raw")
    held = Lease(open_store(path), "0198c0de-0000-7000-8000-000000000000", "compact")
    with held, pytest.raises(LeaseHeldError, match="compact run"):
        small.register("raw", path)
    assert small.datasets() == ()
    assert small.register("raw", path).read().num_rows == 6
    assert compact(plain(tmp_path / "other")).stats.after_file_count == 1


def test_nothing_is_recovered_below_a_catalog(small: Lakehouse) -> None:
    orders = small.create_dataset("orders", data=ROWS)
    os.makedirs(f"{orders.path}/_maintenance/0198c0de-0000-7000-8000-000000000000")
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        recover(orders.path)


def test_a_missing_directory_is_not_made_by_adopting_it(small: Lakehouse, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        small.register("raw", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
