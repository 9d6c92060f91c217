"""Which work is worth its cost, and what comes first. Pure: no I/O, no clock.

A candidate's worth is 0.7 of its gain, less what new writes are likely to undo, minus 0.3 of its
cost; both are measured against the largest among the candidates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from maintenance_assets.model.policy import MIB
from maintenance_assets.model.words import size_words, time_words

NEW_WEIGHT = 0.3
"""How much the newest measurement counts against all before it."""
GAIN_WEIGHT = 0.7
COST_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Throughput:
    """What an engine gets done, and how long it takes to begin."""

    bytes_per_second: float
    startup_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.bytes_per_second <= 0 or self.startup_seconds < 0:
            raise ValueError(f"a throughput must be > 0, got {self}")

    def seconds(self, size_bytes: int) -> float:
        """The time that rewriting so many bytes will take."""
        return self.startup_seconds + size_bytes / self.bytes_per_second

    def learned(self, size_bytes: int, seconds: float) -> "Throughput":
        """This, moved by one more measurement; one that says nothing changes nothing."""
        if size_bytes <= 0 or seconds <= self.startup_seconds:
            return self
        new = size_bytes / (seconds - self.startup_seconds)
        moved = NEW_WEIGHT * new + (1 - NEW_WEIGHT) * self.bytes_per_second
        return Throughput(moved, self.startup_seconds)


UNMEASURED = {
    "pyarrow": Throughput(100 * MIB, 0.1),
    "duckdb": Throughput(120 * MIB, 0.3),
    "spark": Throughput(90 * MIB, 6.0),
}
"""Small-file compaction on two cores; replaced by what is measured where a run is under way."""


def throughput_of(engine: str) -> Throughput:
    """What to expect of an engine before anything was measured."""
    return UNMEASURED.get(engine, UNMEASURED["pyarrow"])


@dataclass(frozen=True, slots=True)
class Candidate:
    """Work that could be done."""

    name: str
    gain: int
    """Files that it saves."""
    cost: float
    """In any unit that is the same for all candidates: seconds, or bytes."""
    size_bytes: int = 0
    churn: float = 0.0
    """How much of the gain new writes are likely to undo: 0 for none, 1 for all."""


C = TypeVar("C", bound=Candidate)


def worth(candidate: Candidate, most_gain: float, most_cost: float) -> float:
    """The worth of a candidate among others, from -0.3 to 0.7."""
    gain = _lasting(candidate) / most_gain if most_gain else 0.0
    cost = candidate.cost / most_cost if most_cost else 0.0
    return GAIN_WEIGHT * gain - COST_WEIGHT * cost


def ranked(candidates: Iterable[C]) -> list[C]:
    """The most worthwhile first; equal ones by their names."""
    known = list(candidates)
    most_gain = max((_lasting(one) for one in known), default=0.0)
    most_cost = max((one.cost for one in known), default=0.0)
    return sorted(known, key=lambda one: (-worth(one, most_gain, most_cost), one.name))


def _lasting(candidate: Candidate) -> float:
    return candidate.gain * (1 - candidate.churn)


def cost_words(size_bytes: int, throughput: Throughput) -> str:
    """What work costs, as it is said everywhere."""
    return f"about {time_words(throughput.seconds(size_bytes))} for {size_words(size_bytes)}"
