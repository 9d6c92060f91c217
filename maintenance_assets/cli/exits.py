"""What a script can tell from the end of a command: exit codes, and errors in one line."""

from enum import IntEnum
from typing import Any

from maintenance_assets import errors
from maintenance_assets.model.urls import shown_url
from maintenance_assets.planning.expressions import on_one_line

EPILOG = """\
exit codes:
  0    done, or nothing to do
  1    failed
  2    wrong usage or configuration (a missing path is one, too)
  3    busy, or changed by somebody else meanwhile: try again
  4    part of the work was done; the message says what was not
  130  interrupted
"""


_NO_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError"),  # S3
    "DefaultCredentialsError",  # Google Cloud Storage
    *("ClientAuthenticationError", "CredentialUnavailableError"),  # Azure
)


class Exit(IntEnum):
    """Exit codes; their numbers do not change."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    TRY_AGAIN = 3
    PARTLY = 4
    INTERRUPTED = 130


def exit_of_error(error: Exception) -> Exit:
    """What a caller can do about an error."""
    match error:
        case errors.IncompleteMaintenanceError():
            return Exit.PARTLY if _has_changed(error.result) else Exit.FAILED
        case (
            errors.LeaseHeldError()
            | errors.LeaseLostError()
            | errors.PlanOutdatedError()
            | errors.ConcurrentChangeError()
            | errors.CommitConflictError()
            | errors.CatalogBusyError()
        ):
            return Exit.TRY_AGAIN
        case errors.UnsupportedDatasetError() | errors.DatasetConfigError():
            return Exit.USAGE
        case errors.InvalidPlanError() | FileNotFoundError() | FileExistsError():
            return Exit.USAGE
        case NotADirectoryError():
            return Exit.USAGE
        case errors.MaintenanceError():
            return Exit.FAILED
        case ValueError() if not _is_foreign(error):
            return Exit.USAGE
        case _:
            return Exit.FAILED


def exit_of_result(result: Any) -> Exit:
    """What was left undone because others changed it meanwhile."""
    if not getattr(result, "conflicts", ()):
        return Exit.DONE
    return Exit.PARTLY if _has_changed(result) else Exit.TRY_AGAIN


def one_line(error: BaseException, place: str = "") -> str:
    """The message of an error on one line; what is not ours says what kind it is.

    A store's own error often names neither the dataset, which is at `place`, nor a remedy.
    """
    text = on_one_line(str(error)) or type(error).__name__
    known = isinstance(
        error, errors.MaintenanceError | ValueError | FileNotFoundError | FileExistsError
    )
    if known and not _is_foreign(error):
        return text
    is_named = not place or place in text or getattr(error, "filename", None) is not None
    named = "" if is_named else f"'{shown_url(place)}'"
    remarks = filter(None, (named, _remedy(error), "--debug shows the trace"))
    return f"{type(error).__name__}: {text} ({'; '.join(remarks)})"


def _remedy(error: BaseException) -> str:
    """What can be done about errors of stores that everybody meets once."""
    if type(error).__name__ in _NO_CREDENTIALS:
        return "give credentials in the environment or with --storage-option"
    if isinstance(error, ImportError):
        return "the extras s3, gcs and azure install the file systems of these stores"
    return ""


def _is_foreign(error: BaseException) -> bool:
    """Raised by a library below us: not the fault of an argument."""
    module = type(error).__module__
    return not (module == "builtins" or module.startswith("maintenance_assets"))


def _has_changed(result: Any) -> bool:
    # Of a dataset in a catalog, the figures are one level below the version.
    stats = getattr(getattr(result, "result", result), "stats", None)
    return bool(
        getattr(stats, "compacted_file_count", 0) or getattr(stats, "partitions_affected", 0)
    )
