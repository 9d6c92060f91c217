"""Reading a version: which files and row groups can hold the rows, and those as one dataset."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from maintenance_assets.catalog.statistics import decode_bound, is_bytes_or_text
from maintenance_assets.engines.renamed_files import RenamingHandler
from maintenance_assets.errors import CatalogError
from maintenance_assets.model.files import ColumnRange
from maintenance_assets.model.lakehouse import (
    CatalogFile,
    Column,
    ColumnStatistics,
    DatasetState,
    PhysicalSchema,
    TableSchema,
)
from maintenance_assets.operations.lake_bounds import key_bounds
from maintenance_assets.operations.lake_files import path_values
from maintenance_assets.operations.lake_session import LakeSession
from maintenance_assets.planning.evolution import keeps_order
from maintenance_assets.planning.extents import after_prefix
from maintenance_assets.planning.predicates import BoundPredicate, parse_predicate
from maintenance_assets.planning.search_bounds import is_covered
from maintenance_assets.storage.filesystems import Store

_MOST_GUARANTEES = 50_000
"""So many bounds are given to a dataset's fragments; more would cost more than they save."""


_MANY = 2000
"""So many files that the database left are not looked at again if it knew the whole condition."""


@dataclass(frozen=True, slots=True)
class ScanFile:
    """A file to read, whole or only some of its row groups."""

    file: CatalogFile
    row_groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """The files of a version that can hold what is asked for."""

    state: DatasetState
    store: Store
    version: int
    schema: TableSchema
    files: tuple[ScanFile, ...]
    physical: Mapping[int, PhysicalSchema]
    predicate: BoundPredicate | None


def resolve_version(
    session: LakeSession,
    state: DatasetState,
    version: int | None = None,
    as_of: datetime | str | None = None,
    tag: str | None = None,
) -> int:
    """The version that is meant; the newest when nothing is said."""
    asked = {"version": version, "as_of": as_of, "tag": tag}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"give one of version, as_of and tag, not {' and '.join(given)}")
    if version is not None:
        if isinstance(version, bool) or not isinstance(version, int):
            raise ValueError(f"version must be a whole number, got {version!r}")
        return version
    if as_of is not None:
        moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
        return session.reader.version_as_of(state.dataset_id, moment)
    if tag is not None:
        return session.reader.version_of_tag(state.dataset_id, tag)
    return state.head


def schema_at(session: LakeSession, state: DatasetState, version: int) -> TableSchema:
    """The schema of a version that can still be read."""
    if version == state.head:
        return state.schema
    commit = session.reader.commit(state.dataset_id, version)
    return session.reader.schema(state.dataset_id, commit.schema_id)


