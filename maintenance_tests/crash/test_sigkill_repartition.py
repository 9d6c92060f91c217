"""SIGKILL at the steps of a repartition: no row is lost or doubled, and it can be done again."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from maintenance_assets.operations.recover import recover
from maintenance_tests.crash.helpers import Driver, Scratch, ids, leftovers, show, visible_files
from maintenance_tests.crash.thirds import move_by_third


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver() as started:
        yield started


def chosen(steps: list[str]) -> list[tuple[int, str]]:
    """Of the steps that only stage files one in sixteen, of those that publish every second."""
    journal = next(number for number, name in enumerate(steps) if "journal" in name)
    numbered = list(enumerate(steps))
    return [*numbered[:journal:16], *numbered[journal::2]]


@pytest.mark.parametrize("ordered", [False, True], ids=["exchange", "ordered"])
def test_kill_in_place(tmp_path: Path, driver: Driver, ordered: bool) -> None:
    scratch = Scratch(tmp_path, "hive")
    steps = driver.steps(scratch.fresh(), "repartition", ordered=ordered)
    expected, problems = list(range(scratch.rows)), []
    for number, name in chosen(steps):
        root = scratch.fresh()
        driver.kill(root, "repartition", number, after=bool(number % 4), ordered=ordered)
        seen = ids(root)
        if (sorted(set(seen)) if ordered else seen) != expected:
            problems.append(f"killed at {name}: readers see {len(seen)} rows")
        recover(root)
        if ids(root) != expected or leftovers(root):
            problems.append(f"killed at {name}: not as before or after, {leftovers(root)}")
        if len({path.parent.name[:2] for path in visible_files(root)}) > 1:
            problems.append(f"killed at {name}: old and new directories together")
    assert not problems, show(problems)


def test_kill_on_the_way_to_another_directory(tmp_path: Path, driver: Driver) -> None:
    scratch = Scratch(tmp_path, "hive")
    steps = driver.steps(scratch.fresh(), "repartition-beside", ordered=False)
    expected, problems = list(range(scratch.rows)), []
    for number, name in chosen(steps):
        root = scratch.fresh()
        driver.kill(root, "repartition-beside", number, after=bool(number % 4), ordered=False)
        target = root.parent / "moved"
        if ids(root) != expected:
            problems.append(f"killed at {name}: the source has changed")
        with suppress(FileExistsError):  # it was published already
            move_by_third(root, beside=True)
        if ids(target) != expected or leftovers(target) or leftovers(root):
            problems.append(f"killed at {name}: {leftovers(target)} {leftovers(root)}")
    assert not problems, show(problems)
