"""Planning a repartition: what is there, what it becomes, and how many directories that makes."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from maintenance_assets.engines.partition_survey import count_rows, first_rows, rows_by_directory
from maintenance_assets.engines.protocol import Resources
from maintenance_assets.engines.repartition_task import RepartitionTask, Report, RowPlan
from maintenance_assets.engines.transform import Transform
from maintenance_assets.model.files import Snapshot
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.operations.naming import Staging
from maintenance_assets.planning.repartitioning import (
    check_partition_columns,
    repartition_writer,
    shape_rows,
    written_schema,
)
from maintenance_assets.planning.values import Value
from maintenance_assets.storage.filesystems import Store

PREFIX = "part"
_TRANSFORM_NOTE = (
    "rows that transform_fn returned were compared with what was written; what it did to the rows "
    "of the source was not"
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller wants, checked."""

    partition_by: tuple[str, ...]
    derived: Mapping[str, Value]
    transform: Callable[[Any], Any] | None
    keep: bool
    policy: CompactionPolicy
    batch_rows: int
    validate: bool
    delete_source: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """A task for an engine, and what is to be said about it."""

    task: RepartitionTask
    notes: tuple[str, ...]


def plan_repartition(request: Request, snapshot: Snapshot, source: Store, staging: str) -> Planned:
    """The task for an engine; refuses by name what cannot be done, before anything is written."""
    files = tuple(sorted(snapshot.files, key=lambda file: file.path))
    directories = list(dict.fromkeys(source.relative(file.directory) for file in files))
    shape = shape_rows(files, directories, request.derived)
    rows = RowPlan(snapshot.root, shape.columns, shape.rows, shape.derived)
    notes = list(shape.notes)
    task = RepartitionTask(
        files,
        rows,
        request.partition_by,
        shape.rows,
        repartition_writer(files, request.policy.compression, shape.rows, made_columns=False)[0],
        request.policy,
        request.batch_rows,
        Staging(staging, PREFIX),
        request.validate,
    )
    if request.transform is not None:
        task = _with_transform(task, request.transform, source)
        notes.append(_TRANSFORM_NOTE)
    final = task.plan.final
    check_partition_columns(request.partition_by, final)
    schema, schema_notes = written_schema(files, final, request.partition_by, request.keep)
    made = bool(request.derived) or request.transform is not None
    writer, writer_notes = repartition_writer(
        files, request.policy.compression, schema, made_columns=made
    )
    return Planned(
        replace(task, schema=schema, writer=writer),
        tuple(dict.fromkeys([*notes, *schema_notes, *writer_notes])),
    )


def _with_transform(
    task: RepartitionTask, function: Callable[[Any], Any], source: Store
) -> RepartitionTask:
    """What the function makes of the first rows tells the columns of all."""
    transform = Transform.of(function, task.plan.rows)
    untried = replace(task, plan=replace(task.plan, transform=transform))
    schema = first_rows(untried, source).schema.remove_metadata()
    return replace(untried, plan=replace(untried.plan, transformed=schema))


def predicted_rows(
    planned: Planned, source: Store, resources: Resources, report: Report
) -> tuple[Counter[str], bool]:
    """Rows by directory, and whether they were counted: a user's function sees a sample only."""
    task = planned.task
    if task.plan.transform is None:
        return count_rows(task, source, resources.memory_bytes, resources.workers, report), True
    return rows_by_directory(first_rows(task, source), task.partition_by), False
