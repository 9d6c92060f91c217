"""Reading the catalog: what datasets there are, what a version consists of, what happened."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from maintenance_assets.catalog import tables as t
from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.key_bounds import Bound, not_outside
from maintenance_assets.catalog.rows import (
    FILE_COLUMNS,
    catalog_file,
    commit_of,
    read_schema,
    table_schema,
    to_micros,
    to_moment,
)
from maintenance_assets.catalog.statistics import unpack_bounds, unpack_numbers
from maintenance_assets.errors import CatalogError, UnknownDatasetError, VersionExpiredError
from maintenance_assets.model.lakehouse import (
    CatalogFile,
    ColumnStatistics,
    Commit,
    DatasetState,
    GroupStatistics,
    PhysicalSchema,
    Pin,
    SortField,
    TableSchema,
    Tombstone,
)


@dataclass(frozen=True, slots=True)
class FileBounds:
    """Which file, and what is known of one column in it."""

    file_id: int
    statistics: ColumnStatistics


class CatalogReader:
    """Answers questions; changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def dataset_names(self) -> tuple[str, ...]:
        """The names of all datasets, in order."""
        query = select(t.dataset.c.name).order_by(t.dataset.c.name)
        return tuple(self._database.read(lambda c: c.execute(query).scalars().all()))

    def catalog_uid(self) -> str:
        """What tells this catalog from others."""
        query = select(t.catalog.c.value).where(t.catalog.c.name == "catalog_uid")
        return str(self._database.read(lambda c: c.execute(query).scalar_one()))

    def dataset(self, name: str) -> DatasetState:
        """A dataset at its newest version; UnknownDatasetError when there is none of that name."""
        return self._database.read(lambda c: dataset_state(c, name))

    def roots(self) -> Mapping[str, str]:
        """The root directory of each dataset, by name."""
        query = select(t.dataset.c.name, t.dataset.c.root)
        return {r.name: r.root for r in self._database.read(lambda c: c.execute(query).all())}

    def schema(self, dataset_id: int, schema_id: int) -> TableSchema:
        """A schema that the dataset has or had."""
        return self._database.read(lambda c: schema_of(c, dataset_id, schema_id))

    def history(self, dataset_id: int, limit: int | None = None) -> tuple[Commit, ...]:
        """All versions (or so many), newest first."""
        query = (
            select(t.commit)
            .where(t.commit.c.dataset_id == dataset_id)
            .order_by(t.commit.c.version.desc())
            .limit(limit)
        )
        rows = self._database.read(lambda c: c.execute(query).mappings().all())
        return tuple(commit_of(row) for row in rows)

    def commit(self, dataset_id: int, version: int) -> Commit:
        """One version that can still be read; CatalogError otherwise."""
        query = select(t.commit).where(
            t.commit.c.dataset_id == dataset_id, t.commit.c.version == version
        )
        row = self._database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            raise CatalogError(f"There is no version {version}")
        if row["expired_at"] is not None:
            raise VersionExpiredError(f"Version {version} has expired and cannot be read any more")
        return commit_of(row)

    def version_as_of(self, dataset_id: int, moment: datetime) -> int:
        """The newest version at that moment."""
        query = select(func.max(t.commit.c.version)).where(
            t.commit.c.dataset_id == dataset_id, t.commit.c.committed_at <= to_micros(moment)
        )
        version = self._database.read(lambda c: c.execute(query).scalar())
        if version is None:
            raise CatalogError(f"The dataset did not exist yet at {moment.isoformat()}")
        return int(version)

    def version_of_tag(self, dataset_id: int, name: str) -> int:
        """The version that a tag names."""
        query = select(t.pin.c.version).where(
            t.pin.c.dataset_id == dataset_id, t.pin.c.kind == "tag", t.pin.c.name == name
        )
        version = self._database.read(lambda c: c.execute(query).scalar())
        if version is None:
            known = ", ".join(pin.name for pin in self.pins(dataset_id)) or "(none)"
            raise CatalogError(f"There is no tag {name!r}. Tags: {known}")
        return int(version)

    def pins(self, dataset_id: int) -> tuple[Pin, ...]:
        """Tags and pins of a dataset."""
        query = select(t.pin).where(t.pin.c.dataset_id == dataset_id).order_by(t.pin.c.name)
        rows = self._database.read(lambda c: c.execute(query).all())
        return tuple(
            Pin(r.version, r.kind, r.name, to_moment(r.expires_at) if r.expires_at else None)
            for r in rows
        )

    def files(
        self, dataset_id: int, version: int, bounds: Sequence[Bound] = ()
    ) -> tuple[CatalogFile, ...]:
        """The files of a version that can hold such values, in the order in which they came."""
        conditions = [not_outside(bound) for bound in bounds]

        def work(connection: Connection) -> tuple[CatalogFile, ...]:
            found = files_of(connection, dataset_id, version, *conditions)
            # Asked last: as long as a version is kept, vacuum has forgotten none of its files.
            _require_kept(connection, dataset_id, version)
            return found

        return self._database.read(work)

    def partition_names(self, dataset_id: int, version: int) -> frozenset[str]:
        """Keys that occur in the paths of a version's files."""
        part = t.file_partition.c
        same = and_(t.file.c.dataset_id == part.dataset_id, t.file.c.file_id == part.file_id)
        meant = and_(t.file.c.dataset_id == dataset_id, _alive(version))
        query = select(part.name).distinct().join(t.file, same).where(meant)
        return frozenset(self._database.read(lambda c: c.execute(query).scalars().all()))

    def physical_schemas(self, dataset_id: int) -> Mapping[int, PhysicalSchema]:
        """How files were written, by id."""
        return self._database.read(lambda c: physical_schemas(c, dataset_id))

    def statistics(
        self,
        dataset_id: int,
        version: int,
        field_ids: Collection[int],
        file_ids: Sequence[int] | None = None,
    ) -> Sequence[FileBounds]:
        """What is known of some columns in the files of a version; row groups apart.

        Where only few files are meant, only these are looked up.
        """
        stats = t.file_statistics.c
        if file_ids is not None and len(file_ids) <= _FEW:
            return self._statistics_of_few(dataset_id, field_ids, file_ids)
        query = (
            select(stats.file_id, stats.field_id, stats.null_count, stats.low, stats.high)
            .join(
                t.file,
                and_(t.file.c.dataset_id == stats.dataset_id, t.file.c.file_id == stats.file_id),
            )
            .where(
                stats.dataset_id == dataset_id,
                stats.field_id.in_(sorted(field_ids)),
                _alive(version),
            )
        )
        return _file_bounds(self._database.read(lambda c: c.execute(query).all()))

    def _statistics_of_few(
        self, dataset_id: int, field_ids: Collection[int], file_ids: Sequence[int]
    ) -> Sequence[FileBounds]:
        stats = t.file_statistics.c
        found: list[FileBounds] = []
        for start in range(0, len(file_ids), _AT_ONCE):
            query = select(
                stats.file_id, stats.field_id, stats.null_count, stats.low, stats.high
            ).where(
                stats.dataset_id == dataset_id,
                stats.field_id.in_(sorted(field_ids)),
                stats.file_id.in_(file_ids[start : start + _AT_ONCE]),
            )
            found += _file_bounds(self._database.read(lambda c, q=query: c.execute(q).all()))  # type: ignore[misc]
        return found

    def row_groups(
        self, dataset_id: int, file_ids: Sequence[int], field_ids: Collection[int]
    ) -> Mapping[tuple[int, int], GroupStatistics]:
        """Statistics of the row groups of some files, by file and column."""
        groups = t.row_group.c
        found: dict[tuple[int, int], GroupStatistics] = {}
        for start in range(0, len(file_ids), _AT_ONCE):
            query = select(
                groups.file_id, groups.field_id, groups.null_counts, groups.lows, groups.highs
            ).where(
                groups.dataset_id == dataset_id,
                groups.field_id.in_(sorted(field_ids)),
                groups.file_id.in_(file_ids[start : start + _AT_ONCE]),
            )
            for row in self._database.read(lambda c, query=query: c.execute(query).all()):  # type: ignore[misc]
                found[row[0], row[1]] = GroupStatistics(
                    unpack_numbers(bytes(row[2])),
                    tuple(unpack_bounds(bytes(row[3]))),
                    tuple(unpack_bounds(bytes(row[4]))),
                )
        return found

    def tombstones(self, dataset_id: int, state: str = "pending") -> tuple[Tombstone, ...]:
        """Files that are waiting to be deleted (or, by state, that are being or were deleted)."""
        query = select(t.tombstone).where(
            t.tombstone.c.dataset_id == dataset_id, t.tombstone.c.state == state
        )
        rows = self._database.read(lambda c: c.execute(query).all())
        return tuple(
            Tombstone(r.path, to_moment(r.removed_at), r.reason, r.size_bytes) for r in rows
        )

    def known_paths(self, dataset_id: int) -> Mapping[str, tuple[int, bool]]:
        """Size of every file of some readable version, and whether the newest has it."""

        def work(connection: Connection) -> Mapping[str, tuple[int, bool]]:
            rows = connection.execute(
                select(t.file.c.path, t.file.c.size_bytes, t.file.c.end_version)
                .where(t.file.c.dataset_id == dataset_id, needed_files(connection, dataset_id))
                .order_by(t.file.c.file_id)
            )
            return {path: (size, end is None) for path, size, end in rows}

        return self._database.read(work)

    def open_paths(self, dataset_id: int) -> frozenset[str]:
        """Paths that open transactions may be writing to."""
        query = select(t.transaction_file.c.path).where(
            t.transaction_file.c.dataset_id == dataset_id
        )
        return frozenset(self._database.read(lambda c: c.execute(query).scalars().all()))

    def is_aborted(self, dataset_id: int, txn_id: str) -> bool:
        """Whether a transaction was given up: what it wrote can never become part of a version."""
        query = select(t.transaction.c.state).where(
            t.transaction.c.dataset_id == dataset_id, t.transaction.c.txn_id == txn_id
        )
        return self._database.read(lambda c: c.execute(query).scalar()) == "aborted"

    def open_transactions(self, dataset_id: int) -> tuple[str, ...]:
        """Ids of transactions that are neither committed nor aborted."""
        query = select(t.transaction.c.txn_id).where(
            t.transaction.c.dataset_id == dataset_id, t.transaction.c.state == "open"
        )
        return tuple(self._database.read(lambda c: c.execute(query).scalars().all()))


