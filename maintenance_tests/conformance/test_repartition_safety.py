"""What goes wrong on the way is found before anyone sees it: damage, other writers, cancelling."""

import os
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from maintenance_assets import compact, recover, repartition
from maintenance_assets.errors import (
    ConcurrentChangeError,
    IncompleteMaintenanceError,
    LeaseHeldError,
    RewriteError,
)
from maintenance_assets.model.progress import Progress
from maintenance_tests.datasets import Lake, parquet_bytes

MARK = 0x1122334455667788


@pytest.fixture
def target(tmp_path: Path) -> Lake:
    """Where the rows go."""
    return Lake(str(tmp_path / "target"))


def write_rows(lake: Lake, files: int = 3) -> None:
    for part in range(files):
        ids = list(range(part * 100, part * 100 + 100))
        lake.write(f"day={part}/a.parquet", {"id": ids, "k": [i % 2 for i in ids]})


class At:
    """Acts once, when a phase reports for the first time."""

    def __init__(self, phase: str, act: Any) -> None:
        self._phase = phase
        self._act = act

    def __call__(self, progress: Progress) -> None:
        if progress.phase == self._phase and self._act is not None:
            act, self._act = self._act, None
            act()


# -- damage ------------------------------------------------------------------------------------


class RottenFile(MemoryFile):
    """Changes a value on its way to the store, as bad memory or a bad disk would."""

    def close(self) -> None:
        content = self.getvalue().replace(
            MARK.to_bytes(8, "little"), (MARK + 1).to_bytes(8, "little")
        )
        self.seek(0)
        self.write(content)
        self.commit()


class RottenFileSystem(MemoryFileSystem):
    """A store that does not keep what it is given."""

    protocol = "rotten"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode, **options)
        if mode == "wb" and path.endswith(".staged"):
            return RottenFile(self, self._strip_protocol(path))
        return file


def rotten_lake(name: str) -> RottenFileSystem:
    fs = RottenFileSystem(skip_instance_cache=True)
    table = pa.table({"id": [1, MARK, 3], "k": [0, 0, 1]})
    options = {"use_dictionary": False, "compression": "none"}
    fs.pipe_file(f"/{name}/source/a.parquet", parquet_bytes(table, **options))
    return fs


def test_a_store_that_changes_a_value_is_found_out() -> None:
    fs = rotten_lake("value")
    with pytest.raises(RewriteError, match=r"in 'k=0', the 2 rows .* do not have the content"):
        repartition("/value/source", "/value/target", ["k"], compression="none", filesystem=fs)
    assert fs.find("/value") == ["/value/source/a.parquet"]


def test_unvalidated_rows_are_only_counted() -> None:
    fs = rotten_lake("unchecked")
    result = repartition(
        "/unchecked/source",
        "/unchecked/target",
        ["k"],
        compression="none",
        filesystem=fs,
        validate=False,
    )
    assert not result.validated
    assert result.stats.rows_written == 3


class LosingFileSystem(RottenFileSystem):
    """A store whose files are cut off."""

    protocol = "losing"

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        content: bytes = super().cat_file(path, start, end, **options)
        return content

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb" and path.endswith(".staged"):
            cut = MemoryFile(self, path)
            cut.write(self.store[self._strip_protocol(path)].getvalue()[:-20])
            cut.seek(0)
            return cut
        return MemoryFileSystem._open(self, path, mode, **options)


def test_a_file_that_cannot_be_read_again_is_not_published() -> None:
    fs = LosingFileSystem(skip_instance_cache=True)
    fs.pipe_file("/lost/source/a.parquet", parquet_bytes(pa.table({"id": [1], "k": [0]})))
    with pytest.raises(RewriteError, match="cannot be read again"):
        repartition("/lost/source", "/lost/target", ["k"], filesystem=fs)
    assert fs.find("/lost/target") == []


def test_a_damaged_source_is_named_and_nothing_is_left(
    engine: str, local: Lake, target: Lake
) -> None:
    write_rows(local)
    content = bytearray(local.get("day=1/a.parquet"))
    content[10:40] = b"\xff" * 30
    local.put("day=1/a.parquet", bytes(content))
    with pytest.raises(RewriteError, match=r"day=1/a\.parquet"):
        repartition(local.url, target.url, ["k"], engine=engine)
    assert target.tree() == {}
    assert [name for name in local.tree() if "_maintenance" in name] == []


# -- other writers -----------------------------------------------------------------------------


def test_files_that_come_meanwhile_stay_where_they_are(
    engine: str, local: Lake, target: Lake
) -> None:
    write_rows(local)

    def append() -> None:
        local.write("day=9/late.parquet", {"id": [900], "k": [0]})

    result = repartition(
        local.url,
        target.url,
        ["k"],
        engine=engine,
        delete_source=True,
        on_progress=At("execute", append),
    )
    assert local.files() == ["day=9/late.parquet"]
    assert sorted(target.column("id")) == list(range(300))
    assert any("late.parquet" in note and "not in the target" in note for note in result.notes)


