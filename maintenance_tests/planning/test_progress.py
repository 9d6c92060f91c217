"""Progress in words."""

import pytest

from maintenance_assets.model.progress import Progress

GIB = 1024**3


@pytest.mark.parametrize(
    ("step", "elapsed", "words"),
    [
        (Progress("discover", 0, 0), 1.0, "discover: 0 files"),
        (Progress("discover", 512, 2048), 10.0, "discover: 512 of 2048 files, about 30 s left"),
        (Progress("sample", 0, 4), 5.0, "sample: 0 of 4 partitions"),
        (
            # Bytes tell more than groups: a quarter is done, after 20 seconds.
            Progress("execute", 1, 2, GIB, 4 * GIB),
            20.0,
            "execute: 1 of 2 groups, 1.0 GiB of 4.0 GiB, about 60 s left",
        ),
        (Progress("execute", 2, 2, GIB, GIB), 9.0, "execute: 2 of 2 groups, 1.0 GiB of 1.0 GiB"),
        (Progress("publish", 1, 2), 0.0, "publish: 1 of 2 groups"),
    ],
    ids=lambda value: value.phase if isinstance(value, Progress) else "",
)
def test_a_step_says_how_far_it_is(step: Progress, elapsed: float, words: str) -> None:
    assert step.describe(elapsed) == words
