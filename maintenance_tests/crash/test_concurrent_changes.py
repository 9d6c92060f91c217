"""Other writers at work while rows are deleted, updated and merged."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from maintenance_assets import ConcurrentChangeError, delete, update, upsert
from maintenance_assets.engines.pyarrow_engine import PyArrowEngine
from maintenance_assets.errors import LeaseHeldError, RewriteError
from maintenance_assets.model.progress import Progress
from maintenance_assets.storage import exchange
from maintenance_tests.crash.helpers import ids, leftovers, make, report, run_module, write

NEW = range(1000, 1005)


class Lake:
    """Two partitions and a place where writers prepare files."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lake" / "data"
        self.rows = make(self.root, "hive")
        self.staging = folder / "staging"
        self.staging.mkdir()
        self.first = self.root / "p=0" / "small-0.parquet"

    def place(self, rows: Sequence[int], path: Path) -> None:
        """A file appears at once, in the place of any other one."""
        write(self.staging / "new.parquet", rows)
        os.replace(self.staging / "new.parquet", path)

    def append(self) -> None:
        self.place(NEW, self.root / "p=0" / "late.parquet")

    def replace_input(self) -> None:
        self.place([0, *NEW], self.first)

    def delete_input(self) -> None:
        self.first.unlink(missing_ok=True)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def at(phase: str, act: Callable[[], None], times: int = 1) -> Callable[[Progress], None]:
    """A progress callback that acts when a phase has got somewhere."""
    left = [times]

    def callback(step: Progress) -> None:
        if step.phase == phase and step.done and left[0]:
            left[0] -= 1
            act()

    return callback


# Ids 0 to 4 are in the first file of p=0.
SMALL = "id < 12"


@pytest.mark.parametrize("phase", ["scan", "execute"])
def test_late_rows_stay_though_they_match(lake: Lake, phase: str) -> None:
    result = delete(lake.root, "id < 12 OR id >= 1000", on_progress=at(phase, lake.append))
    gone = range(12) if phase == "execute" else [*range(12), *NEW]
    assert ids(lake.root) == sorted({*range(lake.rows), *NEW} - {*gone})
    assert result.stats.rows_deleted == len(gone)
    assert not leftovers(lake.root)