class Matcher(Protocol):
    """Tells from ranges of columns whether rows can be among those that are asked for."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def may_match(self, ranges: Mapping[str, ColumnRange]) -> bool: ...


def plan_scan(
    session: LakeSession,
    state: DatasetState,
    version: int,
    where: Any = None,
    matcher: Matcher | None = None,
) -> Scan:
    """Choose files and row groups by the catalog alone: no file is opened.

    `where` also decides about rows; a matcher (instead of it) only about files and row groups.
    """
    schema = schema_at(session, state, version)
    predicate = None if where is None else parse_predicate(where).bind(schema.arrow)
    physical = session.reader.physical_schemas(state.dataset_id)
    bounds = () if predicate is None else key_bounds(predicate, schema, physical)
    files = session.reader.files(state.dataset_id, version, bounds)
    chosen = tuple(ScanFile(file) for file in files)
    asked = predicate if predicate is not None else matcher
    known_enough = len(files) > _MANY and predicate is not None and is_covered(predicate.tree)
    if asked is not None and asked.columns and not known_enough:
        chosen = _Pruner(session, state, version, schema, physical, asked).choose(files)
    return Scan(state, session.store(state), version, schema, chosen, physical, predicate)


class _Pruner:
    """Rules out files and row groups by what the catalog knows of them."""

    def __init__(
        self,
        session: LakeSession,
        state: DatasetState,
        version: int,
        schema: TableSchema,
        physical: Mapping[int, PhysicalSchema],
        asked: Matcher,
    ) -> None:
        self._reader = session.reader
        self._dataset_id = state.dataset_id
        self._columns = [schema.require(name) for name in asked.columns]
        self._physical = physical
        self._asked = asked
        self._version = version
        self._bounds: dict[tuple[bytes, Any, Any], Any] = {}

    def choose(self, files: Sequence[CatalogFile]) -> tuple[ScanFile, ...]:
        """Files that may hold a row that is asked for, and which of their row groups."""
        ids = [column.field_id for column in self._columns]
        known: dict[int, dict[int, ColumnStatistics]] = {}
        file_ids = [file.file_id for file in files]
        for found in self._reader.statistics(self._dataset_id, self._version, ids, file_ids):
            known.setdefault(found.file_id, {})[found.statistics.field_id] = found.statistics
        kept = [file for file in files if self._may_match(file, known.get(file.file_id, {}))]
        groups = self._reader.row_groups(
            self._dataset_id, [f.file_id for f in kept if len(f.row_group_rows) > 1], ids
        )
        found_files = (
            self._with_groups(file, known.get(file.file_id, {}), groups) for file in kept
        )
        return tuple(file for file in found_files if file is not None)

    def _may_match(self, file: CatalogFile, known: Mapping[int, ColumnStatistics]) -> bool:
        ranges = {
            column.name: self._range(file, column, known.get(column.field_id), file.row_count)
            for column in self._columns
        }
        return bool(file.row_count) and self._asked.may_match(ranges)

    def _with_groups(
        self, file: CatalogFile, known: Mapping[int, ColumnStatistics], groups: Mapping[Any, Any]
    ) -> ScanFile | None:
        if len(file.row_group_rows) < 2:
            return ScanFile(file)
        kept = []
        for number, rows in enumerate(file.row_group_rows):
            ranges = {}
            for column in self._columns:
                packed = groups.get((file.file_id, column.field_id))
                found = known.get(column.field_id)
                if packed is not None:
                    found = ColumnStatistics(
                        column.field_id,
                        packed.null_counts[number],
                        packed.lows[number],
                        packed.highs[number],
                    )
                elif found is not None and found.null_count not in (0, file.row_count):
                    found = None  # of the whole file, and not the same in every row group
                ranges[column.name] = self._range(file, column, found, rows)
            if rows and self._asked.may_match(ranges):
                kept.append(number)
        if not kept:
            return None
        return ScanFile(file, None if len(kept) == len(file.row_group_rows) else tuple(kept))

    def _range(
        self, file: CatalogFile, column: Column, found: ColumnStatistics | None, rows: int
    ) -> ColumnRange:
        physical = self._physical[file.physical_id]
        name = physical.name_of(column.field_id)
        if found is None:
            absent = name is None and not _is_in_path(file, column)
            return ColumnRange(column.name, None, None, all_null=absent)
        if found.null_count == rows:
            return ColumnRange(column.name, None, None, all_null=True)
        type_ = column.type if name is None else physical.arrow.field(name).type
        low, high = self._bound(found.low, type_, column), self._bound(found.high, type_, column)
        if low is None or high is None:
            low = high = None
        return ColumnRange(column.name, low, high, no_nulls=found.null_count == 0)

    def _bound(self, data: bytes | None, type_: Any, column: Column) -> Any:
        if data is None:
            return None
        key = data, type_, column.type
        if key not in self._bounds:
            self._bounds[key] = logical_bound(data, type_, column.type)
        return self._bounds[key]


def _is_in_path(file: CatalogFile, column: Column) -> bool:
    return any(key == column.name for key, _ in file.partition)


def logical_bound(data: bytes, physical: Any, logical: Any) -> Any:
    """A bound of a file as a value of the dataset's type; None where that says nothing."""
    if not keeps_order(physical, logical):
        return None
    bound = decode_bound(data, physical)
    plain = logical.value_type if pa.types.is_dictionary(logical) else logical
    if bound is None or bound.type == plain:
        return bound
    try:
        return bound.cast(plain)
    except pa.ArrowException:
        return None


