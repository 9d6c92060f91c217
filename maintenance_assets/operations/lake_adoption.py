"""Datasets come into a catalog and leave it, and their directories with them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from maintenance_assets.catalog.datasets import check_new, create_dataset, forget_dataset
from maintenance_assets.errors import CatalogError, SchemaMismatchError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.lakehouse import (
    Change,
    Column,
    DatasetState,
    SortField,
    TableSchema,
)
from maintenance_assets.operations.lake_admin import fsck, is_data, recover_dataset, vacuum
from maintenance_assets.operations.lake_files import describe_listed
from maintenance_assets.operations.lake_session import (
    LakeSession,
    read_mark,
    refuse_owned,
    remove_mark,
    require_ours,
    write_mark,
)
from maintenance_assets.operations.naming import uuid7
from maintenance_assets.planning.evolution import new_schema, plain_field
from maintenance_assets.planning.partitions import known_partition_keys, parse_partition
from maintenance_assets.planning.placement import check_partition_type
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas, widen
from maintenance_assets.storage.discovery import discover, list_dataset, summaries_above
from maintenance_assets.storage.filesystems import Listed, Store
from maintenance_assets.storage.lease import Lease
from maintenance_assets.storage.neighbours import refuse_busy_neighbours
from maintenance_assets.storage.recovery import recover_runs

logger = logging.getLogger(__name__)


def create(
    session: LakeSession,
    name: str,
    path: Any,
    schema: pa.Schema,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
) -> DatasetState:
    """Make an empty dataset in a directory that holds no data yet."""
    check_name(name)
    store = session.open_path(path)
    table = new_schema(schema, name)
    _check_columns(table, partition_by, sort_by)
    with _alone(session, name, store, "create"):
        if any(is_data(store, listed) for listed in store.find(store.root)):
            raise CatalogError(
                f"'{store.shown}' holds Parquet files already: adopt them with register()"
            )
        return _add(session, name, store, table, partition_by, sort_by)


@contextmanager
def _alone(session: LakeSession, name: str, store: Store, operation: str) -> Iterator[Lease]:
    """Nobody maintains this directory or a part of it meanwhile, and no catalog owns it.

    A maintenance of plain files that was interrupted is resolved first: until then some rows lie
    there twice, and its recovery would delete files later.
    """
    refuse_owned(session, store)
    session.database.read(lambda connection: check_new(connection, name, store.url(store.root)))
    is_new = not store.exists(store.root)
    try:
        with Lease(store, uuid7(), operation) as lease:
            refuse_owned(session, store)
            remove_mark(store)  # of a dataset of ours that is not there any more
            recover_runs(store, lease)
            refuse_busy_neighbours(store)
            yield lease
    finally:
        if is_new:  # nothing is left of a dataset that did not come to be
            store.remove_if_empty(store.root)


def check_name(name: str) -> None:
    """Names become directories and SQL identifiers."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"a dataset needs a name, got {name!r}")
    if "/" in name or "\\" in name or name.startswith((".", "_")) or name != name.strip():
        raise ValueError(f"a dataset's name may not be like a path or hidden, got {name!r}")


def _check_columns(table: TableSchema, partition_by: Sequence[str], sort_by: Sequence[str]) -> None:
    for column in partition_by:
        check_partition_type(table.require(column).type, column)
    if len(set(partition_by)) < len(partition_by):
        raise ValueError(f"partition_by names a column twice: {', '.join(partition_by)}")
    for column in sort_by:
        table.require(column)


def _add(
    session: LakeSession,
    name: str,
    store: Store,
    table: TableSchema,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
) -> DatasetState:
    sorting = [SortField(table.require(column).field_id) for column in sort_by]
    uid = str(uuid4())
    root = store.url(store.root)
    state = create_dataset(
        session.database, name, root, table, tuple(partition_by), sorting, uid=uid
    )
    write_mark(session, store, uid, name)
    return state