@pytest.mark.parametrize("phase", ["scan", "execute"])
@pytest.mark.parametrize("ordered", [False, True], ids=["exchange", "ordered"])
def test_a_replaced_input_is_looked_at_again(
    lake: Lake, phase: str, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ordered:
        monkeypatch.setattr(exchange, "can_swap", lambda swap: False)
    result = delete(lake.root, SMALL, on_progress=at(phase, lake.replace_input))
    assert ids(lake.root) == sorted({*range(12, lake.rows), *NEW})
    assert result.stats.rows_deleted == 8  # the other writer took four away
    assert not leftovers(lake.root)


def test_a_deleted_input_is_forgotten(lake: Lake) -> None:
    result = update(lake.root, SMALL, {"n": 1}, on_progress=at("execute", lake.delete_input))
    assert ids(lake.root) == list(range(5, lake.rows))
    assert result.stats.rows_updated == 7
    assert not leftovers(lake.root)


@pytest.mark.parametrize("action", ["replace", "delete"])
def test_an_input_changes_when_one_directory_is_visible_already(
    lake: Lake, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = exchange.exchange_paths, []

    def exchange_paths(left: str, right: str) -> bool:
        calls.append(left)
        if len(calls) == 2:
            assert left.endswith("/p=1")
            lake.place(NEW, Path(left) / "small-0.parquet")
            if action == "delete":
                (Path(left) / "small-0.parquet").unlink()
        return real(left, right)

    monkeypatch.setattr(exchange, "exchange_paths", exchange_paths)
    result = delete(lake.root, "id % 2 = 0")
    assert len(calls) > 4  # both were taken back, and exchanged once more
    kept = {i for i in [*range(15), *range(20, lake.rows)] if i % 2}
    assert ids(lake.root) == sorted(kept | ({1001, 1003} if action == "replace" else set()))
    assert result.stats.rows_deleted == 33 + 3 * (action == "replace")
    assert not leftovers(lake.root)


def test_a_writer_that_never_stops_is_told_of_and_nothing_is_changed(
    lake: Lake, tmp_path: Path
) -> None:
    backups = tmp_path / "backups"
    stop = at("execute", lake.replace_input, times=99)
    with pytest.raises(
        ConcurrentChangeError, match=r"in each of 3 attempts .* Nothing was changed"
    ):
        delete(lake.root, SMALL, on_progress=stop, backup_path=backups)
    assert ids(lake.root) == sorted([0, *range(5, lake.rows), *NEW])
    assert not leftovers(lake.root)
    assert not backups.exists() or not list(backups.iterdir())


def test_an_upsert_sees_what_another_one_has_just_inserted(lake: Lake) -> None:
    """The second comes between the look of the first and its lease: no key may be there twice."""
    new = {"id": [0, 5000], "check": ["row 0", "row 5000"], "p": ["0", "1"]}
    results: list[Any] = []

    def second() -> None:
        results.append(upsert(lake.root, new, ["id"]))

    results.append(upsert(lake.root, new, ["id"], on_progress=at("scan", second)))
    assert ids(lake.root) == [*range(lake.rows), 5000]
    assert sorted(result.stats.rows_inserted for result in results) == [0, 1]


def test_another_run_is_refused_while_one_writes(lake: Lake) -> None:
    refused: list[str] = []

    def second() -> None:
        with pytest.raises(LeaseHeldError) as caught:
            delete(lake.root, "id = 1")
        refused.append(str(caught.value))

    delete(lake.root, SMALL, on_progress=at("execute", second))
    assert "delete run" in refused[0]
    assert ids(lake.root) == list(range(12, lake.rows))


def test_appends_all_the_time(lake: Lake) -> None:
    plan = {"kind": "rename", "start": 1000, "files": 60, "rows": 3, "directories": ["p=0", "p=1"]}
    arguments = [str(lake.root), str(lake.staging), __import__("json").dumps(plan)]
    writer = run_module("writer", *arguments)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    try:
        for number in range(200):
            if writer.poll() is not None:
                break
            update(lake.root, f"id % 7 = {number % 7}", {"n": number})
        report(writer)
    finally:
        writer.kill()
        writer.wait()
    assert ids(lake.root) == [*range(lake.rows), *range(1000, 1180)]
    assert not leftovers(lake.root)


def test_two_threads_update_the_same_rows(lake: Lake) -> None:
    """Each adds one to the same numbers: none of the sums may be lost."""
    update(lake.root, "id >= 0", {"n": 0})
    done = []

    def work() -> None:
        from maintenance_assets import sql

        for _ in range(12):
            try:
                update(lake.root, "id < 20", {"n": sql("n + 1")})
            except LeaseHeldError:
                continue
            done.append(1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = delete(lake.root, f"id < 20 AND n = {len(done)}", dry_run=True).stats
    assert left.rows_deleted == 20
    assert len(done) >= 2
    assert not leftovers(lake.root)


def test_an_engine_that_fails_leaves_everything_as_it_was(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(lake.root.rglob("*"))

    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(PyArrowEngine, "rewrite", fail)
    with pytest.raises(KeyboardInterrupt):
        delete(lake.root, SMALL)
    assert sorted(lake.root.rglob("*")) == before


def test_a_file_that_cannot_be_read_stops_all(lake: Lake) -> None:
    content = bytearray(lake.first.read_bytes())
    content[4:40] = bytes(36)
    lake.first.write_bytes(bytes(content))
    before = {path: path.read_bytes() for path in lake.root.rglob("*.parquet")}
    with pytest.raises(RewriteError, match=r"small-0\.parquet' cannot be read"):
        delete(lake.root, SMALL)
    assert {path: path.read_bytes() for path in lake.root.rglob("*.parquet")} == before
    assert not leftovers(lake.root)
