"""Plans that are made now, read by a person, and carried out later: exactly so, or not at all."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.errors import (
    IncompleteMaintenanceError,
    InvalidPlanError,
    PlanOutdatedError,
)
from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.model.plans import CompactionPlan, GroupFailure, RewriteGroup
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.model.saved_plans import SavedFile, SavedGroup, SavedOperation, SavedPlan
from maintenance_assets.operations.compact import CompactionPlanner
from maintenance_assets.operations.optimize import ClusteringPlanner
from maintenance_assets.operations.results import CompactionResult, OptimizeResult
from maintenance_assets.operations.rewrite import failure_message, open_run
from maintenance_assets.planning.layout import grid_hash
from maintenance_assets.planning.optimization import OptimizePolicy
from maintenance_assets.planning.saved_plans import from_json, json_filter, to_json
from maintenance_assets.storage.filesystems import Store, location


def saved_plan(result: CompactionResult) -> SavedPlan:
    """The plan of a dry run of `compact` or `optimize`, as a value that can be kept."""
    if not result.stats.dry_run:
        raise ValueError("only the result of a dry run holds a plan that is still to be done")
    operation: SavedOperation = "optimize" if isinstance(result, OptimizeResult) else "compact"
    return SavedPlan(
        operation=operation,
        dataset=result.dataset,
        engine=result.engine,
        policy=result.plan.policy,
        groups=tuple(_saved_group(group, result.plan) for group in result.plan.groups),
        failures=tuple(_below(failure, result.plan.root) for failure in result.plan.failures),
        partition_filter=json_filter(result.partition_filter),
        columns=tuple(result.stats.zorder_columns or ()),
        curve=result.curve if isinstance(result, OptimizeResult) else "hilbert",
    )


def save_plan(result: CompactionResult, file: str | os.PathLike[str]) -> SavedPlan:
    """Write the plan of a dry run to a JSON file, for `execute_plan`."""
    plan = saved_plan(result)
    path = Path(file)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Plan '{file}' cannot be saved: there is no '{path.parent}'")
    staged = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        staged.write_text(to_json(plan), encoding="utf-8")
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    return plan


def load_plan(file: str | os.PathLike[str]) -> SavedPlan:
    """Read a saved plan; InvalidPlanError where it is none, or was changed since."""
    try:
        return from_json(Path(file).read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"Plan '{file}' does not exist") from None
    except InvalidPlanError as error:
        raise InvalidPlanError(error.problem, str(file)) from error


def execute_plan(
    plan: SavedPlan | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    engine: str | Engine | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
    strict: bool = False,
    on_progress: ProgressCallback | None = None,
) -> CompactionResult:
    """Carry out a saved plan; PlanOutdatedError, and nothing changed, where a file of it differs.

    Options are those of `compact`; the dataset and the engine are the plan's where none is given.
    A dry run tells whether the plan still holds.
    """
    started = time.monotonic()
    saved = plan if isinstance(plan, SavedPlan) else load_plan(plan)
    place = saved.dataset if path is None else path
    inner = _planner_of(saved)
    run = open_run(
        _SavedPlanner(saved, inner),
        place,
        engine=saved.engine if engine is None else engine,
        partition_filter=saved.partition_filter,
        filesystem=filesystem,
        storage_options=storage_options,
        memory_budget_mb=memory_budget_mb,
        max_workers=max_workers,
        strict=strict,
        on_progress=on_progress,
    )
    result = run.preview() if dry_run else run.execute()
    if isinstance(inner, ClusteringPlanner):
        result = inner.result(run, result, 0.0)
    result = replace(
        result,
        seconds=time.monotonic() - started,
        dataset=location(place, run.store),
        partition_filter=saved.partition_filter,
    )
    if result.failures and not dry_run:
        raise IncompleteMaintenanceError(failure_message(result), result)
    return result


def _planner_of(saved: SavedPlan) -> CompactionPlanner | ClusteringPlanner:
    if saved.operation == "compact":
        return CompactionPlanner(saved.policy)
    return ClusteringPlanner(OptimizePolicy(saved.columns, saved.curve, saved.policy))


@dataclass(frozen=True, slots=True)
class _SavedPlanner:
    """Plans what was planned before, from the same files and by the same rules."""

    saved: SavedPlan
    inner: CompactionPlanner | ClusteringPlanner
    max_passes: int = 1
    """What comes after the plan was not looked at by anybody."""

    @property
    def operation(self) -> str:
        return self.inner.operation

    @property
    def prefix(self) -> str:
        return self.inner.prefix

    @property
    def ranges_of(self) -> tuple[str, ...]:
        return self.inner.ranges_of

    def plan(self, snapshot: Snapshot, store: Store, report: ProgressCallback) -> CompactionPlan:
        """The saved plan, or PlanOutdatedError."""
        members = _as_they_were(self.saved, snapshot, store)
        plan = self.inner.replan(snapshot, members, store, report)
        if [_decided(group, store) for group in plan.groups] != _wanted(self.saved):
            raise PlanOutdatedError(
                f"The plan for '{store.shown}' is not what would be done with its files today, "
                "perhaps because another version of this package made it. Nothing was changed; "
                "make a new plan."
            )
        failures = [_above(failure, store) for failure in self.saved.failures]
        return replace(plan, failures=(*failures, *plan.failures))


def _as_they_were(saved: SavedPlan, snapshot: Snapshot, store: Store) -> list[tuple[DataFile, ...]]:
    """The files of each group, if all are what they were."""
    there = snapshot.by_path()
    outdated: list[str] = []
    members = []
    for group in saved.groups:
        found = []
        for file in sorted((*group.inputs, *group.beside), key=lambda file: file.path):
            now = there.get(store.path(file.path))
            if now is None or now.version != file.version:
                what = "is gone" if now is None else "was changed"
                outdated.append(f"'{file.path}' {what}")
            else:
                found.append(now)
        members.append(tuple(found))
    if outdated:
        more = f" (and {len(outdated) - 1} more)" if len(outdated) > 1 else ""
        raise PlanOutdatedError(
            f"The plan for '{store.shown}' is out of date: {outdated[0]} since it was made{more}. "
            "Nothing was changed; make a new plan."
        )
    return members


def _decided(group: RewriteGroup, store: Store) -> tuple[list[str], Sequence[int], str]:
    return (
        sorted(store.relative(path) for path in group.file_paths()),
        group.output_rows,
        _grid(group),
    )


def _wanted(saved: SavedPlan) -> list[tuple[list[str], Sequence[int], str]]:
    return [
        (sorted(file.path for file in group.inputs), group.output_rows, group.grid)
        for group in saved.groups
    ]


def _saved_group(group: RewriteGroup, plan: CompactionPlan) -> SavedGroup:
    cut = len(plan.root) + 1
    beside: tuple[SavedFile, ...] = ()
    if group.clustering is not None:
        kept = (file for file in plan.untouched if file.directory == group.directory)
        beside = tuple(
            SavedFile(file.path[cut:], file.size_bytes, file.num_rows, file.version)
            for file in kept
        )
    return SavedGroup(
        directory=group.directory[cut:],
        inputs=tuple(
            SavedFile(file.path[cut:], file.size_bytes, file.num_rows, file.version)
            for file in group.files
        ),
        output_rows=group.output_rows,
        beside=beside,
        grid=_grid(group),
    )


def _grid(group: RewriteGroup) -> str:
    """What tells one clustering from another; nothing where rows keep their order."""
    return "" if group.clustering is None else grid_hash(group.clustering)


def _below(failure: GroupFailure, root: str) -> GroupFailure:
    paths = tuple(path[len(root) + 1 :] for path in failure.paths)
    return GroupFailure(paths, failure.reason)


def _above(failure: GroupFailure, store: Store) -> GroupFailure:
    return GroupFailure(tuple(store.path(path) for path in failure.paths), failure.reason)
