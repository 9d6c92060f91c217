"""Every error this package raises, in branches by what the caller can do about it."""

from collections.abc import Sequence
from typing import Any, Protocol


class MaintenanceError(Exception):
    """Base of all errors raised by maintenance_assets."""


def in_words(error: Exception) -> str:
    """What went wrong: our own errors say it themselves, others need the name of their kind."""
    return str(error) if isinstance(error, MaintenanceError) else f"{type(error).__name__}: {error}"


# --- fix the configuration or the data, then call again -------------------------------------


class UnsupportedDatasetError(MaintenanceError, ValueError):
    """The path holds something that must not be maintained as a plain Parquet directory."""


class DatasetConfigError(MaintenanceError, ValueError):
    """A declared dataset is wrong; the message names the dataset and the field."""


class UnreadableFileError(MaintenanceError):
    """Files that look like data but cannot be read as Parquet; nothing was touched."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(f"'{path}': {reason}" for path, reason in self.problems[:10])
        more = f"; and {len(self.problems) - 10} more" if len(self.problems) > 10 else ""
        super().__init__(
            f"{len(self.problems)} file(s) cannot be read as Parquet: {shown}{more}. "
            "Nothing was changed. Repair them, move them away, or rename them so that "
            "their names begin with '_'."
        )


class InvalidPlanError(MaintenanceError, ValueError):
    """A saved plan cannot be read, or is not what was saved; nothing was changed."""

    def __init__(self, problem: str, source: str = "") -> None:
        self.problem = problem
        named = f" '{source}'" if source else ""
        super().__init__(f"The plan{named} cannot be used: {problem}. Save a new one.")


class DescribesConflict(Protocol):
    """What SchemaConflictError needs to know of a conflict."""

    def describe(self) -> str: ...


class SchemaConflictError(MaintenanceError):
    """Two files of one group hold a column in types that cannot be merged losslessly."""

    def __init__(self, conflict: DescribesConflict) -> None:
        self.conflict = conflict
        super().__init__(conflict.describe())


class RewriteError(MaintenanceError):
    """A group could not be rewritten faithfully; its files are untouched."""


class VerificationError(RewriteError):
    """A written file differs from what the plan promised; it was thrown away."""


class EngineUnavailableError(MaintenanceError):
    """The engine cannot run here (no Java, no server, a library missing); nothing was changed."""


class CatalogError(MaintenanceError):
    """The catalog cannot do what was asked; the message says why."""


class UnknownDatasetError(CatalogError, FileNotFoundError):
    """The catalog has no dataset of that name; the message names those that it has."""


class VersionExpiredError(CatalogError):
    """A version cannot be read any more; it may have been the newest one a moment ago."""


class SchemaMismatchError(MaintenanceError, ValueError):
    """Data does not fit the schema of the dataset; nothing was written."""


# --- try again later -------------------------------------------------------------------------


class CatalogBusyError(MaintenanceError):
    """Others kept the catalog's database locked for too long; nothing was changed."""


class LeaseHeldError(MaintenanceError):
    """Another process is maintaining this dataset right now."""


class LeaseLostError(MaintenanceError):
    """This process paused for so long that another one may have taken over; nothing published."""


# --- the dataset changed: plan again ---------------------------------------------------------


class PlanOutdatedError(MaintenanceError):
    """The files that a saved plan names are no longer what they were when it was made."""


class CommitConflictError(MaintenanceError):
    """Another commit changed what this one was made from; nothing was changed."""


class SchemaMovedError(CommitConflictError):
    """Another commit changed the schema that this one's schema was made from."""


class ConcurrentChangeError(MaintenanceError):
    """Other writers kept changing the files that a change was about; nothing was changed."""


class BackupError(MaintenanceError):
    """A backup cannot be restored: it is damaged, or the dataset has moved on; nothing changed."""


# --- part of the work was done ---------------------------------------------------------------


class IncompleteMaintenanceError(MaintenanceError):
    """Some groups failed; the others are committed and `result` tells which is which."""

    def __init__(self, message: str, result: Any) -> None:
        self.result = result
        super().__init__(message)


# --- outcome unknown: touch nothing ----------------------------------------------------------


class RecoveryError(MaintenanceError):
    """A leftover journal cannot be resolved safely; nothing was deleted."""


class CommitUnknownError(MaintenanceError):
    """The database did not say whether a commit happened; no file was deleted."""
