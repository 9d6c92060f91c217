"""The arithmetic of packing: which files go together, and into how many outputs."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maintenance_assets.model.files import FileInfo
from maintenance_assets.model.policy import MIB, CompactionPolicy
from maintenance_assets.planning.packing import (
    MAX_OUTPUTS_PER_GROUP,
    OVERSIZED,
    SMALL,
    STRETCH,
    Load,
    fill,
    is_oversized,
    is_small,
    output_count,
    pack,
    smallest_fill,
    split_evenly,
)

T = 1000
BYTES = CompactionPolicy(target_bytes=T)
ROWS = CompactionPolicy(target_bytes=None, target_rows=T)
BOTH = CompactionPolicy(target_bytes=T, target_rows=T)

TARGET = st.integers(10**4, 10**10)
POLICY = st.one_of(
    st.builds(CompactionPolicy, TARGET),
    st.builds(CompactionPolicy, st.none(), TARGET),
    st.builds(CompactionPolicy, TARGET, TARGET),
)
LOAD = st.builds(Load, st.integers(0, 10**9), st.integers(0, 10**9))


def file(size_bytes: int, num_rows: int = 10**6, name: str = "f") -> FileInfo:
    return FileInfo(f"{name}.parquet", size_bytes, num_rows)


def files_of(sizes: list[tuple[int, int]]) -> list[FileInfo]:
    return [file(size, rows, f"{index:06}") for index, (size, rows) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 1),
        (1, 1),
        (T, 1),
        (1099, 1),
        (1100, 2),
        (1500, 2),
        (1900, 2),
        (2 * T, 2),
        (2199, 2),
        (2200, 3),
        (5 * T, 5),
        (10_100, 10),
        (10_749, 10),
        (10_751, 11),
    ],
)
def test_outputs_of_a_byte_target(size: int, expected: int) -> None:
    assert output_count(Load(size, 10**6), BYTES) == expected


@pytest.mark.parametrize(
    ("rows", "expected"), [(0, 1), (1, 1), (T, 1), (T + 1, 2), (10 * T, 10), (10_100, 11)]
)
def test_outputs_of_a_row_bound(rows: int, expected: int) -> None:
    assert output_count(Load(10**9, rows), ROWS) == expected


def test_the_stricter_of_two_targets_decides() -> None:
    assert output_count(Load(3 * T, T), BOTH) == 3
    assert output_count(Load(T, 3 * T), BOTH) == 3
    assert fill(Load(T // 2, T), BOTH) == fill(Load(T, T // 2), BOTH) == 1.0


def test_there_are_never_more_outputs_than_rows() -> None:
    assert output_count(Load(100 * T, 3), BYTES) == 3
    assert output_count(Load(100 * T, 0), BYTES) == 1


@settings(deadline=None)
@given(LOAD, POLICY)
def test_the_row_bound_is_hard_and_bytes_stretch_a_little(
    load: Load, policy: CompactionPolicy
) -> None:
    count = output_count(load, policy)
    rows = split_evenly(load.num_rows, count)
    assert count >= 1
    assert sum(rows) == load.num_rows
    assert max(rows) - min(rows) <= 1
    assert min(rows) >= 1 or load.num_rows == 0
    if policy.target_rows is not None:
        assert max(rows) <= policy.target_rows
    if policy.target_bytes is not None and max(rows) > 1:
        assert load.size_bytes <= STRETCH * policy.target_bytes * count


@given(LOAD, POLICY)
def test_no_output_more_than_needed(load: Load, policy: CompactionPolicy) -> None:
    count = output_count(load, policy)
    needed = [1]
    if policy.target_bytes is not None:
        needed.append(-(-load.size_bytes // policy.target_bytes))
    if policy.target_rows is not None:
        needed.append(-(-load.num_rows // policy.target_rows))
    assert count <= max(needed)


@given(st.integers(0, 10**9), st.integers(1, 10**4))
def test_rows_are_split_evenly(rows: int, outputs: int) -> None:
    parts = split_evenly(rows, outputs)
    assert (len(parts), sum(parts)) == (outputs, rows)
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize(
    ("size", "small", "oversized"),
    [
        (0, True, False),
        (749, True, False),
        (750, False, False),
        (1800, False, False),
        (1801, False, True),
        (10**6, False, True),
    ],
)
def test_small_and_oversized_by_bytes(size: int, small: bool, oversized: bool) -> None:
    assert (is_small(file(size), BYTES), is_oversized(file(size), BYTES)) == (small, oversized)


@pytest.mark.parametrize(
    ("rows", "small", "oversized"),
    [
        (0, True, False),
        (749, True, False),
        (750, False, False),
        (1000, False, False),
        (1001, False, True),
    ],
)
def test_small_and_oversized_by_rows(rows: int, small: bool, oversized: bool) -> None:
    found = file(10**9, rows)
    assert (is_small(found, ROWS), is_oversized(found, ROWS)) == (small, oversized)


def test_a_file_that_cannot_be_split_is_not_oversized() -> None:
    assert not is_oversized(file(100 * T, 1), BYTES)
    assert not is_oversized(file(100 * T, 0), BYTES)


@given(st.lists(st.tuples(st.integers(0, 5 * T), st.integers(0, 5 * T)), max_size=60), POLICY)
@example([], BYTES)
def test_packing_keeps_every_file_once_and_in_order(
    sizes: list[tuple[int, int]], policy: CompactionPolicy
) -> None:
    files = files_of(sizes)
    groups = pack(files, policy)
    assert all(groups)
    assert [found for group in groups for found in group] == files


@given(
    st.lists(st.tuples(st.integers(1, 3 * T), st.integers(1, 3 * T)), min_size=1, max_size=80),
    st.sampled_from([BYTES, ROWS, BOTH]),
)
def test_all_groups_but_the_last_come_out_well_filled(
    sizes: list[tuple[int, int]], policy: CompactionPolicy
) -> None:
    for group in pack(files_of(sizes), policy)[:-1]:
        load = Load.of(group)
        assert smallest_fill(load, policy, output_count(load, policy)) >= SMALL


@given(st.lists(st.integers(1, T), min_size=1, max_size=300))
def test_a_group_stays_small_enough_to_be_one_unit_of_work(sizes: list[int]) -> None:
    for group in pack(files_of([(size, size) for size in sizes]), BYTES):
        assert output_count(Load.of(group), BYTES) <= MAX_OUTPUTS_PER_GROUP + 1


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_files_end_near_the_lower_bound(seed: int) -> None:
    rng = random.Random(seed)
    policy = CompactionPolicy(target_bytes=128 * MIB)
    sizes = [(rng.randint(1_000_000, 120_000_000), 10**6) for _ in range(1000)]
    outputs = sum(output_count(Load.of(group), policy) for group in pack(files_of(sizes), policy))
    bound = -(-sum(size for size, _ in sizes) // (128 * MIB))
    assert bound <= outputs * STRETCH
    assert outputs <= 1.1 * bound


def test_five_files_of_six_tenths_become_three() -> None:
    (group,) = pack(files_of([(600, 100)] * 5), BYTES)
    assert output_count(Load.of(group), BYTES) == 3


def test_the_limits_are_those_of_the_method() -> None:
    assert (SMALL, OVERSIZED, STRETCH) == (0.75, 1.8, 1.1)