def register(
    session: LakeSession, name: str, path: Any, schema: pa.Schema | None = None
) -> DatasetState:
    """Adopt the files of a plain directory as the first version; no byte is copied."""
    check_name(name)
    store = session.open_path(path)
    refuse_owned(session, store)
    if read_mark(store) is None:
        list_dataset(store)  # before a lease makes its root
    with _alone(session, name, store, "register") as lease:
        return _adopt(session, name, store, schema, lease)


def _adopt(
    session: LakeSession, name: str, store: Store, schema: pa.Schema | None, lease: Lease
) -> DatasetState:
    snapshot = discover(store)
    arrow = schema if schema is not None else _schema_of(store, snapshot.files)
    table = new_schema(arrow, name)
    _check_covers(table, snapshot.files, store)
    partition_by = _partition_columns(store, snapshot.files, table)
    _check_columns(table, partition_by, ())
    state = _add(session, name, store, table, partition_by, ())
    try:
        # Whoever takes the lease from now on finds the mark.
        lease.ensure_held()
        names = {column.name: column.field_id for column in table.columns}
        with session.transaction(state, "register") as transaction:
            listed = [Listed(f.path, f.size_bytes, f.version) for f in snapshot.files]
            files = describe_listed(transaction.store, listed, table, names)
            transaction.commit(Change("register", added=files))
    except BaseException:
        _withdraw(session, state, store)
        raise
    return session.reader.dataset(name)


def _withdraw(session: LakeSession, state: DatasetState, store: Store) -> None:
    """Forget a dataset that could not be registered, so that its directory is plain again."""
    try:
        forget_dataset(session.database, state.dataset_id, state.head)
        remove_mark(store)
    except CatalogError as error:
        logger.warning("dataset '%s' is left empty: %s", state.name, error)


def _schema_of(store: Store, files: Sequence[DataFile]) -> pa.Schema:
    """What all files together hold, and the columns that are in their paths only."""
    sources = [SchemaSource(file.path, _without_ids(file.schema.arrow)) for file in files]
    merged = merge_schemas(sources).schema.remove_metadata()
    fields = [
        field.with_nullable(
            field.nullable or not all(field.name in f.schema.arrow.names for f in files)
        )
        for field in merged
    ]
    keys = dict.fromkeys(
        part.key for file in files for part in parse_partition(store.relative(file.directory))
    )
    fields += [pa.field(key, pa.string()) for key in keys if key not in merged.names]
    return pa.schema(fields)


def _without_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema([plain_field(field) for field in schema], schema.metadata)


def _check_covers(table: TableSchema, files: Sequence[DataFile], store: Store) -> None:
    """A schema that the user gives must be one that all files can be read with."""
    for schema in {file.schema.fingerprint: file.schema.arrow for file in files}.values():
        plain = _without_ids(schema).remove_metadata()
        for field in plain:
            column = table.find(field.name)
            if column is None:
                continue
            merged = merge_schemas(
                [
                    SchemaSource("the given schema", pa.schema([column.field])),
                    SchemaSource(store.shown, pa.schema([field])),
                ]
            ).schema
            if merged.field(0).type != column.type:
                raise SchemaMismatchError(
                    f"column '{field.name}' is {field.type} in files of '{store.shown}', and "
                    f"{column.type} of the given schema does not hold that"
                )


def _partition_columns(
    store: Store, files: Sequence[DataFile], table: TableSchema
) -> tuple[str, ...]:
    """The keys of the directories, where all files have the same ones."""
    found = {
        tuple(part.key for part in parse_partition(store.relative(file.directory)))
        for file in files
    }
    if len(found) != 1:
        if found and known_partition_keys(store.relative(f.directory) for f in files):
            logger.warning("files lie at different depths: new ones are not partitioned")
        return ()
    return tuple(key for key in found.pop() if table.find(key) is not None)


