"""Space-filling curves: every cell once, and a Hilbert step is one step in one coordinate."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from maintenance_assets.model.clustering import CURVES
from maintenance_assets.planning.curves import curve_keys

SHAPES = [(2, 1), (2, 2), (2, 6), (3, 1), (3, 4), (4, 3), (5, 2), (10, 1)]


def grid(axes: int, bits: int) -> Any:
    """Every point of the cube, one per row."""
    return np.array(list(product(range(1 << bits), repeat=axes)))


def keys(points: Any, bits: int, curve: Any) -> Any:
    return curve_keys(
        [points[:, axis].astype(np.uint32) for axis in range(points.shape[1])], bits, curve
    )


@pytest.mark.parametrize(("axes", "bits"), SHAPES)
@pytest.mark.parametrize("curve", CURVES)
def test_every_cell_has_a_place_of_its_own(axes: int, bits: int, curve: str) -> None:
    found = keys(grid(axes, bits), bits, curve)
    assert sorted(found.tolist()) == list(range(1 << (axes * bits)))


@pytest.mark.parametrize(("axes", "bits"), SHAPES)
def test_hilbert_neighbours_differ_by_one_step_in_one_coordinate(axes: int, bits: int) -> None:
    points = grid(axes, bits)
    along = points[np.argsort(keys(points, bits, "hilbert"))]
    assert (np.abs(np.diff(along, axis=0)).sum(axis=1) == 1).all()


def test_hilbert_of_few_points_is_that_of_the_whole_grid() -> None:
    """Few points are computed, many are looked up in a table."""
    points = grid(2, 6)
    whole = keys(points, 6, "hilbert")
    assert [keys(points[i : i + 1], 6, "hilbert")[0] for i in range(0, 4096, 131)] == [
        whole[i] for i in range(0, 4096, 131)
    ]


def test_morton_takes_bits_in_turn_and_linear_one_column_after_the_other() -> None:
    point = np.array([[0b10, 0b01]])
    assert keys(point, 2, "morton").tolist() == [0b1001]
    assert keys(point, 2, "linear").tolist() == [0b1001]
    point = np.array([[0b11, 0b00]])
    assert keys(point, 2, "morton").tolist() == [0b1010]
    assert keys(point, 2, "linear").tolist() == [0b1100]


def test_one_column_is_its_own_curve() -> None:
    assert curve_keys([np.array([3, 1, 2], np.uint32)], 6, "hilbert").tolist() == [3, 1, 2]


def test_more_bits_than_a_key_has_are_refused() -> None:
    with pytest.raises(ValueError, match="63-bit"):
        curve_keys([np.zeros(1, np.uint32)] * 4, 16, "hilbert")
