"""Errors as a run shows them: what a person can do about them, and whether to try again."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster

from maintenance_assets.errors import (
    BackupError,
    CatalogBusyError,
    CatalogError,
    CommitConflictError,
    ConcurrentChangeError,
    LeaseHeldError,
)
from maintenance_assets.orchestration.metadata import shorten

_TO_MEND = (ValueError, FileNotFoundError, FileExistsError, BackupError)


@contextmanager
def lease_as_failure() -> Iterator[None]:
    """Who holds the dataset is all that there is to say: no stack of calls."""
    try:
        yield
    except LeaseHeldError as error:
        raise dagster.Failure(str(error)) from error


@contextmanager
def catalog_as_failure() -> Iterator[None]:
    """What a catalog says: it is told apart from what others are doing to it just now."""
    try:
        yield
    except (CatalogBusyError, CommitConflictError) as error:
        raise dagster.Failure(shorten(str(error))) from error
    except CatalogError as error:
        raise dagster.Failure(shorten(str(error)), allow_retries=False) from error


@contextmanager
def told_as_failure() -> Iterator[None]:
    """What a person has to mend is said in one line, and is not tried again."""
    try:
        with lease_as_failure(), catalog_as_failure():
            yield
    except ConcurrentChangeError as error:
        raise dagster.Failure(str(error)) from error
    except _TO_MEND as error:
        raise dagster.Failure(shorten(str(error)), allow_retries=False) from error
