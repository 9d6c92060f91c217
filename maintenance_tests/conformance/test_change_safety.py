"""What a change, its backup and its restoration must never get wrong."""

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets import (
    IncompleteMaintenanceError,
    Progress,
    compact,
    delete,
    recover,
    repartition,
    restore,
    sql,
    update,
    upsert,
)
from maintenance_assets.errors import BackupError
from maintenance_tests.datasets import Lake

EVERYTHING = ["TRUE", "1 = 1", "NOT FALSE", pc.scalar(True), pl.lit(True)]


def two_partitions(lake: Lake) -> None:
    lake.write("p=1/a.parquet", {"id": [1, 2], "v": ["a", "b"]})
    lake.write("p=2/b.parquet", {"id": [3, 4], "v": ["c", "d"]})


@pytest.mark.parametrize("everything", EVERYTHING, ids=str)
def test_a_predicate_without_columns_means_every_row(local: Lake, everything: Any) -> None:
    two_partitions(local)
    assert update(local.url, everything, {"v": "x"}).stats.rows_updated == 4
    assert local.column("v") == ["x"] * 4
    found = delete(local.url, everything, partition_filter={"p": "2"})
    assert found.stats.rows_deleted == 2
    assert local.column("id") == [1, 2]
    assert delete(local.url, everything, dry_run=True).stats.rows_deleted == 2
    assert delete(local.url, everything).stats.rows_deleted == 2
    assert local.column("id") == []


def test_a_predicate_without_columns_on_every_engine(local: Lake, engine: str) -> None:
    two_partitions(local)
    assert delete(local.url, "TRUE", engine=engine).stats.rows_deleted == 4
    assert local.column("id") == []


class Denying(MemoryFileSystem):
    """A store that does not let go of one file."""

    protocol = "memory"
    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    held = ""

    def rm_file(self, path: str) -> None:
        if self.held and path.endswith(self.held):
            raise PermissionError(13, "denied", path)
        super().rm_file(path)


def test_an_interrupted_change_keeps_its_backup_and_says_not_to_repeat_it() -> None:
    fs = Denying()
    lake = Lake("memory://denied")
    for name, ids in (("p=1/a.parquet", [1, 2]), ("p=2/b.parquet", [3, 4])):
        lake.write(name, {"id": ids})
        fs.pipe_file(f"/denied/{name}", lake.get(name))
    Denying.held = "p=2/b.parquet"
    with pytest.raises(IncompleteMaintenanceError, match="Do not repeat it: run recover") as told:
        update(
            "memory://denied",
            "id > 0",
            {"id": sql("id + 10")},
            backup_path="memory://denied-backups",
            filesystem=fs,
        )
    backup_id = told.value.result.backup_id
    assert fs.exists(f"/denied-backups/{backup_id}/manifest.json")
    Denying.held = ""
    assert "completed" in recover("memory://denied", filesystem=fs).actions[0]
    taken_back = restore(
        "memory://denied", backup_id, backup_path="memory://denied-backups", filesystem=fs
    )
    assert taken_back.rows_restored == 4
    fs.rm("/denied-backups", recursive=True)
    fs.rm("/denied", recursive=True)


def test_a_backup_is_restored_once_and_where_it_belongs(local: Lake, tmp_path: Path) -> None:
    two_partitions(local)
    backups = str(tmp_path / "backups")
    deleted = delete(local.url, "id < 3", backup_path=backups)
    assert deleted.backup_id is not None
    shutil.copytree(local.url, tmp_path / "other")
    with pytest.raises(BackupError, match=r"is one of .*lake'.* pass moved=True"):
        restore(tmp_path / "other", deleted.backup_id, backup_path=backups)
    assert restore(local.url, deleted.backup_id, backup_path=backups).rows_restored == 2
    repartition(local.url, local.url, ["v"])
    with pytest.raises(BackupError, match="was restored already"):
        restore(local.url, deleted.backup_id, backup_path=backups)
    assert sorted(local.column("id")) == [1, 2, 3, 4]


def test_changes_of_the_same_rows_are_taken_back_one_after_the_other(
    lake: Lake, tmp_path: Path
) -> None:
    two_partitions(lake)
    options: dict[str, Any] = {
        "backup_path": str(tmp_path / "backups"),
        "storage_options": dict(lake.storage_options) or None,
    }
    states = [lake.tree()]
    first = update(lake.url, "id = 1", {"v": "x"}, **options)
    states.append(lake.tree())
    second = delete(lake.url, "id = 2", **options)
    states.append(lake.tree())
    third = update(lake.url, "id IN (1, 3)", {"p": "2", "v": "y"}, **options)
    for changed in (third, second, first):
        restore(lake.url, changed.backup_id or "", **options)
        assert lake.tree() == states.pop()


def test_after_a_compaction_missing_rows_come_back_by_key(local: Lake, tmp_path: Path) -> None:
    two_partitions(local)
    backups = tmp_path / "backups"
    deleted = delete(local.url, "id = 1", backup_path=backups)
    local.write("p=1/later.parquet", {"id": [9], "v": ["late"]})
    compact(local.url)
    before = local.tree()
    with pytest.raises(BackupError) as told:
        restore(local.url, deleted.backup_id or "", backup_path=backups)
    assert local.tree() == before
    assert "Copy no file out of" in str(told.value)
    folder = str(told.value).split("Copy no file out of '")[1].split("'")[0]
    paths = ds.partitioning(pa.schema([("p", pa.string())]), flavor="hive")
    missing = ds.dataset(folder, partitioning=paths).to_table(filter=pc.field("id") == 1)
    upsert(local.url, missing, ["id"], partition_cols=["p"])
    assert sorted(local.column("id")) == [1, 2, 3, 4, 9]


