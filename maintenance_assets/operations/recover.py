"""Recovery: resolve what a killed run left behind."""

import os
from collections.abc import Mapping
from typing import Any

from maintenance_assets.operations.naming import uuid7
from maintenance_assets.operations.results import RecoveryResult
from maintenance_assets.storage.discovery import refuse_adopted, require_directory
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.lease import WORK_DIRECTORY, Lease
from maintenance_assets.storage.recovery import recover_runs


def recover(
    path: str | os.PathLike[str],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RecoveryResult:
    """Undo or complete interrupted runs, so that exactly the old or the new files remain."""
    store = open_store(path, filesystem, storage_options)
    require_directory(store)
    return RecoveryResult(recover_store(store))


def recover_store(store: Store) -> tuple[str, ...]:
    """The same for a store that is open, as every run does first."""
    if not store.exists(store.path(WORK_DIRECTORY)):
        return ()
    with Lease(store, uuid7(), "recover") as lease:
        refuse_adopted(store)
        return recover_runs(store, lease)