# -- as a pyarrow dataset ---------------------------------------------------------------------


def open_dataset(session: LakeSession, scan: Scan) -> Any:
    """The chosen files and row groups, under the names and types of the version."""
    return _dataset(scan, _guarantees(session, scan))


def _dataset(scan: Scan, guarantees: Mapping[int, Any]) -> Any:
    from pyarrow.dataset import FileSystemDataset  # loads pandas

    opener = _Opener(scan)
    fragments = [opener.fragment(file, guarantees.get(file.file.file_id)) for file in scan.files]
    return FileSystemDataset(fragments, scan.schema.arrow, opener.format)


class _Opener:
    """Makes fragments; files that were written under other names get a view of their own."""

    def __init__(self, scan: Scan) -> None:
        from pyarrow.dataset import ParquetFileFormat  # loads pandas

        self.format = ParquetFileFormat()
        self._scan = scan
        self._plain = arrow_filesystem(scan.store)
        self._views: dict[int, Any] = {}

    def fragment(self, file: ScanFile, guarantee: Any) -> Any:
        """A file as part of a dataset."""
        return self.format.make_fragment(
            self._scan.store.path(file.file.path),
            self._filesystem(file.file.physical_id),
            partition_expression=self._with_path_values(file.file, guarantee),
            row_groups=None if file.row_groups is None else list(file.row_groups),
        )

    def _filesystem(self, physical_id: int) -> Any:
        if physical_id not in self._views:
            self._views[physical_id] = self._view(self._scan.physical[physical_id])
        return self._views[physical_id]

    def _view(self, physical: PhysicalSchema) -> Any:
        names, without = _differences(physical, self._scan.schema)
        if not names and not without:
            return self._plain
        return pafs.PyFileSystem(RenamingHandler(self._plain, names, without))

    def _with_path_values(self, file: CatalogFile, guarantee: Any) -> Any:
        """Columns that are in the path only get their value from it."""
        values = path_values(self._scan.schema.columns, file.partition)
        physical = self._scan.physical[file.physical_id]
        for column in self._scan.schema.columns:
            value = values.get(column.field_id)
            if value is None or physical.name_of(column.field_id) is not None:
                continue
            here = pc.field(column.name)
            same = here == value if value.is_valid else here.is_null()
            guarantee = same if guarantee is None else guarantee & same
        return guarantee


def arrow_filesystem(store: Store) -> Any:
    """The store as pyarrow sees it."""
    if store.is_local:
        return pafs.LocalFileSystem()
    return pafs.PyFileSystem(pafs.FSSpecHandler(store.fs))


def _differences(
    physical: PhysicalSchema, schema: TableSchema
) -> tuple[dict[str, str], frozenset[str]]:
    """Names that have to be others, and columns whose statistics would mislead."""
    columns = {column.field_id: column for column in schema.columns}
    ids = dict(physical.mapping)
    names: dict[str, str] = {}
    without = set()
    for field in physical.arrow:
        column = columns.get(ids.get(field.name, -1))
        if column is None:
            # A name that is in use, but not for this column: nobody may find it under it.
            if schema.find(field.name) is not None:
                names[field.name] = f"__dropped_{ids.get(field.name, 'unknown')}_{field.name}"
            continue
        if column.name != field.name:
            names[field.name] = column.name
        if not keeps_order(field.type, column.type):
            without.add(field.name)
    return names, frozenset(without)


