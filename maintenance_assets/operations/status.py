"""Status: how a dataset is, and whether anything should be done. Nothing is written."""

import os
import posixpath
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maintenance_assets.errors import LeaseHeldError, UnreadableFileError
from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.model.health import HealthPolicy, PartitionHealth
from maintenance_assets.model.plans import CompactionPlan
from maintenance_assets.model.policy import DEFAULT_TARGET_BYTES, CompactionPolicy, bytes_of_mb
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.model.status import DatasetStatus, PartitionStatus
from maintenance_assets.planning.compaction import plan_compaction
from maintenance_assets.planning.health import decide, measure_dataset, measure_partition
from maintenance_assets.planning.health_parts import (
    FooterHealth,
    clustered_by,
    dataset_report,
    footer_health,
    partition_report,
)
from maintenance_assets.planning.packing import SMALL
from maintenance_assets.planning.partitions import parse_partition_filter
from maintenance_assets.planning.survey import drifted_columns, schema_count, size_histogram
from maintenance_assets.planning.worth import (
    Candidate,
    Throughput,
    cost_words,
    ranked,
    throughput_of,
)
from maintenance_assets.storage.discovery import list_dataset, select
from maintenance_assets.storage.filesystems import Listed, Store, location, open_store
from maintenance_assets.storage.footers import read_footers
from maintenance_assets.storage.lease import LEASES, WORK_DIRECTORY, holders_in
from maintenance_assets.storage.recovery import leftover_runs

Unreadable = tuple[tuple[str, str], ...]


def status(
    path: str | os.PathLike[str],
    *,
    engine: str = "pyarrow",
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    small_file_mb: float | None = None,
    min_gain: int = 4,
    cooldown_minutes: float = 10.0,
    partition_filter: Any = None,
    worst: int = 10,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: ProgressCallback | None = None,
) -> DatasetStatus:
    """Files, health and what is under way, from the listing and the footers.

    Files that cannot be read are part of the answer, not an error. The engine matters for the
    estimate of what a compaction costs.
    """
    judging = Judging.of(
        engine=engine,
        target_mb_per_file=target_mb_per_file,
        target_rows_per_file=target_rows_per_file,
        small_file_mb=small_file_mb,
        min_gain=min_gain,
        cooldown_minutes=cooldown_minutes,
        worst=worst,
    )
    chosen_by = parse_partition_filter(partition_filter)
    store = open_store(path, filesystem, storage_options)
    listed = select(store, list_dataset(store).data, chosen_by)
    found = judge(store, listed, judging, on_progress)
    return replace(
        found,
        dataset=location(path, store),
        leftovers=_leftovers(store),
        holders=_holders(store),
    )


@dataclass(frozen=True, slots=True)
class Judging:
    """What a dataset is held against."""

    targets: CompactionPolicy
    policy: HealthPolicy
    throughput: Throughput
    worst: int
    """Partitions to name."""

    @classmethod
    def of(
        cls,
        *,
        engine: str = "pyarrow",
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        small_file_mb: float | None = None,
        min_gain: int = 4,
        cooldown_minutes: float = 10.0,
        worst: int = 10,
    ) -> "Judging":
        """From the options of `status`."""
        targets = CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file)
        policy = health_policy(targets, small_file_mb, min_gain, cooldown_minutes)
        return cls(targets, policy, throughput_of(engine), max(0, worst))


def judge(
    store: Store,
    listed: Sequence[Listed],
    judging: Judging,
    on_progress: ProgressCallback | None = None,
) -> DatasetStatus:
    """How these files are; what is under way in their directory is not looked at."""
    files, unreadable = _footers(store, listed, on_progress)
    plan = plan_compaction(Snapshot(store.root, files), judging.targets)
    parts = _partitions(store, listed, judging.policy, plan)
    footers = _footer_healths(store, listed, files)
    total = measure_dataset(parts)
    bad = Counter(store.relative(posixpath.dirname(file)) for file, _ in unreadable)
    statuses = _statuses(parts, footers, bad, judging.policy, judging.throughput)
    return DatasetStatus(
        dataset=store.shown,
        file_count=len(listed),
        total_bytes=total.total_bytes,
        rows=sum(file.num_rows for file in files),
        row_groups=sum(file.row_group_count for file in files),
        partitions=total.partitions,
        small_files=total.small_files,
        gain=total.gain,
        codecs=tuple(sorted({codec for file in files for codec in file.codecs})),
        clustered_by=clustered_by(files),
        health=dataset_report(total, footers, len(unreadable)),
        worst=_worst(statuses)[: judging.worst],
        in_need=sum(part.decision.run for part in statuses),
        schemas=schema_count(files),
        drift=drifted_columns(files),
        unreadable=tuple((store.relative(file), why) for file, why in unreadable),
        leftovers=(),
        holders=(),
        histogram=size_histogram(entry.size_bytes for entry in listed),
        planned_rewrites=plan.predicted.compacted_file_count,
        planned_outputs=sum(len(group.output_rows) for group in plan.groups),
    )


