"""Which small-file debts a sensor asks to be paid at a tick. Pure but for the clock it is given."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal

from maintenance_assets.model.health import DatasetHealth, HealthPolicy, PartitionHealth
from maintenance_assets.planning.health import cooldown_words, decide, little_words
from maintenance_assets.planning.worth import Candidate, ranked

RunStatus = Literal["under way", "failed", "done"]
Clock = Callable[[], float]
FIRST_RETRY_SECONDS = 60.0
LAST_RETRY_SECONDS = 6 * 3600.0
_MOST_DOUBLINGS = 10
FEW_FAILURES = 5
"""So many failures in a row are no longer a fault of one partition."""
LAST_PROBE_SECONDS = 3600.0
WORST = 10
Worst = tuple[tuple[str, int, int], ...]
"""Partitions most in need: name, small files, files that could be saved."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest run that a partition's debt was asked for with, as Dagster remembers it."""

    fingerprint: str
    number: int
    status: RunStatus
    at: float

    @property
    def pause_seconds(self) -> float:
        """How long to wait after this attempt has failed."""
        return _doubled(self.number, LAST_RETRY_SECONDS)


MORE = "more than a tick may ask for"
TOO_LARGE = "more bytes than a tick may ask for"
COMPARED = 4
"""So many times more partitions than may be asked for are compared by their worth."""
HOT_CHURN = 0.5
"""Of a partition that is still written to, new files will soon undo about half of the gain."""
LastAttempt = Callable[[str], Attempt | None]
"""Of a partition."""


def _doubled(times: int, most: float) -> float:
    return min(most, FIRST_RETRY_SECONDS * 2 ** min(max(0, times), _MOST_DOUBLINGS))


@dataclass(frozen=True, slots=True)
class Streak:
    """Runs of a dataset that failed one after the other, up to now."""

    failures: int = 0
    last_at: float = 0.0

    @property
    def is_long(self) -> bool:
        """Whether the dataset itself is in trouble: one run at a time then, as a probe."""
        return self.failures >= FEW_FAILURES

    def wait_seconds(self, now: float) -> float:
        """How long to wait until the next probe."""
        if not self.is_long:
            return 0.0
        since = now - self.last_at
        pause = _doubled(self.failures - FEW_FAILURES, LAST_PROBE_SECONDS)
        # A time in the future is a clock that was wrong: do not wait for it.
        return max(0.0, pause - since) if since >= 0 else 0.0


NO_STREAK = Streak()


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far a look at all partitions has come; a tick that runs out of time goes on from here."""

    resume_after: str | None = None
    sums: DatasetHealth = field(default_factory=DatasetHealth)
    worst: Worst = ()
    observed: DatasetHealth | None = None
    """The dataset's health at the end of the last whole sweep."""

    def to_cursor(self) -> str:
        """As the text that a sensor keeps."""
        content = {
            "resume_after": self.resume_after,
            "sums": astuple(self.sums),
            "worst": self.worst,
            "observed": None if self.observed is None else astuple(self.observed),
        }
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_cursor(cls, cursor: str | None) -> "Sweep":
        """Read it back; what cannot be read is a sweep that starts anew."""
        try:
            return _parse(json.loads(cursor or "{}"))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return cls()


def _parse(found: dict[str, Any]) -> Sweep:
    after, observed = found.get("resume_after"), found.get("observed")
    sweep = Sweep(observed=None if observed is None else _health(observed))
    if not isinstance(after, str):
        return sweep
    worst = tuple((str(p), int(small), int(gain)) for p, small, gain in found.get("worst", ()))
    return replace(sweep, resume_after=after, sums=_health(found.get("sums", ())), worst=worst)


def _health(figures: Iterable[Any]) -> DatasetHealth:
    return DatasetHealth(*(int(figure) for figure in figures))


