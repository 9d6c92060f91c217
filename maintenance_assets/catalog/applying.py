"""Applying a change to a dataset whose row is held: conflicts first, then rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.inserting import insert_many
from maintenance_assets.catalog.locking import bury
from maintenance_assets.catalog.reader import files_of
from maintenance_assets.catalog.rows import (
    column_row,
    file_row,
    fingerprint,
    partition_rows,
    row_group_rows,
    statistics_rows,
)
from maintenance_assets.catalog.sequence import next_place
from maintenance_assets.errors import (
    CommitConflictError,
    SchemaMovedError,
)
from maintenance_assets.model.lakehouse import (
    CatalogFile,
    Change,
    NewFile,
    PhysicalSchema,
    TableSchema,
    Ticket,
)

Row = Any


@dataclass(frozen=True, slots=True)
class Applied:
    """What a change has become."""

    version: int
    paths: frozenset[str]
    """The files that it added."""


def apply_change(
    connection: Connection, row: Row, ticket: Ticket, change: Change, now: int
) -> Applied:
    """Make the next version of a dataset; a CommitConflictError where it may not be made."""
    dataset_id, head = int(row["dataset_id"]), int(row["head"])
    _check_schema(row, change)
    _check_data(connection, ticket, change, head)
    now = _no_earlier(connection, dataset_id, head, now)
    ended = _ended(connection, dataset_id, head, change)
    added = list(change.added)
    version = head + 1
    schema_id = _insert_schema(connection, row, change, version)
    spec_id = _insert_spec(connection, row, change, schema_id)
    ids = _insert_files(connection, row, added, spec_id, version)
    revived = _revive(connection, row, change, version, ids)
    _end(connection, dataset_id, ended, version, now, kept={file.path for file in revived})
    _insert_commit(
        connection, row, ticket, change, now, (schema_id, spec_id), ended, [*added, *revived]
    )
    moved = connection.execute(
        update(t.dataset)
        .where(t.dataset.c.dataset_id == dataset_id, t.dataset.c.head == head)
        .values(
            head=version,
            schema_id=schema_id,
            spec_id=spec_id,
            next_file_id=ids + len(added) + len(revived),
        )
    )
    if moved.rowcount != 1:
        raise CommitConflictError(f"Version {version} was committed by another process meanwhile")
    return Applied(version, frozenset(file.path for file in added))


def _no_earlier(connection: Connection, dataset_id: int, head: int, now: int) -> int:
    """A writer whose clock is behind must not make files that it replaces look long removed."""
    commit = t.commit.c
    query = select(commit.committed_at).where(
        commit.dataset_id == dataset_id, commit.version == head
    )
    return max(now, int(connection.execute(query).scalar_one()) + 1)


def _check_schema(row: Row, change: Change) -> None:
    if change.schema_base is not None and change.schema_base != row["schema_id"]:
        raise SchemaMovedError("The schema was changed by another commit meanwhile. Try again")


def _check_data(connection: Connection, ticket: Ticket, change: Change, head: int) -> None:
    if change.reads != "everything" or head == ticket.base_version:
        return
    newer = connection.execute(
        select(t.commit.c.version, t.commit.c.operation)
        .where(
            t.commit.c.dataset_id == ticket.dataset_id,
            t.commit.c.version > ticket.base_version,
            t.commit.c.data_change.is_(True),
        )
        .limit(1)
    ).first()
    if newer is not None:
        raise CommitConflictError(
            f"The {change.operation} was made from version {ticket.base_version}, but version "
            f"{newer.version} ({newer.operation}) changed rows meanwhile. Run it again"
        )


def _ended(
    connection: Connection, dataset_id: int, head: int, change: Change
) -> tuple[CatalogFile, ...]:
    """The files of the newest version that the change takes away."""
    if change.clears or change.revives is not None:
        return files_of(connection, dataset_id, head)
    found = list(_removed(connection, dataset_id, head, change))
    if change.clears_partitions:
        gone = {file.file_id for file in found}
        alive = files_of(connection, dataset_id, head)
        found += [
            file
            for file in alive
            if file.partition in change.clears_partitions and file.file_id not in gone
        ]
    return tuple(found)


def _removed(
    connection: Connection, dataset_id: int, head: int, change: Change
) -> Sequence[CatalogFile]:
    found: list[CatalogFile] = []
    for start in range(0, len(change.removed), _AT_ONCE):
        part = change.removed[start : start + _AT_ONCE]
        found += files_of(connection, dataset_id, head, t.file.c.file_id.in_(part))
    lost = len(change.removed) - len(found)
    if lost:
        raise CommitConflictError(
            f"{lost} of the {len(change.removed)} files that the {change.operation} replaces "
            "were replaced by another commit meanwhile. Run it again"
        )
    return found


_AT_ONCE = 500


def _insert_schema(connection: Connection, row: Row, change: Change, version: int) -> int:
    dataset_id = row["dataset_id"]
    if change.revives is not None:
        return _of_version(connection, dataset_id, change.revives, t.commit.c.schema_id)
    if change.schema is None:
        return int(row["schema_id"])
    newest = connection.execute(
        select(func.max(t.schema.c.schema_id)).where(t.schema.c.dataset_id == dataset_id)
    ).scalar_one()
    schema_id = int(newest) + 1
    insert_schema(connection, dataset_id, schema_id, version, change.schema)
    return schema_id


def _of_version(connection: Connection, dataset_id: int, version: int, what: Any) -> int:
    query = select(what).where(t.commit.c.dataset_id == dataset_id, t.commit.c.version == version)
    found = connection.execute(query).scalar()
    if found is None:
        raise CommitConflictError(f"There is no version {version} to restore")
    return int(found)


def insert_schema(
    connection: Connection, dataset_id: int, schema_id: int, version: int, schema: TableSchema
) -> None:
    """Add a schema; ids that it uses are never handed out again."""
    keys = {"dataset_id": dataset_id, "schema_id": schema_id}
    connection.execute(insert(t.schema).values(**keys, begin_version=version))
    rows = [{**keys, **column_row(column, i)} for i, column in enumerate(schema.columns)]
    insert_many(connection, t.column, rows)
    highest = max((column.field_id for column in schema.columns), default=0)
    connection.execute(
        update(t.dataset)
        .where(t.dataset.c.dataset_id == dataset_id, t.dataset.c.next_field_id <= highest)
        .values(next_field_id=highest + 1)
    )


def _insert_spec(connection: Connection, row: Row, change: Change, schema_id: int) -> int:
    dataset_id = row["dataset_id"]
    if change.revives is not None:
        return _of_version(connection, dataset_id, change.revives, t.commit.c.spec_id)
    if change.partition_by is None:
        return int(row["spec_id"])
    newest = connection.execute(
        select(func.max(t.partition_spec.c.spec_id)).where(
            t.partition_spec.c.dataset_id == dataset_id
        )
    ).scalar()
    spec_id = max(int(row["spec_id"]), int(newest or 0)) + 1
    insert_spec(connection, dataset_id, spec_id, schema_id, change.partition_by)
    return spec_id


def insert_spec(
    connection: Connection, dataset_id: int, spec_id: int, schema_id: int, names: Sequence[str]
) -> None:
    """Add a way of partitioning by columns of a schema."""
    column = t.column.c
    query = select(column.name, column.field_id).where(
        column.dataset_id == dataset_id, column.schema_id == schema_id
    )
    ids = {found.name: found.field_id for found in connection.execute(query)}
    rows = [
        {
            "dataset_id": dataset_id,
            "spec_id": spec_id,
            "position": position,
            "field_id": ids[name],
            "transform": "identity",
        }
        for position, name in enumerate(names)
    ]
    insert_many(connection, t.partition_spec, rows)


def _insert_files(
    connection: Connection, row: Row, files: Sequence[NewFile], spec_id: int, version: int
) -> int:
    """Add files and all that is known of them; the id of the first."""
    first = int(row["next_file_id"])
    if not files:
        return first
    dataset_id = int(row["dataset_id"])
    physical = _intern(connection, dataset_id, [file.physical for file in files])
    born = {"dataset_id": dataset_id, "spec_id": spec_id, "begin_version": version}
    numbered = [
        (file, {"dataset_id": dataset_id, "file_id": file_id})
        for file_id, file in enumerate(files, first)
    ]
    insert_many(
        connection,
        t.file,
        [
            {**key, **born, "physical_id": physical[fingerprint(file.physical)], **file_row(file)}
            for file, key in numbered
        ],
    )
    for table, rows_of in (
        (t.file_partition, partition_rows),
        (t.file_statistics, statistics_rows),
        (t.row_group, row_group_rows),
    ):
        insert_many(connection, table, [{**key, **r} for f, key in numbered for r in rows_of(f)])
    return first


def _intern(
    connection: Connection, dataset_id: int, schemas: Sequence[PhysicalSchema]
) -> dict[str, int]:
    """Ids of physical schemas, by fingerprint; new ones are added."""
    wanted = {fingerprint(schema): schema for schema in {id(s): s for s in schemas}.values()}
    known = t.physical_schema.c
    query = select(known.fingerprint, known.physical_id).where(known.dataset_id == dataset_id)
    ids = {row.fingerprint: row.physical_id for row in connection.execute(query)}
    following = max(ids.values(), default=0) + 1
    for mark, schema in wanted.items():
        if mark not in ids:
            ids[mark] = following
            _insert_physical(connection, dataset_id, following, mark, schema)
            following += 1
    return ids


def _insert_physical(
    connection: Connection, dataset_id: int, physical_id: int, mark: str, schema: PhysicalSchema
) -> None:
    keys = {"dataset_id": dataset_id, "physical_id": physical_id}
    arrow = schema.arrow.serialize().to_pybytes()
    connection.execute(insert(t.physical_schema).values(**keys, fingerprint=mark, arrow=arrow))
    rows = [
        {
            **keys,
            "field_id": field_id,
            "position": position,
            "name": name,
            "type": str(schema.arrow.field(name).type),
        }
        for position, (name, field_id) in enumerate(schema.mapping)
    ]
    insert_many(connection, t.name_mapping, rows)


def _revive(
    connection: Connection, row: Row, change: Change, version: int, first: int
) -> tuple[CatalogFile, ...]:
    """Bring the files of an earlier version back, as long as none is being deleted."""
    if change.revives is None:
        return ()
    dataset_id = int(row["dataset_id"])
    files = files_of(connection, dataset_id, change.revives)
    _require_whole(connection, dataset_id, change.revives, len(files))
    _take_back_tombstones(connection, dataset_id, change.revives, [file.path for file in files])
    for offset, file in enumerate(files):
        _copy_file(connection, dataset_id, file.file_id, first + offset, version)
    return files


def _require_whole(connection: Connection, dataset_id: int, version: int, files: int) -> None:
    found = connection.execute(
        select(t.commit.c.expired_at, t.commit.c.total_files).where(
            t.commit.c.dataset_id == dataset_id, t.commit.c.version == version
        )
    ).first()
    if found is None or found.expired_at is not None or found.total_files != files:
        raise CommitConflictError(f"Version {version} has expired and cannot be restored")


def _take_back_tombstones(
    connection: Connection, dataset_id: int, version: int, paths: Sequence[str]
) -> None:
    for start in range(0, len(paths), _AT_ONCE):
        meant = and_(
            t.tombstone.c.dataset_id == dataset_id,
            t.tombstone.c.path.in_(paths[start : start + _AT_ONCE]),
        )
        gone = connection.execute(
            select(t.tombstone.c.path).where(meant, t.tombstone.c.state != "pending").limit(1)
        ).scalar()
        if gone is not None:
            raise CommitConflictError(
                f"Version {version} cannot be restored: its file '{gone}' was deleted by vacuum"
            )
        connection.execute(delete(t.tombstone).where(meant))


_COPIED = (t.file, t.file_partition, t.file_statistics, t.row_group)


def _copy_file(
    connection: Connection, dataset_id: int, old_id: int, new_id: int, version: int
) -> None:
    """A second life of a file, as rows of its own."""
    for table in _COPIED:
        query = select(table).where(table.c.dataset_id == dataset_id, table.c.file_id == old_id)
        rows = [{**row, "file_id": new_id} for row in connection.execute(query).mappings()]
        if table is t.file:
            rows = [{**row, "begin_version": version, "end_version": None} for row in rows]
        insert_many(connection, table, rows)


def _end(
    connection: Connection,
    dataset_id: int,
    files: Sequence[CatalogFile],
    version: int,
    now: int,
    kept: set[str],
) -> None:
    """Files that are in no version from this one on."""
    ids = [file.file_id for file in files]
    for start in range(0, len(ids), _AT_ONCE):
        connection.execute(
            update(t.file)
            .where(
                t.file.c.dataset_id == dataset_id,
                t.file.c.file_id.in_(ids[start : start + _AT_ONCE]),
                t.file.c.end_version.is_(None),
            )
            .values(end_version=version)
        )
    sizes = {file.path: file.size_bytes for file in files if file.path not in kept}
    bury(connection, dataset_id, sizes, "replaced", now, sizes)


def _insert_commit(
    connection: Connection,
    row: Row,
    ticket: Ticket,
    change: Change,
    now: int,
    ids: tuple[int, int],
    ended: Sequence[CatalogFile],
    begun: Sequence[NewFile | CatalogFile],
) -> None:
    dataset_id, head = int(row["dataset_id"]), int(row["head"])
    before = (
        connection.execute(
            select(t.commit).where(t.commit.c.dataset_id == dataset_id, t.commit.c.version == head)
        )
        .mappings()
        .one()
    )
    place = next_place(connection, max(now, before["committed_at"] + 1))
    rows = sum(f.row_count for f in begun), sum(f.row_count for f in ended)
    size = sum(f.size_bytes for f in begun) - sum(f.size_bytes for f in ended)
    connection.execute(
        insert(t.commit).values(
            dataset_id=dataset_id,
            version=head + 1,
            # Versions are in the order of time, whatever the clocks of the writers say.
            committed_at=place.committed_at,
            sequence=place.sequence,
            txn_id=ticket.txn_id,
            operation=change.operation,
            author=change.author,
            message=change.message,
            summary=json.dumps(dict(change.summary), sort_keys=True),
            schema_id=ids[0],
            spec_id=ids[1],
            data_change=change.data_change,
            files_added=len(begun),
            files_removed=len(ended),
            rows_added=rows[0],
            rows_removed=rows[1],
            total_files=before["total_files"] + len(begun) - len(ended),
            total_rows=before["total_rows"] + rows[0] - rows[1],
            total_bytes=before["total_bytes"] + size,
        )
    )