def test_what_was_restored_before_it_was_rewritten_says_when(local: Lake, tmp_path: Path) -> None:
    two_partitions(local)
    backups = tmp_path / "backups"
    first = update(local.url, "id = 1", {"v": "x"}, backup_path=backups)
    second = delete(local.url, "id = 2", backup_path=backups)
    with pytest.raises(BackupError, match=rf"'{second.backup_id}' of a later delete first"):
        restore(local.url, first.backup_id or "", backup_path=backups)
    restore(local.url, second.backup_id or "", backup_path=backups)
    local.write("p=1/later.parquet", {"id": [9], "v": ["late"]})
    compact(local.url)
    with pytest.raises(
        BackupError, match=r"was restored already on 20\d\d-\d\d-\d\d .*Copy no file"
    ):
        restore(local.url, second.backup_id or "", backup_path=backups)
    with pytest.raises(BackupError, match=r"cannot be restored: .*Copy no file"):
        restore(local.url, first.backup_id or "", backup_path=backups)


def test_a_moved_dataset_can_be_restored_by_saying_so(local: Lake, tmp_path: Path) -> None:
    two_partitions(local)
    backups = str(tmp_path / "backups")
    changed = update(local.url, "id = 1", {"v": "x"}, backup_path=backups)
    assert changed.backup_id is not None
    shutil.copytree(local.url, tmp_path / "other")
    restore(tmp_path / "other", changed.backup_id, backup_path=backups, moved=True)
    assert Lake(str(tmp_path / "other")).column("v") == ["a", "b", "c", "d"]
    assert local.column("v") == ["x", "b", "c", "d"]


def test_an_output_that_was_replaced_with_the_same_size_is_not_taken_away(
    local: Lake, tmp_path: Path
) -> None:
    local.write("a.parquet", {"id": [1, 2]})
    backups = str(tmp_path / "backups")
    changed = update(local.url, "id = 1", {"id": 5}, backup_path=backups)
    assert changed.backup_id is not None
    name = local.only_file()
    content = local.get(name)
    (tmp_path / "lake" / name).unlink()
    local.put(name, content)  # another writer's, as far as anyone can tell
    with pytest.raises(BackupError, match="or not as it was written"):
        restore(local.url, changed.backup_id, backup_path=backups)
    assert local.get(name) == content


def test_a_damaged_backup_does_not_replace_good_rows(local: Lake, tmp_path: Path) -> None:
    local.write("a.parquet", {"id": pa.array(range(5000))}, compression="zstd")
    backups = tmp_path / "backups"
    changed = delete(local.url, "id < 10", backup_path=backups)
    assert changed.backup_id is not None
    kept = backups / changed.backup_id / "data" / "a.parquet"
    content = bytearray(kept.read_bytes())
    content[200:260] = b"\xff" * 60
    kept.unlink()
    kept.write_bytes(bytes(content))
    before = local.tree()
    with pytest.raises(BackupError, match="is not what was put into the backup"):
        restore(local.url, changed.backup_id, backup_path=backups)
    assert local.tree() == before


def test_new_rows_in_a_filter_are_refused_where_their_keys_may_be_elsewhere(local: Lake) -> None:
    two_partitions(local)
    new = pa.table({"id": [3], "v": ["new"], "p": ["1"]})
    before = local.tree()
    with pytest.raises(ValueError, match="their keys may be in other partitions"):
        upsert(local.url, new, ["id"], partition_filter={"p": "1"})
    assert local.tree() == before
    assert upsert(local.url, new, ["id", "p"], partition_filter={"p": "1"}).stats.rows_inserted == 1


def test_a_source_is_deleted_only_when_all_of_it_is_known_to_be_in_the_target(
    local: Lake, tmp_path: Path
) -> None:
    local.write("a.parquet", {"id": [1, 2]})
    target = str(tmp_path / "target")
    with pytest.raises(ValueError, match="delete_source needs validate=True"):
        repartition(local.url, target, ["id"], validate=False, delete_source=True)
    with pytest.raises(IncompleteMaintenanceError, match=r"made 0 row\(s\) of 2"):
        repartition(
            local.url, target, ["id"], transform_fn=lambda rows: rows.head(0), delete_source=True
        )
    assert local.column("id") == [1, 2]


def test_text_of_polars_names_partitions_that_only_paths_have(local: Lake) -> None:
    two_partitions(local)
    new = pl.DataFrame({"id": [3, 9], "v": ["x", "y"], "p": ["2", "3"]})
    result = upsert(local.url, new, ["id"])
    assert (result.stats.rows_updated, result.stats.rows_inserted) == (1, 1)
    assert local.column("v", "p=2") == ["x", "d"]
    assert local.column("id", "p=3") == [9]


def test_new_data_is_fitted_anew_where_the_columns_changed_meanwhile(
    local: Lake, engine: str
) -> None:
    local.write("a.parquet", {"id": pa.array([1, 2], pa.int32()), "v": [1, 2]})
    replaced: list[Progress] = []

    def replace_once(step: Progress) -> None:
        if step.phase == "execute" and not replaced:
            replaced.append(step)
            local.write("a.parquet", {"id": [1.0, 7.5], "v": [0.5, 1.5], "w": ["x", "y"]})

    new = {"id": [1, 2], "v": [10, 20]}
    result = upsert(local.url, new, ["id"], engine=engine, on_progress=replace_once)
    assert (result.stats.rows_updated, result.stats.rows_inserted) == (1, 1)
    found = sorted(zip(local.column("id"), local.column("v"), local.column("w"), strict=True))
    assert found == [(1.0, 10.0, "x"), (2.0, 20.0, None), (7.5, 1.5, "y")]
