"""Whoever could read the data can read what becomes of it, and nobody else can."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import (
    IncompleteMaintenanceError,
    Lakehouse,
    compact,
    delete,
    optimize,
    repartition,
    restore,
    update,
    upsert,
)

FILE, FOLDER = 0o640, 0o2770
OWNER = (4001, 4000) if os.geteuid() == 0 else (os.getuid(), os.getgid())

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs owners and modes")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset that belongs to another user (as far as we may say so) and to a group."""
    root = tmp_path / "lake"
    for day in (1, 2):
        (root / f"d={day}").mkdir(parents=True)
        for number in range(4):
            table = pa.table({"id": [10 * day + number], "s": [f"x{number % 2}"]})
            pq.write_table(table, root / f"d={day}" / f"{number}.parquet")
    for path in [root, *root.rglob("*")]:
        os.chown(path, *OWNER)
        os.chmod(path, FOLDER if path.is_dir() else FILE)
    return root


def exposed(root: Path) -> list[str]:
    """What has other rights or another owner than the dataset had."""
    found = []
    for path in [root, *root.rglob("*")]:
        status = path.stat()
        wanted = (FOLDER if path.is_dir() else FILE, *OWNER)
        if (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) != wanted:
            found.append(f"{path.relative_to(root.parent)} {stat.S_IMODE(status.st_mode):o}")
    return found


NEW = pa.table({"id": [11, 99], "s": ["n", "n"], "d": ["1", "9"]})


@pytest.mark.parametrize(
    "operation",
    [
        lambda root, engine: compact(root, engine=engine),
        lambda root, engine: optimize(root, ["id"], engine=engine),
        lambda root, engine: repartition(root, root, ["s"], engine=engine),
        lambda root, engine: delete(root, "id = 11", engine=engine),
        lambda root, engine: update(root, "id = 11", {"s": "new"}, engine=engine),
        lambda root, engine: update(root, "id = 11", {"d": "7"}, engine=engine),
        lambda root, engine: upsert(root, NEW, ["id"], engine=engine),
    ],
    ids=["compact", "optimize", "repartition", "delete", "update", "move", "upsert"],
)
def test_files_and_directories_keep_owner_and_rights(
    root: Path, engine: str, operation: Callable[[Path, str], object]
) -> None:
    before = {path: path.stat().st_ino for path in root.rglob("*.parquet")}
    operation(root, engine)
    after = {path: path.stat().st_ino for path in root.rglob("*.parquet")}
    assert after != before
    assert exposed(root) == []


@pytest.fixture
def with_a_private_file(root: Path) -> Path:
    """The same, with one file that fewer may read than the others."""
    os.chmod(root / "d=1" / "2.parquet", 0o600)
    return root


def test_files_that_different_users_may_read_are_not_merged(
    with_a_private_file: Path, engine: str
) -> None:
    root = with_a_private_file
    preview = compact(root, engine=engine, dry_run=True)
    assert [len(failure.paths) for failure in preview.failures] == [4]
    # What is not done is not promised, either.
    assert (preview.stats.compacted_file_count, preview.stats.after_file_count) == (4, 5)
    assert [len(group) for group in preview.stats.planned_groups or ()] == [4]
    with pytest.raises(IncompleteMaintenanceError, match="may be read by different users"):
        compact(root, engine=engine)
    assert len(list((root / "d=1").iterdir())) == 4
    assert len(list((root / "d=2").iterdir())) == 1
    assert exposed(root) == ["lake/d=1/2.parquet 600"]
    with pytest.raises(PermissionError, match=r"may be read by different users.*Nothing was"):
        repartition(root, root.parent / "target", ["s"], engine=engine)
    assert not (root.parent / "target").exists()


def test_rows_that_move_do_not_come_together_from_them(
    with_a_private_file: Path, engine: str
) -> None:
    root = with_a_private_file
    with pytest.raises(PermissionError, match=r"may be read by different users.*Nothing was"):
        update(root, "id IN (11, 12)", {"d": "7"}, engine=engine)
    delete(root, "id IN (11, 12) AND s = 'x1'", engine=engine)
    assert not (root / "d=7").exists()
    assert exposed(root) == ["lake/d=1/2.parquet 600"]


