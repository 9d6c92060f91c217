"""One small face over fsspec: canonical paths, durable writes and version tokens."""

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import fsspec
import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.cached import CachingFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from maintenance_assets.errors import UnsupportedDatasetError
from maintenance_assets.model.urls import shown_url, without_password
from maintenance_assets.storage import local_paths

I = TypeVar("I")  # noqa: E741
T = TypeVar("T")
_REQUESTS_AT_ONCE = 32
_FORGETTING = Lock()
_TRIES = 3
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "generation", "content_md5", "md5")
_TIME_KEYS = (
    "LastModified",
    "last_modified",
    "updated",
    "mtime",
    "modificationTime",
    "modified",
    "modify",
    "created",
)


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a listing."""

    path: str
    size_bytes: int
    version: str
    has_version: bool = True
    """False where the store says nothing that would tell a file from its replacement."""
    modified_at: float | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """What lies directly in a directory."""

    directories: tuple[str, ...] = ()
    """By their names, in order."""
    files: tuple[Listed, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """A dataset's file system and root directory. Paths are the file system's own, canonical."""

    fs: Any
    root: str
    shown: str
    """The root as the user wrote it, for messages."""

    @property
    def is_local(self) -> bool:
        """Whether paths are ordinary local paths."""
        return isinstance(self.fs, LocalFileSystem)

    def path(self, relative: str) -> str:
        """The full path of something below the root."""
        return f"{self.root}/{relative}" if relative else self.root

    def relative(self, path: str) -> str:
        """A full path as seen from the root."""
        return path[len(self.root) :].lstrip("/")

    def exists(self, path: str) -> bool:
        """Whether something is at this path now, whatever a cache remembers."""
        if self.is_local:
            return local_paths.exists(path)
        self.forget(path)
        return bool(self.fs.exists(path))

    def stat(self, path: str) -> Listed | None:
        """Size and version of a file now, or None when it is gone."""
        try:
            if self.is_local:
                return _listed_local(path, os.stat(path))
            self.forget(path)
            return _listed(self.fs.info(path))
        except FileNotFoundError:
            return None

    def together(self, work: Callable[[I], T], items: Sequence[I]) -> list[T]:
        """Do the same to each of them, many at once where each has to wait for a remote store.

        Of errors the first one is raised, and then nothing is under way any more.
        """
        if self.is_local or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="store") as pool:
            return list(pool.map(work, items))

    def forget(self, path: str) -> None:
        """Drop cached listings that could hide a change at this path."""
        for place in (posixpath.dirname(path), path):
            _forget(self.fs, place)

    def tail(self, path: str, length: int, size: int) -> bytes:
        """The last bytes of a file in one ranged read."""
        if self.is_local:
            with open(path, "rb") as file:
                file.seek(max(0, size - length))
                return file.read()
        return bytes(self.fs.cat_file(path, start=max(0, size - length), end=size))

    @contextlib.contextmanager
    def open_input(self, path: str) -> Iterator[Any]:
        """A random-access file for PyArrow."""
        if self.is_local:
            with pa.OSFile(path, "rb") as native:
                yield native
        else:
            with self.fs.open(path, "rb") as handle:
                yield handle

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """A file to write; on leaving without an error its bytes are durable."""
        self.make_directory(posixpath.dirname(path))
        if self.is_local:
            with open(path, "wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
        else:
            with self.fs.open(path, "wb") as handle:
                yield handle
            self.forget(path)

    def url(self, path: str) -> str:
        """A path with its protocol, for tools that choose a file system by it."""
        return path if self.is_local else str(self.fs.unstrip_protocol(path))

    def make_durable(self, path: str) -> None:
        """Sync a file that somebody else wrote."""
        if self.is_local:
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())
        else:
            self.forget(path)

    def copy_permissions(self, source: str, target: str, *, is_copy: bool = False) -> None:
        """Give an output mode, owner and group of an input, or at least readers the same rights.

        With `is_copy` the input stays where it is, and nobody loses access to anything.
        """
        if not self.is_local:
            return
        with contextlib.suppress(FileNotFoundError):  # publishing will find the conflict
            status = os.stat(source)
            kept = local_paths.give_owner(target, status)
            os.chmod(target, stat.S_IMODE(status.st_mode))
            if not kept and not is_copy and not _can_all_read(status, os.stat(target)):
                raise PermissionError(
                    f"the owner or group of '{source}' could not be kept and would lose access"
                )

    def make_directory(self, path: str) -> None:
        """Make a directory where the file system has such a thing."""
        if self.is_local:
            os.makedirs(path, exist_ok=True)

    def make_partition(self, path: str) -> None:
        """Make a directory of the dataset; who may use the root may use it, too."""
        if self.is_local:
            os.makedirs(self.root, exist_ok=True)
            local_paths.make_directories(path, self.root)

    def write_durably(self, path: str, content: bytes) -> None:
        """Replace a small file at once: a reader sees the old or the new bytes, never half."""
        if not self.is_local:
            self.fs.pipe_file(path, content)
            self.forget(path)
            return
        self.make_directory(posixpath.dirname(path))
        staged = f"{path}.tmp-{os.getpid()}"
        with open(staged, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(staged, path)
        self.sync_directory(posixpath.dirname(path))

    def sync_directory(self, path: str) -> None:
        """Make renames and links inside a directory survive a power cut."""
        if not self.is_local or os.name != "posix":
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str) -> bytes:
        """The whole of a small file."""
        if self.is_local:
            return Path(path).read_bytes()
        return bytes(self.fs.cat_file(path))

    def move(self, source: str, target: str) -> None:
        """Give a finished file its final name; doing it twice does no harm."""
        if self.is_local:
            os.replace(source, target)
            return
        # The source goes only after the copy is complete: no moment without the bytes.
        self.fs.cp_file(source, target)
        self.forget(target)
        self.delete(source)

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_local:
                os.unlink(path)
            else:
                self.fs.rm_file(path)
        if not self.is_local:
            self.forget(path)

    def delete_tree(self, path: str) -> None:
        """Delete a directory of our own and all that is in it."""
        if self.is_local:
            _delete_local_tree(path)
            return
        self.forget(path)
        self.together(self.delete, [listed.path for listed in self.find(path)])
        # File systems with real directories (memory, hdfs, sftp) keep empty ones.
        with contextlib.suppress(FileNotFoundError, NotImplementedError, OSError):
            self.fs.rm(path, recursive=True)
        self.forget(path)

    def remove_if_empty(self, path: str) -> None:
        """Remove a directory unless something is in it."""
        with contextlib.suppress(OSError, NotImplementedError):
            if self.is_local:
                os.rmdir(path)
            elif self.fs.isdir(path) and not self.find(path):
                self.fs.rmdir(path)

    def children(self, path: str) -> set[str]:
        """Names directly in a directory, empty directories included."""
        try:
            if self.is_local:
                return set(os.listdir(path))
            self.forget(path)
            listed = self.fs.ls(path, detail=False)
        except FileNotFoundError:
            return set()
        names = {str(name).rstrip("/").rpartition("/")[2] for name in listed}
        return names - {path.rpartition("/")[2]} - {""}

    def entries(self, path: str) -> Entries:
        """What lies directly in a directory of a remote store, by one listing."""
        self.forget(path)
        try:
            found = self._ls(path)
        except FileNotFoundError:
            return Entries()
        # A marker object of the directory, or a file at its very path, is not in it.
        inside = [info for info in found if _key(info) != path.rstrip("/")]
        folders = {_key(info).rpartition("/")[2] for info in inside if _is_folder(info)}
        files = tuple(_listed(info) for info in inside if not _is_folder(info))
        return Entries(tuple(sorted(folders)), files)

    def _ls(self, path: str) -> list[dict[str, Any]]:
        try:
            return list(self.fs.ls(path, detail=True, refresh=True))
        except TypeError:  # not every file system takes `refresh`
            return list(self.fs.ls(path, detail=True))

    def find(self, path: str) -> list[Listed]:
        """All files below a path, with no rule about names."""
        if self.is_local:
            return list(_find_local(path))
        self.forget(path)
        try:
            found = self.fs.find(path, detail=True, refresh=True)
        except TypeError:  # not every file system takes `refresh`
            found = self.fs.find(path, detail=True)
        except FileNotFoundError:
            return []
        return [_listed(info) for info in found.values() if info.get("type") != "directory"]


def open_store(
    path: object, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> Store:
    """Resolve anything fsspec opens (or a pathlib path) to a Store with a canonical root."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise ValueError(f"path must be a non-empty str or path, got {path!r}")
    shown = os.fspath(path)
    if not isinstance(shown, str):
        raise ValueError(f"path must be text, got {path!r}")
    shown_safely = shown_url(shown)
    if filesystem is not None and storage_options:
        raise ValueError("give filesystem or storage_options, not both")
    if filesystem is None:
        filesystem, stripped = fsspec.core.url_to_fs(shown, **(storage_options or {}))
    else:
        filesystem = _as_fsspec(filesystem)
        stripped = filesystem._strip_protocol(shown)
    filesystem, stripped = _unwrapped(filesystem, stripped, shown_safely)
    if isinstance(filesystem, LocalFileSystem):
        return Store(filesystem, os.path.realpath(stripped), shown_safely)
    return Store(filesystem, _canonical(stripped, shown_safely), shown_safely)


