"""Rows change on their way from the files of a group to its outputs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, assert_never
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.engines.cluster_kernel import movable_schema
from maintenance_assets.engines.conform import conform_array, conform_batch
from maintenance_assets.engines.dictionaries import check_ordered, has_nested_dictionary
from maintenance_assets.engines.merge_source import MergeSource, load_source
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import FileAccess, RewriteTask
from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.engines.replaced import replaced
from maintenance_assets.engines.row_views import view_rows
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.changes import FileChange, GroupChange, MovedFile
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.changes import Assigned, Assignment, Deletion, Merging
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES
from maintenance_assets.planning.key_index import NONE
from maintenance_assets.planning.moves import Moves

Array = Any


def change_group(task: RewriteTask, access: FileAccess, memory_bytes: int) -> tuple[MovedFile, ...]:
    """Write what stays into the outputs of the task; returns the files of what moves."""
    group, change = task.group, change_of(task.group)
    with ExitStack() as stack:
        mover = None
        if change.moved:
            mover = stack.enter_context(
                PartitionWriter(
                    group.schema,
                    group.writer,
                    lambda directory: f"{change.staging}/moved-{uuid4().hex}.staged",
                    access,
                    max(1, memory_bytes // 2),
                )
            )
        rows = _Rows(group, change, access, max(1, memory_bytes // 32), mover)
        late = has_nested_dictionary(group.schema)
        write_files(
            check_ordered(rows.staying(), group.schema),
            group.schema,
            list(zip(task.staged, group.output_rows, strict=True)),
            group.writer,
            access,
            row_group_bytes=ROW_GROUP_BYTES
            if late
            else min(ROW_GROUP_BYTES, max(1, memory_bytes // 8)),
        )
        placed = mover.close() if mover is not None else ()
    moved = tuple(MovedFile(file.directory, file.path, file.rows) for file in placed)
    _require_moved(change, moved)
    return moved


def change_of(group: RewriteGroup) -> GroupChange:
    """The change that a group has to have."""
    if group.change is None:
        raise ValueError("the group has no change")
    return group.change


def _require_moved(change: GroupChange, moved: tuple[MovedFile, ...]) -> None:
    found: Counter[str] = Counter()
    for file in moved:
        found[file.directory] += file.rows
    if found != Counter(dict(change.moved)):
        raise RewriteError("rows moved to other directories than the scan foresaw")


class _Rows:
    """The rows of a group's files, changed; those that move leave on the way."""

    def __init__(
        self,
        group: RewriteGroup,
        change: GroupChange,
        access: FileAccess,
        batch_bytes: int,
        mover: PartitionWriter | None,
    ) -> None:
        self._group = group
        self._change = change
        self._access = access
        self._batch_bytes = batch_bytes
        self._mover = mover
        self._movable = movable_schema(group.schema)

    def staying(self) -> Iterator[pa.RecordBatch]:
        """What is left in the directory, file by file."""
        for file, promise in zip(self._group.files, self._change.files, strict=True):
            changer = _changer(self._change, promise, self._movable, file, self._access)
            matches = 0
            for batch in read_file(file, self._group.schema, self._access, self._batch_bytes):
                changed = changer.change(self._form(batch, self._movable, file))
                matches += changed.matches
                if changed.moving is not None:
                    self._move(changed.moving, file)
                if changed.staying.num_rows:
                    yield self._form(changed.staying, self._group.schema, file)
            if matches != promise.matches:
                raise RewriteError(
                    f"'{file.path}' has {matches} matching rows, the scan found "
                    f"{promise.matches}: it was changed meanwhile"
                )

    def _move(self, moving: "_Moving", file: DataFile) -> None:
        if self._mover is None:
            raise RewriteError(f"rows of '{file.path}' move, which the scan did not foresee")
        batch = self._form(moving.rows, self._group.schema, file)
        self._mover.write(batch, moving.codes, moving.directories)

    def _form(self, batch: pa.RecordBatch, schema: pa.Schema, file: DataFile) -> pa.RecordBatch:
        """PyArrow cannot pick rows of views: while rows change, those are plain values."""
        if self._movable is self._group.schema:
            return batch
        return conform_batch(batch, schema, file.path)


@dataclass(frozen=True, slots=True)
class _Moving:
    """Rows that leave the directory, and for each the number of the one it comes to."""

    rows: pa.RecordBatch
    codes: Array
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Changed:
    """What became of a batch."""

    staying: pa.RecordBatch
    matches: int
    moving: _Moving | None = None


class _Changer(Protocol):
    def change(self, batch: pa.RecordBatch) -> _Changed: ...


