"""The sensor's decisions: pure, so every story is told with a clock of its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maintenance_assets.model.health import DatasetHealth, HealthPolicy, PartitionHealth
from maintenance_assets.planning.debts import (
    FEW_FAILURES,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    MORE,
    NO_STREAK,
    Attempt,
    Limits,
    RunStatus,
    Streak,
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
    """Runs as Dagster remembers them, and how often it was asked for one."""

    def __init__(self) -> None:
        self.runs: dict[str, Attempt] = {}
        self.asked = 0

    def last_attempt(self, name: str) -> Attempt | None:
        self.asked += 1
        return self.runs.get(name)

    def note(self, found: Tick, status: RunStatus, at: float = NOW) -> None:
        for one in found.requests:
            self.runs[one.partition] = Attempt(one.fingerprint, one.attempt, status, at)


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
    streak: Streak = NO_STREAK,
) -> Tick:
    """A tick as the sensor makes it: the listing goes on behind the place in the cursor."""
    sweep = Sweep.from_cursor(cursor)
    after = sweep.resume_after
    left = (part for part in parts if after is None or part.partition > after)
    last_attempt = (instance or Instance()).last_attempt
    return tick(left, sweep, POLICY, limits, last_attempt, clock or Ticking(), streak)


def keys(found: Tick) -> list[str]:
    return [request.run_key("d") for request in found.requests]


def names(found: Tick) -> list[str]:
    return [request.partition for request in found.requests]


def test_a_debt_is_asked_for_with_a_key_and_a_reason() -> None:
    part = partition("a")
    found = look([part, partition("b", files=2)])
    (request,) = found.requests
    assert request.run_key("d") == f"d:a:{part.fingerprint}:0"
    assert request.reason == "6 small files of 6, 5 could be saved"
    assert found.waiting == {"fewer than min_gain 4": 1}


def test_a_debt_is_asked_for_once() -> None:
    instance, part = Instance(), partition("a")
    instance.note(look([part], None, instance), "under way")
    second = look([part], None, instance)
    assert not second.requests
    assert second.reason() == "1 partition(s) looked at: 1 x a run is under way"


def test_files_that_a_run_left_as_they_were_are_not_asked_for_again() -> None:
    instance, part = Instance(), partition("a")
    first = look([part], None, instance)
    instance.note(first, "done")
    assert "a run has seen to exactly these files" in look([part], None, instance).reason()
    # New files are a new debt, with a key of its own.
    third = look([partition("a", files=9)], None, instance)
    assert keys(third) != keys(first)
    assert keys(third)[0].endswith(":0")


def test_new_files_wait_for_the_run_under_way() -> None:
    instance, grown = Instance(), [partition("a", files=9)]
    first = look([partition("a")], None, instance)
    instance.note(first, "under way")
    assert not look(grown, None, instance).requests
    instance.note(first, "done")
    assert look(grown, None, instance).requests


def test_a_failed_debt_is_tried_again_with_growing_pauses() -> None:
    instance, clock, part = Instance(), Ticking(), partition("a")
    pauses = []
    asked_at = clock.now
    for attempt in range(14):
        found = look([part], None, instance, clock=clock)
        while not found.requests:
            assert "its run failed and is tried again later" in found.reason()
            clock.now += FIRST_RETRY_SECONDS / 2
            found = look([part], None, instance, clock=clock)
        assert keys(found) == [f"d:a:{part.fingerprint}:{attempt}"]
        instance.note(found, "failed", clock.now)
        pauses.append(clock.now - asked_at)
        asked_at = clock.now
    assert pauses[:5] == [0, 60, 120, 240, 480]
    assert pauses[-2:] == [LAST_RETRY_SECONDS, LAST_RETRY_SECONDS]


def test_a_request_that_never_became_a_run_is_repeated_with_the_same_key() -> None:
    part = partition("a")
    first = look([part])
    assert keys(look([part], first.sweep.to_cursor())) == keys(first)


@pytest.mark.parametrize("failing", [3, 600])
def test_what_fails_for_ever_does_not_keep_the_rest_waiting(failing: int) -> None:
    """Those that fail come first in the walk, and the cap is small."""
    instance, clock = Instance(), Ticking()
    bad = [partition(f"a{number:03}") for number in range(failing)]
    good = [partition(f"b{number:03}") for number in range(20)]
    for part in bad:  # they have all failed before, long ago
        instance.runs[part.partition] = Attempt(part.fingerprint, 9, "failed", OLD - 10**6)
    for _ in range(6):
        found = look([*bad, *good], None, instance, Limits(1e9, 5), clock)
        assert len(found.requests) <= 5
        for request in found.requests:
            status: RunStatus = "failed" if request.partition.startswith("a") else "done"
            attempt = Attempt(request.fingerprint, request.attempt, status, clock.now)
            instance.runs[request.partition] = attempt
        clock.now += 60
        if all(part.partition in instance.runs for part in good):
            break
    assert all(instance.runs[part.partition].status == "done" for part in good)
    # Nor are the others given up.
    assert max(instance.runs[part.partition].number for part in bad) == 10


def test_the_longest_waiting_is_tried_again_first() -> None:
    instance = Instance()
    for number, name in enumerate(("a", "b", "c")):
        fingerprint = partition(name).fingerprint
        instance.runs[name] = Attempt(fingerprint, 0, "failed", OLD - 1000 * number)
    parts = [partition(name) for name in ("a", "b", "c")]
    assert names(look(parts, None, instance, Limits(1e9, 1))) == ["c"]


def test_a_dataset_in_trouble_is_probed_by_one_run_at_a_time() -> None:
    parts = [partition(f"p{number}") for number in range(9)]
    assert len(look(parts, streak=Streak(FEW_FAILURES - 1, NOW)).requests) == 9
    waiting = look(parts, streak=Streak(FEW_FAILURES, NOW - 10))
    assert not waiting.requests
    assert waiting.waiting == {"the last 5 runs failed, the next is tried later": 9}
    assert names(look(parts, streak=Streak(FEW_FAILURES, NOW - 61))) == ["p0"]
    # The pause grows, up to an hour, and a clock that was wrong is not waited for.
    assert not look(parts, streak=Streak(20, NOW - 3599)).requests
    assert names(look(parts, streak=Streak(20, NOW - 3601))) == ["p0"]
    assert names(look(parts, streak=Streak(20, NOW + 10**9))) == ["p0"]


def test_a_cap_is_kept_and_the_rest_comes_later() -> None:
    instance = Instance()
    parts = [partition(f"p{number}") for number in range(7)]
    rounds = []
    for _ in range(4):
        found = look(parts, None, instance, Limits(1e9, 3))
        rounds.append(names(found))
        instance.note(found, "under way")
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
    assert found.reason() == "1 partition(s) looked at: 1 x written lately (cooldown 600 s)"
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


def test_all_were_seen_only_when_one_tick_saw_all() -> None:
    parts = [partition(f"p{number}") for number in range(3)]
    assert look(parts).seen_all
    first = look(parts, limits=Limits(1.5, 1), clock=Ticking(step=1.0))
    second = look(parts, first.sweep.to_cursor())
    assert second.finished is not None
    assert not first.seen_all
    assert not second.seen_all


def test_a_hundred_thousand_files_are_seen_in_bounded_ticks() -> None:
    parts = [partition(f"date={n:05}/region=eu", files=20) for n in range(5000)]
    instance, cursor = Instance(), None
    ticks = seen = asked = 0
    while True:
        clock = Ticking(step=0.01)
        found = look(parts, cursor, instance, Limits(seconds=5.0, requests=5), clock)
        cursor = found.sweep.to_cursor()
        instance.note(found, "under way")
        ticks, seen, asked = ticks + 1, seen + len(found.seen), asked + len(found.requests)
        assert clock.now - NOW < 5.1
        assert len(cursor) < 2_000
        if found.finished is not None:
            break
    assert (ticks, seen, asked) == (11, 5000, 55)
    assert found.finished.file_count == 100_000


HEALTHS = st.builds(DatasetHealth, *[st.integers(0, 10**12)] * 5)
SWEEPS = st.builds(
    Sweep,
    resume_after=st.none() | st.text(),
    sums=HEALTHS,
    worst=st.lists(st.tuples(st.text(), st.integers(0), st.integers(0)), max_size=10).map(tuple),
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
FIELDS = st.sampled_from(["resume_after", "sums", "worst", "observed"])


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
@example('{"observed":[1e400]}')
@example("[" * 100_000)
@example("null")
@example("[]")
def test_a_damaged_cursor_recovers(cursor: str) -> None:
    part = partition("zzz")
    sweep = Sweep.from_cursor(cursor)
    found = tick([part], sweep, POLICY, ENOUGH, Instance().last_attempt, Ticking())
    assert found.seen == ("zzz",)
    assert Sweep.from_cursor(found.sweep.to_cursor()) == found.sweep


def test_an_attempt_of_the_future_is_not_waited_for() -> None:
    instance, part = Instance(), partition("a")
    instance.runs["a"] = Attempt(part.fingerprint, 0, "failed", NOW + 10**9)
    assert keys(look([part], None, instance)) == [f"d:a:{part.fingerprint}:1"]


def test_the_most_worthwhile_partitions_get_the_runs() -> None:
    parts = [partition(f"p{n}", files) for n, files in enumerate((6, 40, 7, 90, 8, 70))]
    found = look(parts, limits=Limits(1e9, 3))
    # Three of six, by what they save; asked for in the order of the listing.
    assert names(found) == ["p1", "p3", "p5"]
    assert found.waiting == {MORE: 3}


def test_a_partition_that_is_written_to_comes_after_one_that_is_cold() -> None:
    hot, cold = partition("a", 30, at=NOW), partition("b", 20)
    assert names(look([hot, cold], limits=Limits(1e9, 1))) == ["b"]
    assert names(look([hot, cold])) == ["a", "b"]


def test_partitions_that_cannot_be_asked_for_leave_room_for_others() -> None:
    instance = Instance()
    rich = [partition(f"a{n:02}", 90) for n in range(40)]
    instance.note(look(rich), "done")
    found = look([*rich, partition("b", 6)], None, instance, Limits(1e9, 2))
    assert names(found) == ["b"]
    assert found.waiting == {"a run has seen to exactly these files": 40}


def test_a_tick_asks_for_no_more_bytes_than_it_may() -> None:
    parts = [partition("a", 30), partition("b", 20), partition("c", 10)]
    found = look(parts, limits=Limits(1e9, 10, size_bytes=450))
    assert names(found) == ["a", "c"]
    assert found.waiting == {"more bytes than a tick may ask for": 1}
    # What is larger than that is asked for alone, rather than never.
    assert names(look(parts, limits=Limits(1e9, 10, size_bytes=5))) == ["a"]
