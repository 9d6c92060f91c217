"""A lock between processes that lasts for a whole opening of a DuckDB file.

DuckDB (seen in 2.0) reads the header of a database file before it locks the file, and does not
read it again: a process that opens the file while another one is closing it continues from a
header that is out of date, and its commit undoes the other's. So we lock a file beside it first.
"""

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

from maintenance_assets.errors import CatalogBusyError

_PAUSE_SECONDS = 0.01


class FileLock:
    """Held by one thread of one process at a time; let go of when the process dies."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = threading.Lock()

    @contextlib.contextmanager
    def hold(self, seconds: float) -> Iterator[None]:
        """Wait for the lock at most so long."""
        give_up = time.monotonic() + seconds
        if not self._threads.acquire(timeout=seconds):
            raise self._busy(seconds)
        try:
            with open(self._path, "ab") as handle:
                while not _try_lock(handle):
                    if time.monotonic() > give_up:
                        raise self._busy(seconds)
                    time.sleep(random.uniform(0, _PAUSE_SECONDS))
                try:
                    yield
                finally:
                    _unlock(handle)
        finally:
            self._threads.release()

    def _busy(self, seconds: float) -> CatalogBusyError:
        return CatalogBusyError(f"'{self._path}' was held by others for {seconds:.0f} seconds")


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: IO[bytes]) -> bool:
        try:
            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: IO[bytes]) -> None:
        handle.seek(0)
        msvcrt.locking(handle.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(handle: IO[bytes]) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: IO[bytes]) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


_locks: dict[str, FileLock] = {}
_locks_lock = threading.Lock()


def lock_of(path: str) -> FileLock:
    """The lock of a file; all threads of this process share it."""
    with _locks_lock:
        return _locks.setdefault(path, FileLock(f"{os.fspath(path)}.lock"))