def health_policy(
    targets: CompactionPolicy, small_file_mb: object, min_gain: int, cooldown_minutes: float
) -> HealthPolicy:
    """When small files are worth a run, for these targets."""
    target = targets.target_bytes or DEFAULT_TARGET_BYTES
    small = bytes_of_mb("small_file_mb", small_file_mb)
    if isinstance(min_gain, bool) or not isinstance(min_gain, int) or min_gain < 1:
        raise ValueError(f"min_gain must be a whole number >= 1, got {min_gain!r}")
    if not cooldown_minutes >= 0:
        raise ValueError(f"cooldown_minutes must be >= 0, got {cooldown_minutes!r}")
    bound = int(SMALL * target) if small is None else small
    return HealthPolicy(target, max(1, bound), min_gain, 60.0 * cooldown_minutes)


def _footers(
    store: Store, listed: Sequence[Listed], on_progress: ProgressCallback | None
) -> tuple[tuple[DataFile, ...], Unreadable]:
    try:
        return read_footers(store, listed, on_progress), ()
    except UnreadableFileError as error:
        bad = {path for path, _ in error.problems}
        readable = [entry for entry in listed if entry.path not in bad]
        return read_footers(store, readable), error.problems


def _partitions(
    store: Store, listed: Sequence[Listed], policy: HealthPolicy, plan: CompactionPlan
) -> tuple[PartitionHealth, ...]:
    """As a listing shows them; what could be saved, the plan knows better."""
    saved: Counter[str] = Counter()
    for group in plan.groups:
        saved[store.relative(group.directory)] += len(group.files) - len(group.output_rows)
    measured = (
        measure_partition(
            directory, [(f.path, f.size_bytes, f.version, f.modified_at) for f in entries], policy
        )
        for directory, entries in _by_directory(store, listed).items()
    )
    return tuple(replace(part, gain=max(0, saved[part.partition])) for part in measured)


def _footer_healths(
    store: Store, listed: Sequence[Listed], files: Sequence[DataFile]
) -> dict[str, FooterHealth]:
    """By partition; the ranges of clustering columns are read where there are such."""
    entries = _by_directory(store, listed)
    members: dict[str, list[DataFile]] = {}
    for file in files:
        members.setdefault(store.relative(file.directory), []).append(file)
    found = {}
    for directory, inside in members.items():
        columns = clustered_by(inside)
        if columns:
            readable = {file.path for file in inside}
            again = [entry for entry in entries[directory] if entry.path in readable]
            inside = list(read_footers(store, again, ranges_of=columns))
        found[directory] = footer_health(inside)
    return found


def _statuses(
    parts: Sequence[PartitionHealth],
    footers: Mapping[str, FooterHealth],
    unreadable: Counter[str],
    policy: HealthPolicy,
    throughput: Throughput,
) -> list[PartitionStatus]:
    now = time.time()
    return [
        PartitionStatus(
            health=part,
            report=partition_report(part, footers.get(part.partition), unreadable[part.partition]),
            decision=decide(part, policy, now),
            cost=cost_words(part.small_bytes, throughput),
        )
        for part in parts
    ]


def _worst(statuses: Sequence[PartitionStatus]) -> tuple[PartitionStatus, ...]:
    """The least healthy first; among equals, what is worth most."""
    candidates = [
        Candidate(s.health.partition, s.health.gain, s.health.small_bytes) for s in statuses
    ]
    place = {one.name: number for number, one in enumerate(ranked(candidates))}
    unhealthy = [s for s in statuses if s.report.score < 100]
    return tuple(sorted(unhealthy, key=lambda s: (s.report.score, place[s.health.partition])))


def _by_directory(store: Store, listed: Sequence[Listed]) -> dict[str, list[Listed]]:
    found: dict[str, list[Listed]] = {}
    for entry in listed:
        found.setdefault(store.relative(posixpath.dirname(entry.path)), []).append(entry)
    return found


def _leftovers(store: Store) -> tuple[str, ...]:
    return () if _holders(store) else leftover_runs(store)


def _holders(store: Store) -> tuple[str, ...]:
    if not store.exists(store.path(WORK_DIRECTORY)):
        return ()
    try:
        return tuple(h.describe() for h in holders_in(store, store.path(LEASES)))
    except LeaseHeldError as error:  # a lease that cannot be read
        return (str(error),)
