"""Delete, update and upsert in a catalog dataset: files with such rows are written anew."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.errors import CommitConflictError
from maintenance_assets.model.lakehouse import Change, DatasetState, NewFile, TableSchema
from maintenance_assets.model.policy import memory_budget_bytes
from maintenance_assets.operations.lake_files import describe_files
from maintenance_assets.operations.lake_scan import Scan, ScanFile, plan_scan, scan_batches
from maintenance_assets.operations.lake_session import LakeSession, LakeTransaction
from maintenance_assets.operations.lake_write import ATTEMPTS, WriteOptions, writer_options
from maintenance_assets.operations.readers import require_same_readers
from maintenance_assets.planning.placement import check_partition_type, partition_directories
from maintenance_assets.planning.predicates import BoundPredicate, parse_predicate
from maintenance_assets.planning.values import BoundValue, parse_value


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What a change of rows did; version is None when no row was meant."""

    version: int | None
    operation: str
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    files_read: int = 0
    """Files that had to be looked into."""
    files_removed: int = 0
    files_added: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """Files with rows that are meant, and how many."""

    scan: Scan
    matches: Mapping[int, int]
    """Rows by file id."""

    @property
    def rows(self) -> int:
        return sum(self.matches.values())

    @property
    def rewritten(self) -> list[ScanFile]:
        """The files that have such rows."""
        return [file for file in self.scan.files if self.matches.get(file.file.file_id)]