@dataclass(frozen=True, slots=True)
class Request:
    """A partition whose debt is to be paid now."""

    partition: str
    fingerprint: str
    attempt: int
    reason: str
    size_bytes: int = 0
    """Of the small files that a run would rewrite."""

    def run_key(self, dataset: str) -> str:
        """The same for the same debt and attempt: Dagster starts it once."""
        return f"{dataset}:{self.partition}:{self.fingerprint}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tick may take and ask for."""

    seconds: float
    requests: int
    size_bytes: int | None = None
    """Of small files that are asked for; the first one may exceed it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What came of one tick."""

    sweep: Sweep
    """Where the next tick goes on."""
    requests: tuple[Request, ...]
    seen: tuple[str, ...]
    """The partitions that were looked at."""
    waiting: Counter[str]
    """Why partitions were left alone, and how many."""
    finished: DatasetHealth | None = None
    """The whole dataset's health, once every partition has been seen."""
    seen_all: bool = False
    """Whether `seen` are all partitions of the dataset, looked at in this one tick."""
    worst: Worst = ()
    changed: bool = False
    """Whether the health differs from that of the last whole sweep."""

    def reason(self) -> str:
        """Why nothing was asked for, in words."""
        if not self.seen:
            return "no partition with data files was found"
        why = "; ".join(f"{count} x {text}" for text, count in self.waiting.most_common(5))
        rest = ""
        if self.sweep.resume_after is not None:
            rest = f"; out of time, the next tick goes on after '{self.sweep.resume_after}'"
        return f"{len(self.seen)} partition(s) looked at: {why}{rest}"


def tick(
    partitions: Iterable[PartitionHealth],
    sweep: Sweep,
    policy: HealthPolicy,
    limits: Limits,
    last_attempt: LastAttempt,
    clock: Clock,
    streak: Streak = NO_STREAK,
) -> Tick:
    """Look at partitions from where the last tick stopped: all of them, or until time is up."""
    started = clock()
    look = _Look(sweep, policy, limits, last_attempt, streak)
    for part in partitions:
        now = clock()
        # One at least: a tick that sees nothing would be repeated for ever.
        if look.seen and now - started > limits.seconds:
            return look.stopped()
        look.at(part, now)
    return look.finished()


@dataclass(frozen=True, slots=True)
class _Needy(Candidate):
    """A partition in need: what a run on it brings, and what it costs."""

    fingerprint: str = ""
    reason: str = ""
    now: float = 0.0

    @classmethod
    def of(cls, part: PartitionHealth, policy: HealthPolicy, now: float, reason: str) -> "_Needy":
        """One engine does them all, so bytes tell the cost as well as seconds."""
        age = None if part.newest_at is None else now - part.newest_at
        is_hot = age is not None and 0 <= age < policy.cooldown_seconds
        return cls(
            part.partition,
            part.gain,
            part.small_bytes,
            part.small_bytes,
            HOT_CHURN if is_hot else 0.0,
            part.fingerprint,
            reason,
            now,
        )

    def request(self, attempt: int) -> Request:
        """Asks for a run on it."""
        return Request(self.name, self.fingerprint, attempt, self.reason, self.size_bytes)


