"""Ways to lose rows that were found by attacking the publish and the recovery."""

import errno
import os
import shutil
import stat
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets import (
    IncompleteMaintenanceError,
    LeaseHeldError,
    LeaseLostError,
    RecoveryError,
    UnsupportedDatasetError,
    compact,
    recover,
)
from maintenance_assets.model.progress import Progress
from maintenance_assets.storage import exchange, lease, local_paths, publish
from maintenance_tests.crash.helpers import (
    COMPACT,
    Driver,
    Layout,
    ids,
    leftovers,
    make,
    visible_files,
    write,
)
from maintenance_tests.datasets import Lake, one_row_files

LAYOUTS: list[Layout] = ["hive", "flat"]


def crash(root: Path, twin: Path, step: str, *, ordered: bool) -> None:
    """Kill a compaction right after the last step of a kind; `twin` is an equal dataset."""
    with Driver() as driver:
        steps = driver.steps(twin, "compact", ordered=ordered)
        number = max(i for i, name in enumerate(steps) if name.startswith(step))
        driver.kill(root, "compact", number, after=True, ordered=ordered)


def crashed(folder: Path, layout: Layout, step: str, *, ordered: bool) -> tuple[Path, int]:
    root, twin = folder / "lake" / "data", folder / "twin" / "data"
    rows = make(root, layout)
    make(twin, layout)
    crash(root, twin, step, ordered=ordered)
    return root, rows


# -- recovery of a dataset that is not where, or what, it was -----------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dataset_moved_between_crash_and_recovery(tmp_path: Path, layout: Layout) -> None:
    root, rows = crashed(tmp_path, layout, "exchange", ordered=False)
    moved = tmp_path / "elsewhere" / "data"
    moved.parent.mkdir()
    root.rename(moved)
    recover(moved)
    assert ids(moved) == list(range(rows))
    assert not leftovers(moved)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hidden_sibling_removed_between_crash_and_recovery(tmp_path: Path, layout: Layout) -> None:
    root, rows = crashed(tmp_path, layout, "exchange", ordered=False)
    for sibling in root.parent.glob(".data.maintenance-*"):
        shutil.rmtree(sibling)
    recover(root)
    assert ids(root) == list(range(rows))
    assert not leftovers(root)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy_without_the_hidden_sibling_is_left_alone(tmp_path: Path, layout: Layout) -> None:
    """Nothing tells any more whether the files in it are old or new: so none may go."""
    root, rows = crashed(tmp_path, layout, "exchange", ordered=False)
    copy = tmp_path / "copy" / "data"
    shutil.copytree(root, copy)
    for _ in range(2):
        with pytest.raises(RecoveryError, match="Nothing was deleted"):
            recover(copy)
        assert ids(copy) == list(range(rows))


@pytest.mark.parametrize("step", ["replace journal", "unlink"])
def test_published_run_copied_before_recovery(tmp_path: Path, step: str) -> None:
    """In a copy every file has another version; the rows of the inputs must not stay twice."""
    root, rows = crashed(tmp_path, "hive", "fsync _maintenance", ordered=True)
    copy = tmp_path / "copy" / "data"
    shutil.copytree(root, copy)
    recover(copy)
    assert ids(copy) == list(range(rows))


def test_input_replaced_after_publishing_and_before_recovery(tmp_path: Path) -> None:
    root, rows = tmp_path / "lake" / "data", 0
    rows = make(root, "hive")
    stop_before_deleting(root)
    write(root / "p=0" / "small-0.parquet", range(1000, 1007))
    recover(root)
    assert ids(root) == [*range(5, rows), *range(1000, 1007)]
    assert not leftovers(root)


def stop_before_deleting(root: Path) -> None:
    """Publish file by file and stop (as a power cut would) before the first input goes."""
    patch = pytest.MonkeyPatch()

    def stop(*_: Any) -> None:
        raise SystemExit("power cut")

    with patch.context() as context:
        context.setattr(exchange, "can_swap", lambda swap: False)
        context.setattr(publish, "_give_up_changed", stop)
        context.setattr("maintenance_assets.operations.rewrite.recover_run", stop)
        with pytest.raises(SystemExit):
            compact(root, **COMPACT)


# -- a file system that answers wrongly, or not at all ------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_failing_look_is_taken_for_absence(tmp_path: Path, layout: Layout) -> None:
    """Every `lstat` of a compaction fails once, in turn: rows stay, whatever the run says."""
    number = 0
    while True:
        root = tmp_path / str(number) / "data"
        rows = make(root, layout)
        looks = compact_with_failing_lstat(root, number)
        recover(root)
        assert ids(root) == list(range(rows)), f"look {number}"
        assert not leftovers(root), f"look {number}"
        if looks <= number:
            break
        number += 1
    assert number > 20


