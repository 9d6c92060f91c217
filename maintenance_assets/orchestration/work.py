"""How the files of a dataset are rewritten: a plain directory here, a catalog's next door."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.model.clustering import Curve
from maintenance_assets.operations.compact import compact
from maintenance_assets.operations.optimize import optimize
from maintenance_assets.operations.recover import recover
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.orchestration.config import DatasetConfig


@dataclass(frozen=True, slots=True)
class Clustering:
    """By which columns and along which curve a dataset is clustered."""

    columns: Sequence[str]
    curve: Curve


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a rewrite."""

    result: CompactionResult | None
    """None where there is no file yet."""
    failed: tuple[str, ...] = ()
    """What could not be done, in words."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What there is to show beside the result."""


class DatasetWork(Protocol):
    """Rewrites the files of one dataset."""

    def rewrite(self, clustering: Clustering | None, settings: Mapping[str, Any]) -> Done:
        """Cluster, or compact where there is nothing to cluster by."""
        ...

    def recover(self) -> tuple[str, ...]:
        """Resolve what interrupted runs left; in words."""
        ...


@dataclass(frozen=True, slots=True)
class DirectoryWork:
    """Work on a plain directory."""

    dataset: DatasetConfig

    def rewrite(self, clustering: Clustering | None, settings: Mapping[str, Any]) -> Done:
        """Rewrite in place."""
        operation: Any = compact
        if clustering is not None:
            operation = partial(optimize, zorder_columns=clustering.columns, curve=clustering.curve)
        options = self.dataset.storage_options or None
        try:
            return Done(operation(self.dataset.directory, storage_options=options, **settings))
        except IncompleteMaintenanceError as error:
            return Done(error.result, (str(error),))

    def recover(self) -> tuple[str, ...]:
        """Undo or complete what was interrupted."""
        options = self.dataset.storage_options or None
        return recover(self.dataset.directory, storage_options=options).actions
