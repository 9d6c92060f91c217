"""The bytes of a file that is copied from: by the kernel locally, in few large reads elsewhere."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any, Protocol

from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.stitch_footer import Chunk
from maintenance_assets.engines.stitch_pages import checked_pages
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.policy import MIB

_LARGEST_BLOCK, _SMALLEST_BLOCK = 8 * MIB, 2 * MIB
_BLOCKS_AHEAD = 3
_COPY_BLOCK = MIB

Range = tuple[int, int]
"""First position, and the one behind the last."""


class Source(AbstractContextManager["Source"], Protocol):
    """A file to copy from; use it as a context manager."""

    def expect(self, ranges: Sequence[Range]) -> None:
        """Say what will be copied, in this order."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """Bytes somewhere in the file."""
        ...

    def copy(self, target: Any, start: int, stop: int, chunks: Sequence[Chunk]) -> None:
        """Copy a range that consists of these chunks, looking at their pages on the way."""
        ...


def block_bytes(memory_bytes: int, files: int) -> int:
    """In which pieces so many objects may be read at a time: together they take half the memory."""
    share = memory_bytes // (2 * _BLOCKS_AHEAD * files)
    return max(_SMALLEST_BLOCK, min(_LARGEST_BLOCK, share))


def open_source(
    path: str, access: FileAccess, pool: Executor, block: int = _LARGEST_BLOCK
) -> Source:
    """A file of any store."""
    return LocalSource(path) if access.is_local else RemoteSource(path, access.fs, pool, block)


class LocalSource:
    """A local file; its bytes do not pass through this process unless they have to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def __enter__(self) -> "LocalSource":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def expect(self, ranges: Sequence[Range]) -> None:
        """The page cache reads ahead by itself."""

    def read(self, start: int, length: int) -> bytes:
        """Bytes somewhere in the file."""
        return _complete(_read_at(self._descriptor, length, start), length, self._path)

    def copy(self, target: Any, start: int, stop: int, chunks: Sequence[Chunk]) -> None:
        """Look at the pages, then let the kernel copy."""
        for chunk in chunks:
            chunk.pages = tuple(checked_pages(self.read, chunk, self._path))
        target.flush()
        start = _send(self._descriptor, target.fileno(), start, stop)
        while start < stop:
            block = self.read(start, min(_COPY_BLOCK, stop - start))
            target.write(block)
            start += len(block)


def _seek_and_read(descriptor: int, length: int, start: int) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, length)


# Not everywhere can a position be given together with the read.
_read_at = getattr(os, "pread", _seek_and_read)


def _send(source: int, target: int, start: int, stop: int) -> int:
    """Copy inside the kernel as far as it can between these files; returns how far that was."""
    while start < stop:
        try:
            sent = os.sendfile(target, source, start, stop - start)
        except (OSError, AttributeError):
            # Not on this system, or not between these file systems; a full disk shows again.
            return start
        if not sent:
            return start
        start += sent
    return start


class MemorySource:
    """A file that was just written into memory: there is nothing to look at."""

    def __init__(self, content: Any) -> None:
        self._content = memoryview(content)

    def __enter__(self) -> "MemorySource":
        return self

    def __exit__(self, *_: object) -> None:
        self._content.release()

    def expect(self, ranges: Sequence[Range]) -> None:
        """It is all here."""

    def read(self, start: int, length: int) -> bytes:
        """Bytes somewhere in the file."""
        return bytes(self._content[start : start + length])

    def copy(self, target: Any, start: int, stop: int, chunks: Sequence[Chunk]) -> None:
        """Copy a range."""
        target.write(self._content[start:stop])


class RemoteSource:
    """An object: read in blocks, some of them ahead of time."""

    def __init__(self, path: str, fs: Any, pool: Executor, block: int) -> None:
        self._path = path
        self._fs = fs
        self._pool = pool
        self._block = block
        self._waiting: Iterator[Range] = iter(())
        self._blocks: deque[tuple[Range, Future[bytes]]] = deque()

    def __enter__(self) -> "RemoteSource":
        return self

    def __exit__(self, *_: object) -> None:
        for _, block in self._blocks:
            block.cancel()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Start to read what will be copied."""
        self._waiting = (
            (first, min(stop, first + self._block))
            for start, stop in ranges
            for first in range(start, stop, self._block)
        )
        self._read_ahead()

    def _read_ahead(self) -> None:
        while len(self._blocks) < _BLOCKS_AHEAD:
            block = next(self._waiting, None)
            if block is None:
                return
            self._blocks.append((block, self._pool.submit(self._fetch, *block)))

    def _fetch(self, start: int, stop: int) -> bytes:
        return _complete(
            bytes(self._fs.cat_file(self._path, start=start, end=stop)), stop - start, self._path
        )

    def read(self, start: int, length: int) -> bytes:
        """Bytes out of the blocks, or by a read of their own."""
        parts = []
        stop = start + length
        for (first, last), block in self._blocks:
            if first <= start < last:
                content = block.result()
                parts.append(content[start - first : min(stop, last) - first])
                start += len(parts[-1])
                if start == stop:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        return b"".join(parts) + self._fetch(start, stop) if start < stop else b""

    def copy(self, target: Any, start: int, stop: int, chunks: Sequence[Chunk]) -> None:
        """Page by page, so that nothing is read twice."""
        for chunk in chunks:
            for page in checked_pages(self.read, chunk, self._path):
                target.write(self.read(page.start, page.size))
                self._forget_before(page.start + page.size)

    def _forget_before(self, position: int) -> None:
        while self._blocks and self._blocks[0][0][0] < self._blocks[0][0][1] <= position:
            self._blocks.popleft()
            self._read_ahead()


def _complete(content: bytes, length: int, path: str) -> bytes:
    if len(content) != length:
        raise RewriteError(f"'{path}' is shorter than it was when it was listed")
    return content