def compact_with_failing_lstat(root: Path, number: int) -> int:
    """Compact with the given `lstat` failing; how many there were."""
    real = os.lstat
    calls = 0

    def lstat(path: Any, **options: Any) -> os.stat_result:
        nonlocal calls
        calls += 1
        if calls == number + 1:
            raise OSError(errno.EIO, "injected", path)
        return real(path, **options)

    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(os, "lstat", lstat)
        try:
            compact(root, **COMPACT)
        except OSError as error:
            assert "injected" in str(error)
        except IncompleteMaintenanceError as error:
            assert "injected" in str(error)
    return calls


def test_input_that_may_not_be_deleted_takes_its_group_back() -> None:
    class NoDelete(MemoryFileSystem):
        """A store whose objects are locked."""

        protocol = "locked"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]
        cachable = False

        def rm_file(self, path: str) -> None:
            if "/part-" in path:
                raise PermissionError(errno.EACCES, "object is locked", path)
            super().rm_file(path)

    fs = NoDelete()
    for number in range(4):
        with fs.open(f"/lake/part-{number}.parquet", "wb") as handle:
            pq.write_table(pa.table({"id": [number]}), handle)
    before = sorted(fs.find("/lake"))
    with pytest.raises(IncompleteMaintenanceError, match="object is locked"):
        compact("/lake", filesystem=fs)
    assert sorted(fs.find("/lake")) == before


def test_file_that_reappears_keeps_the_journal() -> None:
    class Denies(MemoryFileSystem):
        """A store that once says 404 for an object that is there."""

        protocol = "denies"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]
        cachable = False
        denials: ClassVar[int] = 0

        def rm_file(self, path: str) -> None:
            if path.endswith("part-0.parquet") and not Denies.denials:
                Denies.denials += 1
                raise FileNotFoundError(path)
            super().rm_file(path)

    fs = Denies()
    for number in range(4):
        with fs.open(f"/lake/part-{number}.parquet", "wb") as handle:
            pq.write_table(pa.table({"id": [number]}), handle)
    try:
        compact("/lake", filesystem=fs)
    except RecoveryError as error:
        assert "still there" in str(error)
        recover("/lake", filesystem=fs)
    found = [path for path in fs.find("/lake") if path.endswith(".parquet")]
    rows = [value for path in found for value in pq.read_table(fs.open(path))["id"].to_pylist()]
    assert sorted(rows) == [0, 1, 2, 3]


def test_store_without_versions_is_refused() -> None:
    class Mute(MemoryFileSystem):
        """A store that says nothing but names and sizes."""

        protocol = "mute"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]
        cachable = False

        def find(self, path: str, *_: Any, **options: Any) -> Any:
            found = super().find(path, detail=True)
            return {name: {"name": name, "size": info["size"]} for name, info in found.items()}

    fs = Mute()
    with fs.open("/lake/a.parquet", "wb") as handle:
        pq.write_table(pa.table({"id": [1]}), handle)
    with pytest.raises(UnsupportedDatasetError, match="neither a version nor a time"):
        compact("/lake", filesystem=fs)


@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_cached_file_system_is_refused(tmp_path: Path, cache: str) -> None:
    root = tmp_path / "data"
    make(root, "flat")
    fs = fsspec.filesystem(cache, fs=LocalFileSystem(), cache_storage=str(tmp_path / "cache"))
    with pytest.raises(UnsupportedDatasetError, match="behind a cache"):
        compact(str(root), filesystem=fs)


def test_directory_file_system_is_seen_through(tmp_path: Path) -> None:
    rows = make(tmp_path / "data", "hive")
    result = compact("data", filesystem=DirFileSystem(str(tmp_path), LocalFileSystem()), **COMPACT)
    assert result.publish == "exchange"
    assert ids(tmp_path / "data") == list(range(rows))


# -- leases -------------------------------------------------------------------------------------


