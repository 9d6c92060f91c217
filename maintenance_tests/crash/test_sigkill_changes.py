"""SIGKILL at every step of a delete, an update and an upsert: all of it is done, or nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_assets import restore
from maintenance_assets.errors import BackupError
from maintenance_assets.operations.recover import recover
from maintenance_tests.crash.changes import EXPECTED, Places, backups, change, places, take_back
from maintenance_tests.crash.helpers import Driver, Scratch, leftovers, show


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver() as started:
        yield started


# An upsert does all that the others do: of these, every third step is enough.
CASES = [("delete", False, 3), ("update", True, 3), ("upsert", False, 1), ("upsert", True, 2)]
NAMES = ["delete", "update-ordered", "upsert", "upsert-ordered"]


@pytest.mark.parametrize(("action", "ordered", "every"), CASES, ids=NAMES)
def test_kill_at_every_step(
    tmp_path: Path, driver: Driver, action: str, ordered: bool, every: int
) -> None:
    scratch = Scratch(tmp_path, "hive")
    steps = driver.steps(scratch.fresh(), action, ordered=ordered)
    assert any(name.startswith("exchange") for name in steps) is not ordered
    old = places(scratch.fresh())
    new = EXPECTED[action](old)
    problems = []
    for number, name in _deadly(steps)[::every]:
        root = scratch.fresh()
        driver.kill(root, action, number, after=True, ordered=ordered)
        where = f"killed after step {number} ({name})"
        if missing := _missing(places(root), old, new):
            problems.append(f"{where}: readers miss {missing[:3]}")
        recover(root)
        problems += [f"{where}: {p}" for p in _resolved(root, old, new)]
        if number % 7 == 0 and places(root) == old:
            problems += [f"{where}: {p}" for p in _again(root, action, old, new)]
    assert not problems, show(problems)


def test_a_change_after_a_crash_recovers_first(tmp_path: Path, driver: Driver) -> None:
    scratch = Scratch(tmp_path, "hive")
    old = places(scratch.fresh())
    expected = sorted({*EXPECTED["upsert"](EXPECTED["delete"](old))})
    steps = driver.steps(scratch.fresh(), "delete", ordered=False)
    visible = [n for n, name in enumerate(steps) if name.startswith("exchange")]
    for number in (0, visible[0], visible[-1], len(steps) - 3):
        root = scratch.fresh()
        driver.kill(root, "delete", number, after=True, ordered=False)
        result = change("delete", root)
        assert result.recovered or number not in visible
        change("upsert", root)
        assert places(root) == expected
        assert not leftovers(root)


@pytest.mark.parametrize(
    ("action", "ordered", "every"),
    [("delete", True, 3), ("upsert", False, 3), ("vanish", False, 1), ("vanish", True, 2)],
    ids=["delete-ordered", "upsert", "vanish", "vanish-ordered"],
)
def test_kill_while_a_backup_is_restored(
    tmp_path: Path, driver: Driver, action: str, ordered: bool, every: int
) -> None:
    """A backup of `vanish` has no successor of its files that could tell what has come back."""
    scratch = Scratch(tmp_path, "hive")

    def changed() -> Path:
        root = scratch.fresh()
        change(action, root)
        return root

    old = places(scratch.fresh())
    new = places(changed())
    steps = driver.steps(changed(), "restore", ordered=ordered)
    problems = []
    for number, name in _deadly(steps)[::every]:
        root = changed()
        driver.kill(root, "restore", number, after=True, ordered=ordered)
        recover(root)
        where = f"killed after step {number} ({name})"
        problems += [f"{where}: {p}" for p in _resolved(root, old, new)]
        was_back = places(root) == old
        try:
            take_back(root)
        except BackupError as error:
            if not was_back and "was restored already, or that was interrupted" not in str(error):
                problems.append(f"{where}: {error}")
        else:
            if was_back:
                problems.append(f"{where}: it was restored twice")
            elif places(root) != old:
                problems.append(f"{where}: rows differ once they were restored")
    assert not problems, show(problems)


def _deadly(steps: list[str]) -> list[tuple[int, str]]:
    """All steps from the journal on; before it, where nothing can be seen, one in nine.

    Two kinds change nothing for whoever comes after a kill: a sync, and the directory that Python
    makes inside of the step that makes a path.
    """
    journal = min(number for number, name in enumerate(steps) if "journal.json" in name)
    return [
        (number, name)
        for number, name in enumerate(steps)
        if (number >= journal and not name.startswith(("fsync", "makedirs"))) or number % 9 == 0
    ]


def _missing(seen: Places, old: Places, new: Places) -> list[int]:
    """Rows that are there before and after, and were not for a moment."""
    stay = {i for _, i in old} & {i for _, i in new}
    return sorted(stay - {i for _, i in seen})


def _resolved(root: Path, old: Places, new: Places) -> list[str]:
    problems = []
    if left := leftovers(root):
        problems.append(f"left: {left}")
    if places(root) not in (old, new):
        problems.append("rows are neither as before nor as after")
    if not (root / "p=0" / "notes.txt").exists():
        problems.append("a file that is not data is gone")
    return problems


def _again(root: Path, action: str, old: Places, new: Places) -> list[str]:
    """Do it once more, and take it back."""
    result = change(action, root)
    problems = [] if places(root) == new else ["rows differ once it was done again"]
    assert result.backup_id is not None
    restore(root, result.backup_id, backup_path=backups(root))
    return problems if places(root) == old else [*problems, "rows differ once it was taken back"]
