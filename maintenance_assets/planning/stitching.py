"""What of a group is copied byte for byte, what is encoded anew, and where outputs are cut."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pyarrow as pa

from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import GroupMode, RewriteGroup, WriterOptions
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.planning.packing import Load, fill, split_evenly
from maintenance_assets.planning.row_groups import Unit, group_obstacle, units_of

_NEAR = 8
"""A cut may move by this part of an output to come to lie between two row groups."""
_LEAST_FILL, _MOST_FILL = 0.6, 1.5
"""Outputs cut between row groups alone are neither small nor oversized to the next plan."""


@dataclass(frozen=True, slots=True)
class Span:
    """Row groups of one file, from the first up to the one before `stop`."""

    file: int
    """Which file of the group."""
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A part of an output that is copied."""

    span: Span


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part of an output that is encoded anew: the next rows of a run."""

    run: int
    rows: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the outputs of a group are put together; runs are decoded row groups in order."""

    outputs: tuple[tuple[Copied | Encoded, ...], ...]
    runs: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """How a group is written, why, and how many rows its outputs have then."""

    mode: GroupMode
    reason: str
    output_rows: tuple[int, ...]
    obstacle: str | None = None
    """Why not all of it can be copied."""


def decide(
    files: Sequence[DataFile],
    schema: pa.Schema,
    writer: WriterOptions,
    planned: tuple[int, ...],
    policy: CompactionPolicy,
) -> Decision:
    """Copy what is healthy, encode what is small or does not fit, and cut where it costs least."""
    if policy.mode == "encode":
        return Decision("encode", "asked for", planned)
    obstacle = group_obstacle(files, schema)
    if obstacle is not None:
        return Decision("encode", obstacle, planned, obstacle)
    units = units_of(files, schema, writer, any_size=policy.mode == "stitch")
    obstacle = next((unit.obstacle for unit in units if unit.obstacle), None)
    if not any(unit.healthy for unit in units):
        return Decision("encode", obstacle or "all row groups are small", planned, obstacle)
    rows = _cut(units, planned, Load.of(files), len(files), policy)
    found = _recipe(units, rows)
    if not found.runs:
        return Decision("stitch", "nothing is decoded", rows)
    if not any(isinstance(part, Copied) for parts in found.outputs for part in parts):
        return Decision("encode", "outputs end inside row groups", planned, obstacle)
    reason = obstacle or "runs of small row groups, or such that are cut through, are encoded anew"
    return Decision("hybrid", reason, rows, obstacle)


def recipe(group: RewriteGroup) -> Recipe:
    """The parts of each output, in order."""
    units = units_of(group.files, group.schema, group.writer, any_size=group.must_stitch)
    return _recipe(units, group.output_rows)


def all_encoded(group: RewriteGroup) -> Recipe:
    """Everything is decoded, whatever could be copied."""
    spans = tuple(Span(at, 0, file.row_group_count) for at, file in enumerate(group.files))
    return Recipe(tuple((Encoded(0, rows),) for rows in group.output_rows), (spans,))


def _recipe(units: Sequence[Unit], output_rows: tuple[int, ...]) -> Recipe:
    cook = _Cook(len(output_rows))
    room = list(output_rows)
    at = 0
    for unit in units:
        if not room[at]:
            cook.end_run()
        while not room[at]:
            at += 1
        if unit.healthy and unit.rows <= room[at]:
            cook.copy(unit, at)
            room[at] -= unit.rows
            continue
        cook.decode(unit)
        rest = unit.rows
        while rest:
            while not room[at]:
                at += 1
            taken = min(rest, room[at])
            cook.take(at, taken)
            room[at] -= taken
            rest -= taken
    cook.end_run()
    return Recipe(tuple(tuple(parts) for parts in cook.outputs), tuple(cook.runs))


