"""What a health score is made of, as far as footers tell. Pure: no I/O, no clock."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from maintenance_assets.errors import SchemaConflictError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.health import (
    DatasetHealth,
    HealthPart,
    HealthReport,
    PartitionHealth,
)
from maintenance_assets.planning.compaction import has_tiny_row_groups
from maintenance_assets.planning.health import debt_words
from maintenance_assets.planning.layout import layout_of
from maintenance_assets.planning.range_depth import Depth, depth_of
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas

ROW_GROUP_POINTS = 30.0
OVERLAP_POINTS = 40.0
DRIFT_POINTS = 10.0
CONFLICT_POINTS = 20.0
UNREADABLE_POINTS = 100.0
"""What each part takes off at most; small files alone may take everything."""
_COMPARED = 200
"""Kinds of schemas that are merged to see whether they can be: more is no news."""


@dataclass(frozen=True, slots=True)
class FooterHealth:
    """Counts of one partition that only its footers tell."""

    file_count: int
    tiny: int
    """Files that are cut into tiny row groups."""
    drifted: int
    """Files with another schema than most."""
    conflict: str | None
    """Why the files cannot be merged, if so."""
    depth: Depth | None
    """How much clustered files overlap; None where nothing is clustered."""


def footer_health(files: Sequence[DataFile]) -> FooterHealth:
    """Look at the footers of one partition."""
    kinds: dict[bytes, DataFile] = {}
    counted: Counter[bytes] = Counter()
    known: dict[str, bytes] = {}
    for file in files:
        fingerprint = file.schema.fingerprint
        if fingerprint not in known:  # thousands of files share a handful of schemas
            known[fingerprint] = file.schema.arrow.remove_metadata().serialize().to_pybytes()
        kinds.setdefault(known[fingerprint], file)
        counted[known[fingerprint]] += 1
    return FooterHealth(
        file_count=len(files),
        tiny=sum(has_tiny_row_groups(file) for file in files),
        drifted=len(files) - max(counted.values(), default=0),
        conflict=_conflict(list(kinds.values())[:_COMPARED]),
        depth=depth_of(files, clustered_by(files)),
    )


def clustered_by(files: Sequence[DataFile]) -> tuple[str, ...]:
    """The columns that most clustered files of a partition are laid out by."""
    layouts = (layout_of(file) for file in files)
    found = Counter(layout.columns for layout in layouts if layout is not None)
    return found.most_common(1)[0][0] if found else ()


def listing_report(health: PartitionHealth | DatasetHealth) -> HealthReport:
    """The health as a listing tells it: small files, and nothing else."""
    return HealthReport((HealthPart("small files", 100.0 - health.score, debt_words(health)),))


def partition_report(
    health: PartitionHealth, footers: FooterHealth | None, unreadable: int = 0
) -> HealthReport:
    """The health of one partition and why it is not better."""
    known = [] if footers is None else [footers]
    return _report(health, known, unreadable)


def dataset_report(
    health: DatasetHealth, footers: Mapping[str, FooterHealth], unreadable: int = 0
) -> HealthReport:
    """The health of a dataset: its partitions weigh as many files as they have."""
    return _report(health, list(footers.values()), unreadable)


def _report(
    health: PartitionHealth | DatasetHealth, footers: Sequence[FooterHealth], unreadable: int
) -> HealthReport:
    parts = listing_report(health).parts
    if unreadable:
        of_all = f"{unreadable} of {health.file_count} files cannot be read as Parquet"
        points = UNREADABLE_POINTS * unreadable / max(1, health.file_count)
        parts += (HealthPart("unreadable files", points, of_all),)
    if footers:
        parts += (_row_groups(footers), _drift(footers))
    if any(found.depth is not None for found in footers):
        parts += (_overlap(footers),)
    return HealthReport(parts)


def _row_groups(footers: Sequence[FooterHealth]) -> HealthPart:
    files = sum(found.file_count for found in footers)
    tiny = sum(found.tiny for found in footers)
    reason = f"{tiny} of {files} files are cut into row groups too small to read well"
    return HealthPart("tiny row groups", ROW_GROUP_POINTS * tiny / max(1, files), reason)


def _drift(footers: Sequence[FooterHealth]) -> HealthPart:
    files = sum(found.file_count for found in footers)
    drifted = sum(found.drifted for found in footers)
    stuck = [found for found in footers if found.conflict is not None]
    stuck_files = sum(found.file_count for found in stuck)
    points = (DRIFT_POINTS * drifted + CONFLICT_POINTS * stuck_files) / max(1, files)
    reason = f"{drifted} of {files} files have another schema than most of their partition"
    if stuck:
        reason += f"; {len(stuck)} partition(s) cannot be merged: {stuck[0].conflict}"
    return HealthPart("schema drift", points, reason)


def _overlap(footers: Sequence[FooterHealth]) -> HealthPart:
    known = [found for found in footers if found.depth is not None]
    files = sum(found.file_count for found in known)
    excess = touched = 0.0
    for found in known:
        if found.depth is not None:
            excess += found.file_count * found.depth.excess
            touched += found.file_count * found.depth.share
    reason = f"a look-up by a clustering column opens {touched / max(1, files):.0%} of the files"
    return HealthPart("overlap", OVERLAP_POINTS * excess / max(1, files), reason)


def _conflict(kinds: Sequence[DataFile]) -> str | None:
    try:
        merge_schemas([SchemaSource(file.path, file.schema.arrow) for file in kinds])
    except SchemaConflictError as error:
        return str(error)
    return None