def _file_bounds(rows: Sequence[Any]) -> list[FileBounds]:
    return [
        FileBounds(r[0], ColumnStatistics(r[1], r[2], _bytes(r[3]), _bytes(r[4]))) for r in rows
    ]


def _require_kept(connection: Connection, dataset_id: int, version: int) -> None:
    """Raise unless the files of a version are safe from vacuum."""
    commit = t.commit.c
    query = select(commit.expired_at).where(
        commit.dataset_id == dataset_id, commit.version == version
    )
    row = connection.execute(query).first()
    if row is None:
        raise CatalogError(f"There is no version {version}")
    if row.expired_at is not None and version not in needed_versions(connection, dataset_id):
        raise VersionExpiredError(
            f"Version {version} has expired and may have been vacuumed meanwhile"
        )


_FEW = 5000
_AT_ONCE = 500
"""Items of an IN list: databases bound the number of parameters."""


def dataset_state(connection: Connection, name: str) -> DatasetState:
    """A dataset at its newest version."""
    row = connection.execute(select(t.dataset).where(t.dataset.c.name == name)).mappings().first()
    if row is None:
        known = connection.execute(select(t.dataset.c.name).order_by(t.dataset.c.name)).scalars()
        raise UnknownDatasetError(
            f"There is no dataset {name!r} in the catalog. Datasets: {', '.join(known) or '(none)'}"
        )
    schema = schema_of(connection, row["dataset_id"], row["schema_id"])
    names = {column.field_id: column.name for column in schema.columns}
    fields = _partition_fields(connection, row["dataset_id"], row["spec_id"])
    return DatasetState(
        dataset_id=row["dataset_id"],
        name=row["name"],
        root=row["root"],
        uid=row["uid"],
        head=row["head"],
        schema=schema,
        partition_by=tuple(names[field_id] for field_id in fields),
        sort_by=_sort_fields(connection, row["dataset_id"], row["sort_id"]),
        options=json.loads(row["options"]),
    )