def location(path: object, store: Store) -> str:
    """Where a dataset is, so that it can be opened again: absolute, and without a password."""
    if store.is_local:
        return store.root
    return without_password(str(path))


def _forget(fs: Any, path: str) -> None:
    """Caches of fsspec are not made for threads: one may find gone what another one just forgot."""
    with _FORGETTING:
        for _ in range(_TRIES):
            try:
                fs.invalidate_cache(path)
                return
            except KeyError:
                continue
    fs.invalidate_cache()


def _unwrapped(filesystem: Any, path: str, shown: str) -> tuple[Any, str]:
    """The file system that holds the bytes: what is between it and us could be out of date."""
    if isinstance(filesystem, CachingFileSystem):
        raise UnsupportedDatasetError(
            f"'{shown}' is behind a cache ({type(filesystem).__name__}), which may show old bytes. "
            "Give the file system itself."
        )
    if isinstance(filesystem, DirFileSystem):
        return _unwrapped(filesystem.fs, filesystem._join(path), shown)
    return filesystem, path


def _as_fsspec(filesystem: Any) -> Any:
    if isinstance(filesystem, fsspec.AbstractFileSystem):
        return filesystem
    if isinstance(filesystem, pa.fs.FileSystem):
        from fsspec.implementations.arrow import ArrowFSWrapper

        if isinstance(filesystem, pa.fs.LocalFileSystem):
            return LocalFileSystem()
        return ArrowFSWrapper(filesystem)
    raise ValueError(
        f"filesystem must be an fsspec or pyarrow file system, got {type(filesystem).__name__}"
    )


