"""Buckets that spill: whatever memory there is, the same rows come out in the same order."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.engines.range_buckets import RangeBuckets, merge_runs, with_position

VALUES = st.lists(st.none() | st.integers(0, 4), max_size=40)


def batch(values: list[int | None], start: int = 0) -> Any:
    rows = pa.RecordBatch.from_pydict({"v": pa.array(values, pa.int64())})
    return with_position(rows, pa.array(np.arange(start, start + len(values))))


def in_order(rows: list[tuple[int | None, int]]) -> list[tuple[int | None, int]]:
    return sorted(rows, key=lambda row: (row[0] is None, row[0] or 0, row[1]))


def pairs(batches: Any) -> list[tuple[int | None, int]]:
    return [
        pair
        for one in batches
        for pair in zip(one.column(0).to_pylist(), one.column(1).to_pylist(), strict=True)
    ]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=6), st.integers(1, 9))
def test_merging_runs_is_sorting_their_rows(runs: list[list[int | None]], rows: int) -> None:
    ordered, everything = [], []
    for number, values in enumerate(runs):
        run = in_order([(value, 1000 * number + i) for i, value in enumerate(values)])
        everything += run
        ordered.append(run)

    def parts(run: list[tuple[int | None, int]]) -> Any:
        for at in range(0, len(run), rows):
            part = run[at : at + rows]
            plain = pa.RecordBatch.from_pydict({"v": pa.array([v for v, _ in part], pa.int64())})
            yield with_position(plain, pa.array([p for _, p in part], pa.int64()))

    assert pairs(merge_runs([parts(run) for run in ordered], ["v"])) == in_order(everything)


@pytest.mark.parametrize("memory", [1, 500, 1_000_000])
@pytest.mark.parametrize("share", [1, 1_000_000])
def test_rows_come_out_in_order_however_little_memory(
    tmp_path: Path, memory: int, share: int
) -> None:
    random = np.random.default_rng(7)
    buckets = RangeBuckets(2, ["v"], memory, str(tmp_path))
    expected: list[list[tuple[int | None, int]]] = [[], []]
    for number in range(12):
        values: list[int | None] = [int(v) if v else None for v in random.integers(0, 9, 50)]
        one = batch(values, 50 * number)
        buckets.add(number % 2, one)
        expected[number % 2] += pairs([one])
    for output in range(2):
        assert buckets.rows(output) == 300
        assert pairs(buckets.drain(output, share)) == in_order(expected[output])


@settings(max_examples=20)
@given(st.integers(0, 3))
def test_an_empty_bucket_gives_nothing(outputs: int) -> None:
    buckets = RangeBuckets(outputs + 1, ["v"], 1, "unused")
    assert [pairs(buckets.drain(output, 1)) for output in range(outputs + 1)] == [[]] * (
        outputs + 1
    )


def test_dictionaries_of_their_own_survive_spilling(tmp_path: Path) -> None:
    buckets = RangeBuckets(1, ["v"], 1, str(tmp_path))
    for number, words in enumerate((["b", "a"], ["c"], ["a", "d"])):
        column = pa.array(words).dictionary_encode()
        rows = pa.RecordBatch.from_arrays([column], ["v"])
        buckets.add(0, with_position(rows, pa.array(np.arange(len(words)) + 10 * number)))
    found = [v for one in buckets.drain(0, 1_000_000) for v in one.column(0).to_pylist()]
    assert found == ["a", "a", "b", "c", "d"]
