"""The sensor's decisions: pure, so every story is told with a clock of its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maintenance_assets.model.health import DatasetHealth, HealthPolicy, PartitionHealth
from maintenance_assets.planning.debts import (
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    MAX_DEBTS,
    Debt,
    Limits,
    RunStatus,
    Sweep,
    Tick,
    tick,
)
from maintenance_assets.planning.health import measure_dataset, measure_partition

POLICY = HealthPolicy(target_bytes=1000, small_bytes=750, min_gain=4, cooldown_seconds=600)
NOW = 1_000_000.0
OLD = NOW - 10_000
ENOUGH = Limits(seconds=1e9, requests=1000)


def partition(name: str, files: int = 6, at: float = OLD, version: str = "1") -> PartitionHealth:
    entries = [(f"{name}/{number}", 10, version, at) for number in range(files)]
    return measure_partition(name, entries, POLICY)


class Instance:
    """Runs by their key, as Dagster remembers them, and how often it was asked."""

    def __init__(self) -> None:
        self.runs: dict[str, RunStatus] = {}
        self.asked = 0

    def status_of(self, key: str) -> RunStatus:
        self.asked += 1
        return self.runs.get(key, "unknown")


class Ticking:
    """A clock that goes on by a step whenever it is read."""

    def __init__(self, step: float = 0.0, start: float = NOW) -> None:
        self.now = start
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def look(
    parts: Sequence[PartitionHealth],
    cursor: str | None = None,
    instance: Instance | None = None,
    limits: Limits = ENOUGH,
    clock: Callable[[], float] | None = None,
) -> Tick:
    """A tick as the sensor makes it: the listing goes on behind the place in the cursor."""
    sweep = Sweep.from_cursor(cursor)
    after = sweep.resume_after
    left = (part for part in parts if after is None or part.partition > after)
    status_of = (instance or Instance()).status_of
    return tick("d", left, sweep, POLICY, limits, status_of, clock or Ticking())


def keys(found: Tick) -> list[str]:
    return [request.run_key for request in found.requests]


def names(found: Tick) -> list[str]:
    return [request.partition for request in found.requests]


def test_a_debt_is_asked_for_with_a_key_and_a_reason() -> None:
    part = partition("a")
    found = look([part, partition("b", files=2)])
    (request,) = found.requests
    assert request.run_key == f"d:a:{part.fingerprint}:0"
    assert request.reason == "6 small files of 6, 5 could be saved"
    assert found.waiting == {"too little to gain": 1}


def test_a_debt_is_asked_for_once() -> None:
    instance, part = Instance(), partition("a")
    first = look([part], None, instance)
    instance.runs[keys(first)[0]] = "under way"
    second = look([part], first.sweep.to_cursor(), instance)
    assert not second.requests
    assert second.reason() == "1 partition(s) looked at: 1 x a run is under way"


def test_files_that_a_run_left_as_they_were_are_not_asked_for_again() -> None:
    instance, part = Instance(), partition("a")
    first = look([part], None, instance)
    instance.runs[keys(first)[0]] = "done"
    second = look([part], first.sweep.to_cursor(), instance)
    assert "a run has seen to exactly these files" in second.reason()
    # New files are a new debt, with a key of its own.
    third = look([partition("a", files=9)], second.sweep.to_cursor(), instance)
    assert keys(third) != keys(first)
    assert keys(third)[0].endswith(":0")


def test_new_files_wait_for_the_run_under_way() -> None:
    instance = Instance()
    first = look([partition("a")], None, instance)
    instance.runs[keys(first)[0]] = "under way"
    grown = [partition("a", files=9)]
    assert not look(grown, first.sweep.to_cursor(), instance).requests
    instance.runs[keys(first)[0]] = "done"
    assert look(grown, first.sweep.to_cursor(), instance).requests


def test_a_failed_debt_is_tried_again_with_growing_pauses() -> None:
    instance, clock, part = Instance(), Ticking(), partition("a")
    cursor, pauses = None, []
    asked_at = clock.now
    for attempt in range(14):
        found = look([part], cursor, instance, clock=clock)
        while not found.requests:
            assert "its run failed and is tried again later" in found.reason()
            clock.now += FIRST_RETRY_SECONDS / 2
            found = look([part], found.sweep.to_cursor(), instance, clock=clock)
        assert keys(found) == [f"d:a:{part.fingerprint}:{attempt}"]
        instance.runs[keys(found)[0]] = "failed"
        pauses.append(clock.now - asked_at)
        asked_at, cursor = clock.now, found.sweep.to_cursor()
    assert pauses[:5] == [0, 60, 120, 240, 480]
    assert pauses[-2:] == [LAST_RETRY_SECONDS, LAST_RETRY_SECONDS]


def test_a_request_that_never_became_a_run_is_repeated_with_the_same_key() -> None:
    part = partition("a")
    first = look([part])
    assert keys(look([part], first.sweep.to_cursor())) == keys(first)


@pytest.mark.parametrize("status", ["done", "under way"])
def test_a_lost_cursor_does_not_start_runs_again(status: RunStatus) -> None:
    instance, part = Instance(), partition("a")
    first = look([part], None, instance)
    instance.runs[keys(first)[0]] = status
    assert not look([part], "{corrupt", instance).requests


def test_a_lost_cursor_finds_its_way_behind_failed_attempts() -> None:
    instance, clock, part = Instance(), Ticking(), partition("a")
    for attempt in range(3):
        instance.runs[f"d:a:{part.fingerprint}:{attempt}"] = "failed"
    cursor, asked = None, []
    for _ in range(40):
        found = look([part], cursor, instance, clock=clock)
        asked += keys(found)
        cursor = found.sweep.to_cursor()
        clock.now += 60
    # Attempts that exist are not started twice by Dagster: the first new one is what counts.
    assert f"d:a:{part.fingerprint}:3" in asked


def test_a_cap_is_kept_and_the_rest_comes_later() -> None:
    instance = Instance()
    parts = [partition(f"p{number}") for number in range(7)]
    cursor: str | None = None
    rounds = []
    for _ in range(4):
        found = look(parts, cursor, instance, Limits(1e9, 3))
        cursor = found.sweep.to_cursor()
        rounds.append(names(found))
        instance.runs.update(dict.fromkeys(keys(found), "under way"))
        assert found.finished == measure_dataset(parts)  # the cap does not cut the look short
    assert rounds == [["p0", "p1", "p2"], ["p3", "p4", "p5"], ["p6"], []]


def test_beyond_the_cap_nobody_is_asked() -> None:
    instance = Instance()
    found = look([partition(f"p{n:03}") for n in range(500)], None, instance, Limits(1e9, 3))
    assert len(found.requests) == 3
    assert instance.asked == 3
    assert found.waiting == {"more than a tick may ask for": 497}


def test_partitions_that_are_being_written_to_wait() -> None:
    found = look([partition("a", at=NOW - 10)])
    assert found.reason() == "1 partition(s) looked at: 1 x written to a moment ago"
    assert look([partition("a", files=30, at=NOW - 10)]).requests  # too many to wait


def test_nothing_at_all_is_said() -> None:
    assert look([]).reason() == "no partition with data files was found"


def test_a_tick_out_of_time_goes_on_where_it_stopped() -> None:
    parts = [partition(f"p{number}", files=1) for number in range(10)]
    limits = Limits(seconds=3.5, requests=5)
    first = look(parts, None, limits=limits, clock=Ticking(step=1.0))
    assert first.seen == ("p0", "p1", "p2")
    assert first.finished is None
    assert first.reason().endswith("out of time, the next tick goes on after 'p2'")
    second = look(parts, first.sweep.to_cursor(), limits=limits, clock=Ticking(step=1.0))
    assert second.seen == ("p3", "p4", "p5")


def test_a_tick_sees_one_partition_at_least() -> None:
    parts = [partition(f"p{number}") for number in range(3)]
    cursor: str | None = None
    seen: list[str] = []
    for _ in range(3):
        found = look(parts, cursor, limits=Limits(0.001, 1), clock=Ticking(step=60.0))
        cursor = found.sweep.to_cursor()
        seen += found.seen
    assert seen == ["p0", "p1", "p2"]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), max_size=30),
    seconds=st.integers(1, 40),
    cap=st.integers(1, 9),
)
def test_a_sweep_sums_to_the_same_however_it_is_cut(
    sizes: list[int], seconds: int, cap: int
) -> None:
    parts = [partition(f"p{n:02}", files) for n, files in enumerate(sizes) if files]
    whole = look(parts)
    cursor: str | None = None
    seen: list[str] = []
    for _ in range(len(parts) + 1):
        found = look(parts, cursor, limits=Limits(seconds, cap), clock=Ticking(step=1.0))
        cursor = found.sweep.to_cursor()
        seen += found.seen
        assert len(found.requests) <= cap
        if found.finished is not None:
            break
    assert found.finished == whole.finished == measure_dataset(parts)
    assert found.worst == whole.worst
    assert seen == [part.partition for part in parts]


def test_health_is_news_only_when_it_changed() -> None:
    parts = [partition("a"), partition("b", files=2)]
    first = look(parts)
    again = look(parts, first.sweep.to_cursor())
    grown = look([*parts, partition("c", files=2)], again.sweep.to_cursor())
    assert (first.changed, again.changed, grown.changed) == (True, False, True)


def test_the_worst_partitions_come_first_and_healthy_ones_not_at_all() -> None:
    parts = [partition(f"p{n:02}", files=n) for n in range(1, 31)]
    assert look(parts).worst == tuple((f"p{n}", n, n - 1) for n in range(30, 20, -1))
    assert look([partition("a", files=1)]).worst == ()


def test_a_paid_debt_is_forgotten() -> None:
    first = look([partition("a")])
    assert list(first.sweep.debts) == ["a"]
    assert not look([partition("a", files=1)], first.sweep.to_cursor()).sweep.debts


def test_a_hundred_thousand_files_are_seen_in_bounded_ticks() -> None:
    parts = [partition(f"date={n:05}/region=eu", files=20) for n in range(5000)]
    instance, cursor = Instance(), None
    ticks = seen = asked = 0
    while True:
        clock = Ticking(step=0.01)
        found = look(parts, cursor, instance, Limits(seconds=5.0, requests=5), clock)
        cursor = found.sweep.to_cursor()
        instance.runs.update(dict.fromkeys(keys(found), "under way"))
        ticks, seen, asked = ticks + 1, seen + len(found.seen), asked + len(found.requests)
        assert clock.now - NOW < 5.1
        assert len(cursor) < 100_000
        if found.finished is not None:
            break
    assert (ticks, seen, asked) == (11, 5000, 55)
    assert found.finished.file_count == 100_000


def test_a_cursor_stays_small_however_many_debts_there_are() -> None:
    debts = {f"date={n:05}/region={'x' * 60}": Debt("f" * 16, 0, float(n)) for n in range(20_000)}
    cursor = Sweep(debts=debts).to_cursor()
    assert len(cursor) < 100_000
    kept = Sweep.from_cursor(cursor).debts
    assert len(kept) == MAX_DEBTS
    assert min(debt.asked_at for debt in kept.values()) == 20_000 - MAX_DEBTS


HEALTHS = st.builds(DatasetHealth, *[st.integers(0, 10**12)] * 5)
SWEEPS = st.builds(
    Sweep,
    resume_after=st.none() | st.text(),
    sums=HEALTHS,
    worst=st.lists(st.tuples(st.text(), st.integers(0), st.integers(0)), max_size=10).map(tuple),
    debts=st.dictionaries(
        st.text(),
        st.builds(Debt, st.text(), st.integers(0, 99), st.floats(0, 1e12)),
        max_size=9,
    ),
    observed=st.none() | HEALTHS,
)


@given(SWEEPS)
def test_a_cursor_is_read_back(sweep: Sweep) -> None:
    expected = sweep
    if sweep.resume_after is None:  # between two sweeps there is nothing to go on with
        expected = replace(sweep, sums=DatasetHealth(), worst=())
    assert Sweep.from_cursor(sweep.to_cursor()) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
FIELDS = st.sampled_from(["resume_after", "sums", "worst", "debts", "observed"])


def damaged() -> Iterator[Any]:
    yield st.text()
    yield st.dictionaries(FIELDS, JSON).map(_json)
    yield SWEEPS.map(lambda sweep: sweep.to_cursor()[:-7])


def _json(content: Any) -> str:
    import json

    return json.dumps(content)


@settings(deadline=None)
@given(st.one_of(*damaged()))
@example('{"sums":[1,2,3,4,5,6],"resume_after":"a"}')
@example('{"sums":[Infinity],"resume_after":"a"}')
@example('{"debts":{"a":["f",1e400,0]}}')
@example('{"debts":{"a":["f",99999,0]}}')
@example("[" * 100_000)
@example("null")
@example("[]")
def test_a_damaged_cursor_recovers(cursor: str) -> None:
    part = partition("zzz")
    found = tick(
        "d", [part], Sweep.from_cursor(cursor), POLICY, ENOUGH, Instance().status_of, Ticking()
    )
    assert found.seen == ("zzz",)
    assert Sweep.from_cursor(found.sweep.to_cursor()) == found.sweep


def test_a_debt_of_the_future_is_not_waited_for() -> None:
    instance, part = Instance(), partition("a")
    cursor = Sweep(debts={"a": Debt(part.fingerprint, 0, NOW + 10**9)}).to_cursor()
    instance.runs[f"d:a:{part.fingerprint}:0"] = "failed"
    assert keys(look([part], cursor, instance)) == [f"d:a:{part.fingerprint}:1"]
