"""Append and overwrite: rows become files, and a commit makes them visible."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.catalog.datasets import reserve_field_ids
from maintenance_assets.catalog.statistics import decode_bound
from maintenance_assets.engines.conform import conform_new
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.spark_frame import FrameTask
from maintenance_assets.errors import (
    CommitConflictError,
    SchemaMismatchError,
    SchemaMovedError,
)
from maintenance_assets.model.lakehouse import (
    Change,
    DatasetState,
    NewFile,
    PartitionKey,
    PhysicalSchema,
    TableSchema,
)
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.model.policy import (
    DEFAULT_MEMORY_BUDGET_MB,
    CompactionPolicy,
    memory_budget_bytes,
)
from maintenance_assets.operations.incoming import incoming
from maintenance_assets.operations.lake_files import describe_files, plain_partition
from maintenance_assets.operations.lake_session import LakeSession, LakeTransaction
from maintenance_assets.operations.lake_spark import frame_schema, spark_frame, write_frame
from maintenance_assets.planning.evolution import (
    Fitted,
    OnMismatch,
    check_names,
    fit,
    new_column_names,
)
from maintenance_assets.planning.partitions import parse_partition_filter
from maintenance_assets.planning.placement import check_partition_type, partition_directories
from maintenance_assets.storage.filesystems import Store

logger = logging.getLogger(__name__)

ATTEMPTS = 20
"""How often a change is planned anew when others keep committing."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How data is written and what is noted about it."""

    merge_schema: bool = True
    on_mismatch: OnMismatch = "error"
    compression: str | None = None
    row_group_rows: int | None = None
    target_mb_per_file: float | None = None
    target_rows_per_file: int | None = None
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB
    txn_id: str | None = None
    author: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        if self.on_mismatch not in ("error", "string"):
            raise ValueError(f"on_mismatch must be 'error' or 'string', got {self.on_mismatch!r}")
        if self.row_group_rows is not None and self.row_group_rows < 1:
            raise ValueError(f"row_group_rows must be > 0, got {self.row_group_rows!r}")

    @property
    def policy(self) -> CompactionPolicy:
        """Size and codec of the files."""
        return CompactionPolicy.from_targets(
            self.target_mb_per_file, self.target_rows_per_file, self.compression
        )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a commit added, and what its footer says."""

    path: str
    size_bytes: int
    num_rows: int
    row_groups: int
    partition: Mapping[str, str]
    statistics: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """By column: min, max and null_count; None where the footer does not say."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The version that a write made, and what it added."""

    version: int
    operation: str
    rows: int
    files: tuple[WrittenFile, ...]
    warnings: tuple[str, ...] = ()
    committed_before: bool = False
    """An earlier call with this txn_id had committed; nothing was written now."""


def append(session: LakeSession, name: str, data: Any, options: WriteOptions) -> WriteResult:
    """Add rows; never in conflict with other commits."""
    return _write(session, name, data, options, "append", None)


