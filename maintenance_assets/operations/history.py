"""History: the operations on a dataset that a backup was made of."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maintenance_assets.storage.backups import (
    Backup,
    address,
    backup_ids,
    open_backups,
    read_backup,
    restored_mark,
)
from maintenance_assets.storage.discovery import require_directory
from maintenance_assets.storage.filesystems import Listed, open_store


@dataclass(frozen=True, slots=True)
class KeptBackup:
    """A backup, and the mark of its having been restored."""

    backup: Backup
    restored: Listed | None


@dataclass(frozen=True, slots=True)
class History:
    """The backups of a dataset, the newest first; `restore` takes one of them back."""

    backups: tuple[KeptBackup, ...]
    others: tuple[str, ...]
    """For each backup of another dataset in the same folder, the address of that dataset."""


def history(
    path: str | os.PathLike[str],
    *,
    backup_path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> History:
    """What a folder of backups has of a dataset."""
    store = open_store(path, filesystem, storage_options)
    backups = open_backups(backup_path, store, filesystem, storage_options)
    require_directory(store)
    if not backups.exists(backups.root):
        raise FileNotFoundError(f"Backup path '{backups.shown}' does not exist")
    found = [read_backup(backups, backup_id) for backup_id in backup_ids(backups)]
    own = [backup for backup in found if backup.dataset == address(store)]
    newest_first = sorted(own, key=lambda backup: -backup.created_at)
    return History(
        tuple(KeptBackup(one, restored_mark(backups, one.backup_id)) for one in newest_first),
        tuple(backup.dataset for backup in found if backup.dataset != address(store)),
    )
