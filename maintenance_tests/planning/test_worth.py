"""Gain against cost: what comes first, what has to wait, and how both are said."""

import pytest

from maintenance_assets.model.policy import MIB
from maintenance_assets.model.words import size_words, time_words
from maintenance_assets.planning.worth import (
    Candidate,
    Throughput,
    cost_words,
    ranked,
    throughput_of,
    worth,
)


def names(candidates: object) -> str:
    return "".join(one.name for one in candidates)  # type: ignore[attr-defined]


def test_worth_weighs_gain_against_cost() -> None:
    assert worth(Candidate("a", 10, 5.0), most_gain=10, most_cost=10) == pytest.approx(0.55)
    assert worth(Candidate("a", 10, 10.0), most_gain=10, most_cost=10) == pytest.approx(0.4)
    assert worth(Candidate("a", 0, 10.0), most_gain=10, most_cost=10) == pytest.approx(-0.3)
    assert worth(Candidate("a", 0, 0.0), most_gain=0, most_cost=0) == 0


def test_gain_that_new_writes_undo_counts_less() -> None:
    calm, busy = Candidate("calm", 6, 1.0), Candidate("busy", 10, 1.0, churn=0.5)
    assert ranked([busy, calm]) == [calm, busy]


def test_the_most_worthwhile_come_first_whatever_their_order() -> None:
    cheap, rich, dear = Candidate("c", 90, 1.0), Candidate("r", 100, 2.0), Candidate("d", 100, 9.0)
    assert names(ranked([dear, rich, cheap])) == names(ranked([cheap, rich, dear])) == "rcd"


def test_equal_ones_are_ordered_by_name() -> None:
    assert names(ranked([Candidate("b", 1, 1.0), Candidate("a", 1, 1.0)])) == "ab"


def test_a_throughput_moves_by_three_tenths_of_what_is_measured() -> None:
    known = Throughput(100.0, startup_seconds=2.0)
    assert known.seconds(500) == 7.0
    # 600 bytes in 3 - 2 seconds: 0.3 * 600 + 0.7 * 100.
    assert known.learned(600, 3.0) == Throughput(250.0, 2.0)


@pytest.mark.parametrize(("size", "seconds"), [(0, 5.0), (100, 2.0), (100, 1.0), (-1, 5.0)])
def test_a_measurement_that_says_nothing_changes_nothing(size: int, seconds: float) -> None:
    known = Throughput(100.0, startup_seconds=2.0)
    assert known.learned(size, seconds) is known


@pytest.mark.parametrize(("rate", "startup"), [(0.0, 0.0), (-1.0, 0.0), (1.0, -1.0)])
def test_a_throughput_is_positive(rate: float, startup: float) -> None:
    with pytest.raises(ValueError, match="a throughput must be > 0"):
        Throughput(rate, startup)


def test_an_engine_without_measurement_has_an_estimate() -> None:
    assert throughput_of("spark").startup_seconds > throughput_of("pyarrow").startup_seconds
    assert throughput_of("one of your own") == throughput_of("pyarrow")


def test_cost_in_words() -> None:
    assert cost_words(300 * MIB, Throughput(100 * MIB, 1.0)) == "about 4 s for 300 MiB"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "1 s"), (42.4, "42 s"), (99.4, "99 s"), (120.0, "2 min"), (7200.0, "2 h")],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert time_words(seconds) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (300 * 1024, "300 KiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2000 * 1024**4, "2,000.0 TiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_words(size) == words
