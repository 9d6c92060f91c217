"""Small files of a remote store: each is read whole by one request, and ahead of time."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.policy import MIB

_LARGEST = 8 * MIB
_AHEAD = 16
_MOST_BYTES = 64 * MIB


@contextmanager
def reading_ahead(files: Sequence[DataFile], access: FileAccess) -> Iterator[FileAccess]:
    """An access that knows which files will be opened, and in which order."""
    if access.is_local:
        yield access
        return
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="ahead") as pool:
        ahead = _AheadAccess(files, access, pool)
        try:
            yield ahead
        finally:
            ahead.cancel()


class _AheadAccess:
    """Opens files from memory once they were read ahead; all else as the store does."""

    def __init__(
        self, files: Sequence[DataFile], access: FileAccess, pool: ThreadPoolExecutor
    ) -> None:
        self._access = access
        self._pool = pool
        self._expected = deque(file for file in files if file.size_bytes <= _LARGEST)
        self._reading: dict[str, tuple[int, Future[bytes]]] = {}

    @property
    def is_local(self) -> bool:
        """Never: a local file is opened where it is."""
        return False

    @property
    def fs(self) -> Any:
        """The file system."""
        return self._access.fs

    def url(self, path: str) -> str:
        """A path with its protocol."""
        return self._access.url(path)

    @contextmanager
    def open_input(self, path: str) -> Iterator[Any]:
        """A random-access file, in memory if it was expected."""
        self._read_ahead()
        found = self._reading.pop(path, None)
        if found is None:
            with self._access.open_input(path) as handle:
                yield handle
            return
        content = found[1].result()
        self._read_ahead()
        yield pa.BufferReader(content)

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """A file to write."""
        return self._access.open_output(path)

    def make_directory(self, path: str) -> None:
        """Make a directory where there is such a thing."""
        self._access.make_directory(path)

    def make_durable(self, path: str) -> None:
        """Sync a file that somebody else wrote."""
        self._access.make_durable(path)

    def cancel(self) -> None:
        """Read nothing more."""
        self._expected.clear()
        for _, future in self._reading.values():
            future.cancel()

    def _read_ahead(self) -> None:
        held = sum(size for size, _ in self._reading.values())
        while self._expected and len(self._reading) < _AHEAD:
            file = self._expected[0]
            if self._reading and held + file.size_bytes > _MOST_BYTES:
                return
            self._expected.popleft()
            held += file.size_bytes
            self._reading[file.path] = file.size_bytes, self._pool.submit(self._fetch, file.path)

    def _fetch(self, path: str) -> bytes:
        return bytes(self._access.fs.cat_file(path))