def _partition_fields(connection: Connection, dataset_id: int, spec_id: int) -> list[int]:
    spec = t.partition_spec.c
    query = (
        select(spec.field_id)
        .where(spec.dataset_id == dataset_id, spec.spec_id == spec_id)
        .order_by(spec.position)
    )
    return list(connection.execute(query).scalars())


def _sort_fields(connection: Connection, dataset_id: int, sort_id: int) -> tuple[SortField, ...]:
    order = t.sort_order.c
    query = (
        select(order.field_id, order.descending, order.nulls_first)
        .where(order.dataset_id == dataset_id, order.sort_id == sort_id)
        .order_by(order.position)
    )
    return tuple(SortField(r[0], bool(r[1]), bool(r[2])) for r in connection.execute(query))


def schema_of(connection: Connection, dataset_id: int, schema_id: int) -> TableSchema:
    """A schema by its id."""
    query = select(t.column).where(
        t.column.c.dataset_id == dataset_id, t.column.c.schema_id == schema_id
    )
    return table_schema(schema_id, connection.execute(query).mappings().all())


def _alive(version: int) -> Any:
    end = t.file.c.end_version
    return and_(t.file.c.begin_version <= version, or_(end.is_(None), end > version))


def files_of(
    connection: Connection, dataset_id: int, version: int, *conditions: Any
) -> tuple[CatalogFile, ...]:
    """The files of a version that meet some conditions."""
    meant = and_(t.file.c.dataset_id == dataset_id, _alive(version), *conditions)
    query = select(*FILE_COLUMNS).where(meant).order_by(t.file.c.file_id)
    rows = connection.execute(query).all()
    whole = and_(t.file.c.dataset_id == dataset_id, _alive(version))
    values = _partition_values(connection, dataset_id, whole, [row[0] for row in rows])
    return tuple(catalog_file(row, tuple(values.get(row[0], ()))) for row in rows)


