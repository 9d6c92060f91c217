"""Cutting the curve: every output gets exactly its rows, as a sort of all rows would give them."""

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintenance_assets.planning.clustering import (
    CellCounts,
    Router,
    StretchCounter,
    Stretches,
    bits_per_column,
    cut,
    starts_of_files,
)
from maintenance_assets.planning.packing import split_evenly

FILES = st.lists(
    st.lists(st.sampled_from([0, 1, 2, 3, 40, 41, 2000, 4095]), max_size=30),
    min_size=1,
    max_size=6,
)


BITS = 12
"""Of a cell: more than a stretch has."""


def stretches_of(cells: list[Any], output_rows: tuple[int, ...]) -> Stretches:
    counter = StretchCounter(BITS, len(output_rows))
    for one in cells:
        counter.add(one)
    return counter.stretches(output_rows)


def routed(files: list[list[int]], outputs: int, batch_rows: int) -> list[list[int]]:
    """The output of each row of each file, batch by batch."""
    cells = [np.array(file, np.uint32) for file in files]
    output_rows = split_evenly(sum(map(len, files)), outputs)
    stretches = stretches_of(cells, output_rows)
    counts = [CellCounts.of(stretches.within(one)) for one in cells]
    cuts = cut(stretches, CellCounts.total(counts), output_rows)
    found = []
    for one, start in zip(cells, starts_of_files(cuts, counts), strict=True):
        router = Router(cuts, start)
        batches = [one[at : at + batch_rows] for at in range(0, len(one), batch_rows)]
        found.append([output for batch in batches for output in router.route(batch).tolist()])
    return found


def by_sorting(files: list[list[int]], outputs: int) -> list[list[int]]:
    """The same by brute force: sort all rows by cell, file and row, and deal them out."""
    rows = sorted((cell, f, r) for f, file in enumerate(files) for r, cell in enumerate(file))
    owner = [o for o, n in enumerate(split_evenly(len(rows), outputs)) for _ in range(n)]
    found: Any = {(f, r): output for (_, f, r), output in zip(rows, owner, strict=True)}
    return [[found[f, r] for r in range(len(file))] for f, file in enumerate(files)]


@given(FILES, st.integers(1, 8), st.integers(1, 7))
def test_rows_go_where_a_sort_of_all_rows_would_put_them(
    files: list[list[int]], outputs: int, batch_rows: int
) -> None:
    outputs = max(1, min(outputs, sum(map(len, files))))
    assert routed(files, outputs, batch_rows) == by_sorting(files, outputs)


def test_rows_of_one_cell_are_cut_exactly() -> None:
    """A constant column still gives files of the size that was asked for."""
    found = routed([[5] * 10, [5] * 11], 4, 3)
    assert [sum(file.count(output) for file in found) for output in range(4)] == [6, 5, 5, 5]


def test_counts_that_do_not_match_the_plan_are_refused() -> None:
    cells = np.array([1, 1, 2], np.uint32)
    stretches = stretches_of([cells], (2, 1))
    with pytest.raises(ValueError, match="3 rows cannot be cut into 4"):
        cut(stretches, CellCounts.of(cells), [2, 2])
    with pytest.raises(ValueError, match="not counted over the same rows"):
        cut(stretches, CellCounts.of(cells[:2]), [2, 1])


def test_only_cells_around_the_cuts_are_counted_file_by_file() -> None:
    cells = np.arange(4096, dtype=np.uint32)
    stretches = stretches_of([cells], (1024,) * 4)
    assert len(stretches.within(cells)) == 3 * 4096 // 2**9


@pytest.mark.parametrize(
    ("columns", "row_groups", "bits"),
    [(1, 8, 6), (1, 800, 13), (2, 800, 8), (3, 800, 7), (2, 1, 6), (1, 10**9, 16), (10, 8, 6)],
)
def test_bits_follow_row_groups_and_columns(columns: int, row_groups: int, bits: int) -> None:
    assert bits_per_column(columns, row_groups) == bits


def test_cells_add_up_over_files() -> None:
    parts = [CellCounts.of(np.array(cells, np.uint32)) for cells in ([3, 1, 3], [], [1, 9])]
    total = CellCounts.total(parts)
    assert dict(zip(total.cells.tolist(), total.counts.tolist(), strict=True)) == {1: 2, 3: 2, 9: 1}
    assert all(a < b for a, b in pairwise(total.cells.tolist()))


def test_few_cells_of_a_long_curve_take_little_memory() -> None:
    far = 2**26 - 1
    parts = [CellCounts.of(np.array(cells, np.uint32)) for cells in ([far, 7, far], [], [7, far])]
    tracemalloc.start()
    try:
        total = CellCounts.total(parts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dict(zip(total.cells.tolist(), total.counts.tolist(), strict=True)) == {7: 2, far: 3}
    assert (total.cells.dtype, total.counts.dtype) == (np.uint32, np.int64)
    assert peak < 1024 * 1024
