"""When a layout is as good as a fresh one, and what may be clustered together."""

import pytest

from maintenance_assets.model.clustering import ColumnOverlap
from maintenance_assets.model.files import FileInfo
from maintenance_assets.planning.optimization import is_good, optimize_groups


def overlap(*depths: float, is_known: bool = True) -> list[ColumnOverlap]:
    return [ColumnOverlap(f"c{n}", depth, 0.5, is_known) for n, depth in enumerate(depths)]


GOOD = [
    ([1.0, 1.0], [1.0, 1.0], True),
    ([1.2, 1.2], [1.0, 1.0], True),
    ([1.25, 1.2], [1.0, 1.0], False),  # the mean is above 1.2
    ([1.5, 0.9], [1.0, 1.0], True),  # one may be worse where another makes up for it
    ([1.51, 0.5], [1.0, 1.0], False),  # but no column much worse
    ([2.4, 12.0], [2.0, 10.0], True),  # measured by what could be
    ([20.0, 1.0], [10.0, 4.0], False),
    ([1.3, 0.0], [1.0, 0.0], False),  # a column of nulls does not make up for another
    ([0.0], [0.0], True),
]


@pytest.mark.parametrize(("found", "fresh", "good"), GOOD)
def test_a_layout_near_a_fresh_one_is_left_alone(
    found: list[float], fresh: list[float], good: bool
) -> None:
    assert is_good(overlap(*found), overlap(*fresh)) is good


def test_a_layout_of_unknown_ranges_is_not_taken_for_good() -> None:
    assert not is_good(overlap(1.0, is_known=False), overlap(1.0))


def test_the_files_of_a_directory_go_together() -> None:
    files = [FileInfo(path, 1, 1) for path in ("/d/p=2/a", "/d/p=1/b", "/d/p=1/a")]
    assert optimize_groups(files) == [(files[2], files[1]), (files[0],)]
