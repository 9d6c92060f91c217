"""Update: the rows for which a condition is true get new values."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.operations.change import run_change
from maintenance_assets.operations.results import ChangeResult
from maintenance_assets.planning.bound_changes import BoundUpdate, asked_columns, bind_update
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.predicates import Predicate, parse_predicate
from maintenance_assets.planning.values import Value, parse_value


def update(
    path: str | os.PathLike[str],
    where: Any,
    values: Mapping[str, Any],
    *,
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
    """Give the rows for which `where` is true new values: literals or expressions, by column.

    All expressions see the row as it was before. Unknown columns are added, null in all other
    rows. A new value of a partition column moves its rows to the directory they then belong to.
    Guarantees and backups are those of `delete`.
    """
    return run_change(
        _Update(parse_predicate(where), _parsed(values)),
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


def _parsed(values: Any) -> dict[str, Value]:
    """Check new values, before any I/O."""
    if not isinstance(values, Mapping):
        raise ValueError(f"values must be a dict of columns and new values, got {values!r}")
    if not values:
        raise ValueError("values must name at least one column")
    for name in values:
        if not isinstance(name, str) or not name:
            raise ValueError(f"values must be a dict of column names, got {name!r}")
    return {name: parse_value(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class _Update:
    predicate: Predicate
    values: Mapping[str, Value]
    operation: str = "update"
    creates: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """Columns of the predicate, and those that might turn out to be partition columns."""
        return tuple(dict.fromkeys((*asked_columns(self.predicate), *self.values)))

    def bind(self, columns: DatasetColumns, directories: Sequence[str]) -> BoundUpdate:
        """Bind it to the columns of a dataset."""
        return bind_update(self.predicate, self.values, columns, directories)
