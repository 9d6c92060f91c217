"""A catalog and the stores of its datasets, and transactions that span the two."""

import contextlib
import getpass
import hashlib
import json
import logging
import os
import posixpath
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from maintenance_assets.catalog.database import Database
from maintenance_assets.catalog.reader import CatalogReader
from maintenance_assets.catalog.retention import CatalogRetention
from maintenance_assets.catalog.writer import CatalogWriter
from maintenance_assets.errors import (
    CatalogError,
    CommitUnknownError,
    LeaseLostError,
    MaintenanceError,
    UnreadableFileError,
    UnsupportedDatasetError,
    VersionExpiredError,
)
from maintenance_assets.model.lakehouse import Change, DatasetState, Ticket
from maintenance_assets.operations.naming import output_name, uuid7
from maintenance_assets.storage.discovery import LAKEHOUSE_MARK
from maintenance_assets.storage.filesystems import Store, open_store

logger = logging.getLogger(__name__)
T = TypeVar("T")

MARK_FILE = f"{LAKEHOUSE_MARK}/dataset.json"
WORK_FOLDER = f"{LAKEHOUSE_MARK}/work"
"""Where engines write whose names are their own until the driver has chosen among attempts."""
_DELETERS = 16


@dataclass(frozen=True, slots=True)
class LakeSession:
    """The parts that every operation on a catalog works with."""

    database: Database
    reader: CatalogReader
    writer: CatalogWriter
    retention: CatalogRetention
    storage_options: Mapping[str, Any]

    @classmethod
    def open(
        cls,
        uri: str,
        storage_options: Mapping[str, Any] | None,
        lease: timedelta,
        *,
        create: bool = True,
    ) -> "LakeSession":
        """Connect, and make or bring up to date the tables where needed."""
        database = Database(uri, create=create)
        return cls(
            database,
            CatalogReader(database),
            CatalogWriter(database, lease),
            CatalogRetention(database),
            dict(storage_options or {}),
        )

    def open_path(self, path: object) -> Store:
        """The store of a path."""
        return open_store(path, storage_options=self.storage_options)

    def at_newest(self, name: str, look: Callable[[DatasetState], T]) -> T:
        """Look at the newest version; again if it was replaced and expired at that moment."""
        state = self.reader.dataset(name)
        while True:
            try:
                return look(state)
            except VersionExpiredError:
                newer = self.reader.dataset(name)
                if newer.head == state.head:
                    raise  # it is an older version that was asked for
                state = newer

    def store(self, state: DatasetState) -> Store:
        """The store of a dataset."""
        return self.open_path(state.root)

    @contextlib.contextmanager
    def transaction(
        self,
        state: DatasetState,
        operation: str,
        txn_id: str | None = None,
        directories: Iterable[str] = (),
    ) -> Iterator["LakeTransaction"]:
        """A transaction that is kept alive, and that leaves nothing behind unless it commits.

        Of `directories` that are known already a path is recorded without a transaction more.
        """
        free = {name: [_new_path(name)] for name in directories}
        paths = [path for each in free.values() for path in each]
        ticket = self.writer.begin(state.dataset_id, operation, txn_id or uuid7(), owner(), paths)
        transaction = LakeTransaction(self, state, self.store(state), ticket, _free=free)
        with _Heartbeat(lambda: self.writer.renew(transaction.ticket), self.writer.lease):
            try:
                yield transaction
            except CommitUnknownError:
                raise  # it may be in: touch nothing
            except (OSError, UnreadableFileError) as error:
                lost = transaction.give_up()
                if lost is not None:  # and then vacuum took away what was just written
                    raise lost from error
                raise
            except BaseException:
                transaction.give_up()
                raise


def _new_path(directory: str, prefix: str = "part") -> str:
    return posixpath.join(directory, output_name(prefix))


