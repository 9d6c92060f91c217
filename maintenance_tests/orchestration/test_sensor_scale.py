"""A sweep over a hundred thousand real files, with the real clock."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_assets.model.health import DatasetHealth
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.planner import MaintenancePlanner
from maintenance_assets.planning.debts import Attempt, Limits, Sweep, Tick, tick

# One worker: the files are made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("scale")]

REGIONS, DATES, SMALL_FILES = 50, 100, 19
PARTITIONS = [f"region={r:02}/date={d:03}" for r in range(REGIONS) for d in range(DATES)]
BYTES = sum(range(1, SMALL_FILES + 1)) + 2**20  # a file of the target size in each partition
WHOLE = DatasetHealth(
    partitions=5000,
    file_count=100_000,
    total_bytes=5000 * BYTES,
    small_files=5000 * SMALL_FILES,
    gain=5000 * (SMALL_FILES - 1),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatasetConfig]:
    """Links to a few sparse files: only names and sizes are looked at."""
    base = tmp_path_factory.mktemp("scale")
    sources = _sources(base)
    for partition in PARTITIONS:
        folder = f"{base}/lake/{partition}"
        os.makedirs(folder)
        for number, source in enumerate(sources):
            os.link(source, f"{folder}/{number:02}.parquet")
    yield DatasetConfig(
        key="big", path=f"{base}/lake", target_mb_per_file=1, cooldown_minutes=0, min_gain=4
    )
    shutil.rmtree(base)  # pytest would keep the last three of these


def _sources(base: Path) -> list[str]:
    """One for each name: a file takes only so many links."""
    sources = []
    for size in (*range(1, SMALL_FILES + 1), 2**20):
        source = base / f"of-{size}-bytes"
        source.touch()
        os.truncate(source, size)
        sources.append(str(source))
    return sources


class Runs:
    """The runs that were asked for; all of them stay under way."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._by_partition: dict[str, Attempt] = {}

    def last_attempt(self, partition: str) -> Attempt | None:
        return self._by_partition.get(partition)

    def start(self, dataset: DatasetConfig, found: Tick) -> None:
        for request in found.requests:
            self.keys.append(request.run_key(dataset.key))
            attempt = Attempt(request.fingerprint, request.attempt, "under way", time.time())
            self._by_partition[request.partition] = attempt


def look(dataset: DatasetConfig, cursor: str | None, limits: Limits, runs: Runs) -> Tick:
    """A tick as the sensor makes it."""
    sweep = Sweep.from_cursor(cursor)
    found = tick(
        MaintenancePlanner().partitions(dataset, sweep.resume_after),
        sweep,
        dataset.health_policy,
        limits,
        runs.last_attempt,
        time.time,
    )
    runs.start(dataset, found)
    return found


def sweep_all(
    dataset: DatasetConfig, limits: Limits, runs: Runs, cursor: str | None = None
) -> list[Tick]:
    """Ticks until every partition was seen, however long each of them took."""
    ticks: list[Tick] = []
    for _ in PARTITIONS:  # a tick sees one at least
        ticks.append(look(dataset, cursor, limits, runs))
        cursor = ticks[-1].sweep.to_cursor()
        assert len(cursor) < 200_000
        if ticks[-1].finished is not None:
            return ticks
    raise AssertionError("the sweep did not end")


@pytest.mark.parametrize("seconds", [0.05, 0.5, 1e9])
def test_each_partition_is_seen_once_however_the_sweep_is_cut(
    dataset: DatasetConfig, seconds: float
) -> None:
    runs = Runs()
    ticks = sweep_all(dataset, Limits(seconds, requests=25), runs)
    assert [name for found in ticks for name in found.seen] == PARTITIONS
    assert ticks[-1].finished == WHOLE
    assert [found.finished for found in ticks[:-1]] == [None] * (len(ticks) - 1)
    assert ticks[-1].worst == tuple((name, 19, 18) for name in PARTITIONS[:10])
    assert all(len(found.requests) <= 25 for found in ticks)
    assert len(set(runs.keys)) == len(runs.keys) >= 25


def test_the_next_sweep_asks_for_nothing_that_is_under_way(dataset: DatasetConfig) -> None:
    limits, runs = Limits(seconds=1e9, requests=300), Runs()
    (first,) = sweep_all(dataset, limits, runs)
    (second,) = sweep_all(dataset, limits, runs, first.sweep.to_cursor())
    assert [request.partition for request in first.requests] == PARTITIONS[:300]
    assert [request.partition for request in second.requests] == PARTITIONS[300:600]
    assert (first.changed, second.changed) == (True, False)


def test_a_cursor_stays_small_when_every_partition_is_a_debt(dataset: DatasetConfig) -> None:
    (found,) = sweep_all(dataset, Limits(seconds=1e9, requests=10_000), Runs())
    assert len(found.requests) == len(PARTITIONS)
    assert len(found.sweep.to_cursor()) < 200_000


@pytest.mark.parametrize("index", [0, 99, 2500, 4999])
def test_a_listing_goes_on_from_any_partition(dataset: DatasetConfig, index: int) -> None:
    rest = MaintenancePlanner().partitions(dataset, PARTITIONS[index])
    assert [part.partition for part in rest] == PARTITIONS[index + 1 :]
