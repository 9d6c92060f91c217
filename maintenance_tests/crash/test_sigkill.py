"""SIGKILL before and after every step that touches the disk, then recovery."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.recover import recover
from maintenance_tests.crash.helpers import (
    COMPACT,
    Driver,
    Layout,
    Scratch,
    ids,
    leftovers,
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
def test_kill_at_every_step(
    tmp_path: Path, driver: Driver, layout: Layout, ordered: bool, after: bool
) -> None:
    scratch = Scratch(tmp_path, layout)
    steps = driver.steps(scratch.fresh(), "compact", ordered=ordered)
    assert any(name.startswith("exchange") for name in steps) is not ordered
    problems = []
    for number, name in enumerate(steps):
        root = scratch.fresh()
        driver.kill(root, "compact", number, after=after, ordered=ordered)
        where = f"killed {'after' if after else 'before'} step {number} ({name})"
        by_recover = (number + after) % 2 == 0
        problems += [f"{where}: {p}" for p in _seen(root, scratch.rows, ordered=ordered)]
        problems += [f"{where}: {p}" for p in _resolved(root, scratch.rows, by_recover=by_recover)]
    assert not problems, show(problems)


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
            problems += [f"{where}: {p}" for p in _resolved(root, scratch.rows, by_recover=True)]
    assert not problems, show(problems)


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


def _resolved(root: Path, rows: int, *, by_recover: bool) -> list[str]:
    """Recover (or compact) and compare everything."""
    problems = []
    how = "recover" if by_recover else "compact"
    if by_recover:
        recover(root)
    else:
        compact(root, **COMPACT)
    if left := leftovers(root):
        problems.append(f"left after {how}: {left}")
    if ids(root) != list(range(rows)):
        problems.append(f"rows differ after {how}")
    if by_recover:
        compact(root, **COMPACT)
    again = compact(root, **COMPACT)
    if again.passes or again.recovered:
        problems.append("a second compact() found something to do")
    if ids(root) != list(range(rows)):
        problems.append("rows differ in the end")
    return problems