def owner() -> str:
    """Who opens a transaction, for messages."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


@dataclass(slots=True)
class LakeTransaction:
    """Hands out paths that are recorded before they are written, and commits."""

    session: LakeSession
    state: DatasetState
    store: Store
    ticket: Ticket
    done: bool = False
    _free: dict[str, list[str]] = field(default_factory=dict)
    _handed_out: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def expect(self, directories: Iterable[str], prefix: str = "part") -> None:
        """Record one path in each of these directories, all at once."""
        wanted = [name for name in directories if not self._free.get(name)]
        if wanted:
            self.reserve(dict.fromkeys(wanted, 1), prefix)

    def reserve(self, counts: Mapping[str, int], prefix: str = "part") -> None:
        """Record so many paths in each directory, all at once."""
        named = {
            directory: [_new_path(directory, prefix) for _ in range(count)]
            for directory, count in counts.items()
        }
        self.session.writer.add_intents(
            self.ticket, [path for paths in named.values() for path in paths]
        )
        for directory, paths in named.items():
            self._free.setdefault(directory, []).extend(paths)

    def stage(self, directory: str) -> str:
        """The full path of a new file in a directory, which is relative to the root."""
        with self._lock:
            if not self._free.get(directory):
                self.reserve({directory: 1})
            path = self._free[directory].pop(0)
            self._handed_out.append(path)
        self.store.make_partition(self.store.path(directory))
        return self.store.path(path)

    def rebase(self) -> None:
        """Continue from the newest version."""
        self.ticket, self.state = self.session.writer.rebase(self.ticket)

    def commit(self, change: Change) -> int:
        """Make the next version; its number."""
        self._sync_directories()
        version = self.session.writer.commit(self.ticket, change, self._go_on_with).version
        self.done = True
        return version

    def _go_on_with(self, ticket: Ticket) -> None:
        self.ticket = ticket

    def _sync_directories(self) -> None:
        """The names of new files have to survive a power cut as the commit does."""
        if not (self.store.is_local and self._handed_out):
            return
        folders = {posixpath.dirname(path) for path in self._handed_out}
        for folder in tuple(folders):
            while folder := posixpath.dirname(folder):
                folders.add(folder)
        with ThreadPoolExecutor(_DELETERS) as pool:
            list(pool.map(self.store.sync_directory, map(self.store.path, {"", *folders})))

    def give_up(self) -> LeaseLostError | None:
        """Abort, and delete what was written; whatever goes wrong here is left to `recover`.

        The error that says so if another process had given this transaction up before.
        """
        if self.done:
            return None
        try:
            paths = self.session.writer.abort(self.ticket)
            marked = self.session.retention.mark_aborted(self.state.dataset_id, sorted(paths))
            delete_files(self.store, marked)
            remove_work_folder(self.store, self.ticket.txn_id)
            self.session.retention.record_deleted(self.state.dataset_id, marked)
        except LeaseLostError as lost:
            logger.info("transaction %s was ended by another process", self.ticket.txn_id)
            self._delete_if_aborted()
            return lost
        except (MaintenanceError, OSError) as error:
            logger.warning("left for recover() to clean up: %s", error)
        return None

    def _delete_if_aborted(self) -> None:
        """Vacuum may have been here before the last bytes were: nobody else will delete them."""
        try:
            if self.session.reader.is_aborted(self.state.dataset_id, self.ticket.txn_id):
                delete_files(self.store, self._handed_out)
                remove_work_folder(self.store, self.ticket.txn_id)
        except (MaintenanceError, OSError) as error:
            logger.warning("fsck() may find files that nobody needs: %s", error)


class _Heartbeat:
    """Renews a lease from a thread for as long as the work takes."""

    def __init__(self, renew: Callable[[], None], lease: timedelta) -> None:
        self._renew = renew
        self._pause = lease.total_seconds() / 3
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="catalog-lease", daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            try:
                self._renew()
            except LeaseLostError:
                return  # committed, or given up by another: the commit will say which
            except MaintenanceError as error:
                logger.warning("the lease could not be renewed, trying again: %s", error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def delete_files(store: Store, paths: Sequence[str]) -> None:
    """Delete files below the root; ones that are gone already are fine."""
    with ThreadPoolExecutor(1 if store.is_local else _DELETERS) as pool:
        list(pool.map(lambda path: store.delete(inner_path(store, path)), paths))


def work_folder(txn_id: str) -> str:
    """Where a transaction stages files; its id may be any text of a user, even `../..`."""
    return f"{WORK_FOLDER}/{hashlib.sha256(txn_id.encode()).hexdigest()}"


def remove_work_folder(store: Store, txn_id: str) -> None:
    """Remove what a transaction staged."""
    store.delete_tree(store.path(work_folder(txn_id)))


def inner_path(store: Store, relative: str) -> str:
    """The full path of a file of the catalog; it has to lie in the dataset, spelled plainly."""
    parts = relative.split("/")
    path = store.path(relative)
    if not relative or any(part in ("", ".", "..") for part in parts):
        raise CatalogError(f"'{relative}' is not a path below '{store.root}': not touched")
    if store.is_local:
        folder = posixpath.dirname(path)
        if os.path.realpath(folder) != folder:
            raise CatalogError(f"'{path}' is behind a symbolic link: not touched")
    return path


# -- whose directory it is --------------------------------------------------------------------


def read_mark(store: Store) -> dict[str, str] | None:
    """Which catalog and dataset a directory belongs to."""
    path = store.path(MARK_FILE)
    if not store.exists(path):
        return None
    found: dict[str, str] = json.loads(store.read_bytes(path))
    return found


def write_mark(session: LakeSession, store: Store, uid: str, name: str) -> None:
    """Say that a directory belongs to a dataset of a catalog."""
    mark = {
        "catalog": session.reader.catalog_uid(),
        "database": session.database.identity(),
        "dataset": uid,
        "name": name,
    }
    store.write_durably(store.path(MARK_FILE), json.dumps(mark).encode())


def remove_mark(store: Store) -> None:
    """Make a directory nobody's again; one that has no mark is."""
    store.delete_tree(store.path(LAKEHOUSE_MARK))


