"""The lakehouse: datasets with versions in a SQL catalog."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

import pyarrow as pa

from maintenance_assets.catalog.live import CatalogLife
from maintenance_assets.catalog.retention import Given
from maintenance_assets.catalog.writer import LEASE_SECONDS
from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.model.clustering import Curve
from maintenance_assets.model.lakehouse import (
    CatalogFile,
    Change,
    Commit,
    DatasetState,
    LiveFile,
    OpenTransaction,
    Pin,
)
from maintenance_assets.model.policy import CompactionPolicy, Mode
from maintenance_assets.model.status import DatasetStatus
from maintenance_assets.operations import (
    lake_admin,
    lake_adoption,
    lake_change,
    lake_ducklake,
    lake_readers,
    lake_rewrite,
    lake_schema,
    lake_status,
    lake_upsert,
    lake_write,
)
from maintenance_assets.operations.compact import CompactionPlanner
from maintenance_assets.operations.incoming import incoming
from maintenance_assets.operations.lake_admin import FsckReport, VacuumResult
from maintenance_assets.operations.lake_change import ChangeOutcome
from maintenance_assets.operations.lake_ducklake import DuckLakeAccess
from maintenance_assets.operations.lake_rewrite import RewriteOptions
from maintenance_assets.operations.lake_scan import (
    Scan,
    open_dataset,
    plan_scan,
    read_rows,
    resolve_version,
    schema_at,
)
from maintenance_assets.operations.lake_session import LakeSession
from maintenance_assets.operations.lake_write import WriteOptions, WriteResult
from maintenance_assets.operations.optimize import ClusteringPlanner, check_curve, check_names
from maintenance_assets.operations.results import CompactionResult, OptimizeResult
from maintenance_assets.operations.rewrite import failure_message
from maintenance_assets.operations.status import Judging
from maintenance_assets.planning.optimization import OptimizePolicy

if TYPE_CHECKING:
    import pyarrow.dataset as ds

Options = TypeVar("Options", RewriteOptions, WriteOptions)


class Lakehouse:
    """A catalog of datasets with transactions, versions and an evolving schema.

    `catalog_uri` is `sqlite:///file`, `duckdb:///file` or `postgresql://...`. New datasets get a
    directory of their name below `root`, which is beside the file of the catalog by default.
    With `create=False`, a catalog that is not there is a FileNotFoundError.
    """

    def __init__(
        self,
        catalog_uri: str,
        root: Any = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        lease: timedelta = timedelta(seconds=LEASE_SECONDS),
        create: bool = True,
    ) -> None:
        if not isinstance(lease, timedelta) or lease <= timedelta(0):
            raise ValueError(f"lease must be a timedelta > 0, got {lease!r}")
        self._session = LakeSession.open(catalog_uri, storage_options, lease, create=create)
        self._root = root

    def create_dataset(
        self,
        name: str,
        schema: Any = None,
        partition_by: Sequence[str] = (),
        *,
        sort_by: Sequence[str] = (),
        path: Any = None,
        data: Any = None,
    ) -> "LakeDataset":
        """Make a dataset: of a schema, or of the schema of data, which is then appended."""
        if (schema is None) == (data is None):
            raise ValueError("give schema or data, and not both")
        lake_adoption.check_name(name)
        stream = None if data is None else incoming(data)
        arrow = stream.schema if stream is not None else _arrow_schema(schema)
        place = self._path_of(name) if path is None else path
        lake_adoption.create(
            self._session, name, place, arrow, _names(partition_by), _names(sort_by)
        )
        dataset = LakeDataset(self._session, name)
        if stream is not None:
            dataset.append(stream)
        return dataset

    def _path_of(self, name: str) -> str:
        root = self._root
        if root is None:
            folder = self._session.database.directory
            if folder is None:
                raise ValueError(
                    "a catalog on a server needs Lakehouse(..., root=...), or path= here"
                )
            root = folder
        return f"{str(root).rstrip('/')}/{name}"

    def dataset(self, name: str) -> "LakeDataset":
        """A dataset by its name."""
        self._session.reader.dataset(name)
        return LakeDataset(self._session, name)

    def register(self, name: str, path: Any, schema: pa.Schema | None = None) -> "LakeDataset":
        """Adopt an existing Parquet directory; its files stay where they are."""
        lake_adoption.register(self._session, name, path, schema)
        return LakeDataset(self._session, name)

    def unregister(self, name: str) -> None:
        """Make a dataset a plain directory again, with the newest version and nothing else."""
        lake_adoption.unregister(self._session, name)

    def datasets(self) -> tuple[str, ...]:
        """The names of all datasets."""
        return self._session.reader.dataset_names()

    def vacuum(
        self,
        retention: timedelta = lake_admin.RETENTION,
        dry_run: bool = True,
        force: bool = False,
        *,
        dataset: str | None = None,
    ) -> tuple[VacuumResult, ...]:
        """Delete files that were removed longer ago than `retention` and that no version needs."""
        return tuple(
            lake_admin.vacuum(self._session, state, retention, dry_run, force)
            for state in self._states(dataset)
        )

    def expire_snapshots(
        self,
        older_than: timedelta | datetime,
        retain_last: int = 1,
        *,
        dataset: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, tuple[int, ...]]:
        """Give up versions that were replaced before that; tagged and the last ones stay."""
        return {
            state.name: lake_admin.expire(self._session, state, older_than, retain_last, dry_run)
            for state in self._states(dataset)
        }

    def recover(
        self, *, dataset: str | None = None, moved: bool = False
    ) -> dict[str, tuple[Given, ...]]:
        """Give up transactions of processes that died; done by vacuum as well.

        `moved=True` says that the catalog's database was moved, or restored from a copy, and that
        the other one is not used any more: only one of the two may delete files.
        """
        found = {}
        for state in self._states(dataset):
            lake_admin.restore_mark(self._session, state, moved)
            found[state.name] = lake_admin.recover_dataset(self._session, state)
        return found

    def fsck(self, *, dataset: str | None = None) -> "FsckSummary":
        """Compare directories with the catalog."""
        return FsckSummary(
            tuple(lake_admin.fsck(self._session, state) for state in self._states(dataset))
        )

    def ducklake(self) -> DuckLakeAccess:
        """Let DuckDB attach this catalog as a DuckLake to read; makes views in its database."""
        return lake_ducklake.open_to_ducklake(self._session)

    def _states(self, name: str | None) -> Iterator[DatasetState]:
        names = self.datasets() if name is None else (name,)
        for found in names:
            yield self._session.reader.dataset(found)

    def close(self) -> None:
        """Let go of connections."""
        self._session.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class FsckSummary:
    """The reports of several datasets."""

    def __init__(self, reports: tuple[FsckReport, ...]) -> None:
        self.reports = reports

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, in words; empty when nothing is."""
        return tuple(f"{r.dataset}: {problem}" for r in self.reports for problem in r.problems)


