"""Datasets come and go; versions expire; files that nobody needs are deleted."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from maintenance_assets.catalog.datasets import create_dataset, forget_dataset
from maintenance_assets.catalog.retention import Given
from maintenance_assets.errors import CatalogError, SchemaMismatchError
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.lakehouse import (
    Change,
    DatasetState,
    SortField,
    TableSchema,
    Tombstone,
)
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.model.status import DatasetStatus
from maintenance_assets.operations.lake_files import describe_listed, listed_of
from maintenance_assets.operations.lake_rewrite import WORK_FOLDER, in_scope, remove_work_folder
from maintenance_assets.operations.lake_session import (
    LakeSession,
    delete_files,
    read_mark,
    refuse_owned,
    remove_mark,
    require_ours,
    write_mark,
)
from maintenance_assets.operations.status import Judging, judge
from maintenance_assets.planning.evolution import new_schema, plain_field
from maintenance_assets.planning.partitions import known_partition_keys, parse_partition
from maintenance_assets.planning.placement import check_partition_type
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import Listed, Store

logger = logging.getLogger(__name__)

RETENTION = timedelta(days=7)
_HIDDEN = ("_", ".")


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
    refuse_owned(session, store)
    if any(_is_data(store, listed) for listed in store.find(store.root)):
        raise CatalogError(
            f"'{store.shown}' holds Parquet files already: adopt them with register()"
        )
    return _add(session, name, store, new_schema(schema), partition_by, sort_by)


def check_name(name: str) -> None:
    """Names become directories and SQL identifiers."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"a dataset needs a name, got {name!r}")
    if "/" in name or "\\" in name or name.startswith((".", "_")) or name != name.strip():
        raise ValueError(f"a dataset's name may not be like a path or hidden, got {name!r}")


def _add(
    session: LakeSession,
    name: str,
    store: Store,
    table: TableSchema,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
) -> DatasetState:
    for column in partition_by:
        check_partition_type(table.require(column).type, column)
    if len(set(partition_by)) < len(partition_by):
        raise ValueError(f"partition_by names a column twice: {', '.join(partition_by)}")
    sorting = [SortField(table.require(column).field_id) for column in sort_by]
    uid = str(uuid4())
    root = store.url(store.root)
    state = create_dataset(
        session.database, name, root, table, tuple(partition_by), sorting, uid=uid
    )
    write_mark(store, session.reader.catalog_uid(), uid, name)
    return state


def register(
    session: LakeSession, name: str, path: Any, schema: pa.Schema | None = None
) -> DatasetState:
    """Adopt the files of a plain directory as the first version; no byte is copied."""
    check_name(name)
    store = session.open_path(path)
    refuse_owned(session, store)
    snapshot = discover(store)
    table = new_schema(schema if schema is not None else _schema_of(store, snapshot.files))
    _check_covers(table, snapshot.files, store)
    partition_by = _partition_columns(store, snapshot.files, table)
    state = _add(session, name, store, table, partition_by, ())
    try:
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
    _refuse_renamed(session, state)
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
    forget_dataset(session.database, state.dataset_id, state.head)
    remove_mark(store)


def _refuse_renamed(session: LakeSession, state: DatasetState) -> None:
    physical = session.reader.physical_schemas(state.dataset_id)
    names = {column.field_id: column.name for column in state.schema.columns}
    used = {f.physical_id for f in session.reader.files(state.dataset_id, state.head)}
    for physical_id in used:
        for name, field_id in physical[physical_id].mapping:
            if names.get(field_id) != name:
                raise CatalogError(
                    f"Files of dataset '{state.name}' hold column '{name}', which was "
                    f"{'renamed' if field_id in names else 'dropped'} since: as a plain "
                    "directory they would show it again. Write the rows anew first, with "
                    "overwrite(read())"
                )


