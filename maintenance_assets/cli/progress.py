"""Progress bars on a terminal; silence everywhere else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maintenance_assets.model.progress import Phase, Progress, ProgressCallback

_WORDS: dict[Phase, str] = {
    "discover": "reading footers",
    "sample": "sampling partitions",
    "scan": "looking for rows",
    "execute": "rewriting",
    "publish": "publishing",
    "measure": "checking",
}


@contextmanager
def progress_bars(wanted: bool) -> Iterator[ProgressCallback | None]:
    """A callback that draws on stderr, or None where nobody would see it."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        yield _Drawing(bars)


class _Drawing:
    """One bar per phase."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[Phase, Any] = {}

    def __call__(self, step: Progress) -> None:
        if step.phase not in self._tasks:
            self._tasks[step.phase] = self._bars.add_task(_WORDS[step.phase], size="", total=None)
        self._bars.update(
            self._tasks[step.phase],
            completed=step.done,
            total=step.total or None,
            size=step.size_words(),
        )
