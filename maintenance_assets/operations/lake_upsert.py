"""Upsert into a catalog dataset: rows whose key exists get new values, the others are inserted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from maintenance_assets.engines.conform import conform_batch, conform_new
from maintenance_assets.errors import CommitConflictError, SchemaMismatchError
from maintenance_assets.model.files import ColumnRange
from maintenance_assets.model.lakehouse import Change, TableSchema
from maintenance_assets.operations.incoming import incoming
from maintenance_assets.operations.lake_change import ChangeOutcome, replaced, write_changed
from maintenance_assets.operations.lake_scan import Scan, ScanFile, plan_scan, scan_batches
from maintenance_assets.operations.lake_session import LakeSession, LakeTransaction
from maintenance_assets.operations.lake_write import ATTEMPTS, WriteOptions, fit_columns
from maintenance_assets.planning.evolution import Fitted
from maintenance_assets.planning.key_index import NONE, KeyIndex, check_key_type


@dataclass(frozen=True, slots=True)
class UpsertRequest:
    """How new data is to be merged."""

    keys: tuple[str, ...]
    update_cols: tuple[str, ...] | None = None
    on_duplicates: str = "error"

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError("key_cols must name at least one column")
        if self.on_duplicates not in ("error", "last"):
            raise ValueError(f"on_duplicates must be 'error' or 'last', got {self.on_duplicates!r}")

    def updates(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that existing rows get values of."""
        if self.update_cols is None:
            return tuple(name for name in columns if name not in self.keys)
        for name in self.update_cols:
            if name in self.keys:
                raise ValueError(f"update_cols names the key column '{name}'")
        self._require(self.update_cols, columns)
        return self.update_cols

    def require_keys(self, columns: Sequence[str]) -> None:
        """The data must have the keys."""
        self._require(self.keys, columns)

    def _require(self, names: Sequence[str], columns: Sequence[str]) -> None:
        missing = [name for name in names if name not in columns]
        if missing:
            raise ValueError(
                f"Columns not found in the data: {', '.join(missing)}. Available columns: "
                f"{', '.join(columns)}"
            )