def test_run_that_lost_its_lease_touches_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused in the middle of publishing; another host took over; then it wakes up."""
    root = tmp_path / "data"
    rows = make(root, "hive")
    real = publish._move_outputs
    monkeypatch.setattr(exchange, "can_swap", lambda swap: False)

    def paused(store: Any, groups: Any) -> None:
        real(store, groups)
        for path in root.glob("_maintenance/leases/*.json"):
            path.unlink()

    monkeypatch.setattr(publish, "_move_outputs", paused)
    with pytest.raises(LeaseLostError):
        compact(root, **COMPACT)
    monkeypatch.undo()
    assert len(visible_files(root)) > 8  # inputs and outputs: neither was taken away
    recover(root)
    assert ids(root) == list(range(rows))
    assert not leftovers(root)


def test_sleeping_machine_loses_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    rows = make(root, "hive")
    real = time.time
    asleep: list[Progress] = []

    def fall_asleep(step: Progress) -> None:
        if step.phase == "execute":
            asleep.append(step)

    monkeypatch.setattr(time, "time", lambda: real() + (3600 if asleep else 0))
    with pytest.raises(LeaseLostError):
        compact(root, on_progress=fall_asleep, **COMPACT)
    monkeypatch.undo()
    recover(root)
    assert ids(root) == list(range(rows))


def test_machine_with_the_same_name_is_another_machine(tmp_path: Path) -> None:
    mine = lease._host()
    name, boot, namespace = mine.split("/")
    other = lease.Holder("r", "compact", f"{name}/{boot[::-1]}/{namespace}", 1, "start:1", 10.0)
    assert other.is_alive(9.0)
    assert not lease.Holder("r", "compact", mine, 1, "start:1", 10.0).is_alive(9.0)


def test_unreadable_lease_does_not_leave_another(tmp_path: Path) -> None:
    root = tmp_path / "data"
    make(root, "hive")
    leases = root / "_maintenance" / "leases"
    leases.mkdir(parents=True)
    (leases / "odd.json").write_text("{")
    with pytest.raises(LeaseHeldError, match=r"odd\.json"):
        compact(root, **COMPACT)
    assert [path.name for path in leases.iterdir()] == ["odd.json"]
    (leases / "odd.json").unlink()
    assert compact(root, **COMPACT).passes


def test_cancelled_run_leaves_no_worker_behind(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for day in range(30):
        for part in range(4):
            write(root / f"day={day}" / f"{part}.parquet", range(2000))

    def cancel(step: Progress) -> None:
        if step.phase == "execute":
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError):
        compact(root, on_progress=cancel, max_workers=4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rewrite")]
    assert not leftovers(root)


# -- datasets inside datasets ---------------------------------------------------------------------


@pytest.mark.parametrize("child", ["memory", "local"])
def test_parent_waits_for_a_child_at_work(tmp_path: Path, child: str) -> None:
    lake = Lake(str(tmp_path / "lake") if child == "local" else "memory://nested")
    for day in (1, 2):
        one_row_files(lake, 3, f"day={day}", start=3 * day)
    refused: list[str] = []

    def compact_parent(step: Progress) -> None:
        if step.phase == "execute":
            with pytest.raises(LeaseHeldError, match="shares files") as caught:
                lake.compact("pyarrow")
            refused.append(str(caught.value))

    lake.below("day=1").compact("pyarrow", on_progress=compact_parent)
    assert refused and "day=1" in refused[0]
    lake.compact("pyarrow")
    assert sorted(lake.column("id")) == list(range(3, 9))


def test_child_waits_for_a_parent_at_work(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    one_row_files(lake, 3, "day=1")
    refused: list[str] = []

    def compact_child(step: Progress) -> None:
        if step.phase == "execute":
            with pytest.raises(LeaseHeldError, match="shares files") as caught:
                lake.below("day=1").compact("pyarrow")
            refused.append(str(caught.value))

    lake.compact("pyarrow", on_progress=compact_child)
    assert refused
    assert lake.column("id") == [0, 1, 2]


def test_parent_refuses_a_child_left_in_the_middle(tmp_path: Path) -> None:
    root = tmp_path / "data"
    rows = make(root, "hive")
    stop_before_deleting(root / "p=0")
    with pytest.raises(RecoveryError, match=r"p=0' shares files .* call recover\(\)"):
        compact(root, **COMPACT)
    recover(root / "p=0")
    compact(root, **COMPACT)
    assert ids(root) == list(range(rows))
    assert not leftovers(root)


def test_partition_compacted_alone_drops_the_summary_above_it(tmp_path: Path) -> None:
    root = tmp_path / "data"
    make(root, "hive")
    (root / "_metadata").write_bytes(b"lists the old files")
    compact(root / "p=0", **COMPACT)
    assert not (root / "_metadata").exists()


# -- names, owners, mounts --------------------------------------------------------------------


def test_what_is_not_a_run_is_never_deleted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    rows = make(root, "hive")
    kept = root / "_maintenance" / "backup" / "only-copy.parquet"
    write(kept, range(3))
    (root / "_maintenance" / "notes").write_text("mine")
    compact(root, **COMPACT)
    recover(root)
    assert kept.exists() and (root / "_maintenance" / "notes").exists()
    assert ids(root) == list(range(rows))


@pytest.mark.parametrize("ordered", [True, False])
def test_longest_names(tmp_path: Path, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if ordered:
        monkeypatch.setattr(exchange, "can_swap", lambda swap: False)
    root = tmp_path / ("d" * 255)
    for number in range(3):
        write(root / f"{number}{'x' * 246}.parquet", range(number * 5, number * 5 + 5))
    compact(root, **COMPACT)
    assert ids(root) == list(range(15))
    assert [path.name for path in tmp_path.iterdir()] == ["d" * 255]


def test_working_directory_is_not_swapped_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make(tmp_path / "data", "flat")
    monkeypatch.chdir(tmp_path / "data")
    assert compact(".", **COMPACT).publish == "ordered"
    assert os.path.exists("big.parquet")
    assert ids(tmp_path / "data") == list(range(rows))


def test_mounted_directories_are_found() -> None:
    mounted = local_paths.mounted_directories()
    assert local_paths.is_mounted("/", mounted)
    assert not local_paths.is_mounted(os.path.dirname(__file__), mounted)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's files")


@as_root
def test_group_member_does_not_lock_the_owner_out(open_folder: Path) -> None:
    root = open_folder / "data"
    rows = make(root, "hive")
    for path in [root, *root.rglob("*")]:
        os.chown(path, 4001, 4000)
        os.chmod(path, 0o770 if path.is_dir() else 0o660)
    run_as(4002, 4000, lambda: compact(root, **COMPACT))
    for path in [root, *root.rglob("*")]:
        status = path.stat()
        assert status.st_gid == 4000
        assert status.st_uid == 4001 or status.st_mode & stat.S_IRGRP
    assert ids(root) == list(range(rows))


@as_root
def test_sticky_directory_of_another_owner_is_left_alone(open_folder: Path) -> None:
    root = open_folder / "data"
    rows = make(root, "hive")
    for path in root.rglob("*"):
        os.chown(path, 4001, 4000)
        os.chmod(path, 0o1777 if path.is_dir() else 0o666)
    os.chmod(root, 0o777)
    before = sorted(path.name for path in visible_files(root))
    run_as(4002, 4002, lambda: expect_denied(root))
    assert sorted(path.name for path in visible_files(root)) == before
    assert ids(root) == list(range(rows))


@as_root
def test_one_read_only_partition_does_not_stop_the_others(open_folder: Path) -> None:
    root = open_folder / "data"
    rows = make(root, "hive")
    for path in [root, *root.rglob("*")]:
        os.chown(path, 4002, 4002)
    os.chmod(root / "p=0", 0o555)
    os.chown(root / "p=0", 0, 0)
    run_as(4002, 4002, lambda: expect_denied(root))
    assert len(list((root / "p=1").glob("*.parquet"))) == 1
    assert ids(root) == list(range(rows))


def expect_denied(root: Path) -> None:
    with pytest.raises(IncompleteMaintenanceError, match="PermissionError"):
        compact(root, **COMPACT)


def run_as(user: int, group: int, action: Callable[[], object]) -> None:
    """Do something as another user, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- values ---------------------------------------------------------------------------------------


def test_int96_beside_a_dotted_name_is_refused(tmp_path: Path) -> None:
    import datetime as dt

    far = pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us"))
    table = pa.table({"event": [1], "event.time": far})
    for number in range(2):
        path = tmp_path / "data" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    with pytest.raises(IncompleteMaintenanceError, match=r"column 'event\.time', whose dot"):
        compact(tmp_path / "data")


def test_ordered_categories_that_differ_are_refused(tmp_path: Path) -> None:
    sizes = [["S", "M", "L"], ["XS", "S", "M"]]
    (tmp_path / "data").mkdir()
    for number, names in enumerate(sizes):
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), names, ordered=True)
        pq.write_table(pa.table({"size": column}), tmp_path / "data" / f"{number}.parquet")
    with pytest.raises(IncompleteMaintenanceError, match="ordered column 'size' differ"):
        compact(tmp_path / "data")


def test_dry_run_tells_the_codec_that_is_there(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet", range(3))
    for dry_run in (True, False):
        stats = compact(tmp_path / "data", compression="zstd", dry_run=dry_run).stats
        assert stats.compression_codec == "snappy"