def test_a_catalog_does_not_merge_them_either(with_a_private_file: Path) -> None:
    root = with_a_private_file
    with Lakehouse(f"sqlite:///{root.parent}/catalog.db") as house:
        dataset = house.register("lake", root)
        with pytest.raises(IncompleteMaintenanceError, match="may be read by different users"):
            dataset.compact()
        live = [file.path for file in dataset.live_files()]
    assert sum("d=1/" in path for path in live) == 4
    assert sum("d=2/" in path for path in live) == 1


def test_changes_in_a_catalog_do_not_mix_their_rows(with_a_private_file: Path) -> None:
    root = with_a_private_file
    with Lakehouse(f"sqlite:///{root.parent}/catalog.db") as house:
        dataset = house.register("lake", root)
        dataset.delete("id = 11")
        with pytest.raises(PermissionError, match="may be read by different users"):
            dataset.update("id IN (12, 13)", {"s": "new"})
        assert dataset.read(where="s = 'new'").num_rows == 0
        dataset.update("id = 12", {"s": "new"})
        assert dataset.read(where="s = 'new'").num_rows == 1


def test_a_change_in_a_catalog_is_not_kept_by_files_that_it_only_reads(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    for name, mode in (("a", 0o600), ("b", 0o644)):
        file = root / f"{name}.parquet"
        pq.write_table(pa.table({"id": [1, 2], "note": ["nobody", f"the {name}"]}), file)
        os.chmod(file, mode)
    with Lakehouse(f"sqlite:///{tmp_path}/catalog.db") as house:
        dataset = house.register("lake", root)
        assert dataset.update("note LIKE '%e b'", {"id": 9}).rows_updated == 1
        assert dataset.delete("note LIKE '%e a'").rows_deleted == 1
        assert sorted(dataset.read().column("id").to_pylist()) == [1, 1, 9]
        modes = [stat.S_IMODE((root / f.path).stat().st_mode) for f in dataset.live_files()]
    assert sorted(modes) == [0o600, 0o644]


def test_rights_to_write_do_not_keep_files_apart(root: Path) -> None:
    os.chmod(root / "d=1" / "2.parquet", 0o440)
    compact(root)
    assert len(list((root / "d=1").iterdir())) == 1


def test_a_copy_in_another_layout_is_as_private(root: Path, engine: str) -> None:
    target = root.parent / "made" / "target"
    repartition(root, target, ["s"], engine=engine)
    assert sorted(path.name for path in target.iterdir()) == ["s=x0", "s=x1"]
    assert exposed(target) == []


def test_an_ordered_publish_makes_directories_as_private(root: Path) -> None:
    kept = os.getcwd()
    os.chdir(root / "d=1")  # whoever stands in a directory keeps it from being exchanged
    try:
        assert update(root, "id = 11", {"d": "7"}).publish == "ordered"
    finally:
        os.chdir(kept)
    assert (root / "d=7").is_dir()
    assert exposed(root) == []


def test_a_backup_is_as_private_and_comes_back_as_it_was(root: Path) -> None:
    backups = root.parent / "backups"
    made = delete(root, "id = 11", backup_path=backups).backup_id
    assert made is not None
    for folder in (backups, backups / made):
        assert stat.S_IMODE(folder.stat().st_mode) == FOLDER
    (kept,) = (backups / made).rglob("*.parquet")
    assert stat.S_IMODE(kept.stat().st_mode) == FILE
    restore(root, made, backup_path=backups)
    assert exposed(root) == []


def test_a_catalog_keeps_the_rights_of_what_it_rewrites(root: Path) -> None:
    with Lakehouse(f"sqlite:///{root.parent}/catalog.db") as house:
        dataset = house.register("lake", root)
        dataset.compact()
        dataset.delete("id = 12")
        dataset.update("id = 13", {"d": "7"})
        dataset.upsert({"id": [20], "s": ["n"], "d": ["2"]}, ["id"])
        dataset.optimize(["id"])
        assert [path for path in exposed(root) if "_lakehouse" not in path] == []
        assert (root / "d=7").is_dir()
