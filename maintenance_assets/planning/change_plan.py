"""From what was found in files to what is written, file by file. Pure, and exact to the row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from maintenance_assets.errors import SchemaConflictError
from maintenance_assets.model.changes import ChangeStats, FileChange, FileScan, GroupChange
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import RewriteGroup, WriterOptions
from maintenance_assets.model.policy import DEFAULT_TARGET_BYTES
from maintenance_assets.planning.changes import Rule
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.encoding import writer_options
from maintenance_assets.planning.file_metadata import restated
from maintenance_assets.planning.partitions import parse_partition
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A file that was looked into."""

    file: DataFile
    directory: str
    """As seen from the root."""
    constants: Mapping[str, Any]
    """Columns of the rule that the file does not hold, and their one value."""
    scan: FileScan


@dataclass(frozen=True, slots=True)
class Survey:
    """A dataset as far as a change needs to know it."""

    columns: DatasetColumns
    files: tuple[DataFile, ...]
    """All files in scope."""
    others: int
    """Data files out of scope."""
    known_others: tuple[DataFile, ...] = field(default=(), kw_only=True)
    """Those of them whose footers were read."""
    read: tuple[Surveyed, ...]
    """Files in scope that were looked into, in the order of their paths."""
    metadata_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What becomes of a file whose rows change."""

    found: Surveyed
    promise: FileChange
    staying: int
    """Rows that are left in its directory."""
    moved: tuple[tuple[str, int], ...] = ()
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """A rule with everything that follows from a survey."""

    rule: Rule
    outcomes: tuple[FileOutcome, ...]
    assigned: Mapping[str, Any]
    """Columns that files get new values of, and the types they are stored in."""
    inserted: Mapping[str, int]
    """New rows, by directory."""

    @property
    def directories(self) -> frozenset[str]:
        """Where rows come to that were not there."""
        moved = (directory for outcome in self.outcomes for directory, _ in outcome.moved)
        return frozenset((*moved, *self.inserted))


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change will do; a dry run is this value, reported."""

    groups: tuple[RewriteGroup, ...]
    emptied: tuple[DataFile, ...]
    """Files that go without a successor."""
    stats: ChangeStats
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.groups or self.emptied or self.stats.rows_inserted)

    @property
    def inputs(self) -> tuple[DataFile, ...]:
        """All files that go."""
        return (*(file for group in self.groups for file in group.files), *self.emptied)


def plan_change(
    survey: Survey, changes: Changes, compression: str | None, staging: str = ""
) -> ChangePlan:
    """Groups for the engine, files that go without a successor, and the exact figures."""
    emptied = [o for o in changes.outcomes if not o.staying and not o.moved]
    rewritten = [o for o in changes.outcomes if o.staying or o.moved]
    kept_schema = _last_file(survey, changes, emptied)
    if kept_schema is not None:
        emptied.remove(kept_schema)
    make = _GroupMaker(survey, changes, compression, staging)
    groups = [make.group(outcomes) for outcomes in _together(rewritten)]
    if kept_schema is not None:
        groups.append(make.without_rows(kept_schema))
    gone = tuple(outcome.found.file for outcome in emptied)
    notes = tuple(dict.fromkeys(note for group in groups for note in group.notes))
    return ChangePlan(tuple(groups), gone, _stats(survey, changes, groups, gone), notes)


def publishing_order(plan: ChangePlan, directories: Iterable[str]) -> list[str]:
    """Directories that rows come to before those that they come from, as far as that goes.

    One directory is published after the other: so a row is rather seen twice for a moment than not
    at all.
    """
    changes = [group.change for group in plan.groups if group.change is not None]
    targets: defaultdict[str, set[str]] = defaultdict(set)
    for change in changes:
        targets[change.directory] |= {directory for directory, _ in change.moved}
    order: dict[str, None] = {}
    waiting = list(directories)
    while waiting:
        ready = [name for name in waiting if not targets[name] & {*waiting} - {name}]
        # Where two swap rows, neither can come first.
        order.update(dict.fromkeys(ready or waiting[:1]))
        waiting = [name for name in waiting if name not in order]
    return list(order)


def changed_schema(
    file: DataFile, directory: str, assigned: Mapping[str, Any]
) -> tuple[pa.Schema, tuple[str, ...]]:
    """The schema of a file once columns got new values, and notes on what differs."""
    schema = merge_schemas([SchemaSource(file.path, file.schema.arrow)]).schema
    in_path = {part.key for part in parse_partition(directory)}
    fields, notes = list(schema), []
    retyped = set()
    for name, type_ in assigned.items():
        index = schema.get_field_index(name)
        if index < 0:
            if name not in in_path:
                fields.append(pa.field(name, type_))
        elif fields[index].type != type_:
            notes.append(f"column '{name}': {fields[index].type} becomes {type_} where it changes")
            fields[index] = fields[index].with_type(type_)
            retyped.add(name)
    metadata = restated(
        schema.metadata or {},
        columns_changed=bool(retyped) or len(fields) > len(schema),
        new_values=assigned,
        new_types=retyped,
    )
    return pa.schema(fields, metadata or None), tuple(notes)