def _canonical(path: str, shown: str) -> str:
    lead = "/" if path.startswith("/") else ""
    if not path.strip("/"):
        raise ValueError(f"path must name a directory, got '{shown}'")
    inner = path.strip("/").split("/")
    if "" in inner:  # a key of its own on an object store, and not the one without it
        raise ValueError(f"path must not contain '//': '{shown}'")
    parts = [part for part in inner if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"path must not contain '..': '{shown}'")
    return lead + "/".join(parts)


def _can_all_read(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether the former owner and group can still read what has another one now."""
    if after.st_gid != before.st_gid:
        return bool(before.st_mode & stat.S_IROTH)
    return bool(before.st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _key(info: Mapping[str, Any]) -> str:
    return str(info["name"]).rstrip("/")


def _is_folder(info: Mapping[str, Any]) -> bool:
    return info.get("type") == "directory"


def _listed_local(path: str, status: os.stat_result) -> Listed:
    version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return Listed(path, status.st_size, version, modified_at=status.st_mtime)


def _listed(info: Mapping[str, Any]) -> Listed:
    marks = [info[key] for key in _VERSION_KEYS if info.get(key) is not None]
    marks = marks or [info[key] for key in _TIME_KEYS if info.get(key) is not None][:1]
    size = int(info.get("size") or 0)
    version = f"{size}-" + "-".join(_mark(mark) for mark in marks)
    return Listed(str(info["name"]), size, version, bool(marks), _modified_at(info))


def _modified_at(info: Mapping[str, Any]) -> float | None:
    for key in _TIME_KEYS:
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _mark(value: object) -> str:
    """One spelling for a version; a listing and a look-up may give time in different types."""
    return str(value.timestamp()) if isinstance(value, datetime) else str(value)


def _find_local(root: str) -> Iterator[Listed]:
    for folder, _, names in os.walk(root, onerror=local_paths.raise_unless_gone):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                yield _listed_local(path, os.lstat(path))


def _delete_local_tree(path: str) -> None:
    for last in (False, False, True):
        try:
            _delete_what_is_in(path)
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)
            return
        except OSError as error:
            # A late worker may have put something there since it was listed.
            if last or error.errno != errno.ENOTEMPTY:
                raise


def _delete_what_is_in(path: str) -> None:
    if os.path.islink(path):  # what it leads to is not ours
        os.unlink(path)
        return
    for folder, folders, names in os.walk(path, topdown=False):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        for name in folders:
            child = os.path.join(folder, name)
            os.unlink(child) if os.path.islink(child) else os.rmdir(child)