# -- retention --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What vacuum deleted, or in a dry run would delete."""

    dataset: str
    dry_run: bool
    files: tuple[Tombstone, ...]
    recovered: tuple[Given, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes of these files, as far as they are known."""
        return sum(tomb.size_bytes or 0 for tomb in self.files)


def vacuum(
    session: LakeSession, state: DatasetState, retention: timedelta, dry_run: bool, force: bool
) -> VacuumResult:
    """Delete files that were removed this long ago and that no readable version needs."""
    if not isinstance(retention, timedelta) or retention < timedelta(0):
        raise ValueError(f"retention must be a timedelta >= 0, got {retention!r}")
    if retention < RETENTION and not (force or dry_run):
        raise ValueError(
            f"retention below {RETENTION.days} days may take files from readers that are at work. "
            "If there are none, say so: force=True, or --force in a shell"
        )
    if dry_run:
        limit = datetime.now(UTC) - retention
        return VacuumResult(state.name, True, session.retention.removable(state.dataset_id, limit))
    store = session.store(state)
    require_ours(session, state, store)
    recovered = recover_dataset(session, state)
    limit = datetime.now(UTC) - retention
    marked = session.retention.mark(state.dataset_id, limit)
    paths = [tomb.path for tomb in marked]
    delete_files(store, paths)
    session.retention.record_deleted(state.dataset_id, paths)
    return VacuumResult(state.name, False, marked, recovered)


def recover_dataset(session: LakeSession, state: DatasetState) -> tuple[Given, ...]:
    """Give up transactions whose lease has run out."""
    given = session.retention.give_up_dead(state.dataset_id)
    store = session.store(state)
    for item in given:
        remove_work_folder(store, item.txn_id)
    return given


def restore_mark(session: LakeSession, state: DatasetState) -> None:
    """A process that died right after it created a dataset left no mark."""
    store = session.store(state)
    if read_mark(store) is None:
        write_mark(store, session.reader.catalog_uid(), state.uid, state.name)


def expire(
    session: LakeSession,
    state: DatasetState,
    older_than: timedelta | datetime,
    retain_last: int,
    dry_run: bool,
) -> tuple[int, ...]:
    """Versions that cannot be read from now on."""
    if isinstance(retain_last, bool) or not isinstance(retain_last, int) or retain_last < 1:
        raise ValueError(f"retain_last must be a whole number > 0, got {retain_last!r}")
    moment = datetime.now(UTC) - older_than if isinstance(older_than, timedelta) else older_than
    if not isinstance(moment, datetime):
        raise ValueError(f"older_than must be a timedelta or datetime, got {older_than!r}")
    return session.retention.expire(state.dataset_id, moment, retain_last, dry_run)


# -- looking ----------------------------------------------------------------------------------


def status(
    session: LakeSession,
    state: DatasetState,
    *,
    partition_filter: Any = None,
    on_progress: ProgressCallback | None = None,
    **options: Any,
) -> DatasetStatus:
    """How the files of the newest version are."""
    store = session.store(state)
    judging = Judging.of(**options)
    listed = [listed_of(store, file) for file in in_scope(session, state, partition_filter)]
    return replace(
        judge(store, listed, judging, on_progress),
        dataset=f"{state.name} in {store.shown}",
        holders=tuple(
            f"transaction {txn_id} is open"
            for txn_id in session.reader.open_transactions(state.dataset_id)
        ),
    )


# -- checking ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What is not as the catalog says."""

    dataset: str
    missing: tuple[str, ...] = ()
    """Files of a readable version that are not there."""
    stray: tuple[str, ...] = ()
    """Parquet files that the catalog knows nothing of."""
    wrong_size: tuple[str, ...] = ()
    waiting: int = 0
    """Files that vacuum will delete once they are old enough: no problem."""

    @property
    def problems(self) -> tuple[str, ...]:
        """All of it in words."""
        return (
            *(f"'{path}' is missing" for path in self.missing),
            *(f"'{path}' has another size than when it was committed" for path in self.wrong_size),
            *(f"'{path}' is in no version and in no transaction" for path in self.stray),
        )


def fsck(session: LakeSession, state: DatasetState) -> FsckReport:
    """Compare the directory of a dataset with the catalog; nothing is changed."""
    store = session.store(state)
    # Listed before the catalog is read: what appears in between is known to the catalog.
    there = {
        store.relative(listed.path): listed.size_bytes
        for listed in store.find(store.root)
        if _is_data(store, listed) or _is_staged(store, listed)
    }
    open_paths = session.reader.open_paths(state.dataset_id)
    staging = tuple(
        f"{WORK_FOLDER}/{txn_id}/" for txn_id in session.reader.open_transactions(state.dataset_id)
    )
    waiting = {
        tomb.path
        for kind in ("pending", "deleting")
        for tomb in session.reader.tombstones(state.dataset_id, kind)
    }
    known = session.reader.known_paths(state.dataset_id)
    missing = [path for path in known if path not in there]
    expected = waiting | open_paths | set(known)
    return FsckReport(
        state.name,
        tuple(sorted(path for path in missing if not store.exists(store.path(path)))),
        tuple(
            sorted(
                path
                for path in there
                if path not in expected
                and not path.startswith(staging)
                and store.exists(store.path(path))
            )
        ),
        tuple(sorted(p for p, size in known.items() if p in there and there[p] != size[0])),
        len(waiting),
    )


def _is_data(store: Store, listed: Listed) -> bool:
    parts = store.relative(listed.path).split("/")
    return parts[-1].endswith(".parquet") and not any(p.startswith(_HIDDEN) for p in parts)


def _is_staged(store: Store, listed: Listed) -> bool:
    return store.relative(listed.path).startswith(f"{WORK_FOLDER}/")
