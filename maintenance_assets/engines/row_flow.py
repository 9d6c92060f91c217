"""From batches of a file to rows that know their directory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.engines.dictionaries import has_dictionary
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.read_kernel import Reading, read_file
from maintenance_assets.engines.repartition_task import RepartitionTask
from maintenance_assets.engines.row_blocks import Arranged, arrange
from maintenance_assets.engines.transform import conformed
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DataFile
from maintenance_assets.planning.content_hash import Digest, row_hashes
from maintenance_assets.planning.dataset_columns import path_texts, refuse_other_values
from maintenance_assets.planning.path_values import typed_value
from maintenance_assets.planning.placement import partition_directories


@dataclass(frozen=True, slots=True)
class Portion:
    """A stretch of the rows: some files, or some row groups of one."""

    files: tuple[int, ...]
    """Their numbers."""
    row_groups: tuple[int, int] | None = None
    """First and last but one, where it is a part of one file."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows put together by directory, and what was hashed before they were moved."""

    arranged: Arranged
    rows_read: int
    read: Digest


def portions(files: Sequence[DataFile], portion_rows: int) -> list[Portion]:
    """Cut the rows into portions of about so many, in their order."""
    found: list[Portion] = []
    waiting: list[int] = []
    rows = 0
    for number, file in enumerate(files):
        pieces = min(file.row_group_count, file.num_rows // max(1, portion_rows))
        if pieces > 1:
            if waiting:
                found.append(Portion(tuple(waiting)))
            found += _parts_of(number, file.row_group_count, pieces)
            waiting, rows = [], 0
            continue
        waiting.append(number)
        rows += file.num_rows
        if rows >= portion_rows:
            found.append(Portion(tuple(waiting)))
            waiting, rows = [], 0
    return [*found, Portion(tuple(waiting))] if waiting else found


def _parts_of(number: int, groups: int, pieces: int) -> list[Portion]:
    bounds = [groups * piece // pieces for piece in range(pieces + 1)]
    return [Portion((number,), (first, last)) for first, last in pairwise(bounds)]


class RowFlow:
    """Reads portions of the source and brings their rows to their directories."""

    def __init__(
        self, task: RepartitionTask, access: FileAccess, batch_bytes: int, coded: Sequence[str] = ()
    ) -> None:
        self._task = task
        self._plan = task.plan
        self._access = access
        self._batch_bytes = max(1, batch_bytes)
        self._coded = frozenset(coded)
        self._stored = _coded_schema(task.plan.stored, self._coded)
        self._rows = _coded_schema(task.plan.rows, self._coded)
        self._concatenates = not has_dictionary(task.plan.rows)

    def placed(self, portion: Portion) -> Iterator[Placed]:
        """The rows of a portion, a batch at a time."""
        for batch in self.batches(portion):
            yield self.place(batch)

    def place(self, batch: pa.RecordBatch) -> Placed:
        """Derive, transform, hash and arrange the rows of a batch."""
        rows = self.finished(batch)
        task = self._task
        hashes = row_hashes(rows, task.hashed) if task.validate else None
        codes, directories = partition_directories(rows, task.partition_by)
        written = rows.select(task.schema.names) if rows.schema.names != task.schema.names else rows
        return Placed(
            arrange(written, codes, directories, hashes),
            batch.num_rows,
            Digest(rows.num_rows) if hashes is None else Digest.of(hashes),
        )

    def finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with all the columns that they have in the end."""
        plan = self._plan
        for name, value in plan.derived:
            try:
                array = value.evaluate(batch)
            except (pa.ArrowException, ValueError) as error:
                raise RewriteError(f"column '{name}' could not be derived: {error}") from error
            batch = batch.append_column(plan.rows.field(name), _whole(array))
        if plan.transform is None:
            return batch
        found = plan.transform.apply(batch)
        return found if plan.transformed is None else conformed(found, plan.transformed)

    def batches(self, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Rows with the columns of their files and paths; small batches go together."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in self._read(portion):
            if waiting and (
                rows + batch.num_rows > self._task.batch_rows
                or sum(each.nbytes for each in waiting) + batch.nbytes > self._batch_bytes
            ):
                yield _joined(waiting)
                waiting, rows = [], 0
            waiting.append(batch)
            rows += batch.num_rows
            if not self._concatenates:
                yield waiting.pop()
                rows = 0
        if waiting:
            yield _joined(waiting)

    def _read(self, portion: Portion) -> Iterator[pa.RecordBatch]:
        for number in portion.files:
            file = self._task.files[number]
            beside = _Beside.of(self._task, file)
            for arrays, rows in self._columns_of(file, portion.row_groups):
                if rows:
                    yield self._with_path(arrays, rows, beside, file)

    def _columns_of(
        self, file: DataFile, row_groups: tuple[int, int] | None
    ) -> Iterator[tuple[list[Any], int]]:
        """The stored columns and the number of rows of each batch."""
        wanted = self._stored.names
        there = [name for name in wanted if name in file.schema.arrow.names]
        if not there:
            # Nothing has to be read, and a file is not cut: its first portion stands for all.
            most = self._task.batch_rows
            starts = range(0, 0 if row_groups and row_groups[0] else file.num_rows, most)
            for rows in (min(most, file.num_rows - start) for start in starts):
                yield [pa.nulls(rows, field.type) for field in self._stored], rows
            return
        narrow = set(file.schema.arrow.names) > set(there)
        coded = tuple(name for name in there if name in self._coded)
        for batch in read_file(
            file,
            self._stored,
            self._access,
            self._batch_bytes,
            # A name with a dot cannot be told from a field of a struct.
            there if narrow and not any("." in name for name in there) else None,
            None if row_groups is None else lambda metadata: range(*row_groups),
            Reading(self._task.batch_rows, coded),
        ):
            yield batch.columns, batch.num_rows

    def _with_path(
        self, stored: list[Any], rows: int, beside: "_Beside", file: DataFile
    ) -> pa.RecordBatch:
        """Columns that the path has are added; those that both have must agree."""
        for name, text in beside.texts.items():
            position = self._stored.get_field_index(name)
            if position >= 0:
                _require_agreement(stored[position], text, name, file.path)
        fields = list(self._rows)[: len(self._rows) - len(self._plan.derived)]
        arrays = [*stored, *[None] * (len(fields) - len(stored))]
        for position, field in enumerate(fields):
            if field.name in beside.constants:
                arrays[position] = _repeated(beside.constants[field.name], rows, field.type)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, self._rows.metadata))


@dataclass(frozen=True, slots=True)
class _Beside:
    """What the path of a file says."""

    constants: Mapping[str, Any]
    """Columns that the file does not hold."""
    texts: Mapping[str, str | None]
    """Columns that it does hold."""

    @classmethod
    def of(cls, task: RepartitionTask, file: DataFile) -> "_Beside":
        columns, directory = task.plan.columns, task.plan.directory(file)
        there = set(file.schema.arrow.names)
        lacking = [name for name in columns.keys if name not in there]
        texts = path_texts(directory, [name for name in columns.keys if name in there])
        return cls(columns.constants(directory, file, lacking), texts)


def _require_agreement(array: Any, text: str | None, column: str, path: str) -> None:
    """Raise unless all values are what the path says; one comparison where they surely are."""
    if text is not None and not array.null_count and not pa.types.is_dictionary(array.type):
        value = typed_value(text, array.type)
        if value is not None and _all_equal(array, value):
            return
    values = array
    if pa.types.is_dictionary(array.type):  # only those that occur
        values = array.dictionary.take(array.indices.unique())
    refuse_other_values(values, text, column, path)


def _all_equal(array: Any, value: Any) -> bool:
    try:
        return bool(pc.all(pc.equal(array, value)).as_py())
    except pa.ArrowNotImplementedError:
        return False


def _repeated(value: Any, rows: int, type_: Any) -> Any:
    if not value.is_valid:
        return pa.nulls(rows, type_)
    if pa.types.is_dictionary(type_):
        plain = value.cast(type_.value_type)
        values = pa.array([plain], type_.value_type)
        indices = pa.array(np.zeros(rows, type_.index_type.to_pandas_dtype()))
        return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered)
    return pa.repeat(value.cast(type_), rows)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _whole(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _coded_schema(schema: pa.Schema, coded: frozenset[str]) -> pa.Schema:
    if not coded:
        return schema
    fields = [
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in coded else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)
