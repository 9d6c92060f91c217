"""Delete: the rows for which a condition is true go, and all others stay as they are."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maintenance_assets.engines.protocol import Engine
from maintenance_assets.model.policy import DEFAULT_MEMORY_BUDGET_MB
from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.operations.change import run_change
from maintenance_assets.operations.results import ChangeResult
from maintenance_assets.planning.bound_changes import BoundDelete, asked_columns, bind_delete
from maintenance_assets.planning.dataset_columns import DatasetColumns
from maintenance_assets.planning.predicates import Predicate, parse_predicate


def delete(
    path: str | os.PathLike[str],
    where: Any,
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
    """Delete the rows for which `where` is true: SQL text, a pyarrow Expression or a polars Expr.

    As in SQL, a row for which it is NULL stays. Files without such a row are not touched, all
    others are replaced at once or not at all. With `backup_path`, what is replaced is kept there.
    """
    return run_change(
        _Delete(parse_predicate(where)),
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


@dataclass(frozen=True, slots=True)
class _Delete:
    predicate: Predicate
    operation: str = "delete"
    creates: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """Columns of the predicate."""
        return asked_columns(self.predicate)

    def bind(self, columns: DatasetColumns, directories: Sequence[str]) -> BoundDelete:
        """Bind it to the columns of a dataset."""
        return bind_delete(self.predicate, columns)
