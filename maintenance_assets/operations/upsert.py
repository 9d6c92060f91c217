"""Upsert: rows whose key exists get new values, the others are inserted."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pyarrow as pa

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.operations.change import run_change
from maintenance_assets.operations.results import ChangeResult
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.upsert import (
    BoundUpsert,
    FittedRows,
    OnDuplicates,
    UpsertRequest,
    bind_upsert,
)


def upsert(
    path: str | os.PathLike[str],
    new_data: Any,
    key_cols: Sequence[str],
    *,
    partition_cols: Sequence[str] | None = None,
    update_cols: Sequence[str] | None = None,
    on_duplicates: OnDuplicates = "error",
    engine: str | Engine = "pyarrow",
    partition_filter: Any = None,
    backup_path: str | os.PathLike[str] | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget_mb: float = DEFAULT_MEMORY_BUDGET_MB,
    max_workers: int | None = None,
    strict: bool = False,
    on_progress: ProgressCallback | None = None,
) -> ChangeResult:
    """Merge new data (anything with the Arrow C stream: polars, pyarrow, pandas) by its keys.

    Rows whose key exists get the values of `update_cols` (of all columns where none are given),
    also where these are NULL, and count as updated even if they had them already; columns that the
    new data does not have stay. All other rows are inserted. Keys are equal by value, NULL and NaN
    too. The same key twice in the new data is refused, or with `on_duplicates="last"` the last one
    counts. Where the dataset has a key several times, all of these rows are updated; where new data
    has every column of the dataset and no `update_cols` are given, one of them is left.
    A new value of a partition column moves its row. Guarantees and backups are those of `delete`.
    """
    return run_change(
        _Upsert(_request(new_data, key_cols, partition_cols, update_cols, on_duplicates)),
        path,
        engine=engine,
        partition_filter=partition_filter,
        backup_path=backup_path,
        compression=compression,
        dry_run=dry_run,
        filesystem=filesystem,
        storage_options=storage_options,
        memory_budget_mb=memory_budget_mb,
        max_workers=max_workers,
        strict=strict,
        on_progress=on_progress,
    )


@dataclass(slots=True)
class _Upsert:
    request: UpsertRequest
    operation: str = "upsert"
    creates: bool = True
    fitted: FittedRows | None = None
    """Kept for the next look, which most often finds the same columns."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The keys; and partition columns, whose values have to agree with their paths."""
        return tuple(dict.fromkeys((*self.request.keys, *(self.request.partition_cols or ()))))

    def bind(self, columns: DatasetColumns, directories: Sequence[str]) -> BoundUpsert:
        """Bind it to the columns of a dataset."""
        if self.fitted is None or self.fitted.columns != columns:
            self.fitted = FittedRows.of(self.request, columns)
        return bind_upsert(self.request, self.fitted, directories)


def _request(
    new_data: Any,
    key_cols: Any,
    partition_cols: Any,
    update_cols: Any,
    on_duplicates: Any,
) -> UpsertRequest:
    """Check everything that can be checked before any I/O."""
    if on_duplicates not in get_args(OnDuplicates):
        raise ValueError(f"on_duplicates must be 'error' or 'last', got {on_duplicates!r}")
    keys = _names("key_cols", key_cols)
    if not keys:
        raise ValueError("key_cols must name at least one column")
    partitions = None if partition_cols is None else _names("partition_cols", partition_cols)
    updates = None if update_cols is None else _names("update_cols", update_cols)
    both = sorted({*keys} & {*(updates or ())})
    if both:
        raise ValueError(f"update_cols names the key column '{both[0]}': keys are not updated")
    source = _table(new_data)
    _require(source, keys, "Key columns")
    _require(source, partitions or (), "Partition columns")
    _require(source, updates or (), "Update columns")
    return UpsertRequest(source, keys, partitions, updates, on_duplicates)


def _names(option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ValueError(f"{option} must be a list of column names, got {value!r}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{option} must be a list of column names, got {name!r}")
    repeated = [name for name in value if value.count(name) > 1]
    if repeated:
        raise ValueError(f"{option} names '{repeated[0]}' more than once")
    return tuple(value)


def _require(source: pa.Table, names: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in source.column_names]
    if missing:
        raise ValueError(
            f"{what} not found in data: {', '.join(missing)}. Available columns: "
            f"{', '.join(source.column_names)}"
        )


def _table(new_data: Any) -> pa.Table:
    """New data as a table without metadata, whose columns have different names."""
    table = _as_table(new_data)
    folded: dict[str, str] = {}
    for name in table.column_names:
        twin = folded.get(name.casefold())
        if twin is not None:
            raise ValueError(f"The new data has the columns '{twin}' and '{name}': rename one")
        folded[name.casefold()] = name
    fields = [pa.field(field.name, field.type) for field in table.schema]
    return table.cast(pa.schema(fields)) if table.schema.metadata else table


def _as_table(new_data: Any) -> pa.Table:
    if isinstance(new_data, pa.Table):
        return new_data
    if isinstance(new_data, pa.RecordBatchReader):
        return new_data.read_all()
    if isinstance(new_data, Mapping):
        return pa.table(dict(new_data))
    if _is_pandas(new_data):
        # An index that has a name is data, any other one is not.
        named = [name for name in new_data.index.names if name is not None]
        frame = new_data.reset_index(named) if named else new_data
        return pa.Table.from_pandas(frame, preserve_index=False)
    if hasattr(new_data, "__arrow_c_stream__") or hasattr(new_data, "__arrow_c_array__"):
        return pa.table(new_data)
    if hasattr(new_data, "collect"):
        raise ValueError(f"new_data is lazy ({type(new_data).__name__}): collect() it first")
    raise ValueError(
        "new_data must be a polars, pandas or pyarrow table, or anything else with the Arrow C "
        f"stream, got {type(new_data).__name__}"
    )


def _is_pandas(new_data: Any) -> bool:
    return type(new_data).__module__.partition(".")[0] == "pandas" and hasattr(new_data, "index")