def _together(outcomes: Iterable[FileOutcome]) -> Iterator[list[FileOutcome]]:
    """A file for itself; those whose rows move go together, that these may share files."""
    moving: defaultdict[tuple[str, str], list[FileOutcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.moved:
            file = outcome.found.file
            moving[file.directory, file.schema.fingerprint].append(outcome)
        else:
            yield [outcome]
    for members in moving.values():
        portion: list[FileOutcome] = []
        for outcome in members:
            portion.append(outcome)
            if sum(o.found.file.size_bytes for o in portion) >= DEFAULT_TARGET_BYTES:
                yield portion
                portion = []
        if portion:
            yield portion


def _last_file(
    survey: Survey, changes: Changes, emptied: Sequence[FileOutcome]
) -> FileOutcome | None:
    """The file that has to stay without rows, since no other one would tell all columns."""
    if not emptied or changes.inserted:
        return None
    gone = [outcome.found.file for outcome in emptied]
    left = remaining(survey, gone)
    if not left:
        return None if survey.others else emptied[0]
    return None if tells_columns_of(left, gone) else emptied[0]


def remaining(survey: Survey, gone: Iterable[DataFile]) -> list[DataFile]:
    """The files that are left, as far as their footers are known."""
    paths = {file.path for file in gone}
    return [file for file in (*survey.files, *survey.known_others) if file.path not in paths]


def tells_columns_of(left: Iterable[DataFile], gone: Iterable[DataFile]) -> bool:
    """Whether a reader of some files finds every column of others, in types as wide."""
    schemas = {file.schema.fingerprint: file for file in left}
    missing = [file for file in gone if file.schema.fingerprint not in schemas]
    if not missing:
        return True
    now = DatasetColumns.of(schemas.values(), ()).stored
    before = DatasetColumns.of([*schemas.values(), *missing], ()).stored
    return {f.name: f.type for f in now} == {f.name: f.type for f in before}


@dataclass(frozen=True, slots=True)
class _GroupMaker:
    survey: Survey
    changes: Changes
    compression: str | None
    staging: str

    def group(self, outcomes: Sequence[FileOutcome]) -> RewriteGroup:
        """Files that are written together, each into what is left of it."""
        first, files = outcomes[0].found, tuple(outcome.found.file for outcome in outcomes)
        schema, notes = changed_schema(first.file, first.directory, self.changes.assigned)
        moved: Counter[str] = Counter()
        for outcome in outcomes:
            moved.update(dict(outcome.moved))
        return RewriteGroup(
            directory=first.file.directory,
            files=files,
            output_rows=tuple(o.staying for o in outcomes if o.staying),
            schema=schema,
            writer=self._writer(files),
            notes=notes,
            change=GroupChange(
                rule=self.changes.rule,
                files=tuple(outcome.promise for outcome in outcomes),
                directory=first.directory,
                constants=first.constants,
                moved=tuple(sorted(moved.items())),
                staging=self.staging,
            ),
        )

    def without_rows(self, outcome: FileOutcome) -> RewriteGroup:
        """All columns of the dataset and no row."""
        group = self.group([replace(outcome, staying=0)])
        schema, notes = self._full_schema()
        return replace(group, output_rows=(0,), schema=schema or group.schema, notes=notes)

    def _full_schema(self) -> tuple[pa.Schema | None, tuple[str, ...]]:
        files = {file.schema.fingerprint: file for file in self.survey.files}.values()
        try:
            merged = merge_schemas([SchemaSource(f.path, f.schema.arrow) for f in files])
        except SchemaConflictError as error:
            return None, (f"the file that is left has the columns of one file only: {error}",)
        return merged.schema, merged.notes

    def _writer(self, files: Sequence[DataFile]) -> WriterOptions:
        options = writer_options(files, self.compression)
        ordered_by = {column.path.split(".")[0] for column in options.sorting}
        # Rows stay where they are: with other values they need not be in order any more.
        return replace(options, sorting=()) if ordered_by & {*self.changes.assigned} else options


def _stats(
    survey: Survey,
    changes: Changes,
    groups: Sequence[RewriteGroup],
    emptied: Sequence[DataFile],
) -> ChangeStats:
    outcomes = changes.outcomes
    before = sum(file.num_rows for file in survey.files)
    deleted = sum(outcome.deleted for outcome in outcomes)
    inserted = sum(changes.inserted.values())
    moved = {directory for outcome in outcomes for directory, _ in outcome.moved}
    written = sum(
        len(g.output_rows) + (len(g.change.moved) if g.change is not None else 0) for g in groups
    )
    vacated = sum(not outcome.staying and bool(outcome.moved) for outcome in outcomes)
    return ChangeStats(
        partitions_affected=len(
            {outcome.found.directory for outcome in outcomes} | moved | set(changes.inserted)
        ),
        files_read=len(survey.read),
        files_written=written + len(changes.inserted),
        files_deleted=len(emptied) + vacated,
        rows_before=before,
        rows_after=before - deleted + inserted,
        rows_deleted=deleted,
        rows_updated=sum(outcome.updated for outcome in outcomes),
        rows_inserted=inserted,
        dry_run=True,
    )
