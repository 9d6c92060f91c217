"""Which small-file debts a sensor asks to be paid at a tick. Pure but for the clock it is given."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal

from maintenance_assets.model.health import DatasetHealth, HealthPolicy, PartitionHealth
from maintenance_assets.planning.health import decide

RunStatus = Literal["unknown", "under way", "failed", "done"]
StatusOf = Callable[[str], RunStatus]
Clock = Callable[[], float]
FIRST_RETRY_SECONDS = 60.0
LAST_RETRY_SECONDS = 6 * 3600.0
_MOST_DOUBLINGS = 10
WORST = 10
MAX_DEBTS = 500
"""Debts remembered in a cursor. One that was forgotten is found again by the key of its run."""
Worst = tuple[tuple[str, int, int], ...]
"""Partitions most in need: name, small files, files that could be saved."""


@dataclass(frozen=True, slots=True)
class Debt:
    """A debt that a run was asked for."""

    fingerprint: str
    attempt: int
    asked_at: float

    @property
    def pause_seconds(self) -> float:
        """How long to wait after this attempt has failed."""
        doublings = min(max(0, self.attempt), _MOST_DOUBLINGS)
        return min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**doublings)


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far a look at all partitions has come; a tick that runs out of time goes on from here."""

    resume_after: str | None = None
    sums: DatasetHealth = field(default_factory=DatasetHealth)
    worst: Worst = ()
    debts: dict[str, Debt] = field(default_factory=dict)
    observed: DatasetHealth | None = None
    """The dataset's health at the end of the last whole sweep."""

    def to_cursor(self) -> str:
        """As the text that a sensor keeps."""
        newest = sorted(self.debts.items(), key=lambda item: -item[1].asked_at)[:MAX_DEBTS]
        content = {
            "resume_after": self.resume_after,
            "sums": astuple(self.sums),
            "worst": self.worst,
            "debts": {partition: astuple(debt) for partition, debt in newest},
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
    debts = {
        str(partition): Debt(str(fingerprint), int(attempt), float(asked_at))
        for partition, (fingerprint, attempt, asked_at) in found.get("debts", {}).items()
    }
    sweep = Sweep(debts=debts, observed=None if observed is None else _health(observed))
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
    run_key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tick may take and ask for."""

    seconds: float
    requests: int


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


def run_key(dataset: str, partition: str, debt: Debt) -> str:
    """The same for the same debt and attempt: Dagster starts it once."""
    return f"{dataset}:{partition}:{debt.fingerprint}:{debt.attempt}"


def tick(
    dataset: str,
    partitions: Iterable[PartitionHealth],
    sweep: Sweep,
    policy: HealthPolicy,
    limits: Limits,
    status_of: StatusOf,
    clock: Clock,
) -> Tick:
    """Look at partitions from where the last tick stopped: all of them, or until time is up."""
    started = clock()
    look = _Look(dataset, sweep, policy, limits, status_of)
    for part in partitions:
        now = clock()
        # One at least: a tick that sees nothing would be repeated for ever.
        if look.seen and now - started > limits.seconds:
            return look.stopped()
        look.at(part, now)
    return look.finished()


class _Look:
    """A look at partitions, one after the other."""

    def __init__(
        self,
        dataset: str,
        sweep: Sweep,
        policy: HealthPolicy,
        limits: Limits,
        status_of: StatusOf,
    ) -> None:
        self._dataset = dataset
        self._policy = policy
        self._limits = limits
        self._status_of = status_of
        self._sums = sweep.sums
        self._worst = sweep.worst
        self._debts = dict(sweep.debts)
        self._observed = sweep.observed
        self._requests: list[Request] = []
        self._waiting: Counter[str] = Counter()
        self.seen: list[str] = []

    def at(self, part: PartitionHealth, now: float) -> None:
        """Count a partition, and ask for a run if it is in need of one."""
        self.seen.append(part.partition)
        self._sums = self._sums.plus(part)
        if part.gain:
            entry = (part.partition, part.small_files, part.gain)
            self._worst = tuple(sorted((*self._worst, entry), key=_need)[:WORST])
        wait = self._ask(part, now)
        if wait:
            self._waiting[wait] += 1

    def _ask(self, part: PartitionHealth, now: float) -> str:
        """Ask for a run, or say why not."""
        decision = decide(part, self._policy, now)
        if part.gain < self._policy.min_gain:
            self._debts.pop(part.partition, None)
            return "too little to gain"
        if not decision.run:
            return "written to a moment ago"
        if len(self._requests) >= self._limits.requests:
            return "more than a tick may ask for"
        debt, wait = self._next_attempt(part, now)
        if debt is not None:
            self._debts[part.partition] = debt
            key = run_key(self._dataset, part.partition, debt)
            self._requests.append(Request(part.partition, key, decision.reason))
        return wait

    def _next_attempt(self, part: PartitionHealth, now: float) -> tuple[Debt | None, str]:
        """The debt to ask for now, or why not."""
        # A debt that is not in the cursor may have been asked for before the cursor was lost.
        known = self._debts.get(part.partition, Debt(part.fingerprint, 0, 0.0))
        status = self._status_of(run_key(self._dataset, part.partition, known))
        if status == "under way":
            return None, "a run is under way"
        if known.fingerprint != part.fingerprint:
            return Debt(part.fingerprint, 0, now), ""
        if status == "unknown":  # it never became a run: the same key asks again
            return replace(known, asked_at=now), ""
        if status == "done":
            return None, "a run has seen to exactly these files"
        # A time in the future is a clock that was wrong: do not wait for it.
        if 0 <= now - known.asked_at < known.pause_seconds:
            return None, "its run failed and is tried again later"
        return Debt(known.fingerprint, known.attempt + 1, now), ""

    def stopped(self) -> Tick:
        """Out of time: the next tick goes on."""
        sweep = Sweep(self.seen[-1], self._sums, self._worst, self._debts, self._observed)
        return self._tick(sweep)

    def finished(self) -> Tick:
        """Every partition has been seen: the next tick begins anew."""
        sweep = Sweep(debts=self._debts, observed=self._sums)
        return replace(
            self._tick(sweep),
            finished=self._sums,
            worst=self._worst,
            changed=self._sums != self._observed,
        )

    def _tick(self, sweep: Sweep) -> Tick:
        return Tick(sweep, tuple(self._requests), tuple(self.seen), self._waiting)


def _need(entry: tuple[str, int, int]) -> tuple[int, int, str]:
    partition, small, gain = entry
    return -gain, -small, partition
