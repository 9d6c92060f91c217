"""Clustering: rows that are asked for together lie together, and other files are not opened."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.engines.sample_kernel import sample_columns
from maintenance_assets.errors import (
    IncompleteMaintenanceError,
    RewriteError,
    SchemaConflictError,
)
from maintenance_assets.model.clustering import CURVES, Curve, PartitionDecision
from maintenance_assets.model.files import DataFile, Snapshot, UntouchedFile
from maintenance_assets.model.plans import (
    CompactionGroup,
    GroupFailure,
    OptimizePlan,
    RewriteGroup,
)
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB, CompactionPolicy
from maintenance_assets.model.progress import Progress, ProgressCallback
from maintenance_assets.operations.naming import uuid7
from maintenance_assets.operations.results import CompactionResult, OptimizeResult
from maintenance_assets.operations.rewrite import failure_message, open_run
from maintenance_assets.planning.compaction import codec_label, predict_stats, predicted_codec
from maintenance_assets.planning.held_keys import Part, part_of
from maintenance_assets.planning.optimization import (
    Assessment,
    OptimizePolicy,
    Partition,
    Proposal,
    additions,
    assess,
    check_columns,
    decide,
    gains,
    make_partition,
    measured,
    optimize_groups,
    propose_additions,
    settled,
    unpublished,
)
from maintenance_assets.planning.orderable import find_path
from maintenance_assets.planning.partitions import known_partition_keys
from maintenance_assets.storage.filesystems import Store, location

logger = logging.getLogger(__name__)


def optimize(
    path: str | os.PathLike[str],
    zorder_columns: Sequence[str],
    *,
    engine: str | Engine = "pyarrow",
    curve: Curve = "hilbert",
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Any = None,
    compression: str | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
    strict: bool = False,
    on_progress: ProgressCallback | None = None,
) -> OptimizeResult:
    """Cluster the rows of each partition by some columns, so that look-ups open few files.

    Files are cut along a space-filling curve over the columns; inside a file, rows are sorted by
    them, nulls last. What is clustered already is left alone. Publishing, errors and guarantees
    are those of `compact`.
    """
    started = time.monotonic()
    planner = ClusteringPlanner(
        OptimizePolicy(
            check_names(zorder_columns),
            check_curve(curve),
            CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file, compression),
        )
    )
    run = open_run(
        planner,
        path,
        engine=engine,
        partition_filter=partition_filter,
        filesystem=filesystem,
        storage_options=storage_options,
        memory_budget_mb=memory_budget_mb,
        max_workers=max_workers,
        strict=strict,
        on_progress=on_progress,
    )
    found = run.preview() if dry_run else run.execute()
    result = replace(
        planner.result(run, found, time.monotonic() - started),
        dataset=location(path, run.store),
        partition_filter=partition_filter,
    )
    if result.failures and not dry_run:
        raise IncompleteMaintenanceError(failure_message(result), result)
    return result


def check_names(zorder_columns: Any) -> tuple[str, ...]:
    """Check the list of columns, before any I/O."""
    if isinstance(zorder_columns, str | bytes) or not isinstance(zorder_columns, Sequence):
        raise ValueError(f"zorder_columns must be a list of column names, got {zorder_columns!r}")
    names = tuple(zorder_columns)
    if not names:
        raise ValueError("zorder_columns must name at least one column")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"zorder_columns must be a list of column names, got {name!r}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"zorder_columns names '{repeated[0]}' more than once")
    if len(names) > _MOST_COLUMNS:
        raise ValueError(f"zorder_columns may name at most {_MOST_COLUMNS} columns")
    return names


_MOST_COLUMNS = 10
"""More would leave fewer than six bits of a key to each."""


def check_curve(curve: Any) -> Curve:
    """Check the name of a curve."""
    if curve not in CURVES:
        raise ValueError(f"Unknown curve {curve!r}. Known curves: {', '.join(CURVES)}")
    found: Curve = curve
    return found


class Rewritten(Protocol):
    """What is known after a run."""

    @property
    def inputs(self) -> Mapping[str, DataFile]:
        """The files that were rewritten, by path."""
        ...

    @property
    def after(self) -> Snapshot | None:
        """The files that there are now; None after a dry run."""
        ...


@dataclass(slots=True)
class ClusteringPlanner:
    """Plans a clustering and, afterwards, tells what it gained."""

    policy: OptimizePolicy
    run: str = field(default_factory=uuid7)
    assessments: dict[Part, Assessment] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)
    """Columns that are part of the key in some partition."""

    operation = "optimize"
    prefix = "optimized"
    max_passes = 1

    @property
    def ranges_of(self) -> tuple[str, ...]:
        """Ranges of the clustering columns tell how much files overlap."""
        return self.policy.columns

    def plan(self, snapshot: Snapshot, store: Store, report: ProgressCallback) -> OptimizePlan:
        """Sample each partition and decide what to do with it."""
        return self.replan(snapshot, optimize_groups(snapshot.files), store, report)

    def replan(
        self,
        snapshot: Snapshot,
        members: Sequence[tuple[DataFile, ...]],
        store: Store,
        report: ProgressCallback,
    ) -> OptimizePlan:
        """The same for the partitions that these files are, whatever else is in the dataset."""
        if not members:
            return self._finished(snapshot, _Parts())
        policies = self._policies(snapshot, store, [files[0].directory for files in members])
        plan = _Parts()
        members = [part for files in members for part in optimize_groups(files)]
        for done, files in enumerate(members):
            report(Progress("sample", done, len(members)))
            self._plan_partition(files, policies[files[0].directory], store, plan)
        report(Progress("sample", len(members), len(members)))
        return self._finished(snapshot, plan)

    def _policies(
        self, snapshot: Snapshot, store: Store, directories: Sequence[str]
    ) -> dict[str, OptimizePolicy]:
        """For each directory the columns that are not the same in all its rows."""
        schemas = {f.schema.fingerprint: f.schema.arrow for f in snapshot.files}.values()
        in_path = {name: known_partition_keys([store.relative(name)]) for name in directories}
        in_some_path = frozenset[str]().union(*in_path.values())
        in_files = [
            column
            for column in self.policy.columns
            if column not in in_some_path or any(find_path(schema, column) for schema in schemas)
        ]
        check_columns(schemas, in_files)
        found = {
            name: tuple(c for c in in_files if c not in keys) for name, keys in in_path.items()
        }
        for column in self.policy.columns:
            if any(column not in columns for columns in found.values()):
                self._warn(f"column '{column}' is a partition of the path: left out of the key")
        if not any(found.values()):
            raise ValueError(
                f"All z-order columns are partition columns: {', '.join(self.policy.columns)}. "
                "Inside a partition they order nothing; name columns of the files"
            )
        self.columns = dict.fromkeys(c for columns in found.values() for c in columns)
        return {name: replace(self.policy, columns=columns) for name, columns in found.items()}

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            logger.warning("%s", text)
        self.warnings[text] = None

    def _plan_partition(
        self, files: Sequence[DataFile], policy: OptimizePolicy, store: Store, plan: "_Parts"
    ) -> None:
        directory = files[0].directory
        if not policy.columns or not any(file.num_rows for file in files):
            why = "no column of the key" if not policy.columns else "empty"
            plan.leave(files, why.replace(" ", "_"))
            return
        try:
            partition = make_partition(directory, files, policy)
            assessment = assess(partition, self._sample(partition, files, store), self.run)
            proposal, decision = self._decide(assessment, store)
        except (SchemaConflictError, RewriteError) as error:
            plan.failures.append(GroupFailure(tuple(f.path for f in files), str(error)))
            conflict = isinstance(error, SchemaConflictError)
            plan.leave(files, "schema_conflict" if conflict else "unreadable")
            return
        self.assessments[decision.key] = assessment
        plan.add(files, proposal, decision)
        rewritten = set() if proposal is None else set(proposal.group.file_paths())
        self._note_codecs([file for file in files if file.path not in rewritten])

    def _note_codecs(self, kept: Sequence[DataFile]) -> None:
        wanted = self.policy.targets.compression
        others = {codec for file in kept for codec in file.codecs if codec != wanted}
        if wanted is not None and others:
            self._warn(
                f"compression '{wanted}' goes for what is rewritten: clustered files stay as they "
                f"are ({codec_label(others)})"
            )

    def _decide(
        self, assessment: Assessment, store: Store
    ) -> tuple[Proposal | None, PartitionDecision]:
        reason = settled(assessment)
        if reason is not None:
            return None, decide(assessment, None, "none", reason)
        added = additions(assessment)
        if len(added) == len(assessment.partition.files):
            why = "new files overlap all of what is clustered"
            return assessment.fresh, decide(assessment, assessment.fresh, "full", why)
        if added:
            sample = self._sample(assessment.partition, added, store)
            proposal = propose_additions(assessment, added, sample, self.run)
            if proposal is not None:
                why = "new files and what they overlap; the rest stays good"
                return proposal, decide(assessment, proposal, "incremental", why)
        why = (
            "new files and what they overlap are not enough: the rest is far from a fresh layout"
            if added
            else "not clustered this way yet, or not any more"
        )
        return assessment.fresh, decide(assessment, assessment.fresh, "full", why)

    def _sample(self, partition: Partition, files: Sequence[DataFile], store: Store) -> list[Any]:
        return sample_columns(files, partition.schema, partition.policy.columns, store)

    def _finished(self, snapshot: Snapshot, plan: "_Parts") -> OptimizePlan:
        targets = self.policy.targets
        predicted = predict_stats(
            snapshot.files,
            [CompactionGroup(group.files, group.output_rows) for group in plan.groups],
            predicted_codec(snapshot.files, plan.groups, targets),
        )
        return OptimizePlan(
            root=snapshot.root,
            policy=targets,
            groups=tuple(plan.groups),
            untouched=tuple(sorted(plan.untouched, key=lambda file: file.path)),
            failures=tuple(plan.failures),
            predicted=predicted,
            metadata_files=snapshot.metadata_files,
            decisions=tuple(plan.decisions),
        )

    def result(self, run: "Rewritten", found: CompactionResult, seconds: float) -> OptimizeResult:
        """The result with what was gained, measured on the files that are there now."""
        decisions = found.plan.decisions if isinstance(found.plan, OptimizePlan) else ()
        left = self._left(run, found)
        decisions = tuple(
            unpublished(each, left[each.key]) if each.key in left else each for each in decisions
        )
        if run.after is not None:
            decisions = tuple(self._measured(decision, run.after) for decision in decisions)
        known = {item.name: getattr(found, item.name) for item in fields(CompactionResult)}
        stats = replace(found.stats, zorder_columns=list(self.policy.columns))
        return OptimizeResult(
            **{
                **known,
                "stats": stats,
                "seconds": seconds,
                "notes": (*self.warnings, *found.notes),
                "curve": self.policy.curve,
                "columns": tuple(self.columns),
                "gains": gains(decisions),
                "decisions": decisions,
            }
        )

    def _left(self, run: "Rewritten", found: CompactionResult) -> dict[Part, str]:
        """Partitions of planned groups that were not published, and why."""
        reasons = {
            path: each.reason
            for each in (*found.failures, *found.conflicts)
            for path in each.paths or [path for g in found.plan.groups for path in g.file_paths()]
        }
        left = {}
        for group in found.plan.groups:
            first = group.files[0].path
            if first not in run.inputs and (first in reasons or not found.stats.dry_run):
                left[part_of(group.files[0])] = reasons.get(first, "it was not published")
        return left

    def _measured(self, decision: PartitionDecision, after: Snapshot) -> PartitionDecision:
        files = [file for file in after.files if part_of(file) == decision.key]
        return measured(self.assessments[decision.key], decision, files)


@dataclass(slots=True)
class _Parts:
    """A plan in the making."""

    groups: list[RewriteGroup] = field(default_factory=list)
    untouched: list[UntouchedFile] = field(default_factory=list)
    failures: list[GroupFailure] = field(default_factory=list)
    decisions: list[PartitionDecision] = field(default_factory=list)

    def add(
        self, files: Sequence[DataFile], proposal: Proposal | None, decision: PartitionDecision
    ) -> None:
        """What was decided about a partition."""
        self.decisions.append(decision)
        if proposal is None:
            self.leave(files, "clustered")
            return
        self.groups.append(proposal.group)
        rewritten = set(proposal.group.file_paths())
        self.leave([file for file in files if file.path not in rewritten], "clustered")

    def leave(self, files: Sequence[DataFile], reason: str) -> None:
        """Files that stay, and why."""
        self.untouched += [
            UntouchedFile(
                file.path,
                file.size_bytes,
                file.num_rows,
                reason if file.num_rows else "empty",
                file.version,
            )
            for file in files
        ]
