"""Which small-file debts a sensor asks to be paid at a tick. Pure but for the clock it is given."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from maintenance_assets.model.health import DatasetHealth, HealthPolicy, PartitionHealth
from maintenance_assets.planning.health import decide

RunStatus = Literal["unknown", "under way", "failed", "done"]
Clock = Callable[[], float]
FIRST_RETRY_SECONDS = 60.0
LAST_RETRY_SECONDS = 6 * 3600.0
WORST = 10
MAX_DEBTS = 5000
"""Debts remembered in a cursor; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class Debt:
    """A debt that a run was asked for."""

    fingerprint: str
    attempt: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far a look at all partitions has come; a tick that runs out of time goes on from here."""

    resume_after: str | None = None
    sums: DatasetHealth = field(default_factory=DatasetHealth)
    worst: tuple[tuple[str, int, int], ...] = ()
    debts: dict[str, Debt] = field(default_factory=dict)

    def to_cursor(self) -> str:
        """As the text that a sensor keeps."""
        newest = sorted(self.debts.items(), key=lambda item: -item[1].asked_at)[:MAX_DEBTS]
        sums = self.sums
        return json.dumps(
            {
                "resume_after": self.resume_after,
                "sums": [
                    sums.partitions,
                    sums.file_count,
                    sums.total_bytes,
                    sums.small_files,
                    sums.gain,
                ],
                "worst": self.worst,
                "debts": {p: [d.fingerprint, d.attempt, d.asked_at] for p, d in newest},
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_cursor(cls, cursor: str | None) -> "Sweep":
        """Read it back; what cannot be read is a sweep that starts anew."""
        try:
            found = json.loads(cursor or "{}")
            after = found.get("resume_after")
            return cls(
                after if isinstance(after, str) else None,
                DatasetHealth(*(int(n) for n in found.get("sums", ()))),
                tuple((str(p), int(s), int(g)) for p, s, g in found.get("worst", ())),
                {
                    str(p): Debt(str(f), int(a), float(at))
                    for p, (f, a, at) in found.get("debts", {}).items()
                },
            )
        except (ValueError, TypeError, AttributeError):
            return cls()


@dataclass(frozen=True, slots=True)
class Request:
    """A partition whose debt is to be paid now."""

    partition: str
    run_key: str
    reason: str


@dataclass(slots=True)
class Tick:
    """What came of one tick."""

    sweep: Sweep
    requests: list[Request] = field(default_factory=list)
    finished: DatasetHealth | None = None
    """The whole dataset's health, once every partition has been seen."""
    worst: tuple[tuple[str, int, int], ...] = ()
    seen: list[str] = field(default_factory=list)
    waiting: Counter[str] = field(default_factory=Counter)
    """Why partitions were left alone, and how many."""

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
    partitions: Iterator[PartitionHealth],
    sweep: Sweep,
    policy: HealthPolicy,
    status_of: Callable[[str], RunStatus],
    clock: Clock,
    seconds: float,
    max_requests: int,
) -> Tick:
    """Look at partitions from where the last tick stopped: all, or until time or cap is reached."""
    started = clock()
    result = Tick(sweep)
    debts = dict(sweep.debts)
    sums, worst = sweep.sums, list(sweep.worst)
    last = sweep.resume_after
    for part in partitions:
        if result.seen and clock() - started > seconds:
            break
        request = _request(dataset, part, debts, policy, status_of, clock(), result)
        if request is not None and len(result.requests) >= max_requests:
            break  # the next tick begins with this partition
        result.seen.append(part.partition)
        sums = sums.plus(part)
        worst = sorted([*worst, (part.partition, part.small_files, part.gain)], key=_need)[:WORST]
        last = part.partition
        if request is not None:
            debt, asked = request
            debts[part.partition] = debt
            result.requests.append(asked)
    else:
        result.finished = sums
        result.worst = tuple(worst)
        result.sweep = Sweep(debts=debts)
        return result
    result.sweep = Sweep(last, sums, tuple(worst), debts)
    return result


def _need(entry: tuple[str, int, int]) -> tuple[int, int, str]:
    partition, small, gain = entry
    return -gain, -small, partition


def _request(
    dataset: str,
    part: PartitionHealth,
    debts: dict[str, Debt],
    policy: HealthPolicy,
    status_of: Callable[[str], RunStatus],
    now: float,
    result: Tick,
) -> tuple[Debt, Request] | None:
    decision = decide(part, policy, now)
    if not decision.run:
        healthy = part.gain < policy.min_gain
        result.waiting["too little to gain" if healthy else "written to a moment ago"] += 1
        if healthy:
            debts.pop(part.partition, None)
        return None
    debt, wait = _next_attempt(dataset, part, debts.get(part.partition), status_of, now)
    if debt is None:
        result.waiting[wait] += 1
        return None
    key = run_key(dataset, part.partition, debt)
    return debt, Request(part.partition, key, decision.reason)


def _next_attempt(
    dataset: str,
    part: PartitionHealth,
    known: Debt | None,
    status_of: Callable[[str], RunStatus],
    now: float,
) -> tuple[Debt | None, str]:
    """The debt to ask for now, or why not."""
    if known is None:
        return Debt(part.fingerprint, 0, now), ""
    status = status_of(run_key(dataset, part.partition, known))
    if status == "under way":
        return None, "a run is under way"
    if known.fingerprint != part.fingerprint:
        return Debt(part.fingerprint, 0, now), ""
    if status == "unknown":  # asked for, but it never became a run: the same key asks again
        return replace(known, asked_at=now), ""
    if status == "done":
        return None, "a run has just seen to exactly these files"
    pause = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**known.attempt)
    if now - known.asked_at < pause:
        return None, "its run failed and is tried again later"
    return Debt(known.fingerprint, known.attempt + 1, now), ""