def overwrite(
    session: LakeSession,
    name: str,
    data: Any,
    options: WriteOptions,
    partition_filter: Any = None,
    dynamic: bool = False,
) -> WriteResult:
    """Replace all rows, those of the partitions that a filter names, or (dynamic) of those that
    occur in the data."""
    if dynamic and partition_filter is not None:
        raise ValueError("give partition_filter or dynamic=True, not both")
    scope = _Scope(parse_partition_filter(partition_filter), dynamic)
    return _write(session, name, data, options, "overwrite", scope)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What an overwrite replaces."""

    filter: Any
    dynamic: bool

    def applied(self, change: Change, session: LakeSession, transaction: LakeTransaction) -> Change:
        if self.filter is None and not self.dynamic:
            return replace(change, clears=True)
        ticket = transaction.ticket
        alive = session.reader.files(ticket.dataset_id, ticket.base_version)
        plainly = _PlainKeys(transaction.state)
        if self.dynamic:
            keys = {plainly.key(file.partition) for file in change.added}
            # What comes until the commit is spelled as we spell it.
            same = {f.partition for f in alive if plainly.key(f.partition) in keys}
            return replace(change, clears_partitions=frozenset(keys | same))
        self._check_inside(change.added)
        removed = tuple(
            f.file_id
            for f in alive
            if self._matches(f.partition) or self._matches(plainly.whole(f.partition))
        )
        return replace(change, removed=removed, reads="everything")

    def _matches(self, key: PartitionKey) -> bool:
        return bool(self.filter.matches("/".join(f"{name}={value}" for name, value in key)))

    def _check_inside(self, files: Sequence[NewFile]) -> None:
        outside = [file.path for file in files if not self._matches(file.partition)]
        if outside:
            raise SchemaMismatchError(
                f"the data has rows outside {self.filter}, as in '{outside[0]}': they would be "
                "added without replacing anything"
            )


class _PlainKeys:
    """Partitions as we spell them: adopted directories may spell the same values otherwise."""

    def __init__(self, state: DatasetState) -> None:
        self._state = state
        self._known: dict[PartitionKey, PartitionKey] = {}

    def whole(self, partition: PartitionKey) -> PartitionKey:
        """All keys of a path."""
        if partition not in self._known:
            columns = self._state.schema.columns
            self._known[partition] = plain_partition(columns, partition)
        return self._known[partition]

    def key(self, partition: PartitionKey) -> PartitionKey:
        """Those that the dataset is partitioned by; a path may have others."""
        found = dict(self.whole(partition))
        return tuple((name, found[name]) for name in self._state.partition_by if name in found)


def _write(
    session: LakeSession,
    name: str,
    data: Any,
    options: WriteOptions,
    operation: str,
    scope: _Scope | None,
) -> WriteResult:
    policy = options.policy
    state = session.reader.dataset(name)
    # Executors write what they hold; other data passes through this process, batch by batch.
    frame = spark_frame(data, session.store(state))
    stream = incoming(data) if frame is None else None
    schema = stream.schema if stream is not None else frame_schema(frame)
    # Without partitions it is clear where the first file goes.
    known = () if state.partition_by or stream is None else ("",)
    with session.transaction(state, operation, options.txn_id, known) as transaction:
        if transaction.ticket.committed_version is not None:
            transaction.done = True
            return _earlier(session, state, operation, transaction.ticket.committed_version)
        fitted = fit_data(session, state, schema, options)
        if stream is not None:
            files = write_rows(transaction, stream, fitted, options, policy)
        else:
            task = _frame_task(state, fitted, options)
            memory = memory_budget_bytes(options.memory_budget_mb)
            paths = write_frame(transaction, frame, task, memory)
            files = describe_files(transaction.store, paths, fitted.table, dict(fitted.mapping))
        change = Change(operation, added=files, author=options.author, message=options.message)
        version, fitted, files = _commit(
            session, transaction, schema, options, fitted, change, scope
        )
    for text in fitted.warnings:
        warnings.warn(text, UserWarning, stacklevel=4)
    return WriteResult(
        version,
        operation,
        sum(file.row_count for file in files),
        written_files(files, fitted.table),
        fitted.warnings,
    )


def _frame_task(state: DatasetState, fitted: Fitted, options: WriteOptions) -> FrameTask:
    return FrameTask(
        fitted.file_schema,
        state.partition_by,
        writer_options(options.policy),
        options.policy,
        options.row_group_rows,
    )


def fit_data(
    session: LakeSession, state: DatasetState, incoming_schema: pa.Schema, options: WriteOptions
) -> Fitted:
    """How data goes into the dataset; new columns get ids that nobody else will get."""
    check_names(incoming_schema.names, state.name)  # before a column is looked up by its name
    for name in state.partition_by:
        if name not in incoming_schema.names:
            raise SchemaMismatchError(f"the data lacks the partition column '{name}'")
        check_partition_type(incoming_schema.field(name).type, name)
    return fit_columns(session, state, incoming_schema, options)


def fit_columns(
    session: LakeSession,
    state: DatasetState,
    incoming_schema: pa.Schema,
    options: WriteOptions,
    reserve: bool = True,
) -> Fitted:
    """The same for data that may lack partition columns; a dry run reserves no ids."""
    new = new_column_names(state.schema, incoming_schema)
    refuse_path_names(session, state, new)
    first_id = 0
    if new and options.merge_schema and reserve:
        first_id = session.database.write(
            lambda connection: reserve_field_ids(connection, state.dataset_id, len(new))
        )
    fitted = fit(
        state.schema,
        incoming_schema,
        dataset=state.name,
        merge=options.merge_schema,
        on_mismatch=options.on_mismatch,
        first_id=first_id,
        fixed=state.partition_by,
    )
    # Text of a path would be read as another value: `01` as a number is not `01` as text.
    types = {column.name: column.type for column in fitted.table.columns}
    refuse_path_names(
        session, state, [c.name for c in state.schema.columns if types[c.name] != c.type]
    )
    return fitted


def refuse_path_names(session: LakeSession, state: DatasetState, names: Sequence[str]) -> None:
    """Columns are told by ids, but values that only paths hold are told by the key of the path."""
    used = session.reader.partition_names(state.dataset_id, state.head) if names else frozenset()
    for name in names:
        if name in used:
            raise SchemaMismatchError(
                f"'{name}' is a key in the paths of files, whose text would be taken for values of "
                "the column as it is to be. Lay the files out anew first, with repartition()"
            )


def writer_options(policy: CompactionPolicy) -> WriterOptions:
    """How new files are encoded."""
    return WriterOptions(
        codec=policy.compression or "zstd",
        column_codecs=(),
        column_encodings=(),
        store_arrow_schema=True,
        int96_timestamps=False,
        decimals_as_integers=False,
        times_in_utc=False,
        page_index=True,
    )


def write_rows(
    transaction: LakeTransaction,
    stream: pa.RecordBatchReader,
    fitted: Fitted,
    options: WriteOptions,
    policy: CompactionPolicy,
) -> tuple[NewFile, ...]:
    """Write a stream into files of the transaction, by partition."""
    schema = fitted.file_schema
    with PartitionWriter(
        schema,
        writer_options(policy),
        transaction.stage,
        transaction.store,
        memory_budget_bytes(options.memory_budget_mb),
        policy,
        row_group_rows=options.row_group_rows,
    ) as writer:
        for batch in stream:
            rows = conform_new(batch, schema)
            codes, directories = partition_directories(rows, transaction.state.partition_by)
            transaction.expect(directories)
            writer.write(rows, codes, directories)
        placed = writer.close()
    paths = [file.path for file in placed]
    return describe_files(transaction.store, paths, fitted.table, dict(fitted.mapping))


def _commit(
    session: LakeSession,
    transaction: LakeTransaction,
    incoming_schema: pa.Schema,
    options: WriteOptions,
    fitted: Fitted,
    change: Change,
    scope: _Scope | None,
) -> tuple[int, Fitted, tuple[NewFile, ...]]:
    """Commit; when another commit changed the schema first, fit the same files into that one."""
    base = transaction.state
    for attempt in range(ATTEMPTS):
        wanted = replace(
            change,
            schema=fitted.table if fitted.changed else None,
            schema_base=base.schema.schema_id,
        )
        if scope is not None:
            wanted = scope.applied(wanted, session, transaction)
        try:
            return transaction.commit(wanted), fitted, wanted.added
        except SchemaMovedError:
            if attempt == ATTEMPTS - 1:
                raise
        except CommitConflictError:
            # Only an overwrite of some partitions looks at what is there.
            if attempt == ATTEMPTS - 1:
                raise
            transaction.rebase()
            continue
        before, base = base, session.reader.dataset(base.name)
        if base.partition_by == before.partition_by:
            refitted = fit_data(session, base, incoming_schema, options)
            files = tuple(renumbered(f, fitted.mapping, refitted.mapping) for f in change.added)
        else:
            transaction.state = base
            written = _written_rows(transaction.store, change.added, fitted)
            incoming_schema = written.schema
            refitted = fit_data(session, base, incoming_schema, options)
            files = write_rows(transaction, written, refitted, options, options.policy)
        fitted, change = refitted, replace(change, added=files)
    raise AssertionError("unreachable")


def _written_rows(store: Store, files: Sequence[NewFile], fitted: Fitted) -> pa.RecordBatchReader:
    """Rows that were written for a layout that is not the dataset's any more."""
    schema = pa.schema([column.field for column in fitted.columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            with store.open_input(store.path(file.path)) as source:
                for batch in pq.ParquetFile(source).iter_batches():
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def renumbered(
    file: NewFile, old: Sequence[tuple[str, int]], new: Sequence[tuple[str, int]]
) -> NewFile:
    """A written file whose columns got other ids: the catalog's mapping is what readers go by."""
    by_name = dict(new)
    ids = {field_id: by_name[name] for name, field_id in old}
    mapping = tuple((name, ids[field_id]) for name, field_id in file.physical.mapping)
    return replace(
        file,
        physical=PhysicalSchema(file.physical.arrow, mapping),
        statistics=tuple(replace(s, field_id=ids[s.field_id]) for s in file.statistics),
    )


def written_files(files: Sequence[NewFile], table: TableSchema) -> tuple[WrittenFile, ...]:
    """What is told of written files."""
    return tuple(
        WrittenFile(
            file.path,
            file.size_bytes,
            file.row_count,
            len(file.row_group_rows),
            dict(file.partition),
            _shown_statistics(file, table),
        )
        for file in files
    )


def _shown_statistics(file: NewFile, table: TableSchema) -> dict[str, dict[str, Any]]:
    columns = {column.field_id: column for column in table.columns}
    shown = {}
    for found in file.statistics:
        column = columns[found.field_id]
        name = file.physical.name_of(found.field_id)
        type_ = column.type if name is None else file.physical.arrow.field(name).type
        bounds = [
            None if bound is None else decode_bound(bound, type_)
            for bound in (found.low, found.high)
        ]
        shown[column.name] = {
            "min": None if bounds[0] is None else bounds[0].as_py(),
            "max": None if bounds[1] is None else bounds[1].as_py(),
            "null_count": found.null_count,
        }
    return shown


def _earlier(
    session: LakeSession, state: DatasetState, operation: str, version: int
) -> WriteResult:
    """The result of a transaction that an earlier call committed."""
    found = session.reader.history(state.dataset_id)
    commit = next(commit for commit in found if commit.version == version)
    return WriteResult(version, operation, commit.rows_added, (), committed_before=True)
