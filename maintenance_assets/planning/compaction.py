"""From files to a compaction plan. Pure: no I/O, no clock, no randomness."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pyarrow as pa

from maintenance_assets.errors import SchemaConflictError
from maintenance_assets.model.files import DataFile, FileInfo, Snapshot, UntouchedFile
from maintenance_assets.model.plans import (
    CompactionGroup,
    CompactionPlan,
    GroupFailure,
    GroupMode,
    RewriteGroup,
    WriterOptions,
)
from maintenance_assets.model.policy import MIB, CompactionPolicy
from maintenance_assets.model.stats import MaintenanceStats
from maintenance_assets.planning.encoding import notation_notes, writer_options
from maintenance_assets.planning.file_metadata import has_range_index
from maintenance_assets.planning.held_keys import Part, part_of
from maintenance_assets.planning.layout import layout_of
from maintenance_assets.planning.packing import (
    OWN_SMALL,
    SMALL,
    Load,
    is_oversized,
    is_small,
    output_count,
    pack,
    split_evenly,
)
from maintenance_assets.planning.row_groups import HEALTHY_BYTES, HEALTHY_ROWS
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas
from maintenance_assets.planning.stitching import decide

F = TypeVar("F", bound=FileInfo)

ROW_GROUP_ROWS = 256 * 1024
ROW_GROUP_BYTES = 64 * MIB
"""Limits of a row group the engines write, in rows and in decoded bytes.

