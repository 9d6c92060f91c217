"""Keeps Parquet datasets healthy: compaction and clustering with a journal, on any store."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maintenance_assets.api.compactor import ParquetCompactor
    from maintenance_assets.api.crud import ParquetCRUD
    from maintenance_assets.api.handlers import DuckDBParquetHandler, SparkParquetHandler
    from maintenance_assets.api.lakehouse import LakeDataset, Lakehouse
    from maintenance_assets.api.planning import plan_compaction_groups, plan_optimize_groups
    from maintenance_assets.api.pyarrow_functions import (
        collect_dataset_stats_pyarrow,
        compact_parquet_dataset_pyarrow,
        optimize_parquet_dataset_pyarrow,
    )
    from maintenance_assets.api.repartitioner import Repartitioner
    from maintenance_assets.errors import (
        CatalogBusyError,
        CatalogError,
        CommitConflictError,
        CommitUnknownError,
        ConcurrentChangeError,
        DatasetConfigError,
        EngineUnavailableError,
        IncompleteMaintenanceError,
        InvalidPlanError,
        LeaseHeldError,
        LeaseLostError,
        MaintenanceError,
        PlanOutdatedError,
        RecoveryError,
        SchemaMismatchError,
        UnknownDatasetError,
        UnreadableFileError,
        UnsupportedDatasetError,
    )
    from maintenance_assets.model.changes import ChangeStats
    from maintenance_assets.model.files import FileInfo
    from maintenance_assets.model.plans import CompactionGroup
    from maintenance_assets.model.progress import Progress
    from maintenance_assets.model.saved_plans import SavedPlan
    from maintenance_assets.model.stats import MaintenanceStats
    from maintenance_assets.model.status import DatasetStatus
    from maintenance_assets.operations.compact import compact
    from maintenance_assets.operations.delete import delete
    from maintenance_assets.operations.optimize import optimize
    from maintenance_assets.operations.recover import recover
    from maintenance_assets.operations.repartition import repartition
    from maintenance_assets.operations.restore import RestoreResult, restore
    from maintenance_assets.operations.results import (
        ChangeResult,
        CompactionResult,
        OptimizeResult,
        RecoveryResult,
        RepartitionResult,
    )
    from maintenance_assets.operations.saved_plans import execute_plan, load_plan, save_plan
    from maintenance_assets.operations.status import status
    from maintenance_assets.operations.update import update
    from maintenance_assets.operations.upsert import upsert
    from maintenance_assets.orchestration.build import build_definitions as build_definitions
    from maintenance_assets.orchestration.config import DatasetConfig as DatasetConfig
    from maintenance_assets.planning.values import sql

__version__ = "0.1.0"

# Loaded on first use, so that importing the package costs nothing.
_HOMES = {
    "CatalogBusyError": "errors",
    "CatalogError": "errors",
    "ChangeResult": "operations.results",
    "ChangeStats": "model.changes",
    "CommitConflictError": "errors",
    "CommitUnknownError": "errors",
    "CompactionGroup": "model.plans",
    "CompactionResult": "operations.results",
    "ConcurrentChangeError": "errors",
    "DatasetConfig": "orchestration.config",
    "DatasetConfigError": "errors",
    "DatasetStatus": "model.status",
    "DuckDBParquetHandler": "api.handlers",
    "EngineUnavailableError": "errors",
    "FileInfo": "model.files",
    "IncompleteMaintenanceError": "errors",
    "InvalidPlanError": "errors",
    "LakeDataset": "api.lakehouse",
    "Lakehouse": "api.lakehouse",
    "LeaseHeldError": "errors",
    "LeaseLostError": "errors",
    "MaintenanceError": "errors",
    "MaintenanceStats": "model.stats",
    "OptimizeResult": "operations.results",
    "ParquetCRUD": "api.crud",
    "ParquetCompactor": "api.compactor",
    "PlanOutdatedError": "errors",
    "Progress": "model.progress",
    "RecoveryError": "errors",
    "RecoveryResult": "operations.results",
    "RepartitionResult": "operations.results",
    "Repartitioner": "api.repartitioner",
    "RestoreResult": "operations.restore",
    "SavedPlan": "model.saved_plans",
    "SchemaMismatchError": "errors",
    "SparkParquetHandler": "api.handlers",
    "UnknownDatasetError": "errors",
    "UnreadableFileError": "errors",
    "UnsupportedDatasetError": "errors",
    "build_definitions": "orchestration.build",
    "collect_dataset_stats_pyarrow": "api.pyarrow_functions",
    "compact": "operations.compact",
    "compact_parquet_dataset_pyarrow": "api.pyarrow_functions",
    "delete": "operations.delete",
    "execute_plan": "operations.saved_plans",
    "load_plan": "operations.saved_plans",
    "optimize": "operations.optimize",
    "optimize_parquet_dataset_pyarrow": "api.pyarrow_functions",
    "plan_compaction_groups": "api.planning",
    "plan_optimize_groups": "api.planning",
    "recover": "operations.recover",
    "repartition": "operations.repartition",
    "restore": "operations.restore",
    "save_plan": "operations.saved_plans",
    "sql": "planning.values",
    "status": "operations.status",
    "update": "operations.update",
    "upsert": "operations.upsert",
}

# Without those that need Dagster: `import *` is not to load it.
__all__ = [
    "CatalogBusyError",
    "CatalogError",
    "ChangeResult",
    "ChangeStats",
    "CommitConflictError",
    "CommitUnknownError",
    "CompactionGroup",
    "CompactionResult",
    "ConcurrentChangeError",
    "DatasetConfigError",
    "DatasetStatus",
    "DuckDBParquetHandler",
    "EngineUnavailableError",
    "FileInfo",
    "IncompleteMaintenanceError",
    "InvalidPlanError",
    "LakeDataset",
    "Lakehouse",
    "LeaseHeldError",
    "LeaseLostError",
    "MaintenanceError",
    "MaintenanceStats",
    "OptimizeResult",
    "ParquetCRUD",
    "ParquetCompactor",
    "PlanOutdatedError",
    "Progress",
    "RecoveryError",
    "RecoveryResult",
    "RepartitionResult",
    "Repartitioner",
    "RestoreResult",
    "SavedPlan",
    "SchemaMismatchError",
    "SparkParquetHandler",
    "UnknownDatasetError",
    "UnreadableFileError",
    "UnsupportedDatasetError",
    "collect_dataset_stats_pyarrow",
    "compact",
    "compact_parquet_dataset_pyarrow",
    "delete",
    "execute_plan",
    "load_plan",
    "optimize",
    "optimize_parquet_dataset_pyarrow",
    "plan_compaction_groups",
    "plan_optimize_groups",
    "recover",
    "repartition",
    "restore",
    "save_plan",
    "sql",
    "status",
    "update",
    "upsert",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