def _partition_values(
    connection: Connection, dataset_id: int, whole: Any, file_ids: Sequence[int]
) -> dict[int, list[tuple[str, str]]]:
    """Keys and values by file: looked up one by one for few files, joined for many."""
    part = t.file_partition.c
    columns = select(part.file_id, part.name, part.value).order_by(part.file_id, part.position)
    if len(file_ids) <= _FEW:
        queries = [
            columns.where(
                part.dataset_id == dataset_id,
                part.file_id.in_(file_ids[start : start + _AT_ONCE]),
            )
            for start in range(0, len(file_ids), _AT_ONCE)
        ]
    else:
        same = and_(t.file.c.dataset_id == part.dataset_id, t.file.c.file_id == part.file_id)
        queries = [columns.join(t.file, same).where(whole)]
    found: dict[int, list[tuple[str, str]]] = {}
    for query in queries:
        for file_id, name, value in connection.execute(query).all():
            found.setdefault(file_id, []).append((name, value))
    return found


def physical_schemas(connection: Connection, dataset_id: int) -> dict[int, PhysicalSchema]:
    """How files of a dataset were written."""
    names: dict[int, list[tuple[str, int]]] = {}
    mapping = t.name_mapping.c
    for row in connection.execute(
        select(mapping.physical_id, mapping.name, mapping.field_id)
        .where(mapping.dataset_id == dataset_id)
        .order_by(mapping.physical_id, mapping.position)
    ):
        names.setdefault(row.physical_id, []).append((row.name, row.field_id))
    query = select(t.physical_schema).where(t.physical_schema.c.dataset_id == dataset_id)
    return {
        row.physical_id: PhysicalSchema(
            read_schema(row.arrow), tuple(names.get(row.physical_id, ())), row.physical_id
        )
        for row in connection.execute(query)
    }


def needed_versions(connection: Connection, dataset_id: int) -> list[int]:
    """Versions whose files must stay: readable ones, pinned ones, and what is being worked on."""
    kept = select(t.commit.c.version).where(
        t.commit.c.dataset_id == dataset_id, t.commit.c.expired_at.is_(None)
    )
    pinned = select(t.pin.c.version).where(t.pin.c.dataset_id == dataset_id)
    used = select(t.transaction.c.base_version).where(
        t.transaction.c.dataset_id == dataset_id, t.transaction.c.state == "open"
    )
    head = select(t.dataset.c.head).where(t.dataset.c.dataset_id == dataset_id)
    found: set[int] = set()
    for query in (kept, pinned, used, head):
        found.update(connection.execute(query).scalars())
    return sorted(found)


def needed_files(connection: Connection, dataset_id: int) -> Any:
    """The condition that a file is part of some version that must stay."""
    alive = []
    for first, last in _runs(needed_versions(connection, dataset_id)):
        end = t.file.c.end_version
        # A file is part of one of these versions if its life touches the run.
        alive.append(and_(t.file.c.begin_version <= last, or_(end.is_(None), end > first)))
    return or_(*alive)


def _runs(versions: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive versions as first and last."""
    runs: list[tuple[int, int]] = []
    for version in versions:
        if runs and runs[-1][1] == version - 1:
            runs[-1] = (runs[-1][0], version)
        else:
            runs.append((version, version))
    return runs


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
