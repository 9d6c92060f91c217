"""New data by its keys: which of its rows a file can meet, and which row each row of a file meets.

Keys are equal by value: NULL meets NULL, NaN meets NaN, and -0.0 meets 0.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.model.files import ColumnRange
from maintenance_assets.planning.extents import reaching
from maintenance_assets.planning.orderable import is_orderable, orderable

Array = Any
NONE = -1
"""The number of a row that meets no other one."""


def check_key_type(type_: Any, column: str) -> None:
    """Raise unless values of a type can be compared."""
    if not is_orderable(type_):
        raise ValueError(
            f"Key column '{column}' has type {type_}, whose values cannot be compared. Choose "
            "other key columns"
        )


class KeyIndex:
    """The rows of new data by their keys."""

    def __init__(self, keys: pa.Table) -> None:
        self._table = keys
        self.names = tuple(keys.column_names)
        self.rows = keys.num_rows
        self._columns = [_Column.of(keys.column(name)) for name in self.names]
        self._codes = [column.encode(keys.column(i)) for i, column in enumerate(self._columns)]
        whole = self._codes[0] if self._codes else np.zeros(self.rows, np.int64)
        self._steps: list[Array] = []
        for column, codes in zip(self._columns[1:], self._codes[1:], strict=True):
            # Numbered anew after each column, so that no product can overflow.
            pairs, whole = np.unique(whole, return_inverse=True)
            self._steps.append(pairs)
            whole = whole * column.size + codes
        self._keys, self._first = np.unique(whole, return_index=True)
        self._whole = whole
        # The codes of a single column are its ranks: rows are found by them at once.
        self._rows_of: Array | None = None
        if len(self._columns) == 1:
            self._rows_of = np.full(self._columns[0].size, NONE)
            self._rows_of[self._keys] = self._first

    def __reduce__(self) -> tuple[type["KeyIndex"], tuple[pa.Table]]:
        """Made anew on arrival: hashes of one machine need not be those of another."""
        return KeyIndex, (self._table,)

    @property
    def nbytes(self) -> int:
        """The size of the keys in memory."""
        return int(self._table.nbytes)

    def duplicates(self) -> tuple[int, int] | None:
        """Two rows with the same key, if there are any."""
        if len(self._keys) == self.rows:
            return None
        order = np.argsort(self._whole, kind="stable")
        at = int(np.flatnonzero(np.diff(self._whole[order]) == 0)[0])
        return int(order[at]), int(order[at + 1])

    def last_of_each(self) -> Array:
        """The last row of each key, in the order of the rows."""
        backwards = self._whole[::-1]
        _, last = np.unique(backwards, return_index=True)
        return np.sort(self.rows - 1 - last)

    def candidates(
        self, ranges: Mapping[str, ColumnRange], constants: Mapping[str, Any]
    ) -> Array | None:
        """Rows whose keys may occur where columns have these ranges; None where all may."""
        possible: Array | None = None
        for name, column, codes in zip(self.names, self._columns, self._codes, strict=True):
            allowed = column.allowed(codes, ranges.get(name), constants.get(name))
            if allowed is not None:
                possible = allowed if possible is None else possible & allowed
        return None if possible is None else np.flatnonzero(possible)

    def find(self, batch: pa.RecordBatch) -> Array:
        """For each row of a batch the row of the new data with the same key, or NONE."""
        if self._rows_of is not None:
            codes = self._columns[0].encode(batch.column(self.names[0]))
            return np.where(codes == NONE, NONE, self._rows_of[codes])
        found = np.zeros(batch.num_rows, np.int64)
        lost = np.zeros(batch.num_rows, bool)
        for number, (name, column) in enumerate(zip(self.names, self._columns, strict=True)):
            codes = column.encode(batch.column(name))
            lost |= codes == NONE
            if number:
                found = _position(self._steps[number - 1], found, lost) * column.size
            found = found + np.where(lost, 0, codes)
        at = _position(self._keys, found, lost)
        return np.where(lost, NONE, self._first[at] if len(self._first) else NONE)


def _position(known: Array, values: Array, lost: Array) -> Array:
    """Where values are in a sorted array; those that are not in it are marked as lost."""
    if not len(known):
        lost[:] = True
        return np.zeros(len(values), np.int64)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    lost |= known[at] != values
    return at


@dataclass(frozen=True, slots=True)
class _Column:
    """The distinct values of a key column, by rank; NaN and NULL rank behind all of them."""

    type: Any
    values: Array
    """Sorted: numpy numbers, or a pyarrow array of bytes."""
    hashes: "_Hashes | None" = None
    """Of many values of bytes."""
    dense: "_Dense | None" = None
    """Of integers that lie close together."""

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Column":
        plain = _plain(_joined(column))
        if pa.types.is_large_binary(plain.type):
            distinct = plain.unique().drop_null()
            values = distinct.take(pc.sort_indices(distinct))
            return cls(column.type, values, _Hashes.of(values))
        numbers = np.unique(_numbers(plain.drop_null()))
        if numbers.dtype == np.float64:
            numbers = numbers[~np.isnan(numbers)]
        return cls(column.type, numbers, dense=_Dense.of(numbers))

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.values) + 2

    @property
    def _nan(self) -> int:
        return len(self.values)

    @property
    def _null(self) -> int:
        return len(self.values) + 1

    def encode(self, array: Any) -> Array:
        """The code of each value; NONE for one that no key has."""
        plain = _plain(_joined(array))
        if self.hashes is not None:
            codes = self.hashes.find(self.values, plain)
        elif isinstance(self.values, pa.Array):
            codes = pc.index_in(plain, value_set=self.values).fill_null(NONE)
            codes = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            codes = self._encode_numbers(plain)
        if plain.null_count:
            codes[plain.is_null().to_numpy(zero_copy_only=False)] = self._null
        return codes

    def _encode_numbers(self, plain: Any) -> Array:
        numbers = _numbers(plain.fill_null(0) if plain.null_count else plain)
        if self.dense is not None:
            return self.dense.find(numbers)
        lost = np.zeros(len(numbers), bool)
        at = _position(self.values, numbers, lost)
        codes = np.where(lost, NONE, at)
        if numbers.dtype == np.float64:
            codes[np.isnan(numbers)] = self._nan
        return codes

    def allowed(
        self, codes: Array, range_: ColumnRange | None, constant: Any | None
    ) -> Array | None:
        """For each code whether it may occur; None where nothing is known."""
        if constant is not None:
            (code,) = self.encode(pa.array([constant], constant.type))
            return codes == code
        if range_ is None or (range_.low is None and not range_.all_null):
            return None
        # Footers tell nothing of NaN, and not always how many values are NULL.
        others = codes == self._null if range_.all_null else codes >= self._nan
        if range_.all_null:
            return others
        bounds = self._ranks(range_)
        if bounds is None:
            return None
        return ((codes >= bounds[0]) & (codes < bounds[1])) | others

    def _ranks(self, range_: ColumnRange) -> tuple[int, int] | None:
        """The first rank within a range, and the first one behind it."""
        try:
            bounds = [
                pa.array([b], b.type).cast(_unwrapped(self.type)) for b in (range_.low, range_.high)
            ]
        except (pa.ArrowException, ValueError):
            return None
        low, high = (_plain(bound) for bound in bounds)
        if isinstance(self.values, pa.Array):
            return self._bisect(low[0].as_py(), False), self._behind(high[0].as_py())
        first = np.searchsorted(self.values, _numbers(low)[0], side="left")
        last = np.searchsorted(self.values, _numbers(high)[0], side="right")
        return int(first), int(last)

    def _behind(self, high: bytes) -> int:
        """The first rank that is surely above an upper bound, which may have been cut off."""
        reached = reaching(high)
        if reached is None:
            return len(self.values)
        return self._bisect(reached, reached == high)

    def _bisect(self, bound: bytes, behind: bool) -> int:
        low, high = 0, len(self.values)
        while low < high:
            middle = (low + high) // 2
            value = self.values[middle].as_py()
            if value < bound or (behind and value == bound):
                low = middle + 1
            else:
                high = middle
        return low


@dataclass(frozen=True, slots=True)
class _Dense:
    """Finds integers by a table of all that lie between the smallest and the largest one."""

    low: Any
    high: Any
    ranks: Array

    @classmethod
    def of(cls, numbers: Array) -> "_Dense | None":
        """For sorted distinct numbers; None where the table would be many times as long."""
        if numbers.dtype == np.float64 or not len(numbers):
            return None
        span = int(numbers[-1]) - int(numbers[0]) + 1
        if span > _MOST_SPARSE * max(len(numbers), _FEW):
            return None
        ranks = np.full(span, NONE, np.int32 if len(numbers) < 2**31 else np.int64)
        ranks[(numbers - numbers[0]).astype(np.int64)] = np.arange(len(numbers))
        return cls(numbers[0], numbers[-1], ranks)

    def find(self, numbers: Array) -> Array:
        """The rank of each number, or NONE."""
        inside = (numbers >= self.low) & (numbers <= self.high)
        offsets = (np.where(inside, numbers, self.low) - self.low).astype(np.int64)
        return np.where(inside, self.ranks[offsets], NONE).astype(np.int64)


_MOST_SPARSE = 8
_FEW = 4096


@dataclass(frozen=True, slots=True)
class _Hashes:
    """Finds bytes among many: pyarrow would build its table of them anew for each batch."""

    hashes: Array
    """Sorted."""
    ranks: Array
    """The value that has each hash."""

    @classmethod
    def of(cls, values: Any) -> "_Hashes | None":
        """For distinct values; None where they are few, or two of them share a hash."""
        if len(values) < _MANY:
            return None
        hashes = _hashed(values)
        order = np.argsort(hashes)
        hashes = hashes[order]
        return None if (hashes[1:] == hashes[:-1]).any() else cls(hashes, order)

    def find(self, values: Any, plain: Any) -> Array:
        """The rank of each value, or NONE."""
        wanted = _hashed(plain)
        at = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        ranks = self.ranks[at]
        # Values that differ may share a hash, equal ones always do.
        same = pc.equal(values.take(pa.array(ranks)), plain).fill_null(False)
        return np.where(same.to_numpy(zero_copy_only=False), ranks, NONE)


_MANY = 50_000


def _hashed(plain: Any) -> Array:
    import polars as pl

    hashes: Any = pl.from_arrow(plain)
    return hashes.hash().to_numpy()


def _joined(array: Any) -> Any:
    if isinstance(array, pa.ChunkedArray):
        whole = array.combine_chunks()
        return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return array


def _unwrapped(type_: Any) -> Any:
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _plain(array: Any) -> Any:
    """Integers, floats or bytes, equal exactly where the values are."""
    plain = orderable(array)
    # The sum turns -0.0 into 0.0 and leaves all else as it is.
    return pc.add(plain, 0.0) if pa.types.is_floating(plain.type) else plain


def _numbers(plain: Any) -> Array:
    return plain.to_numpy(zero_copy_only=False)
