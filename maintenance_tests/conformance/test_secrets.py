"""A password of a store is in nothing that is written, logged, raised or returned."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from maintenance_assets import (
    IncompleteMaintenanceError,
    Lakehouse,
    Progress,
    compact,
    delete,
    optimize,
    repartition,
    save_plan,
    status,
    upsert,
)
from maintenance_assets.operations.results import CompactionResult
from maintenance_tests.datasets import Lake, one_row_files

SECRET = "s3cr3t-in-no-file"
OPTIONS = {"password": SECRET, "client_kwargs": {"token": f"{SECRET}-inner"}}
ROOT = "memory://kept"


@pytest.fixture
def lake() -> Iterator[Lake]:
    # The memory store takes any options, and gives none of them away by itself.
    lake = Lake(f"{ROOT}/lake", OPTIONS)
    one_row_files(lake, 4, "day=1")
    one_row_files(lake, 4, "day=2", start=4)
    yield lake
    fsspec.filesystem("memory").rm("/kept", recursive=True)


class Seen:
    """All that was on the store at any step: leases, journals, staged files, outputs."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.content = b""

    def __call__(self, step: Progress | None = None) -> None:
        fs = fsspec.filesystem("memory")
        for path in fs.find("/kept"):
            self.names.add(path.rpartition("/")[2])
            self.content += fs.cat_file(path)


NEW = pa.table({"id": [3, 99], "day": ["1", "9"]})
Operation = Callable[..., Any]


@pytest.mark.parametrize(
    "operation",
    [
        lambda **options: compact(f"{ROOT}/lake", **options),
        lambda **options: optimize(f"{ROOT}/lake", ["id"], **options),
        lambda **options: repartition(f"{ROOT}/lake", f"{ROOT}/target", ["id"], **options),
        lambda **options: delete(
            f"{ROOT}/lake", "id = 3", backup_path=f"{ROOT}/backups", **options
        ),
        lambda **options: upsert(f"{ROOT}/lake", NEW, ["id"], **options),
    ],
    ids=["compact", "optimize", "repartition", "delete", "upsert"],
)
def test_no_file_no_log_and_no_result_has_it(
    lake: Lake, engine: str, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = Seen()
    result = operation(engine=engine, storage_options=OPTIONS, on_progress=seen)
    seen()
    assert any(name.endswith(".json") for name in seen.names)  # a lease at least
    assert SECRET.encode() not in seen.content
    assert SECRET not in caplog.text
    assert SECRET not in repr(result) + repr(result.to_dict())


def test_no_plan_no_status_and_no_error_has_it(lake: Lake, engine: str, tmp_path: Path) -> None:
    planned = compact(lake.url, engine=engine, storage_options=OPTIONS, dry_run=True)
    assert isinstance(planned, CompactionResult)
    save_plan(planned, tmp_path / "plan.json")
    assert SECRET not in (tmp_path / "plan.json").read_text()
    assert SECRET not in repr(status(lake.url, storage_options=OPTIONS).to_dict())
    lake.write("day=1/odd.parquet", {"id": ["text"]})
    with pytest.raises(IncompleteMaintenanceError) as caught:
        compact(lake.url, engine=engine, storage_options=OPTIONS)
    assert SECRET not in str(caught.value) + repr(caught.value.result)


def test_a_catalog_does_not_keep_it(lake: Lake, tmp_path: Path) -> None:
    with Lakehouse(f"sqlite:///{tmp_path}/catalog.db", storage_options=OPTIONS) as house:
        dataset = house.register("lake", lake.url)
        dataset.append({"id": [100], "day": ["1"]})
        dataset.compact()
        shown = repr(house) + repr(dataset) + repr(dataset.history()) + dataset.path
    seen = Seen()
    seen()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert SECRET.encode() not in kept + seen.content
    assert SECRET not in shown