def _names(value: Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, Mapping):
        return pa.schema(list(schema.items()))
    if hasattr(schema, "__arrow_c_schema__"):
        return pa.schema(schema)
    raise ValueError(f"schema must be a pyarrow.Schema or a dict of types, got {schema!r}")


def _options(method: Callable[..., Any], kind: type[Options], given: Mapping[str, Any]) -> Options:
    """The further options of a method of a dataset."""
    _check_options(method, (field.name for field in fields(kind)), given)
    return kind(**given)


def _check_options(
    method: Callable[..., Any], further: Iterable[str], given: Mapping[str, Any]
) -> None:
    """TypeError in the name of the method that was called, not of what it hands options on to."""
    known = [*(name for name in signature(method).parameters if name != "options"), *further]
    for name in given:
        if name not in known:
            raise TypeError(
                f"LakeDataset.{method.__name__}() has no option {name!r}. It takes: "
                f"{', '.join(known)}"
            )


class LakeDataset:
    """One dataset of a catalog; always at its newest version unless a version is named."""

    def __init__(self, session: LakeSession, name: str) -> None:
        self._session = session
        self.name = name

    def __repr__(self) -> str:
        return f"LakeDataset({self.name!r})"

    @property
    def _state(self) -> DatasetState:
        return self._session.reader.dataset(self.name)

    @property
    def version(self) -> int:
        """The newest version."""
        return self._state.head

    @property
    def path(self) -> str:
        """The directory of the dataset."""
        return self._state.root

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self._state.partition_by

    # -- writing ------------------------------------------------------------------------------

    def append(self, data: Any, **options: Any) -> WriteResult:
        """Add rows. Options: merge_schema, on_mismatch ("error" or "string"), compression,
        row_group_rows, target_mb_per_file, target_rows_per_file, txn_id, author, message."""
        settings = _options(self.append, WriteOptions, options)
        return lake_write.append(self._session, self.name, data, settings)

    def overwrite(
        self, data: Any, *, partition_filter: Any = None, dynamic: bool = False, **options: Any
    ) -> WriteResult:
        """Replace all rows, those of some partitions, or (dynamic) of those in the data."""
        settings = _options(self.overwrite, WriteOptions, options)
        return lake_write.overwrite(
            self._session, self.name, data, settings, partition_filter, dynamic
        )

    def delete(self, where: Any, *, dry_run: bool = False, **options: Any) -> ChangeOutcome:
        """Delete the rows for which a predicate is true."""
        settings = _options(self.delete, WriteOptions, options)
        return lake_change.delete(self._session, self.name, where, settings, dry_run)

    def update(
        self, where: Any, values: Mapping[str, Any], *, dry_run: bool = False, **options: Any
    ) -> ChangeOutcome:
        """Give rows for which a predicate is true new values."""
        settings = _options(self.update, WriteOptions, options)
        return lake_change.update(self._session, self.name, where, values, settings, dry_run)

    def upsert(
        self,
        data: Any,
        key_cols: Sequence[str],
        update_cols: Sequence[str] | None = None,
        *,
        on_duplicates: str = "error",
        dry_run: bool = False,
        **options: Any,
    ) -> ChangeOutcome:
        """Give rows whose key is in the data new values, and insert the others; NULL is a key."""
        request = lake_upsert.UpsertRequest(
            _names(key_cols), None if update_cols is None else _names(update_cols), on_duplicates
        )
        settings = _options(self.upsert, WriteOptions, options)
        return lake_upsert.upsert(self._session, self.name, data, request, settings, dry_run)

    # -- schema -------------------------------------------------------------------------------

    def schema(self, version: int | None = None) -> pa.Schema:
        """The columns at a version."""
        state = self._state
        return schema_at(self._session, state, resolve_version(self._session, state, version)).arrow

    def add_column(self, name: str, type: Any) -> int:
        """Add a column, null in all rows that are there; the new version."""
        return lake_schema.add_column(self._session, self.name, name, type)

    def drop_column(self, name: str) -> int:
        """Drop a column for good; the new version."""
        return lake_schema.drop_column(self._session, self.name, name)

    def rename_column(self, name: str, new_name: str) -> int:
        """Call a column otherwise; the new version."""
        return lake_schema.rename_column(self._session, self.name, name, new_name)

    def widen_column(self, name: str, type: Any) -> int:
        """Give a column a type that holds all its values; the new version."""
        return lake_schema.widen_column(self._session, self.name, name, type)

    # -- reading ------------------------------------------------------------------------------

    def _scan(
        self,
        where: Any = None,
        version: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
    ) -> Scan:
        def look(state: DatasetState) -> Scan:
            found = resolve_version(self._session, state, version, as_of, tag)
            return plan_scan(self._session, state, found, where)

        return self._session.at_newest(self.name, look)

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        version: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Rows of a version as a table; files that cannot hold any are not opened."""
        return read_rows(self._scan(where, version, as_of, tag), columns)

    def to_arrow_dataset(
        self,
        where: Any = None,
        version: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
    ) -> "ds.FileSystemDataset":
        """The files and row groups that can hold such rows; rows themselves are not filtered."""
        return open_dataset(self._session, self._scan(where, version, as_of, tag))

    def _for_others(self, asked: Mapping[str, Any]) -> "ds.Dataset":
        """What other libraries read by themselves; of a condition they get the very rows."""
        scan = self._scan(**asked)
        return (
            open_dataset(self._session, scan)
            if scan.predicate is None
            else lake_readers.rows_as_dataset(scan)
        )

    def to_duckdb(self, connection: Any = None, **version: Any) -> Any:
        """Register the dataset under its name in a DuckDB connection; a relation of it.

        Like its siblings it takes `version`, `as_of` or `tag`, and `where`: only those rows, read
        into memory. Without it the other library reads what its own query needs.
        """
        return lake_readers.to_duckdb(self.name, self._for_others(version), connection)

    def to_polars(self, **version: Any) -> Any:
        """A polars LazyFrame."""
        return lake_readers.to_polars(self._for_others(version))

    def to_datafusion(self, context: Any = None, **version: Any) -> Any:
        """Register the dataset under its name in a DataFusion context; a DataFrame of it."""
        return lake_readers.to_datafusion(self.name, self._for_others(version), context)

    def to_daft(self, **version: Any) -> Any:
        """A Daft DataFrame."""
        return lake_readers.to_daft(self._scan(**version))

    def to_spark(self, spark: Any = None, **version: Any) -> Any:
        """A Spark DataFrame."""
        return lake_readers.to_spark(self._scan(**version), spark)

    def files(self, version: int | None = None) -> tuple[CatalogFile, ...]:
        """The files of a version."""

        def look(state: DatasetState) -> tuple[CatalogFile, ...]:
            found = resolve_version(self._session, state, version)
            return self._session.reader.files(state.dataset_id, found)

        return self._session.at_newest(self.name, look)

    def status(self, **options: Any) -> DatasetStatus:
        """Files, health, drift and what is under way; options as of `status`, without a store's."""
        judged_by = signature(Judging.of).parameters
        _check_options(self.status, (*judged_by, "partition_filter", "on_progress"), options)
        return lake_status.status(self._session, self.name, **options)

    # -- versions -----------------------------------------------------------------------------

    def history(self, limit: int | None = None) -> tuple[Commit, ...]:
        """All versions (or so many), newest first."""
        return self._session.reader.history(self._state.dataset_id, limit)

    def live_files(self) -> tuple[LiveFile, ...]:
        """The files of the newest version with the times they came: a listing of what counts."""
        return CatalogLife(self._session.database).files(self._state.dataset_id)

    def transactions(self) -> tuple[OpenTransaction, ...]:
        """Who is at work on the dataset, or died over it."""
        return CatalogLife(self._session.database).transactions(self._state.dataset_id)

    def tag(self, name: str, version: int | None = None) -> int:
        """Give a version (the newest by default) a name; it will not expire."""
        state = self._state
        found = resolve_version(self._session, state, version)
        self._session.retention.pin(state.dataset_id, found, "tag", name, None)
        return found

    def untag(self, name: str) -> bool:
        """Take a name away; whether there was one."""
        return self._session.retention.unpin(self._state.dataset_id, "tag", name)

    def tags(self) -> dict[str, int]:
        """The tags and their versions."""
        pins: tuple[Pin, ...] = self._session.reader.pins(self._state.dataset_id)
        return {pin.name: pin.version for pin in pins if pin.kind == "tag"}

    @contextmanager
    def pin(
        self, version: int | None = None, keep: timedelta = timedelta(hours=24)
    ) -> Iterator[int]:
        """Keep a version readable while it is being read, for at most so long."""
        state = self._state
        found = resolve_version(self._session, state, version)
        name, until = str(uuid4()), datetime.now(UTC) + keep
        self._session.retention.pin(state.dataset_id, found, "pin", name, until)
        try:
            yield found
        finally:
            self._session.retention.unpin(state.dataset_id, "pin", name)

    def restore(
        self, version: int, *, author: str | None = None, message: str | None = None
    ) -> int:
        """Make a new version that is like an earlier one, rows and columns."""
        state = self._state
        schema_at(self._session, state, version)
        with self._session.transaction(state, "restore") as transaction:
            return transaction.commit(
                Change(
                    "restore",
                    revives=version,
                    author=author,
                    message=message or f"restore version {version}",
                    summary={"restored_version": version},
                )
            )

    # -- maintenance --------------------------------------------------------------------------

    def compact(
        self,
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        *,
        compression: str | None = None,
        mode: Mode = "auto",
        **options: Any,
    ) -> "LakeMaintenance":
        """Merge small files and split oversized ones; older versions stay readable.

        Options: engine, partition_filter, dry_run, memory_budget_mb, max_workers, strict,
        on_progress, author, message.
        """
        settings = _options(self.compact, RewriteOptions, options)
        policy = CompactionPolicy.from_targets(
            target_mb_per_file, target_rows_per_file, compression, mode
        )
        return self._maintain(lambda _: CompactionPlanner(policy), settings)

    def optimize(
        self,
        zorder_columns: Sequence[str],
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        *,
        compression: str | None = None,
        curve: Curve = "hilbert",
        **options: Any,
    ) -> "LakeMaintenance":
        """Cluster rows by some columns, so that look-ups open few files; options as of compact."""
        settings = _options(self.optimize, RewriteOptions, options)
        policy = OptimizePolicy(
            check_names(zorder_columns),
            check_curve(curve),
            CompactionPolicy.from_targets(target_mb_per_file, target_rows_per_file, compression),
        )

        def planner(called: Mapping[str, str | None]) -> ClusteringPlanner | None:
            columns = lake_rewrite.names_in_files(policy.columns, called)
            return None if columns is None else ClusteringPlanner(replace(policy, columns=columns))

        return self._maintain(planner, settings, policy.columns)

    def repartition(
        self, partition_by: Sequence[str], *, dry_run: bool = False, **options: Any
    ) -> "ChangeOutcome":
        """Lay all rows out by other columns; older versions stay as they were."""
        settings = _options(self.repartition, WriteOptions, options)
        return lake_change.repartition(
            self._session, self.name, _names(partition_by), settings, dry_run
        )

    def _maintain(
        self,
        make_planner: lake_rewrite.MakePlanner,
        options: RewriteOptions,
        asked: Sequence[str] | None = None,
    ) -> "LakeMaintenance":
        started = time.monotonic()
        version, done = lake_rewrite.rewrite(self._session, self.name, make_planner, options)
        results = [
            planner.result(run, result, 0.0) if isinstance(planner, ClusteringPlanner) else result
            for planner, run, result in done
        ]
        if not results:
            return LakeMaintenance(None, None)
        result = lake_rewrite.combined(results, started)
        if asked is not None:  # files may have other names for these columns
            result = replace(result, stats=replace(result.stats, zorder_columns=list(asked)))
        if result.failures and not options.dry_run:
            raise IncompleteMaintenanceError(
                failure_message(result), LakeMaintenance(version, result)
            )
        return LakeMaintenance(version, result)


class LakeMaintenance:
    """The version that maintenance made (None: nothing to do), and what it did."""

    def __init__(
        self, version: int | None, result: CompactionResult | OptimizeResult | None
    ) -> None:
        self.version = version
        self.result = result

    def to_dict(self) -> dict[str, Any]:
        """The canonical stats; empty for an empty dataset."""
        return {} if self.result is None else self.result.to_dict()

    def __repr__(self) -> str:
        return f"LakeMaintenance(version={self.version}, {self.to_dict()})"