def _changer(
    change: GroupChange,
    promise: FileChange,
    schema: pa.Schema,
    file: DataFile,
    access: FileAccess,
) -> _Changer:
    rule = change.rule
    match rule:
        case Deletion():
            return _Deleter(rule, change, file.path)
        case Assignment():
            return _Assigner(rule, change, file.path, schema)
        case Merging():
            source = load_source(rule, access)
            return _Merger(
                rule, change, file.path, schema, source, _Copies.of(rule, source, promise)
            )
        case _:
            assert_never(rule)


@dataclass(frozen=True, slots=True)
class _Deleter:
    rule: Deletion
    change_: GroupChange
    path: str

    def change(self, batch: pa.RecordBatch) -> _Changed:
        view = view_rows(batch, self.rule.schema, self.change_.constants, self.path)
        mask = self.rule.predicate.mask(view)
        matches = mask.true_count
        return _Changed(batch if not matches else batch.filter(pc.invert(mask)), matches)


@dataclass(frozen=True, slots=True)
class _Assigner:
    rule: Assignment
    change_: GroupChange
    path: str
    schema: pa.Schema

    def change(self, batch: pa.RecordBatch) -> _Changed:
        view = view_rows(batch, self.rule.schema, self.change_.constants, self.path)
        mask = self.rule.predicate.mask(view)
        if not mask.true_count:
            return _Changed(batch, 0)
        # Only of rows that are meant: an expression need not make sense for the others.
        values = evaluate(self.rule.values, view.filter(mask))
        rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
        changed = _with_values(batch, rows, values, self.schema, self.path)
        return _split(changed, rows, values, self.rule.moves, self.change_.directory)


@dataclass(frozen=True, slots=True)
class _Merger:
    rule: Merging
    change_: GroupChange
    path: str
    schema: pa.Schema
    source: MergeSource
    copies: "_Copies | None"

    def change(self, batch: pa.RecordBatch) -> _Changed:
        view = view_rows(batch, self.rule.schema, self.change_.constants, self.path)
        found = self.source.index.find(view)
        matches = int((found != NONE).sum())
        if not matches:
            return _Changed(batch, 0)
        if self.copies is not None:
            kept = self.copies.keep(found)
            if not kept.all():
                batch, found = batch.filter(pa.array(kept)), found[kept]
        rows = np.flatnonzero(found != NONE)
        values = self.source.values(found[rows])
        changed = _with_values(batch, rows, values, self.schema, self.path)
        split = _split(changed, rows, values, self.rule.moves, self.change_.directory)
        return _Changed(split.staying, matches, split.moving)


@dataclass(slots=True)
class _Copies:
    """Of the rows of a file with the same key, which is the one copy that stays."""

    done: Array
    """For each row of the new data whether its copy is in another file or was met already."""

    @classmethod
    def of(cls, rule: Merging, source: MergeSource, promise: FileChange) -> "_Copies | None":
        if not rule.one_copy:
            return None
        done = np.zeros(source.index.rows, bool)
        if promise.given_up is not None:
            done[promise.given_up] = True
        return cls(done)

    def keep(self, found: Array) -> Array:
        """For each row whether it stays."""
        kept = np.ones(len(found), bool)
        rows = np.flatnonzero(found != NONE)
        _, first = np.unique(found[rows], return_index=True)
        kept[rows] = False
        kept[rows[first]] = ~self.done[found[rows[first]]]
        self.done[found[rows]] = True
        return kept


def evaluate(values: Assigned, rows: pa.RecordBatch) -> dict[str, Array]:
    """The new values of these rows, by column."""
    return {name: value.evaluate(rows) for name, value in values}


def _with_values(
    batch: pa.RecordBatch, rows: Array, values: dict[str, Array], schema: pa.Schema, path: str
) -> pa.RecordBatch:
    """The batch with new values in these rows."""
    columns = list(batch.columns)
    for index, field in enumerate(schema):
        if field.name in values:
            new = conform_array(values[field.name], _plain(field.type))
            columns[index] = replaced(columns[index], rows, new, field, path)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(type_: Any) -> Any:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _split(
    batch: pa.RecordBatch,
    rows: Array,
    values: dict[str, Array],
    moves: Moves | None,
    directory: str,
) -> _Changed:
    """Take out the rows that belong into another directory now."""
    if moves is None:
        return _Changed(batch, len(rows))
    keys = pa.RecordBatch.from_arrays([values[key] for key in moves.keys], names=list(moves.keys))
    codes, directories = moves.targets(keys, directory)
    away = np.array([target != directory for target in directories])[codes]
    if not away.any():
        return _Changed(batch, len(rows))
    leaving = rows[away]
    staying = np.ones(batch.num_rows, bool)
    staying[leaving] = False
    moving = _Moving(batch.take(pa.array(leaving)), codes[away], directories)
    return _Changed(batch.filter(pa.array(staying)), len(rows), moving)