def test_files_that_come_meanwhile_survive_a_repartition_in_place(local: Lake) -> None:
    write_rows(local)

    def append() -> None:
        local.write("day=9/late.parquet", {"id": [900], "k": [0]})

    result = repartition(local.url, local.url, ["k"], on_progress=At("execute", append))
    assert "day=9/late.parquet" in local.files()
    assert sorted(local.column("id")) == [*range(300), 900]
    assert any("stay where they are" in note for note in result.notes)


@pytest.mark.parametrize("how", ["replaced", "deleted"])
@pytest.mark.parametrize("in_place", [False, True], ids=["beside", "in place"])
def test_a_source_that_changes_is_a_conflict(
    local: Lake, target: Lake, how: str, in_place: bool
) -> None:
    write_rows(local)

    def change() -> None:
        if how == "deleted":
            os.unlink(local.path("day=1/a.parquet"))
        else:
            local.write("day=1/a.parquet", {"id": [7], "k": [7]})

    place = local if in_place else target
    with pytest.raises(ConcurrentChangeError, match=rf"day=1/a\.parquet' was {how}"):
        repartition(local.url, place.url, ["k"], on_progress=At("execute", change))
    assert target.tree() == {}
    assert all(name.startswith("day=") for name in local.tree())


def test_a_source_that_changes_after_it_was_copied_is_not_deleted(
    local: Lake, target: Lake
) -> None:
    write_rows(local)

    def change() -> None:
        local.write("day=1/a.parquet", {"id": [7], "k": [7]})

    with pytest.raises(IncompleteMaintenanceError, match="is complete, but the source") as caught:
        repartition(
            local.url, target.url, ["k"], delete_source=True, on_progress=At("publish", change)
        )
    assert not caught.value.result.source_deleted
    assert len(local.files()) == 3
    assert sorted(target.column("id")) == list(range(300))


def test_nobody_else_maintains_source_or_target_meanwhile(local: Lake, target: Lake) -> None:
    write_rows(local)

    def maintain() -> None:
        for lake in (local, target):
            with pytest.raises(LeaseHeldError, match="repartition run"):
                compact(lake.url, target_rows_per_file=10)

    result = repartition(local.url, target.url, ["k"], on_progress=At("execute", maintain))
    assert result.stats.rows_written == 300


def test_cancelling_leaves_everything_as_it_was(engine: str, local: Lake, target: Lake) -> None:
    write_rows(local)
    before = local.tree()

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repartition(local.url, target.url, ["k"], engine=engine, on_progress=At("execute", cancel))
    assert local.tree() == before
    assert not Path(target.url).exists()


def test_a_source_that_may_only_be_read_can_be_copied(local: Lake, target: Lake) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    write_rows(local)
    os.chmod(local.url, 0o555)
    try:
        result = repartition(local.url, target.url, ["k"])
    finally:
        os.chmod(local.url, 0o755)
    assert any("no lease" in note for note in result.notes)


# -- stores ------------------------------------------------------------------------------------


def test_every_store_in_place_and_beside(lake: Lake) -> None:
    write_rows(lake)
    options: dict[str, Any] = {"storage_options": dict(lake.storage_options) or None}
    result = repartition(lake.url, lake.url, ["k"], **options)
    assert lake.column("id", "k=1") == list(range(1, 300, 2))
    assert not any("_maintenance" in name or "day=" in name for name in lake.tree())
    parent, _, name = lake.url.rpartition("/")
    moved = Lake(f"{parent}/moved-{name}", lake.storage_options)
    again = repartition(lake.url, moved.url, [], delete_source=True, **options)
    assert sorted(moved.column("id")) == list(range(300))
    with pytest.raises(FileNotFoundError):
        lake.compact("pyarrow")
    assert (result.stats.rows_written, again.source_deleted) == (300, True)


def test_executors_write_to_an_object_store(s3: Any, spark: Any) -> None:
    from maintenance_assets.engines.spark_engine import SparkEngine

    lake = Lake(f"s3://{s3.bucket}/repartition-source", s3.storage_options)
    moved = Lake(f"s3://{s3.bucket}/repartition-target", s3.storage_options)
    write_rows(lake)
    result = repartition(
        lake.url,
        moved.url,
        ["k"],
        engine=SparkEngine(spark, shuffle_bytes=0),
        storage_options=dict(s3.storage_options),
    )
    assert result.engine == "spark"
    assert moved.column("id", "k=0") == list(range(0, 300, 2))
    assert [name for name in moved.tree() if name.startswith("_")] == []


def test_recovery_finds_nothing_afterwards(local: Lake, target: Lake) -> None:
    write_rows(local)
    repartition(local.url, target.url, ["k"])
    assert recover(local.url).actions == recover(target.url).actions == ()
    assert fsspec.filesystem("file").find(local.url) == sorted(
        local.path(name) for name in local.files()
    )
