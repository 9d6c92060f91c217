"""SIGKILL at every step of a run whose directories stand or fall together."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_assets.operations.recover import recover
from maintenance_tests.crash.helpers import (
    Driver,
    Scratch,
    ids,
    leftovers,
    show,
    visible_files,
)

CASES = [("all", False), ("all", True), ("tree", False), ("tree", True)]
NAMES = ["all", "all-ordered", "tree", "tree-ordered"]


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver() as started:
        yield started


@pytest.mark.parametrize(("scope", "ordered"), CASES, ids=NAMES)
def test_kill_at_every_step(tmp_path: Path, driver: Driver, scope: str, ordered: bool) -> None:
    scratch = Scratch(tmp_path, "hive")
    action = f"move-{scope}"
    steps = driver.steps(scratch.fresh(), action, ordered=ordered)
    assert any(name.startswith("exchange") for name in steps) is not ordered
    problems = []
    for number, name in enumerate(steps):
        root, after = scratch.fresh(), number % 2 == 1
        driver.kill(root, action, number, after=after, ordered=ordered)
        where = f"killed {'after' if after else 'before'} step {number} ({name})"
        problems += [f"{where}: {p}" for p in _seen(root, scratch, scope, ordered)]
        problems += [f"{where}: {p}" for p in _resolved(root, scratch)]
    assert not problems, show(problems)


@pytest.mark.parametrize(("scope", "ordered"), CASES, ids=NAMES)
def test_kill_during_recovery(tmp_path: Path, driver: Driver, scope: str, ordered: bool) -> None:
    scratch = Scratch(tmp_path, "hive")
    action = f"move-{scope}"
    steps = driver.steps(scratch.fresh(), action, ordered=ordered)
    visible = [
        number
        for number, name in enumerate(steps)
        if name.startswith("exchange") or (name.startswith("replace") and ".staged" in name)
    ]
    problems = []
    for number in {visible[0], visible[-1], (visible[-1] + len(steps)) // 2}:
        root = scratch.fresh()
        driver.kill(root, action, number, after=True, ordered=ordered)
        inner = driver.steps(root, "recover", ordered=ordered)
        for second in range(number % 3, len(inner), 3):
            root = scratch.fresh()
            driver.kill(root, action, number, after=True, ordered=ordered)
            driver.kill(root, "recover", second, after=second % 2 == 1, ordered=ordered)
            where = f"killed after {steps[number]}, recovery at step {second} ({inner[second]})"
            problems += [f"{where}: {p}" for p in _resolved(root, scratch)]
    assert not problems, show(problems)


def _seen(root: Path, scratch: Scratch, scope: str, ordered: bool) -> list[str]:
    """What readers see right after the kill."""
    found = ids(root)
    if scope == "tree" and not ordered:
        return [] if found == list(range(scratch.rows)) else ["a tree is not all old or all new"]
    if ordered and set(found) != set(range(scratch.rows)):
        return ["readers miss rows"]
    return []


def _resolved(root: Path, scratch: Scratch) -> list[str]:
    recover(root)
    problems = []
    if left := leftovers(root):
        problems.append(f"left: {left}")
    if ids(root) != list(range(scratch.rows)):
        problems.append("rows differ after recovery")
    new = {path.name.startswith("part-") for path in visible_files(root)}
    if len(new) != 1:
        problems.append("old and new files stand side by side")
    if not (root / "p=0" / "notes.txt").exists():
        problems.append("a file that is not data is gone")
    return problems
