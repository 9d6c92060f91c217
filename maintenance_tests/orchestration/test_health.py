"""Health: counts from a listing, and when they are worth a run."""

import os
from pathlib import Path

import pytest

from maintenance_assets.model.health import DatasetHealth, HealthPolicy
from maintenance_assets.operations.naming import output_name
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.planning.health import Entry, decide, measure_dataset, measure_partition

POLICY = HealthPolicy(target_bytes=1000, small_bytes=750, min_gain=4, cooldown_seconds=600)


def files(*sizes: int, at: float | None = 0.0) -> list[Entry]:
    return [(f"f{number}", size, "v", at) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "gain", "score"),
    [
        ((), 0, 100.0),
        ((10,), 0, 100.0),
        ((10,) * 10, 9, 10.0),
        ((700, 700, 700), 0, 100.0),
        ((500,) * 8, 4, 50.0),
        ((2000, 1000, 10), 0, 100.0),
        ((0, 0, 0, 0), 3, 25.0),
        ((2000, 10, 10), 1, 100 * (1 - 1 / 3)),
    ],
)
def test_gain_is_what_compaction_would_save(
    sizes: tuple[int, ...], gain: int, score: float
) -> None:
    part = measure_partition("p", files(*sizes), POLICY)
    assert part.gain == gain
    assert part.score == pytest.approx(score)
    assert part.file_count == len(sizes)
    assert part.total_bytes == sum(sizes)


def test_a_fingerprint_changes_with_any_small_file() -> None:
    base = files(1, 2, 3)
    prints = {
        measure_partition("p", changed, POLICY).fingerprint
        for changed in (
            base,
            base[:2],
            [*base, ("g", 1, "v", 0.0)],
            [(base[0][0], 9, "v", 0.0), *base[1:]],
            [(base[0][0], 1, "w", 0.0), *base[1:]],
        )
    }
    assert len(prints) == 5
    assert measure_partition("p", base[::-1], POLICY).fingerprint in prints


def test_a_fingerprint_is_of_the_debt_alone() -> None:
    small, healthy = files(1, 2, 3), ("g", 1000, "v", 0.0)
    base = measure_partition("p", small, POLICY).fingerprint
    assert measure_partition("p", [*small, healthy], POLICY).fingerprint == base
    assert measure_partition("p", [*small, ("g", 749, "v", 0.0)], POLICY).fingerprint != base


def test_a_fingerprint_without_small_files_is_stable() -> None:
    prints = {measure_partition("p", files(*sizes), POLICY).fingerprint for sizes in ((), (2000,))}
    assert len(prints) == 1
    assert prints != {measure_partition("p", files(1), POLICY).fingerprint}


def own_files(count: int, size: int, prefix: str = "compact") -> list[Entry]:
    return [(f"/lake/p/{output_name(prefix)}", size, "v", 0.0) for _ in range(count)]


@pytest.mark.parametrize("prefix", ["compact", "optimized"])
@pytest.mark.parametrize(("size", "small"), [(590, 0), (500, 0), (499, 12), (749, 0), (10, 12)])
def test_what_we_wrote_is_small_below_half_the_target(prefix: str, size: int, small: int) -> None:
    part = measure_partition("p", own_files(12, size, prefix), POLICY)
    assert part.small_files == small
    assert decide(part, POLICY, now=9999).run is (small > 0)


@pytest.mark.parametrize("name", ["compact-1.parquet", "part-0.parquet", "compact-x/part.parquet"])
def test_names_that_are_not_ours_are_small_below_the_policy(name: str) -> None:
    assert measure_partition("p", [(name, 590, "v", 0.0)], POLICY).small_files == 1


def test_a_lower_bound_that_was_asked_for_holds_for_what_we_wrote() -> None:
    asked = HealthPolicy(target_bytes=1000, small_bytes=100)
    assert measure_partition("p", own_files(3, 200), asked).small_files == 0
    assert measure_partition("p", own_files(3, 99), asked).small_files == 3


def test_new_files_beside_what_we_wrote_are_the_debt() -> None:
    mixed = [*own_files(12, 590), *files(*[10] * 5)]
    part = measure_partition("p", mixed, POLICY)
    assert (part.small_files, part.small_bytes, part.gain) == (5, 50, 4)


@pytest.mark.parametrize("name", ["caf\udce9.parquet", "\ud800.parquet"])
def test_a_name_that_is_not_utf_8_has_a_fingerprint(name: str) -> None:
    strange = measure_partition("p", [(name, 1, "v", 0.0)], POLICY).fingerprint
    plain = measure_partition("p", [("caf\u00e9.parquet", 1, "v", 0.0)], POLICY).fingerprint
    assert strange != plain


def test_a_name_that_is_not_utf_8_on_a_disk(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.parquet")).write_bytes(b"12345")
    except OSError:
        pytest.skip("this disk takes only UTF-8")
    (part,) = MaintenancePlanner().partitions(DatasetConfig(key="a", path=str(tmp_path)))
    assert (part.file_count, part.total_bytes) == (1, 5)


def test_a_time_in_the_future_is_not_waited_for() -> None:
    part = measure_partition("p", files(*[10] * 6, at=10.0**10), POLICY)
    assert decide(part, POLICY, now=0.0).run


def test_a_store_without_times_does_not_wait() -> None:
    part = measure_partition("p", files(*[10] * 6, at=None), POLICY)
    assert decide(part, POLICY, now=0.0).run


@pytest.mark.parametrize(
    ("count", "age", "run", "reason"),
    [
        (4, 9999, False, "fewer than min_gain 4"),
        (5, 9999, True, "4 could be saved"),
        (5, 30, False, "written 30 s ago (cooldown 600 s)"),
        (5, 600, True, "4 could be saved"),
        (12, 30, True, "12 of them tiny"),
    ],
)
def test_decisions_say_why(count: int, age: float, run: bool, reason: str) -> None:
    part = measure_partition("p", files(*[10] * count), POLICY)
    decision = decide(part, POLICY, now=age)
    assert decision.run is run
    assert reason in decision.reason


def test_a_dataset_is_the_sum_of_its_partitions() -> None:
    parts = [measure_partition(str(n), files(*[10] * n), POLICY) for n in (1, 5)]
    assert measure_dataset(parts) == DatasetHealth(2, 6, 60, 6, 4)
    assert measure_dataset([]).score == 100.0


def test_the_policy_of_a_dataset() -> None:
    plain = DatasetConfig(key="a", path="/a", target_mb_per_file=8).health_policy
    assert (plain.target_bytes, plain.small_bytes) == (8 * 1024**2, 6 * 1024**2)
    given = DatasetConfig(key="a", path="/a", small_file_mb=2, min_gain=7, cooldown_minutes=1)
    assert given.health_policy == HealthPolicy(128 * 1024**2, 2 * 1024**2, 7, 60.0)
