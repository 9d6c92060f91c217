"""Health: counts from a listing, and when they are worth a run."""

import pytest

from maintenance_assets.model.health import DatasetHealth, HealthPolicy
from maintenance_assets.orchestration.config import DatasetConfig
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


def test_a_fingerprint_changes_with_any_file() -> None:
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