def unregister(session: LakeSession, name: str) -> None:
    """Make a plain directory of a dataset: what is in the newest version, and nothing else."""
    state = session.reader.dataset(name)
    store = session.store(state)
    require_ours(session, state, store)
    recover_dataset(session, state)
    # Before anything is given up: a refusal must leave tags and versions as they are.
    _refuse_busy(session, state)
    _refuse_unlike(session, state)
    _refuse_hidden(session, state)
    _refuse_strays(session, state)
    # What is not alive goes while the catalog still knows of it: a process that dies in between
    # leaves a dataset, not a directory in which rows are doubled.
    session.retention.drop_pins(state.dataset_id)
    session.retention.expire(state.dataset_id, datetime.now(UTC), 1, dry_run=False)
    vacuum(session, state, timedelta(0), dry_run=False, force=True)
    if any(session.reader.tombstones(state.dataset_id, kind) for kind in ("pending", "deleting")):
        raise CatalogError(
            f"Files of dataset '{state.name}' that are in no version any more are still being "
            "read by an operation. Try again when it is done"
        )
    with Lease(store, uuid7(), "unregister"):
        if state.head > 1:
            _drop_summaries(store)
        forget_dataset(session.database, state.dataset_id, state.head)
        remove_mark(store)


def _drop_summaries(store: Store) -> None:
    """A `_metadata` lists the files of the time when the directory was adopted."""
    stale = summaries_above(store)
    for listed in store.find(store.root):
        *folders, name = store.relative(listed.path).split("/")
        if name == "_metadata" and not any(folder.startswith(("_", ".")) for folder in folders):
            stale.append(listed.path)
    for path in stale:
        store.delete(path)


def _refuse_busy(session: LakeSession, state: DatasetState) -> None:
    count = len(session.reader.open_transactions(state.dataset_id))
    if count:
        raise CatalogError(
            f"{count} operation(s) are under way on dataset '{state.name}'. Nothing was changed; "
            "try again when they are done, or when their lease has run out"
        )


def _refuse_hidden(session: LakeSession, state: DatasetState) -> None:
    for file in session.reader.files(state.dataset_id, state.head):
        if any(part.startswith(("_", ".")) for part in file.path.split("/")):
            raise CatalogError(
                f"'{file.path}' of dataset '{state.name}' has a name that readers of plain "
                "directories skip. Use repartition() first, by columns that are called otherwise"
            )


def _refuse_strays(session: LakeSession, state: DatasetState) -> None:
    """Files that nobody committed would be part of the plain directory."""
    if not state.head:
        return  # its directory was being registered when that was interrupted
    stray = fsck(session, state).stray
    if stray:
        raise CatalogError(
            f"'{stray[0]}' is in no version of dataset '{state.name}'"
            f"{f', nor are {len(stray) - 1} others' if len(stray) > 1 else ''}: as a plain "
            "directory it would show their rows. Move what fsck() finds away first"
        )


def _refuse_unlike(session: LakeSession, state: DatasetState) -> None:
    """Plain readers go by the names and types in the files."""
    physical = session.reader.physical_schemas(state.dataset_id)
    columns = {column.field_id: column for column in state.schema.columns}
    used = {f.physical_id for f in session.reader.files(state.dataset_id, state.head)}
    for physical_id in used:
        arrow = physical[physical_id].arrow
        for name, field_id in physical[physical_id].mapping:
            problem = _unlike(arrow.field(name), columns.get(field_id))
            if problem is not None:
                raise CatalogError(
                    f"Files of dataset '{state.name}' hold column '{name}', which {problem}. Write "
                    "the rows anew first, with overwrite(read())"
                )


def _unlike(field: Any, column: Column | None) -> str | None:
    """What became of a column of a file that plain readers would not know of."""
    if column is None or column.name != field.name:
        happened = "dropped" if column is None else "renamed"
        return f"was {happened} since: as a plain directory they would show it again"
    if widen(field.type, column.type) is None:
        return f"is {field.type} there and {column.type} in others: no plain reader takes both"
    return None