Rows are held until their row group is full: in larger ones of narrow rows, memory that is new to
the process costs a quarter of the time, and readers have less to skip and to share among threads.
"""
PARQUET_MR = "parquet-mr"
"""How the writer of Spark and Hive names itself."""
_WORTHWHILE = 4
"""Repair row groups only where there are this many times more than needed."""
OWN_OUTPUT = re.compile(r"(compact|optimized)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")


def plan_groups(
    files: Iterable[F], policy: CompactionPolicy
) -> tuple[list[tuple[F, ...]], list[UntouchedFile]]:
    """Group the files worth rewriting, partition by partition; say why the others stay."""
    groups: list[tuple[F, ...]] = []
    untouched: list[UntouchedFile] = []
    for _, members in sorted(_by_partition(files).items()):
        candidates = [file for file in members if _is_candidate(file, policy)]
        chosen = set(candidates)
        untouched += [_left(file, "at_target") for file in members if file not in chosen]
        for group in pack(candidates, policy):
            if _is_worthwhile(group, policy):
                groups.append(group)
            else:
                reason = "singleton" if len(candidates) == 1 else "no_gain"
                untouched += [_left(file, reason) for file in group]
    return groups, untouched


def plan_compaction(snapshot: Snapshot, policy: CompactionPolicy) -> CompactionPlan:
    """Plan the compaction of a discovered dataset."""
    return plan_rewrites(snapshot, *plan_groups(snapshot.files, policy), policy)


def plan_rewrites(
    snapshot: Snapshot,
    groups: Sequence[tuple[DataFile, ...]],
    untouched: Sequence[UntouchedFile],
    policy: CompactionPolicy,
) -> CompactionPlan:
    """A plan that rewrites these groups of files."""
    untouched = list(untouched)
    ready: list[RewriteGroup] = []
    failures: list[GroupFailure] = []
    for group in groups:
        try:
            planned = _rewrite_group(group, policy)
        except SchemaConflictError as error:
            failures.append(GroupFailure(tuple(f.path for f in group), str(error)))
            untouched += [_left(file, "schema_conflict") for file in group]
            continue
        if policy.mode != "stitch":
            ready.append(planned)
        elif planned.mode == "stitch":
            # Row groups are not always where a cut would have to be.
            if len(planned.output_rows) != len(group):
                ready.append(planned)
            else:
                untouched += [_left(file, "no_gain") for file in group]
        else:
            why = f"{planned.mode_reason}, so the files cannot be stitched. Use mode='auto'"
            failures.append(GroupFailure(tuple(f.path for f in group), why))
            untouched += [_left(file, "not_stitchable") for file in group]
    return CompactionPlan(
        root=snapshot.root,
        policy=policy,
        groups=tuple(ready),
        untouched=tuple(sorted(untouched, key=lambda file: file.path)),
        failures=tuple(failures),
        predicted=predict_stats(
            snapshot.files,
            [CompactionGroup(group.files, group.output_rows) for group in ready],
            predicted_codec(snapshot.files, ready, policy),
        ),
        metadata_files=snapshot.metadata_files,
    )


def predict_stats(
    files: Sequence[FileInfo], groups: Sequence[CompactionGroup], codec: str | None
) -> MaintenanceStats:
    """What a dry run reports."""
    before_bytes = sum(file.size_bytes for file in files)
    inputs = [file for group in groups for file in group.files]
    outputs = sum(len(group.output_rows) for group in groups)
    rewritten = sum(file.size_bytes for file in inputs)
    return MaintenanceStats(
        before_file_count=len(files),
        after_file_count=len(files) - len(inputs) + outputs,
        before_total_bytes=before_bytes,
        after_total_bytes=before_bytes - rewritten + sum(_predicted_bytes(g) for g in groups),
        compacted_file_count=len(inputs),
        rewritten_bytes=rewritten,
        compression_codec=codec,
        dry_run=True,
        planned_groups=[group.file_paths() for group in groups],
    )


def predicted_codec(
    files: Sequence[DataFile], groups: Sequence[RewriteGroup], policy: CompactionPolicy
) -> str | None:
    """The codec of what is written, or of what is there when nothing is."""
    if groups:
        return codec_label(codec for group in groups for codec in group.writer.codecs())
    return codec_label(codec for file in files for codec in file.codecs)


def codec_label(codecs: Iterable[str]) -> str | None:
    """One name for the codecs in use: `zstd`, or `snappy+zstd` where they are mixed."""
    return "+".join(sorted(set(codecs))) or None


def has_tiny_row_groups(file: FileInfo) -> bool:
    """Whether a file is cut into so many row groups that reading it is slow."""
    # What we wrote ourselves is as healthy as the memory budget allowed: never again.
    if not isinstance(file, DataFile) or _is_own_output(file):
        return False
    needed = max(1, -(-file.num_rows // ROW_GROUP_ROWS), -(-file.decoded_bytes // ROW_GROUP_BYTES))
    return (
        file.row_group_count >= _WORTHWHILE * needed
        and file.num_rows < HEALTHY_ROWS * file.row_group_count
        and file.data_bytes < HEALTHY_BYTES * file.row_group_count
    )


def _by_partition(files: Iterable[F]) -> dict[Part, list[F]]:
    """The files of each directory; those that hold its keys apart from those that do not."""
    partitions: defaultdict[Part, list[F]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        partitions[part_of(file)].append(file)
    return partitions


def _is_candidate(file: FileInfo, policy: CompactionPolicy) -> bool:
    if _is_clustered(file, policy):
        return is_oversized(file, policy)
    small = is_small(file, policy, OWN_SMALL if _is_own_output(file) else SMALL)
    return small or is_oversized(file, policy) or _is_repaired(file, policy)


def _is_clustered(file: FileInfo, policy: CompactionPolicy) -> bool:
    """Whether optimize made a file for these targets: merging it would undo the clustering."""
    layout = layout_of(file) if isinstance(file, DataFile) else None
    return layout is not None and (layout.target_bytes, layout.target_rows) == (
        policy.target_bytes,
        policy.target_rows,
    )


def _is_own_output(file: FileInfo) -> bool:
    return OWN_OUTPUT.fullmatch(file.path.rpartition("/")[2]) is not None


def _is_worthwhile(group: Sequence[FileInfo], policy: CompactionPolicy) -> bool:
    return (
        output_count(Load.of(group), policy) < len(group)
        or any(is_oversized(file, policy) for file in group)
        or any(_is_repaired(file, policy) for file in group)
    )


def _is_repaired(file: FileInfo, policy: CompactionPolicy) -> bool:
    return policy.mode != "stitch" and has_tiny_row_groups(file)


def _left(file: FileInfo, reason: str) -> UntouchedFile:
    return UntouchedFile(file.path, file.size_bytes, file.num_rows, reason)


def group_output_rows(files: Sequence[FileInfo], policy: CompactionPolicy) -> tuple[int, ...]:
    """Rows of each file that a group becomes."""
    load = Load.of(files)
    return split_evenly(load.num_rows, output_count(load, policy))


def _rewrite_group(files: tuple[DataFile, ...], policy: CompactionPolicy) -> RewriteGroup:
    merged = merge_schemas([SchemaSource(file.path, file.schema.arrow) for file in files])
    writer = writer_options(files, policy.compression)
    planned = group_output_rows(files, policy)
    decision = decide(files, merged.schema, writer, planned, policy)
    # Nothing is claimed of a part that was not claimed of the whole; rows that are encoded after
    # all get no order from this, as their row groups are not those of the source.
    keeps_copied = len(files) == 1 and decision.mode == "stitch"
    same_notation = len({file.schema.old_timestamps for file in files}) == 1
    return RewriteGroup(
        directory=files[0].directory,
        files=files,
        output_rows=decision.output_rows,
        schema=merged.schema,
        writer=writer,
        notes=merged.notes
        + (() if keeps_copied else _sorting_notes(files, writer))
        + (() if same_notation and decision.mode != "encode" else notation_notes(files))
        + _index_notes(merged.schema, decision.output_rows)
        + _int96_notes(files, decision.mode),
        mode=decision.mode,
        mode_reason=decision.reason,
        must_stitch=policy.mode == "stitch",
        keeps_copied_sorting=keeps_copied,
    )


def _sorting_notes(files: Sequence[DataFile], writer: WriterOptions) -> tuple[str, ...]:
    orders = sorted({str(column) for file in files for column in file.sorting})
    if not orders or writer.sorting:
        return ()
    order = ", ".join(orders)
    where = "holds inside each source or row group, not in the output"
    return (f"the declared sort order ({order}) {where}",)


def _index_notes(schema: pa.Schema, output_rows: tuple[int, ...]) -> tuple[str, ...]:
    if len(output_rows) == 1 or not has_range_index(schema):
        return ()
    return ("file metadata 'pandas': each output numbers its rows from 0",)


def _int96_notes(files: Sequence[DataFile], mode: GroupMode) -> tuple[str, ...]:
    """Spark may shift INT96 by its session's zone where parquet-mr is not named as the writer."""
    names = {file.created_by.partition(" version ")[0] for file in files}
    if PARQUET_MR not in names or not any(file.schema.has_int96 for file in files):
        return ()
    if names == {PARQUET_MR} and mode == "stitch":
        return ()
    return (
        "INT96 timestamps of parquet-mr come under another writer's name: a Spark session with "
        "spark.sql.parquet.int96TimestampConversion shifts such by its zone",
    )


def _predicted_bytes(group: CompactionGroup) -> int:
    """Column data is carried over; a footer is paid once per output, not once per input."""
    files = [file for file in group.files if isinstance(file, DataFile)]
    if not files:
        return group.total_size_bytes
    footer = max(file.size_bytes - file.data_bytes for file in files)
    return sum(file.data_bytes for file in files) + footer * len(group.output_rows)