class _Look:
    """A look at partitions, one after the other."""

    def __init__(
        self,
        sweep: Sweep,
        policy: HealthPolicy,
        limits: Limits,
        last_attempt: LastAttempt,
        streak: Streak,
    ) -> None:
        self._policy = policy
        self._most = 1 if streak.is_long else limits.requests
        self._most_bytes = limits.size_bytes
        self._bytes = 0
        self._last_attempt = last_attempt
        self._streak = streak
        self._began = sweep.resume_after is None
        self._sums = sweep.sums
        self._worst = sweep.worst
        self._observed = sweep.observed
        self._needy: list[_Needy] = []
        self._first: list[Request] = []
        self._again: list[tuple[float, Request]] = []
        self._waiting: Counter[str] = Counter()
        self.seen: list[str] = []

    def at(self, part: PartitionHealth, now: float) -> None:
        """Count a partition, and ask for a run if it is in need of one."""
        self.seen.append(part.partition)
        self._sums = self._sums.plus(part)
        if part.gain and is_text(part.partition):
            entry = (part.partition, part.small_files, part.gain)
            self._worst = tuple(sorted((*self._worst, entry), key=_need)[:WORST])
        wait = self._ask(part, now)
        if wait:
            self._waiting[wait] += 1

    def _ask(self, part: PartitionHealth, now: float) -> str:
        """Ask for a run, or say why not."""
        decision = decide(part, self._policy, now)
        if part.gain < self._policy.min_gain:
            return little_words(self._policy)
        if not decision.run:
            return f"written lately ({cooldown_words(self._policy)})"
        if not is_text(part.partition):
            return "its name is not UTF-8"
        if self._streak.wait_seconds(now):
            return f"the last {self._streak.failures} runs failed, the next is tried later"
        if len(self._first) >= self._most:
            return MORE
        self._needy.append(_Needy.of(part, self._policy, now, decision.reason))
        if len(self._needy) >= COMPARED * self._most:
            self._compare()
        return ""

    def _compare(self) -> None:
        """Ask for the most worthwhile of the partitions in need, as many as may be."""
        for needy in ranked(self._needy):
            if len(self._first) >= self._most:
                self._waiting[MORE] += 1
                continue
            if self._exceeds(needy.size_bytes):
                self._waiting[TOO_LARGE] += 1
                continue
            last = self._last_attempt(needy.name)
            wait = "" if last is None else _wait(last, needy.fingerprint, needy.now)
            if wait:
                self._waiting[wait] += 1
            else:
                self._take(needy, last)
        self._needy.clear()

    def _exceeds(self, size_bytes: int) -> bool:
        """What is larger than the limit is asked for alone: it would otherwise wait for ever."""
        most = self._most_bytes
        return most is not None and self._bytes > 0 and self._bytes + size_bytes > most

    def _take(self, needy: "_Needy", last: Attempt | None) -> None:
        self._bytes += needy.size_bytes
        if last is not None and last.fingerprint == needy.fingerprint:
            self._again.append((last.at, needy.request(last.number + 1)))
        else:
            self._first.append(needy.request(0))

    def _chosen(self) -> tuple[Request, ...]:
        """First attempts, and one place for those tried again, the longest ago first.

        What fails for ever would otherwise take the places of what could be done.
        """
        again = [request for _, request in sorted(self._again, key=lambda item: item[0])]
        place = {partition: number for number, partition in enumerate(self.seen)}
        first = self._first[: max(1, self._most - 1)] if again else self._first
        first = sorted(first, key=lambda request: place[request.partition])
        chosen = (*first, *again)[: self._most]
        left = len(self._first) + len(again) - len(chosen)
        if left:
            self._waiting[MORE] += left
        return chosen

    def stopped(self) -> Tick:
        """Out of time: the next tick goes on."""
        return self._tick(Sweep(self.seen[-1], self._sums, self._worst, self._observed))

    def finished(self) -> Tick:
        """Every partition has been seen: the next tick begins anew."""
        return replace(
            self._tick(Sweep(observed=self._sums)),
            finished=self._sums,
            seen_all=self._began,
            worst=self._worst,
            changed=self._sums != self._observed,
        )

    def _tick(self, sweep: Sweep) -> Tick:
        self._compare()
        return Tick(sweep, self._chosen(), tuple(self.seen), self._waiting)


def _wait(last: Attempt, fingerprint: str, now: float) -> str:
    """Why the last attempt is reason enough not to ask now; empty if it is not."""
    if last.status == "under way":
        return "a run is under way"
    if last.fingerprint != fingerprint:
        return ""
    if last.status == "done":
        return "a run has seen to exactly these files"
    # A time in the future is a clock that was wrong: do not wait for it.
    if 0 <= now - last.at < last.pause_seconds:
        return "its run failed and is tried again later"
    return ""


def is_text(name: str) -> bool:
    """Whether a name can be written down; a local disk has names that are only bytes."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _need(entry: tuple[str, int, int]) -> tuple[int, int, str]:
    partition, small, gain = entry
    return -gain, -small, partition
