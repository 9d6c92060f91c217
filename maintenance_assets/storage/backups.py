"""Backups: a folder per operation, with the files it replaced and a list of those that came."""

import errno
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from maintenance_assets.errors import BackupError
from maintenance_assets.storage import local_paths
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.journal import InputEntry, OutputEntry

FORMAT = 1
MANIFEST = "manifest.json"
MARK = "restored.json"
_PART_BYTES = 8 * 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file by its path from the root of the dataset."""

    path: str
    size_bytes: int
    version: str = ""
    """Of what was written, as it was once it was published; empty if it never came that far."""
    checksum: int | None = None
    """CRC-32 of what is kept; None on a store that copies without showing us the bytes."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What an operation replaced, and what it wrote instead."""

    backup_id: str
    operation: str
    dataset: str
    created_at: float
    inputs: tuple[BackupFile, ...]
    outputs: tuple[BackupFile, ...]

    def data_path(self, file: BackupFile) -> str:
        """Where a backup keeps a file, seen from the folder of all backups."""
        return f"{self.backup_id}/data/{file.path}"


def open_backups(
    path: Any,
    dataset: Store,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """The folder of backups: on the dataset's own store, or on one that needs no options."""
    shares = "://" not in str(path) or _protocol(str(path)) in _protocols(dataset)
    local = "://" not in str(path) and filesystem is None
    if shares and not local:
        store = open_store(path, filesystem, storage_options)
    else:
        store = open_store(path)
    _refuse_nesting(store, dataset)
    return store


def write_backup(
    backup: Store,
    store: Store,
    backup_id: str,
    operation: str,
    inputs: Sequence[InputEntry],
    outputs: Sequence[OutputEntry],
) -> Backup:
    """Keep the inputs of an operation that is about to be published; complete on return."""
    folder = _folder(backup, backup_id)
    if backup.is_local and store.is_local:
        local_paths.make_directories(folder, store.root)
    kept = tuple(_keep(backup, store, folder, entry.path) for entry in inputs)
    coming = tuple(
        BackupFile(output.final, _size(store, store.path(output.staged))) for output in outputs
    )
    made = Backup(backup_id, operation, address(store), time.time(), kept, coming)
    # Written last: a folder with a manifest is complete.
    _write_manifest(backup, made)
    backup.sync_directory(backup.root)
    return made


def seal_backup(backup: Store, store: Store, made: Backup) -> None:
    """Note the versions of the files that the operation has published."""
    found = ((file, store.stat(store.path(file.path))) for file in made.outputs)
    outputs = tuple(
        replace(file, version=listed.version) if listed is not None else file
        for file, listed in found
    )
    _write_manifest(backup, replace(made, outputs=outputs))


def mark_restored(backup: Store, backup_id: str, versions: Mapping[str, str]) -> None:
    """Note that a backup is being restored, and which versions its files get by that.

    Twice, its rows would be there twice; and the operation that had written these files before can
    only be taken back as well if they are known for its own.
    """
    backup.write_durably(_mark(backup, backup_id), json.dumps(dict(versions)).encode())


def restored_versions(backup: Store, path: str) -> frozenset[str]:
    """The versions in which backups that were restored have brought a file back."""
    found = (_marked_versions(backup, each).get(path) for each in backup_ids(backup))
    return frozenset(version for version in found if version is not None)


def unmark_restored(backup: Store, backup_id: str) -> None:
    """Take that back: nothing was restored."""
    backup.delete(_mark(backup, backup_id))


def restored_mark(backup: Store, backup_id: str) -> Listed | None:
    """The file that says so, if there is one; it is as old as the restoration."""
    return backup.stat(_mark(backup, backup_id))


def address(store: Store) -> str:
    """Where a dataset is, however it was spelled."""
    return store.url(store.root)


def discard_backup(backup: Store, backup_id: str) -> None:
    """Drop the backup of an operation that did not happen."""
    folder = _folder(backup, backup_id)
    backup.delete(f"{folder}/{MANIFEST}")
    backup.delete_tree(folder)


def read_backup(backup: Store, backup_id: str) -> Backup:
    """What a backup holds; FileNotFoundError when there is none of that name."""
    path = f"{_folder(backup, backup_id)}/{MANIFEST}"
    try:
        fields = json.loads(backup.read_bytes(path))
        if fields.pop("format") != FORMAT:
            raise ValueError("it was written by another version of this package")
        inputs = tuple(BackupFile(**file) for file in fields.pop("inputs"))
        outputs = tuple(BackupFile(**file) for file in fields.pop("outputs"))
        for file in (*inputs, *outputs):
            _refuse_leaving(file.path)
        return Backup(inputs=inputs, outputs=outputs, **fields)
    except FileNotFoundError:
        known = ", ".join(backup_ids(backup)[-5:]) or "(none)"
        raise FileNotFoundError(
            f"No backup '{backup_id}' in '{backup.shown}'. The newest ones: {known}"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise BackupError(f"The manifest '{path}' cannot be read: {error}") from error


def backup_ids(backup: Store) -> tuple[str, ...]:
    """Complete backups, in the order of their names."""
    names = sorted(name for name in backup.children(backup.root) if _ID.fullmatch(name))
    return tuple(name for name in names if backup.exists(backup.path(f"{name}/{MANIFEST}")))


def copy_file(source: Store, path: str, target: Store, copy: str, *, link: bool = False) -> None:
    """A durable copy; with `link`, a second name of the same file where that is possible."""
    target.make_directory(copy.rpartition("/")[0])
    if source.is_local and target.is_local:
        if not (link and _linked(path, copy)):
            shutil.copy2(path, copy)
            source.copy_permissions(path, copy, is_copy=True)
            target.make_durable(copy)
        target.sync_directory(copy.rpartition("/")[0])
    elif source.fs == target.fs:
        source.fs.cp_file(path, copy)
        target.forget(copy)
    else:
        with source.fs.open(path, "rb") as reader, target.open_output(copy) as writer:
            shutil.copyfileobj(reader, writer, _PART_BYTES)


def _marked_versions(backup: Store, backup_id: str) -> dict[str, str]:
    try:
        found = json.loads(backup.read_bytes(_mark(backup, backup_id)))
    except (FileNotFoundError, ValueError):  # what cannot be read vouches for nothing
        return {}
    return found if isinstance(found, dict) else {}


def _mark(backup: Store, backup_id: str) -> str:
    return f"{_folder(backup, backup_id)}/{MARK}"


def _write_manifest(backup: Store, made: Backup) -> None:
    content = json.dumps({"format": FORMAT, **asdict(made)}, indent=1)
    backup.write_durably(f"{_folder(backup, made.backup_id)}/{MANIFEST}", content.encode())


def _keep(backup: Store, store: Store, folder: str, path: str) -> BackupFile:
    copy = f"{folder}/data/{path}"
    # The input is about to lose its name in the dataset, so nobody can write into the link.
    copy_file(store, store.path(path), backup, copy, link=True)
    return BackupFile(path, _size(backup, copy), checksum=checksum_of(backup, copy))


def checksum_of(store: Store, path: str) -> int | None:
    """CRC-32 of a local file; elsewhere it would have to be fetched only for that."""
    if not store.is_local:
        return None
    checksum = 0
    with open(path, "rb") as file:
        while part := file.read(_PART_BYTES):
            checksum = zlib.crc32(part, checksum)
    return checksum


def _linked(path: str, copy: str) -> bool:
    try:
        os.link(path, copy)
    except FileExistsError:
        os.unlink(copy)
        return _linked(path, copy)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES, errno.ENOTSUP):
            return False
        raise
    return True


def _size(store: Store, path: str) -> int:
    listed = store.stat(path)
    if listed is None:
        raise FileNotFoundError(f"'{path}' is gone")
    return listed.size_bytes


def _refuse_leaving(path: str) -> None:
    """A manifest is a file that others could have written to."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"'{path}' is not a path below the dataset")


def _folder(backup: Store, backup_id: str) -> str:
    if not isinstance(backup_id, str) or not _ID.fullmatch(backup_id):
        raise ValueError(f"backup_id must be the name of a backup, got {backup_id!r}")
    return backup.path(backup_id)


def _refuse_nesting(backup: Store, dataset: Store) -> None:
    """Copies inside the dataset would be read as its data."""
    if type(backup.fs) is not type(dataset.fs):
        return
    for inner, outer in ((backup, dataset), (dataset, backup)):
        if f"{inner.root}/".startswith(f"{outer.root}/"):
            raise ValueError(
                f"Backups of '{dataset.shown}' cannot be kept in '{backup.shown}': one lies in "
                "the other. Give a directory beside the dataset."
            )


def _protocol(path: str) -> str:
    return path.partition("://")[0]


def _protocols(store: Store) -> tuple[str, ...]:
    protocol = store.fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
