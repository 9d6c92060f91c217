"""History: the operations on a dataset that a backup was made of."""

import os
from collections.abc import Mapping
from typing import Any

from maintenance_assets.storage.backups import Backup, backup_ids, open_backups, read_backup
from maintenance_assets.storage.filesystems import open_store


def history(
    path: str | os.PathLike[str],
    *,
    backup_path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Backup, ...]:
    """The backups in a directory, the newest first; `restore` takes one of them back."""
    store = open_store(path, filesystem, storage_options)
    backups = open_backups(backup_path, store, filesystem, storage_options)
    if not backups.exists(backups.root):
        raise FileNotFoundError(f"Backup path '{backups.shown}' does not exist")
    found = (read_backup(backups, backup_id) for backup_id in backup_ids(backups))
    return tuple(sorted(found, key=lambda backup: -backup.created_at))