def require_ours(session: LakeSession, state: DatasetState, store: Store) -> None:
    """Before anything is deleted: the directory must be the one that the catalog means."""
    problem = why_not_ours(session, state, store)
    if problem is not None:
        raise CatalogError(f"{problem}. Nothing was deleted")


def why_not_ours(session: LakeSession, state: DatasetState, store: Store) -> str | None:
    """Whether another catalog may need what is in the directory, and why."""
    mark = read_mark(store)
    if mark is None or mark.get("dataset") != state.uid:
        found = "no mark" if mark is None else f"the mark of dataset {mark.get('dataset')}"
        return (
            f"'{store.shown}' has {found}, and dataset '{state.name}' is {state.uid}: the "
            "directory belongs to another catalog, or to none"
        )
    if mark.get("catalog") != session.reader.catalog_uid():
        return f"'{store.shown}' belongs to another catalog"
    if mark.get("database") != session.database.identity():
        # Each of two copies thinks that nobody needs what only the other one has.
        return (
            f"{_belongs_elsewhere(store, mark)}. If the other one is not used any more, call "
            "recover(moved=True)"
        )
    return None


def _belongs_elsewhere(store: Store, mark: dict[str, str]) -> str:
    return (
        f"'{store.shown}' belongs to this catalog as it was in another database "
        f"({mark.get('database')}): this one was copied or moved"
    )


def refuse_owned(session: LakeSession, store: Store) -> None:
    """A new dataset may not move into a directory that is in use."""
    mark = read_mark(store)
    if mark is None:
        return
    ours = mark.get("catalog") == session.reader.catalog_uid()
    if ours and mark.get("name") not in session.reader.dataset_names():
        if mark.get("database") == session.database.identity():
            return  # left by a process that died while it created the dataset
        raise UnsupportedDatasetError(
            f"{_belongs_elsewhere(store, mark)}, and the other one may have dataset "
            f"'{mark.get('name')}' there. If it is not used any more, remove the directory "
            f"'{LAKEHOUSE_MARK}' from it"
        )
    raise UnsupportedDatasetError(
        f"'{store.shown}' belongs to dataset '{mark.get('name')}' of "
        f"{'this' if ours else 'another'} catalog"
    )
