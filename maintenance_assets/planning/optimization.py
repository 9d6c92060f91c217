"""From files and a sample to a clustering plan. Pure: no I/O, no clock, no randomness."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from maintenance_assets.model.clustering import (
    GROUPS_PER_FILE,
    Clustering,
    ColumnGain,
    ColumnOverlap,
    Curve,
    Layout,
    PartitionDecision,
)
from maintenance_assets.model.files import DataFile, FileInfo, SortedColumn
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.planning.clustering import make_clustering
from maintenance_assets.planning.compaction import ROW_GROUP_ROWS, group_output_rows
from maintenance_assets.planning.encoding import notation_notes, writer_options
from maintenance_assets.planning.held_keys import Part, held_keys, part_of
from maintenance_assets.planning.layout import grid_hash, layout_of, with_layout
from maintenance_assets.planning.orderable import (
    column_names,
    find_path,
    is_orderable,
    is_repeated,
    leaf_of,
    type_at,
)
from maintenance_assets.planning.overlap import (
    Boxes,
    Grid,
    boxes_of_files,
    make_grid,
    overlaps,
    predicted_boxes,
    touching,
)
from maintenance_assets.planning.packing import OWN_SMALL, Load, fill, is_oversized, is_small
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas

Array = Any
F = TypeVar("F", bound=FileInfo)
GOOD_ENOUGH = 1.2
"""A layout this close to a fresh one is left alone: the mean over its columns."""
_NO_COLUMN_WORSE = 1.5
_STILL_AS_WRITTEN = 2.0
"""An overlap beyond this many times the foreseen one is not that of the files we wrote."""
_TELLING = 64
"""Rows of a sample for each file that it takes to foresee an overlap."""


@dataclass(frozen=True, slots=True)
class OptimizePolicy:
    """By which columns, along which curve, into files of which size."""

    columns: tuple[str, ...]
    curve: Curve
    targets: CompactionPolicy


@dataclass(frozen=True, slots=True)
class Partition:
    """The files of one directory, and the schema and the key that they have together."""

    directory: str
    files: tuple[DataFile, ...]
    schema: pa.Schema
    notes: tuple[str, ...]
    policy: OptimizePolicy
    """With those of the columns that tell rows of this partition apart."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A group to rewrite and where its files will be, in the ids of the partition."""

    group: RewriteGroup
    boxes: Boxes


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a partition is like, and what a fresh layout of all of it would be."""

    partition: Partition
    grid: Grid
    boxes: Boxes
    fresh: Proposal

    @property
    def could_be(self) -> tuple[ColumnOverlap, ...]:
        """The overlap of a fresh layout, by the sample."""
        return overlaps(self.grid, self.fresh.boxes)

    @property
    def before(self) -> tuple[ColumnOverlap, ...]:
        """The overlap as it is."""
        return overlaps(self.grid, self.boxes)


def check_columns(schemas: Iterable[pa.Schema], columns: Sequence[str]) -> None:
    """Raise unless every column is in some schema and has an order."""
    known = list(schemas)
    missing = [
        column for column in columns if not any(find_path(schema, column) for schema in known)
    ]
    if missing:
        available = dict.fromkeys(name for schema in known for name in column_names(schema))
        raise ValueError(
            f"Missing z-order columns: {', '.join(missing)}. "
            f"Available columns: {', '.join(available)}"
        )
    for schema in known:
        for column in columns:
            path = find_path(schema, column)
            if path is not None and is_repeated(schema, path):
                raise ValueError(
                    f"Cannot cluster by '{column}': a file has that name more than once. "
                    "Rename one of the columns, or choose another"
                )
            if path is not None and not is_orderable(type_at(schema, path)):
                raise ValueError(
                    f"Cannot cluster by '{column}': its type {type_at(schema, path)} has no order. "
                    "Choose columns of numbers, text, bytes, booleans, dates or times"
                )


def make_partition(directory: str, files: Sequence[DataFile], policy: OptimizePolicy) -> Partition:
    """Merge the schemas of a directory; raises SchemaConflictError."""
    ordered = tuple(sorted(files, key=lambda file: file.path))
    merged = merge_schemas([SchemaSource(file.path, file.schema.arrow) for file in ordered])
    notes = merged.notes + notation_notes(ordered)
    return Partition(directory, ordered, merged.schema, notes, policy)


def assess(partition: Partition, sample: Sequence[Array], run: str) -> Assessment:
    """Measure a partition and lay all of it out anew, on paper."""
    clustering = _clustering(partition.files, partition.policy, sample)
    grid = make_grid(partition.policy.columns, sample)
    return Assessment(
        partition,
        grid,
        boxes_of_files(grid, partition.files, partition.schema),
        _propose(partition, partition.files, clustering, grid, sample, run),
    )


def settled(assessment: Assessment) -> str | None:
    """Why a partition needs nothing; None when it does."""
    partition = assessment.partition
    # Files without rows are in nobody's way.
    files = [file for file in partition.files if file.num_rows]
    layouts = [_wanted_layout(file, partition.policy) for file in files]
    first = layouts[0]
    if first is None or None in layouts:
        return None
    # Where more files would not come of it, rows are longer in some: they would be cut as they are.
    is_large = any(is_oversized(file, partition.policy.targets) for file in files)
    if is_large and len(assessment.fresh.group.output_rows) > len(files):
        return None
    found = assessment.before
    is_one_run = len({layout.run for layout in layouts if layout}) == 1
    if is_one_run and first.files == len(layouts) and _is_as_written(found, first):
        return "nothing was written to it since it was clustered"
    if is_good(found, assessment.could_be):
        return f"its overlap is within {GOOD_ENOUGH} times that of a fresh layout"
    return None


def additions(assessment: Assessment) -> tuple[DataFile, ...]:
    """New files, the small ones of earlier additions, and the clustered files that they overlap.

    Empty where nothing is new, or nothing is clustered; may be all files.
    """
    files, policy = assessment.partition.files, assessment.partition.policy
    layouts = [_wanted_layout(file, policy) for file in files]
    empty = np.array([file.num_rows == 0 for file in files])
    new = np.array([layout is None for layout in layouts]) & ~empty
    if not new.any() or (new | empty).all():
        return ()
    # Of several files that were written together, none is small: they may only compress well.
    small = np.array(
        [
            layout is not None and layout.files == 1 and is_small(file, policy.targets, OWN_SMALL)
            for file, layout in zip(files, layouts, strict=True)
        ]
    )
    large = np.array([is_oversized(file, policy.targets) for file in files])
    chosen = new | empty | small | large | touching(assessment.boxes, assessment.boxes[new])
    return tuple(file for file, take in zip(files, chosen, strict=True) if take)


def propose_additions(
    assessment: Assessment, files: Sequence[DataFile], sample: Sequence[Array], run: str
) -> Proposal | None:
    """Lay out only these files; None where the partition would not be good enough by that."""
    partition = assessment.partition
    clustering = _clustering(files, partition.policy, sample)
    proposal = _propose(partition, files, clustering, assessment.grid, sample, run)
    after = overlaps(assessment.grid, _with_proposal(assessment, proposal))
    return proposal if is_good(after, assessment.could_be) else None


def decide(
    assessment: Assessment, proposal: Proposal | None, action: Any, reason: str
) -> PartitionDecision:
    """The decision about a partition, with the overlap before and after it."""
    boxes = assessment.boxes if proposal is None else _with_proposal(assessment, proposal)
    partition = assessment.partition
    return PartitionDecision(
        directory=partition.directory,
        held=held_keys(partition.files[0]),
        action=action,
        reason=reason,
        files=len(partition.files),
        rewritten=0 if proposal is None else len(proposal.group.files),
        outputs=0 if proposal is None else len(proposal.group.output_rows),
        rows=sum(file.num_rows for file in partition.files),
        before=assessment.before,
        after=overlaps(assessment.grid, boxes),
    )


def unpublished(decision: PartitionDecision, reason: str) -> PartitionDecision:
    """The decision about a partition that then was left as it is."""
    return replace(
        decision, action="none", reason=reason, rewritten=0, outputs=0, after=decision.before
    )


def measured(
    assessment: Assessment, decision: PartitionDecision, files: Sequence[DataFile]
) -> PartitionDecision:
    """The decision with the overlap of the files that are there now."""
    boxes = boxes_of_files(assessment.grid, files, assessment.partition.schema)
    return replace(decision, after=overlaps(assessment.grid, boxes))


def gains(decisions: Sequence[PartitionDecision]) -> tuple[ColumnGain, ...]:
    """Column by column, the mean over partitions, weighted by their rows."""
    totals: dict[str, Counter[str]] = {}
    known: dict[str, tuple[bool, bool]] = {}
    for decision in decisions:
        for before, after in zip(decision.before, decision.after, strict=True):
            total = totals.setdefault(before.column, Counter())
            is_known = known.get(before.column, (True, True))
            known[before.column] = is_known[0] and before.is_known, is_known[1] and after.is_known
            total["rows"] += decision.rows
            for name, value in (
                ("depth_before", before.depth),
                ("share_before", before.share),
                ("depth_after", after.depth),
                ("share_after", after.share),
            ):
                total[name] += decision.rows * value  # type: ignore[assignment]
    return tuple(
        ColumnGain(
            column,
            **{k: v / total["rows"] for k, v in total.items() if k != "rows"},
            is_known_before=known[column][0],
            is_known_after=known[column][1],
        )
        for column, total in totals.items()
        if total["rows"]
    )


def optimize_groups(files: Iterable[F]) -> list[tuple[F, ...]]:
    """All files of a directory go together; those that hold its keys apart from the others."""
    directories: dict[Part, list[F]] = {}
    for file in sorted(files, key=lambda file: file.path):
        directories.setdefault(part_of(file), []).append(file)
    return [tuple(members) for _, members in sorted(directories.items())]


def _wanted_layout(file: DataFile, policy: OptimizePolicy) -> Layout | None:
    """The recorded layout of a file, if it is the one that is asked for."""
    layout = layout_of(file)
    targets = policy.targets
    if layout is None or (layout.curve, layout.columns) != (policy.curve, policy.columns):
        return None
    same = (layout.target_bytes, layout.target_rows) == (targets.target_bytes, targets.target_rows)
    return layout if same else None


def is_good(found: Sequence[ColumnOverlap], fresh: Sequence[ColumnOverlap]) -> bool:
    """Whether a look-up by any of the columns touches hardly more than in a fresh layout."""
    if not all(overlap.is_known for overlap in found):
        return False
    # Column by column: in a sum, one of few values would outweigh all others.
    # One without values tells nothing, and in the mean it would stand in for another.
    pairs = [(is_, new) for is_, new in zip(found, fresh, strict=True) if new.depth > 0]
    times = [is_.depth / new.depth for is_, new in pairs]
    return max(times, default=0) <= _NO_COLUMN_WORSE and sum(times) <= GOOD_ENOUGH * len(times)


def _is_as_written(found: Sequence[ColumnOverlap], layout: Layout) -> bool:
    """Whether files can be those that were written, by their overlap."""
    return not layout.depths or all(
        not is_.is_known or is_.depth <= _STILL_AS_WRITTEN * foreseen + 1
        for is_, foreseen in zip(found, layout.depths, strict=False)
    )


def _with_proposal(assessment: Assessment, proposal: Proposal) -> Boxes:
    rewritten = set(proposal.group.file_paths())
    kept = [file.path not in rewritten for file in assessment.partition.files]
    return np.concatenate([assessment.boxes[np.array(kept, bool)], proposal.boxes])


def _clustering(
    files: Sequence[DataFile], policy: OptimizePolicy, sample: Sequence[Array]
) -> Clustering:
    output_rows = group_output_rows(files, policy.targets)
    load = Load.of(files)
    filled = fill(load, policy.targets) / len(output_rows)
    # A file that is far from full gets as many groups as it is full.
    groups = max(1, min(GROUPS_PER_FILE, round(GROUPS_PER_FILE * filled)))
    group_rows = max(1, min(ROW_GROUP_ROWS, min(output_rows) // groups))
    row_groups = len(output_rows) * GROUPS_PER_FILE
    return make_clustering(policy.columns, sample, policy.curve, row_groups, group_rows)


def _propose(
    partition: Partition,
    files: Sequence[DataFile],
    clustering: Clustering,
    grid: Grid,
    sample: Sequence[Array],
    run: str,
) -> Proposal:
    policy = partition.policy
    output_rows = group_output_rows(files, policy.targets)
    boxes = predicted_boxes(grid, clustering, sample, len(output_rows))
    is_telling = len(sample[0]) >= _TELLING * len(output_rows)
    foreseen = overlaps(grid, boxes) if is_telling else ()
    layout = Layout(
        curve=policy.curve,
        columns=policy.columns,
        bits=clustering.bits,
        grid=grid_hash(clustering),
        run=run,
        files=len(output_rows),
        target_bytes=policy.targets.target_bytes,
        target_rows=policy.targets.target_rows,
        rows=tuple(sorted(set(output_rows))),
        depths=tuple(round(overlap.depth, 3) for overlap in foreseen),
    )
    writer = writer_options(files, policy.targets.compression)
    group = RewriteGroup(
        directory=partition.directory,
        # Engines need no ranges, and scalars at the edge of time cannot be sent to executors.
        files=tuple(replace(file, ranges=()) for file in files),
        output_rows=output_rows,
        schema=with_layout(partition.schema, layout),
        writer=replace(
            writer,
            page_index=True,
            sorting=_sorting(partition.schema, clustering, writer.int96_timestamps),
        ),
        notes=partition.notes,
        clustering=clustering,
    )
    return Proposal(group, boxes)


def _sorting(schema: pa.Schema, clustering: Clustering, int96: bool) -> tuple[SortedColumn, ...]:
    """The order inside a file, as far as every reader would understand it the same."""
    declared = []
    for column in clustering.columns:
        leaf = leaf_of(schema, column)
        if leaf is None or not _has_plain_order(leaf.type, int96):
            break
        declared.append(SortedColumn(column))
    return tuple(declared)


def _has_plain_order(type_: Any, int96: bool) -> bool:
    # NaN has no place in Parquet's order; categories are ordered by their number elsewhere.
    odd = pa.types.is_floating(type_) or pa.types.is_dictionary(type_) or pa.types.is_null(type_)
    # Nor has INT96 any order at all.
    odd = odd or (int96 and pa.types.is_timestamp(type_))
    return not odd and not isinstance(type_, pa.BaseExtensionType)
