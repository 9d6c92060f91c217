"""Restoring: exactly the files that an operation replaced come back."""

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.errors import BackupError, LeaseLostError, MaintenanceError, RewriteError
from maintenance_assets.model.policy import MIB
from maintenance_assets.operations.naming import uuid7
from maintenance_assets.storage.backups import (
    Backup,
    BackupFile,
    address,
    backup_ids,
    checksum_of,
    copy_file,
    mark_restored,
    open_backups,
    read_backup,
    restored_mark,
    restored_versions,
    unmark_restored,
)
from maintenance_assets.storage.discovery import list_dataset, summaries_above
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.footers import read_footers
from maintenance_assets.storage.journal import InputEntry, OutputEntry, run_directory
from maintenance_assets.storage.lease import Lease
from maintenance_assets.storage.publish import PublishMode, groups_by_directory, publish
from maintenance_assets.storage.recovery import recover_run, recover_runs

logger = logging.getLogger(__name__)

_BATCH_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What came back, and what went for it."""

    backup_id: str
    operation: str
    """The operation that was taken back."""
    files_restored: int
    files_removed: int
    rows_restored: int
    rows_removed: int
    dry_run: bool
    publish: PublishMode = "none"
    seconds: float = 0.0
    recovered: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The figures."""
        left_out = ("publish", "seconds", "recovered")
        return {name: value for name, value in asdict(self).items() if name not in left_out}