def _guarantees(session: LakeSession, scan: Scan) -> dict[int, Any]:
    """What is known of all rows of a file, NULLs included, for filters that come later."""
    chosen = {file.file.file_id: file.file for file in scan.files}
    columns = _telling_columns(scan, len(chosen))
    if not columns:
        return {}
    by_id = {column.field_id: column for column in columns}
    found: dict[int, Any] = {}
    for bounds in session.reader.statistics(
        scan.state.dataset_id, scan.version, list(by_id), list(chosen)
    ):
        file = chosen.get(bounds.file_id)
        if file is None:
            continue
        known = _guarantee(scan, file, by_id[bounds.statistics.field_id], bounds.statistics)
        if known is not None:
            before = found.get(bounds.file_id)
            found[bounds.file_id] = known if before is None else before & known
    return found


def _telling_columns(scan: Scan, files: int) -> list[Column]:
    """Columns whose bounds are worth giving, those that files are laid out by first."""
    first = {
        scan.schema.require(n).field_id for n in scan.state.partition_by if scan.schema.find(n)
    }
    first |= {field.field_id for field in scan.state.sort_by}
    able = [column for column in scan.schema.columns if _is_telling(column.type)]
    able.sort(key=lambda column: column.field_id not in first)
    return able[: max(len(first), _MOST_GUARANTEES // max(1, files))]


def _is_telling(type_: Any) -> bool:
    # Footers do not count NaN, which is outside of all bounds.
    nested = pa.types.is_nested(type_) or isinstance(type_, pa.BaseExtensionType)
    return not (nested or pa.types.is_floating(type_) or pa.types.is_dictionary(type_))


def _guarantee(scan: Scan, file: CatalogFile, column: Column, found: ColumnStatistics) -> Any:
    physical = scan.physical[file.physical_id]
    name = physical.name_of(column.field_id)
    if name is None:
        return None  # its value comes from the path
    here = pc.field(column.name)
    if found.null_count == file.row_count:
        return here.is_null() if file.row_count else None
    type_ = physical.arrow.field(name).type
    if found.low is None or found.high is None:
        return None
    low = logical_bound(found.low, type_, column.type)
    high = logical_bound(found.high, type_, column.type)
    if low is None or high is None:
        return None
    inside = here >= low
    reach = _reach(high)
    if reach is not None:
        inside = inside & (here <= reach)
    return inside if found.null_count == 0 else inside | here.is_null()


_MAYBE_CUT = 16


def _reach(high: Any) -> Any:
    """An upper bound that also holds where a writer has cut a long text; None if there is none."""
    value = high.as_py() if is_bytes_or_text(high.type) else None
    size = len(value.encode()) if isinstance(value, str) else len(value or b"")
    if size < _MAYBE_CUT:
        return high
    turned = after_prefix(value)
    return None if turned is None else pa.scalar(turned, high.type)


# -- as rows ----------------------------------------------------------------------------------


def scan_batches(scan: Scan, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows that are asked for, in the order of the files."""
    wanted = list(scan.schema.names) if columns is None else list(columns)
    for name in wanted:
        scan.schema.require(name)
    needed = list(dict.fromkeys([*wanted, *(scan.predicate.columns if scan.predicate else ())]))
    dataset = _dataset(scan, {})
    schema = pa.schema([scan.schema.require(name).field for name in wanted])
    for batch in _checked(dataset.to_batches(columns=needed), scan):
        rows = batch
        if scan.predicate is not None:
            rows = batch.filter(scan.predicate.mask(batch))
        if rows.num_rows:
            arrays = [rows.column(name) for name in wanted]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_rows(scan: Scan, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows that are asked for, in memory."""
    wanted = list(scan.schema.names) if columns is None else list(columns)
    fields = [scan.schema.require(name).field for name in wanted]
    if scan.predicate is None:
        with _missing_files(scan):
            return _dataset(scan, {}).to_table(columns=wanted)
    return pa.Table.from_batches(scan_batches(scan, wanted), pa.schema(fields))


def _checked(batches: Iterator[pa.RecordBatch], scan: Scan) -> Iterator[pa.RecordBatch]:
    while True:
        with _missing_files(scan):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _missing_files(scan: Scan) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CatalogError(
            f"A file of version {scan.version} is missing: {error}. It may have expired and been "
            "vacuumed meanwhile; if not, fsck() tells what is wrong"
        ) from error
