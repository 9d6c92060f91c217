"""SIGKILL before and after every step that touches the disk, then recovery."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_assets.operations.recover import recover
from maintenance_tests.crash.helpers import (
    Driver,
    Layout,
    Scratch,
    ids,
    leftovers,
    rewrite,
    show,
)

LAYOUTS: list[tuple[Layout, bool]] = [("hive", False), ("flat", False), ("hive", True)]
LAYOUT_NAMES = ["hive", "flat", "ordered"]


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver() as started:
        yield started


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("layout", "ordered"), LAYOUTS, ids=LAYOUT_NAMES)
@pytest.mark.parametrize("action", ["compact", "optimize"])
def test_kill_at_every_step(
    tmp_path: Path, driver: Driver, action: str, layout: Layout, ordered: bool, after: bool
) -> None:
    problems = _problems_of_kills(Scratch(tmp_path, layout), driver, action, ordered, after)
    assert not problems, show(problems)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_kill_at_every_step_of_copying(tmp_path: Path, driver: Driver, after: bool) -> None:
    scratch = Scratch(tmp_path, "hive")
    assert any(
        n.startswith("sendfile") for n in driver.steps(scratch.fresh(), "stitch", ordered=False)
    )
    problems = _problems_of_kills(scratch, driver, "stitch", False, after)
    assert not problems, show(problems)


def _problems_of_kills(
    scratch: Scratch, driver: Driver, action: str, ordered: bool, after: bool
) -> list[str]:
    """What is wrong after a kill at any step."""
    steps = driver.steps(scratch.fresh(), action, ordered=ordered)
    assert any(name.startswith("exchange") for name in steps) is not ordered
    problems = []
    for number, name in _deadly(steps, action):
        root = scratch.fresh()
        driver.kill(root, action, number, after=after, ordered=ordered)
        where = f"killed {'after' if after else 'before'} step {number} ({name})"
        by_recover = (number + after) % 2 == 0
        problems += [f"{where}: {p}" for p in _seen(root, scratch.rows, ordered=ordered)]
        problems += [
            f"{where}: {p}" for p in _resolved(root, scratch.rows, action, by_recover=by_recover)
        ]
    return problems


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("layout", "ordered"), LAYOUTS, ids=LAYOUT_NAMES)
def test_kill_during_recovery(
    tmp_path: Path, driver: Driver, layout: Layout, ordered: bool, after: bool
) -> None:
    scratch = Scratch(tmp_path, layout)
    steps = driver.steps(scratch.fresh(), "compact", ordered=ordered)
    problems = []
    for number in _publishing_steps(steps, ordered=ordered):
        root = scratch.fresh()
        driver.kill(root, "compact", number, after=True, ordered=ordered)
        inner = driver.steps(root, "recover", ordered=ordered)
        for second in range(number % 3, len(inner), 3):
            root = scratch.fresh()
            driver.kill(root, "compact", number, after=True, ordered=ordered)
            driver.kill(root, "recover", second, after=after, ordered=ordered)
            where = f"killed after {steps[number]}, recovery at step {second} ({inner[second]})"
            problems += [f"{where}: {p}" for p in _seen(root, scratch.rows, ordered=ordered)]
            problems += [
                f"{where}: {p}" for p in _resolved(root, scratch.rows, "compact", by_recover=True)
            ]
    assert not problems, show(problems)


def _deadly(steps: list[str], action: str) -> list[tuple[int, str]]:
    """All steps; of the many that only write row groups of clustered files aside, one in twenty."""
    return [
        (number, name)
        for number, name in enumerate(steps)
        if action != "optimize" or not name.startswith("write") or number % 20 == 0
    ]


def _publishing_steps(steps: list[str], *, ordered: bool) -> list[int]:
    """A few steps from the first visible change to the last deletion."""
    if ordered:
        visible = [i for i, name in enumerate(steps) if name.startswith("replace")]
        visible = [i for i in visible if ".staged" in steps[i]]
    else:
        visible = [i for i, name in enumerate(steps) if name.startswith("exchange")]
    first, last = visible[0], len(steps) - 8
    return sorted({first - 2, first, *visible, *range(first, last, max(1, (last - first) // 5))})


def _seen(root: Path, rows: int, *, ordered: bool) -> list[str]:
    """What readers see right after the kill."""
    found = ids(root)
    expected = list(range(rows))
    if ordered:
        return [] if sorted(set(found)) == expected else ["readers miss rows"]
    if len(found) != rows or sum(found) != sum(expected) or found != expected:
        return [f"readers see {len(found)} rows ({len(set(found))} distinct), not {rows}"]
    return []


def _resolved(root: Path, rows: int, action: str, *, by_recover: bool) -> list[str]:
    """Recover (or do it again) and compare everything."""
    problems = []
    how = "recover" if by_recover else action
    if by_recover:
        recover(root)
    else:
        rewrite(action, root)
    if left := leftovers(root):
        problems.append(f"left after {how}: {left}")
    if ids(root) != list(range(rows)):
        problems.append(f"rows differ after {how}")
    if by_recover:
        rewrite(action, root)
    again = rewrite(action, root)
    if again.passes or again.recovered:
        problems.append(f"a second {action}() found something to do")
    if ids(root) != list(range(rows)):
        problems.append("rows differ in the end")
    return problems