@dataclass(frozen=True, slots=True)
class _Source:
    """New data in the types of the dataset, found by its keys."""

    table: pa.Table
    index: KeyIndex
    updates: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The key columns."""
        return self.index.names

    def may_match(self, ranges: Mapping[str, ColumnRange]) -> bool:
        """Whether any key can lie in these ranges."""
        found = self.index.candidates(ranges, {})
        return found is None or len(found) > 0


def upsert(
    session: LakeSession,
    name: str,
    data: Any,
    request: UpsertRequest,
    options: WriteOptions,
    dry_run: bool = False,
) -> ChangeOutcome:
    """Merge new data by its keys; keys are equal by value, NULL and NaN too."""
    table = incoming(data).read_all()
    request.require_keys(table.column_names)
    request.updates(table.column_names)
    state = session.reader.dataset(name)
    if dry_run:
        fitted = fit_columns(session, state, table.schema, options, reserve=False)
        scan, source = _plan(session, state, state.head, table, request, fitted)
        matches, hit = _find(scan, source)
        return _outcome(None, matches, hit, 0, True)
    with session.transaction(state, "upsert", options.txn_id) as transaction:
        if transaction.ticket.committed_version is not None:
            transaction.done = True
            return ChangeOutcome(transaction.ticket.committed_version, "upsert")
        for attempt in range(ATTEMPTS):
            try:
                return _try(session, transaction, table, request, options)
            except CommitConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
            transaction.rebase()
    raise AssertionError("unreachable")


def _try(
    session: LakeSession,
    transaction: LakeTransaction,
    table: pa.Table,
    request: UpsertRequest,
    options: WriteOptions,
) -> ChangeOutcome:
    state = transaction.state
    fitted = fit_columns(session, state, table.schema, options)
    version = transaction.ticket.base_version
    scan, source = _plan(session, state, version, table, request, fitted)
    matches, hit = _find(scan, source)
    if not matches and bool(hit.all()):
        transaction.give_up()
        return _outcome(None, matches, hit, 0, False)
    batches = _rows(scan, source, matches, hit, fitted.table)
    sources = [file for file in scan.files if file.file.file_id in matches]
    added = write_changed(transaction, batches, fitted.table, options, sources)
    change = Change(
        "upsert",
        added=added,
        removed=tuple(matches),
        schema=fitted.table if fitted.changed else None,
        schema_base=state.schema.schema_id,
        reads="everything",
        author=options.author,
        message=options.message,
    )
    committed = transaction.commit(change)
    return _outcome(committed, matches, hit, len(added), False)


def _plan(
    session: LakeSession,
    state: Any,
    version: int,
    table: pa.Table,
    request: UpsertRequest,
    fitted: Fitted,
) -> tuple[Scan, _Source]:
    schema = fitted.file_schema
    batches = [conform_new(batch, schema) for batch in table.to_batches()]
    source = pa.Table.from_batches(batches, schema)
    for name in request.keys:
        if state.schema.find(name) is None:
            raise ValueError(f"Key column '{name}' is not in the dataset")
        check_key_type(source.schema.field(name).type, name)
    index = KeyIndex(source.select(list(request.keys)))
    twice = index.duplicates()
    if twice is not None:
        if request.on_duplicates == "error":
            raise ValueError(
                f"Rows {twice[0]} and {twice[1]} of the data have the same key. Keep one of them, "
                "or say on_duplicates='last', or --on-duplicates last in a shell"
            )
        source = source.take(pa.array(index.last_of_each()))
        index = KeyIndex(source.select(list(request.keys)))
    found = _Source(source, index, request.updates(table.column_names))
    _require_same_types(state.schema, fitted.table, request.keys)
    return plan_scan(session, state, version, matcher=found), found


def _require_same_types(old: TableSchema, new: TableSchema, keys: Sequence[str]) -> None:
    for name in keys:
        if old.require(name).type != new.require(name).type:
            raise SchemaMismatchError(
                f"key column '{name}' is {old.require(name).type} in the dataset, and the data "
                f"would make it {new.require(name).type}. Cast the data, or widen the column first"
            )


def _find(scan: Scan, source: _Source) -> tuple[dict[int, int], Any]:
    """Rows with a known key by file, and which rows of the data have been found."""
    matches: dict[int, int] = {}
    hit = np.zeros(source.table.num_rows, bool)
    for file in scan.files:
        count = 0
        one = replace(scan, files=(file,))
        for batch in scan_batches(one, source.columns):
            found = source.index.find(batch)
            hit[found[found != NONE]] = True
            count += int((found != NONE).sum())
        if count:
            matches[file.file.file_id] = count
    return matches, hit


def _rows(
    scan: Scan, source: _Source, matches: Mapping[int, int], hit: Any, table: TableSchema
) -> Iterator[pa.RecordBatch]:
    """All rows of the files with known keys, changed; then the rows that are new."""
    for file in scan.files:
        if file.file.file_id in matches:
            for batch in scan_batches(replace(scan, files=(ScanFile(file.file),))):
                yield _merged(conform_batch(batch, table.arrow, file.file.path), source)
    new = source.table.take(pa.array(np.flatnonzero(~hit)))
    for batch in new.to_batches():
        yield conform_batch(batch, table.arrow, "the data")


def _merged(batch: pa.RecordBatch, source: _Source) -> pa.RecordBatch:
    found = source.index.find(batch)
    mask = pa.array(found != NONE)
    rows = pa.array(found[found != NONE])
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name in source.updates:
        new = source.table.column(name).take(rows).combine_chunks()
        whole = pa.concat_arrays(new.chunks) if isinstance(new, pa.ChunkedArray) else new
        columns[name] = replaced(columns[name], mask, whole)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _outcome(
    version: int | None,
    matches: Mapping[int, int],
    hit: Any,
    added: int,
    dry_run: bool,
) -> ChangeOutcome:
    return ChangeOutcome(
        version,
        "upsert",
        rows_updated=sum(matches.values()),
        rows_inserted=int((~hit).sum()),
        files_read=len(matches),
        files_removed=len(matches),
        files_added=added,
        dry_run=dry_run,
    )