class _Cook:
    """Puts units into outputs; what is decoded in a row is one run."""

    def __init__(self, outputs: int) -> None:
        self.outputs: list[list[Copied | Encoded]] = [[] for _ in range(outputs)]
        self.runs: list[tuple[Span, ...]] = []
        self._run: list[Unit] = []
        self._rows: dict[int, int] = {}

    def copy(self, unit: Unit, output: int) -> None:
        """A unit comes into an output as it is."""
        self.end_run()
        self._add_copy(unit, output)

    def decode(self, unit: Unit) -> None:
        """A unit joins the run."""
        self._run.append(unit)

    def take(self, output: int, rows: int) -> None:
        """So many of the run's next rows come into an output."""
        self._rows[output] = self._rows.get(output, 0) + rows

    def end_run(self) -> None:
        """Close the run; alone and in one piece a small row group cannot become a better one."""
        if len(self._run) == len(self._rows) == 1 and self._run[0].obstacle is None:
            self._add_copy(self._run[0], next(iter(self._rows)))
        elif self._run:
            for output, rows in self._rows.items():
                self.outputs[output].append(Encoded(len(self.runs), rows))
            self.runs.append(tuple(_spans(self._run)))
        self._run, self._rows = [], {}

    def _add_copy(self, unit: Unit, output: int) -> None:
        parts = self.outputs[output]
        last = parts[-1] if parts else None
        span = Span(unit.file, unit.first, unit.stop)
        if isinstance(last, Copied) and _continues(last.span, span):
            parts[-1] = Copied(Span(span.file, last.span.first, span.stop))
        else:
            parts.append(Copied(span))


def _spans(units: Sequence[Unit]) -> Iterator[Span]:
    open_span: Span | None = None
    for unit in units:
        span = Span(unit.file, unit.first, unit.stop)
        if open_span is not None and _continues(open_span, span):
            open_span = Span(span.file, open_span.first, span.stop)
            continue
        if open_span is not None:
            yield open_span
        open_span = span
    if open_span is not None:
        yield open_span


def _continues(left: Span, right: Span) -> bool:
    return left.file == right.file and left.stop == right.first


def _cut(
    units: Sequence[Unit],
    planned: tuple[int, ...],
    load: Load,
    files: int,
    policy: CompactionPolicy,
) -> tuple[int, ...]:
    """Rows of each output, other than planned where fewer row groups are cut through that way."""
    if len(planned) == 1:
        return planned
    edges = list(accumulate(unit.rows for unit in units))
    if all(unit.healthy for unit in units):
        counts = [len(planned), len(planned) - 1, *([len(planned) + 1] if files == 1 else [])]
        for count in counts:
            rows = _between(edges, count)
            if count > 1 and len(rows) == count and _are_good(rows, load, policy):
                return rows
        if policy.mode == "stitch":
            rows = _between(edges, len(planned))
            bound = policy.target_rows
            return rows if bound is None or max(rows) <= bound else _within(edges, bound)
    return _near(units, edges, planned, policy.target_rows)


def _between(edges: list[int], outputs: int) -> tuple[int, ...]:
    """Evenly, but only between row groups: perhaps into fewer outputs."""
    even = list(accumulate(split_evenly(edges[-1], outputs)))
    return _lengths(sorted({_nearest(edges, at) for at in even[:-1]}), edges[-1])


def _within(edges: list[int], bound: int) -> tuple[int, ...]:
    """As many whole row groups in each output as the bound allows; one that is larger is alone."""
    cuts = [0]
    for start, stop in pairwise([0, *edges]):
        if stop - cuts[-1] > bound:
            cuts.append(start)
    return _lengths(sorted(set(cuts)), edges[-1])


def _are_good(rows: tuple[int, ...], load: Load, policy: CompactionPolicy) -> bool:
    full = load.num_rows / fill(load, policy)
    bound = policy.target_rows or load.num_rows
    return min(rows) >= _LEAST_FILL * full and max(rows) <= min(_MOST_FILL * full, bound)


def _near(
    units: Sequence[Unit], edges: list[int], planned: tuple[int, ...], bound: int | None
) -> tuple[int, ...]:
    """Each cut at the end of a row group close by, else through one, which is then decoded."""
    cuts = [0]
    for at, following in pairwise(accumulate(planned)):
        edge = _nearest(edges, at)
        near = abs(edge - at) * _NEAR <= planned[0] and cuts[-1] < edge < following
        fits = bound is None or max(edge - cuts[-1], following - edge) <= bound
        copied = units[bisect_left(edges, at)].healthy
        cuts.append(edge if copied and near and fits else at)
    return _lengths(cuts[1:], edges[-1])


def _nearest(edges: list[int], at: int) -> int:
    after = bisect_left(edges, at)
    before = edges[after - 1] if after else 0
    return before if at - before <= edges[after] - at else edges[after]


def _lengths(cuts: Sequence[int], rows: int) -> tuple[int, ...]:
    """Rows between cuts, of which none is empty."""
    inner = [at for at in cuts if 0 < at < rows]
    return tuple(stop - start for start, stop in pairwise([0, *inner, rows]))