def delete(
    session: LakeSession, name: str, where: Any, options: WriteOptions, dry_run: bool = False
) -> ChangeOutcome:
    """Delete the rows for which a predicate is true."""
    predicate = parse_predicate(where)

    def remaining(found: _Found, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        bound = predicate.bind(schema.arrow)
        for file in _partly(found):
            for batch in _whole_file(found.scan, file):
                yield batch.filter(_inverse(bound.mask(batch)))

    return _change(session, name, "delete", where, remaining, options, dry_run)


def update(
    session: LakeSession,
    name: str,
    where: Any,
    values: Mapping[str, Any],
    options: WriteOptions,
    dry_run: bool = False,
) -> ChangeOutcome:
    """Give rows new values, all made of the row as it was."""
    if not values:
        raise ValueError("update needs at least one column to change")
    predicate = parse_predicate(where)
    parsed = {column: parse_value(value) for column, value in values.items()}

    def changed(found: _Found, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        bound = predicate.bind(schema.arrow)
        new = {
            column: value.bind(schema.arrow, schema.require(column).type, column=column)
            for column, value in parsed.items()
        }
        for file in found.scan.files:
            if found.matches.get(file.file.file_id):
                for batch in _whole_file(found.scan, file):
                    yield _updated(batch, bound, new)

    return _change(session, name, "update", where, changed, options, dry_run)


def _updated(
    batch: pa.RecordBatch, predicate: BoundPredicate, values: Mapping[str, BoundValue]
) -> pa.RecordBatch:
    mask = predicate.mask(batch)
    rows = batch.filter(mask)
    if not rows.num_rows:
        return batch
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name, value in values.items():
        columns[name] = replaced(columns[name], mask, value.evaluate(rows))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def replaced(old: Any, mask: Any, new: Any) -> Any:
    """The old values, and where the mask is true the new ones in their order; any type."""
    chosen = mask.to_numpy(zero_copy_only=False)
    positions = np.arange(len(old))
    positions[chosen] = len(old) + np.arange(int(chosen.sum()))
    return pa.concat_arrays([old, new]).take(pa.array(positions))


def _inverse(mask: Any) -> Any:
    return pa.array(~mask.to_numpy(zero_copy_only=False))


def _whole_file(scan: Scan, file: ScanFile) -> Iterator[pa.RecordBatch]:
    """All rows of a file, in all row groups."""
    yield from scan_batches(replace(scan, files=(ScanFile(file.file),), predicate=None))


def _partly(found: _Found) -> Iterator[ScanFile]:
    for file in found.scan.files:
        matches = found.matches.get(file.file.file_id, 0)
        if 0 < matches < file.file.row_count:
            yield file


def _change(
    session: LakeSession,
    name: str,
    operation: str,
    where: Any,
    rows_of: Any,
    options: WriteOptions,
    dry_run: bool,
) -> ChangeOutcome:
    """Plan, write and commit; again from the newest version if others changed rows meanwhile."""
    state = session.reader.dataset(name)
    if dry_run:
        return _outcome(operation, None, find(session, state, state.head, where), (), True)
    with session.transaction(state, operation, options.txn_id) as transaction:
        if transaction.ticket.committed_version is not None:
            transaction.done = True
            return ChangeOutcome(transaction.ticket.committed_version, operation)
        if transaction.ticket.base_version != state.head:
            transaction.rebase()  # rows that are read of a version are put into its directories
        for attempt in range(ATTEMPTS):
            found = find(session, transaction.state, transaction.ticket.base_version, where)
            if not found.rows:
                transaction.give_up()
                return _outcome(operation, None, found, (), False)
            batches = rows_of(found, found.scan.schema)
            added = write_changed(transaction, batches, found.scan.schema, options, found.rewritten)
            change = Change(
                operation,
                added=added,
                removed=tuple(file_id for file_id, rows in found.matches.items() if rows),
                reads="everything",
                author=options.author,
                message=options.message,
            )
            try:
                version = transaction.commit(change)
                return _outcome(operation, version, found, added, False)
            except CommitConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
            transaction.rebase()
    raise AssertionError("unreachable")


def repartition(
    session: LakeSession,
    name: str,
    partition_by: Sequence[str],
    options: WriteOptions,
    dry_run: bool = False,
) -> ChangeOutcome:
    """Write all rows anew into directories of other columns."""
    state = session.reader.dataset(name)
    for column in partition_by:
        check_partition_type(state.schema.require(column).type, column)
    if len(set(partition_by)) < len(partition_by):
        raise ValueError(f"partition_by names a column twice: {', '.join(partition_by)}")
    if dry_run or tuple(partition_by) == state.partition_by:
        files = len(session.reader.files(state.dataset_id, state.head)) if dry_run else 0
        return ChangeOutcome(None, "repartition", files_removed=files, dry_run=dry_run)
    with session.transaction(state, "repartition", options.txn_id) as transaction:
        if transaction.ticket.committed_version is not None:
            transaction.done = True
            return ChangeOutcome(transaction.ticket.committed_version, "repartition")
        for attempt in range(ATTEMPTS):
            try:
                return _repartition(session, transaction, tuple(partition_by), options)
            except CommitConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
            transaction.rebase()
    raise AssertionError("unreachable")


def _repartition(
    session: LakeSession,
    transaction: LakeTransaction,
    partition_by: tuple[str, ...],
    options: WriteOptions,
) -> ChangeOutcome:
    state = transaction.state
    scan = plan_scan(session, state, transaction.ticket.base_version)
    placed = replace(transaction.state, partition_by=partition_by)
    transaction.state = placed
    added = write_changed(transaction, scan_batches(scan), scan.schema, options, scan.files)
    change = Change(
        "repartition",
        added=added,
        removed=tuple(file.file.file_id for file in scan.files),
        # A schema of its own, so that data that is being written for the old layout does not fit.
        schema=scan.schema,
        schema_base=state.schema.schema_id,
        partition_by=partition_by,
        reads="everything",
        data_change=False,
        author=options.author,
        message=options.message or f"by {', '.join(partition_by) or 'nothing'}",
    )
    version = transaction.commit(change)
    return ChangeOutcome(
        version,
        "repartition",
        files_read=len(scan.files),
        files_removed=len(scan.files),
        files_added=len(added),
    )


def find(session: LakeSession, state: DatasetState, version: int, where: Any) -> _Found:
    """Look into the files that may hold rows that are meant."""
    scan = plan_scan(session, state, version, where)
    matches: dict[int, int] = {}
    for file in scan.files:
        predicate = scan.predicate
        columns = list(predicate.columns) if predicate else []
        one = replace(scan, files=(file,), predicate=None)
        if predicate is None or not columns:
            rows = file.file.row_count if predicate is None else _constant(predicate, scan, file)
            matches[file.file.file_id] = rows
            continue
        matches[file.file.file_id] = sum(
            int(predicate.mask(batch).to_numpy(zero_copy_only=False).sum())
            for batch in scan_batches(one, columns)
        )
    return _Found(scan, matches)


def _constant(predicate: BoundPredicate, scan: Scan, file: ScanFile) -> int:
    """Rows that a predicate without columns means: all or none."""
    fields = [column.field.with_nullable(True) for column in scan.schema.columns]
    one = pa.RecordBatch.from_pylist([{}], schema=pa.schema(fields))
    return file.file.row_count if predicate.mask(one)[0].as_py() else 0


def write_changed(
    transaction: LakeTransaction,
    batches: Iterator[pa.RecordBatch],
    schema: TableSchema,
    options: WriteOptions,
    sources: Sequence[ScanFile],
) -> tuple[NewFile, ...]:
    """Write rows that are in the schema of the dataset, each into its partition.

    Who may read the files that the rows were in, the sources, may read the new ones.
    """
    store = transaction.store
    require_same_readers(store, [store.path(file.file.path) for file in sources])
    policy = options.policy
    file_schema = schema.with_ids
    partition_by = transaction.state.partition_by
    with PartitionWriter(
        file_schema,
        writer_options(policy),
        transaction.stage,
        transaction.store,
        memory_budget_bytes(options.memory_budget_mb),
        policy,
        row_group_rows=options.row_group_rows,
    ) as writer:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pa.RecordBatch.from_arrays(batch.columns, schema=file_schema)
            _check_required(rows)
            codes, directories = partition_directories(rows, partition_by)
            transaction.expect(directories)
            writer.write(rows, codes, directories)
        placed = writer.close()
    for file in placed if sources else ():
        like = transaction.store.path(sources[0].file.path)
        transaction.store.copy_permissions(like, file.path, is_copy=True)
    names = {column.name: column.field_id for column in schema.columns}
    return describe_files(transaction.store, [file.path for file in placed], schema, names)


def _check_required(rows: pa.RecordBatch) -> None:
    for number, field in enumerate(rows.schema):
        if not field.nullable and rows.column(number).null_count:
            raise ValueError(f"column '{field.name}' must not become null")


def _outcome(
    operation: str,
    version: int | None,
    found: _Found,
    added: Sequence[NewFile],
    dry_run: bool,
) -> ChangeOutcome:
    rows = found.rows
    return ChangeOutcome(
        version,
        operation,
        rows_deleted=rows if operation == "delete" else 0,
        rows_updated=rows if operation == "update" else 0,
        files_read=len(found.matches),
        files_removed=sum(1 for count in found.matches.values() if count),
        files_added=len(added),
        dry_run=dry_run,
    )