def restore(
    path: str | os.PathLike[str],
    backup_id: str,
    *,
    backup_path: str | os.PathLike[str],
    moved: bool = False,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RestoreResult:
    """Take back an operation: its inputs return, byte for byte, and its outputs go.

    Files that others added since stay. BackupError, and nothing changed, where the files that the
    operation wrote have been rewritten since: take back what rewrote them first. `moved` says that
    the dataset lies elsewhere now than when the backup was made.
    """
    started = time.monotonic()
    store = open_store(path, filesystem, storage_options)
    backups = open_backups(backup_path, store, filesystem, storage_options)
    backup = read_backup(backups, backup_id)
    if not store.exists(store.root):
        raise FileNotFoundError(f"Dataset path '{store.shown}' does not exist")
    if backup.dataset != address(store) and not moved:
        raise BackupError(
            f"Backup '{backup_id}' is one of '{backup.dataset}', not of '{store.shown}'. Restore "
            "it there; if the dataset was moved, pass moved=True, or --moved in a shell"
        )
    work = _Restore(store, backups, backup, moved)
    result = work.preview() if dry_run else work.execute()
    return replace(result, seconds=time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Restore:
    store: Store
    backups: Store
    backup: Backup
    moved: bool

    def preview(self) -> RestoreResult:
        """What would happen; nothing is touched."""
        return self._result(self._leaving(), dry_run=True)

    def execute(self) -> RestoreResult:
        """Bring the old files back in one step."""
        run_id = uuid7()
        with Lease(self.store, run_id, "restore") as lease:
            recovered = recover_runs(self.store, lease)
            leaving = self._leaving()
            result = self._result(leaving, dry_run=False)
            try:
                mode = self._publish(lease, run_id, leaving)
            except LeaseLostError:
                raise  # another process may be recovering this run by now: touch nothing
            except BaseException:
                self._take_back(lease, run_id)
                raise
        return replace(result, publish=mode, recovered=recovered)

    def _take_back(self, lease: Lease, run_id: str) -> None:
        """After an error: the mark stays unless it is certain that nothing came back."""
        try:
            recover_run(self.store, lease, run_id)
        except (OSError, MaintenanceError) as error:
            logger.warning("left for the next run to recover: %s", error)
            return
        if not any(self.store.exists(self.store.path(f.path)) for f in self.backup.inputs):
            unmark_restored(self.backups, self.backup.backup_id)

    def _publish(self, lease: Lease, run_id: str, leaving: list[Listed]) -> PublishMode:
        inputs = [InputEntry(self.store.relative(file.path), file.version) for file in leaving]
        staged = self._stage(run_id)
        groups = groups_by_directory(inputs, staged)
        self._mark({output.final: output.staged for output in staged})
        summaries = (*list_dataset(self.store).metadata_files, *summaries_above(self.store))
        published = publish(self.store, lease, run_id, "restore", groups, summaries, atomic=True)
        for _, why in (*published.conflicts, *published.denied):
            raise BackupError(f"Backup '{self.backup.backup_id}' was not restored: {why}")
        try:
            # Some stores give a file that is moved another version.
            self._mark({output.final: output.final for output in staged})
        # The rows are back: whatever a store's library raises now is no failure of that.
        except Exception as error:
            logger.warning("older backups may not know these files for theirs: %s", error)
        return published.mode

    def _mark(self, places: Mapping[str, str]) -> None:
        """Note the versions of files, by their names in the dataset, where they are now."""
        found = {name: self.store.stat(self.store.path(place)) for name, place in places.items()}
        versions = {name: listed.version for name, listed in found.items() if listed is not None}
        mark_restored(self.backups, self.backup.backup_id, versions)

    def _stage(self, run_id: str) -> list[OutputEntry]:
        """Copies, never links: what is in a backup must not change with the dataset."""
        staged = []
        for number, file in enumerate(self.backup.inputs):
            path = f"{run_directory(run_id)}/{number}.staged"
            source = self.backups.path(self.backup.data_path(file))
            _refuse_link(self.backups, source)
            copy_file(self.backups, source, self.store, self.store.path(path))
            copied = self.store.stat(self.store.path(path))
            kept = file.checksum is None or checksum_of(self.backups, source) in (
                None,
                file.checksum,
            )
            if copied is None or copied.size_bytes != file.size_bytes or not kept:
                raise BackupError(f"'{source}' is not what was put into the backup")
            _require_readable(self.store, copied, source)
            staged.append(OutputEntry(path, file.path))
        return staged

    def _leaving(self) -> list[Listed]:
        """The files that the operation wrote, all still there, and room for those that it took."""
        found = [self._stat(file) for file in self.backup.outputs]
        lost = [file for file, listed in zip(self.backup.outputs, found, strict=True) if not listed]
        if lost:
            raise self._moved_on(lost)
        for file in self.backup.inputs:
            if self.store.exists(self.store.path(file.path)):
                raise BackupError(self._in_the_way(file))
        mark = restored_mark(self.backups, self.backup.backup_id)
        if mark is not None and not self.backup.outputs:
            raise BackupError(
                f"Backup '{self.backup.backup_id}' was restored already, or that was interrupted. "
                f"If its rows are not in '{self.store.shown}', delete '{mark.path}' and try again"
            )
        return [listed for listed in found if listed is not None]

    def _stat(self, file: BackupFile) -> Listed | None:
        listed = self.store.stat(self.store.path(file.path))
        if listed is None or listed.size_bytes != file.size_bytes:
            return None
        # A copy elsewhere has the same bytes and versions of its own.
        if not file.version or self.moved or listed.version == file.version:
            return listed
        return listed if listed.version in restored_versions(self.backups, file.path) else None

    def _in_the_way(self, file: BackupFile) -> str:
        if not self.backup.outputs or self._is_untouched():
            return (
                f"Backup '{self.backup.backup_id}' has nothing to bring back: '{file.path}' is "
                f"still in '{self.store.shown}'"
            )
        return (
            f"Backup '{self.backup.backup_id}' cannot be restored: '{file.path}' was written anew "
            f"in '{self.store.shown}'. Move that file away first"
        )

    def _is_untouched(self) -> bool:
        return all(self._stat(file) for file in self.backup.inputs)

    def _moved_on(self, lost: list[BackupFile]) -> BackupError:
        if self._is_untouched():
            return BackupError(
                f"Backup '{self.backup.backup_id}' has nothing to bring back: the files it keeps "
                f"are all in '{self.store.shown}'"
            )
        later = self._which_took(lost[0])
        mark = restored_mark(self.backups, self.backup.backup_id)
        if mark is not None and later is None:
            return BackupError(
                f"Backup '{self.backup.backup_id}' was restored already{_on(mark)}, or that was "
                f"interrupted, and files were rewritten since. {self._by_hand()}"
            )
        remedy = (
            f"Restore backup '{later.backup_id}' of a later {later.operation} first, which took "
            "that file"
            if later
            else self._by_hand()
        )
        return BackupError(
            f"Backup '{self.backup.backup_id}' cannot be restored: '{lost[0].path}', which the "
            f"{self.backup.operation} wrote, is not in '{self.store.shown}' any more, or not as it "
            f"was written. {remedy}"
        )

    def _by_hand(self) -> str:
        """Old files beside the new ones would double the rows that the operation left alone."""
        return (
            f"Copy no file out of '{self.backups.shown}/{self.backup.backup_id}/data': it holds "
            f"whole old files, whose other rows are in '{self.store.shown}' already. Read from it "
            "only the rows that are missing or wrong there, and upsert them by their key"
        )

    def _which_took(self, file: BackupFile) -> Backup | None:
        """The backup of what rewrote a file; one that was restored gave the file back."""
        for backup_id in backup_ids(self.backups):
            backup = read_backup(self.backups, backup_id)
            if file.path not in {kept.path for kept in backup.inputs}:
                continue
            if restored_mark(self.backups, backup_id) is None:
                return backup
        return None

    def _result(self, leaving: list[Listed], *, dry_run: bool) -> RestoreResult:
        """Reading the footers also shows that the backup can be read."""
        paths = [self.backups.path(self.backup.data_path(file)) for file in self.backup.inputs]
        kept = [self.backups.stat(path) for path in paths]
        missing = [path for path, listed in zip(paths, kept, strict=True) if listed is None]
        if missing:
            raise BackupError(f"'{missing[0]}' is gone from the backup. Nothing was changed")
        restored = read_footers(self.backups, [listed for listed in kept if listed is not None])
        removed = read_footers(self.store, leaving)
        return RestoreResult(
            backup_id=self.backup.backup_id,
            operation=self.backup.operation,
            files_restored=len(restored),
            files_removed=len(removed),
            rows_restored=sum(file.num_rows for file in restored),
            rows_removed=sum(file.num_rows for file in removed),
            dry_run=dry_run,
        )


def _on(mark: Listed) -> str:
    if mark.modified_at is None:
        return ""
    return datetime.fromtimestamp(mark.modified_at, UTC).strftime(" on %Y-%m-%d %H:%M UTC")


def _refuse_link(backups: Store, path: str) -> None:
    """A backup holds files, nothing that leads to others."""
    if backups.is_local and os.path.realpath(path) != path:
        raise BackupError(f"'{path}' is or is behind a symbolic link. Nothing was changed")


def _require_readable(store: Store, copied: Listed, source: str) -> None:
    """Decode all of a file: what was damaged in the backup must not take the place of good rows."""
    (file,) = read_footers(store, [copied])
    try:
        for _ in read_file(file, file.schema.arrow, store, _BATCH_BYTES):
            pass
    except RewriteError as error:
        raise BackupError(f"'{source}' is damaged and was not restored: {error}") from error
