"""Questions about local paths whose answers may cost data: doubt is an error, never a no."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator


def inode(path: str) -> int | None:
    """The inode at a path, None only when there surely is nothing."""
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


def exists(path: str) -> bool:
    """Whether anything is there; `os.path.exists` also says no when it could not look."""
    return inode(path) is not None


def is_directory(path: str) -> bool:
    """Whether a real directory is there."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def raise_unless_gone(error: OSError) -> None:
    """For `os.walk`, which otherwise shows a directory it could not read as an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error


def give_owner(path: str, owner: os.stat_result) -> bool:
    """Give a path the owner and group of another; False where that is not allowed."""
    for uid in (owner.st_uid, -1):
        with contextlib.suppress(PermissionError):
            os.chown(path, uid, owner.st_gid)
            break
    status = os.stat(path)
    return (status.st_uid, status.st_gid) == (owner.st_uid, owner.st_gid)


def readers(path: str) -> tuple[str, int] | None:
    """Who may read a file; None where it is gone."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if status.st_mode & stat.S_IROTH:
        return ("all", 0)
    if status.st_mode & stat.S_IRGRP:
        return ("group", status.st_gid)
    return ("owner", status.st_uid)


def make_directories(path: str, model: str) -> None:
    """Make a directory and those above it; new ones get owner and rights of another."""
    if os.path.isdir(path):
        return
    make_directories(os.path.dirname(path), model)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        status = os.stat(model)
        give_owner(path, status)
        os.chmod(path, stat.S_IMODE(status.st_mode))


def linked_folder(root: str, folders: Iterable[str]) -> str | None:
    """The first of these directories below a root that a symbolic link leads away from there."""
    for folder in folders:
        path = f"{root}/{folder}" if folder else root
        if os.path.realpath(path) != path:
            return path
    return None


Mounted = frozenset[tuple[str, str]]
"""Device and path on it of every directory that is mounted somewhere."""


def mounted_directories() -> Mounted:
    """What any process we can look at has mounted; ask once for many paths."""
    return frozenset((device, root) for device, root, _ in _all_mounts())


def is_mounted(path: str, mounted: Mounted) -> bool:
    """Whether a process has this very directory mounted, as containers do.

    A bind mount keeps showing the directory it was made of: after an exchange, the old one.
    """
    device = os.stat(path).st_dev
    mark = f"{os.major(device)}:{os.minor(device)}"
    return (mark, _path_on_device(path, mark)) in mounted


def _path_on_device(path: str, mark: str) -> str | None:
    """The path seen from the root of its file system; None when no mount explains it."""
    best: tuple[str, str] | None = None
    for found, root, point in _mounts("self"):
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if found == mark and inside and (best is None or len(point) >= len(best[1])):
            best = root, point
    if best is None:
        return None
    root, point = best
    return (root.rstrip("/") + path[len(point.rstrip("/")) :]) or "/"


def _all_mounts() -> Iterator[tuple[str, str, str]]:
    """The mounts of every mount namespace that has a process we may look at."""
    seen = set()
    for process in (name for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            namespace = os.readlink(f"/proc/{process}/ns/mnt")
            if namespace not in seen:
                seen.add(namespace)
                yield from _mounts(process)


def _mounts(process: str) -> Iterator[tuple[str, str, str]]:
    """Device, root inside the file system, and mount point of each mount."""
    with open(f"/proc/{process}/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            _, _, device, root, point, *_ = line.split(" ")
            yield device, _unescaped(root), _unescaped(point)


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
