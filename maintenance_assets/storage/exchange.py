"""Swap a local directory for its successor in one step, without losing what arrives meanwhile.

The successor holds hard links to every file that stays, and the new files. `renameat2` with
RENAME_EXCHANGE swaps the two directories: a reader that lists sees all old or all new files.
The one that is not live lies beside the dataset, since `**` of some readers looks into every
folder below the root, whatever its name.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from maintenance_assets.storage import local_paths
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.journal import GroupEntry, Journal, run_directory
from maintenance_assets.storage.lease import LEASES, WORK_DIRECTORY

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_STALE_SUMMARY = "_metadata"
_LONGEST_NAME = 150
_SYNCERS = 8
_NOT_LINKABLE = {
    errno.EPERM,
    errno.EMLINK,
    errno.EXDEV,
    errno.EACCES,
    errno.ENOTSUP,
    errno.ENAMETOOLONG,
}
"""What a file system answers when this directory cannot be rebuilt out of links."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A live directory, the one that takes its place, and the names that change in it."""

    live: str
    other: str
    manifest: str
    removed: frozenset[str]
    added: Mapping[str, str]
    """Final name to staged path."""
    prefix: str = ""
    """What the paths of a journal have before these names."""
    is_tree: bool = False
    """Whether all that is below is meant: names are then paths seen from the directory."""

    @property
    def new_names(self) -> frozenset[str]:
        """Names that only we put into the successor, or that never move with it."""
        return frozenset({*self.added, _STALE_SUMMARY, WORK_DIRECTORY})

    @property
    def own_names(self) -> frozenset[str]:
        """Names that are ours to add or remove, and so never late arrivals."""
        return self.new_names | self.removed | {_sidecar(name) for name in self.removed}

    def name(self, path: str) -> str:
        """The name of a path of the journal."""
        return path.removeprefix(self.prefix)


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The inode of the successor, and of each file that was linked into it."""

    successor: int
    linked: dict[str, int]


def plan_swap(store: Store, journal: Journal, unit: str) -> Swap:
    """The swap of one unit of a journal; the same again after a crash."""
    groups = journal.in_unit(unit)
    mark = hashlib.sha256(unit.encode()).hexdigest()[:16]
    prefix = f"{unit}/" if unit else ""
    inputs = (entry.path.removeprefix(prefix) for group in groups for entry in group.inputs)
    outputs = [output for group in groups for output in group.outputs]
    return Swap(
        live=store.path(unit),
        other=f"{workplace(store, journal.run_id)}/swap-{mark}",
        manifest=store.path(f"{run_directory(journal.run_id)}/swap-{mark}.json"),
        removed=frozenset(inputs),
        added={o.final.removeprefix(prefix): store.path(o.staged) for o in outputs},
        prefix=prefix,
        is_tree=journal.scope == "tree",
    )


def workplace(store: Store, run_id: str) -> str:
    """Where successors are built: beside the dataset, or inside where that is impossible."""
    parent, _, name = store.root.rpartition("/")
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    beside = f"{parent}/.{name}.maintenance-{run_id}"
    if local_paths.is_directory(beside) or _is_workable(parent or "/", store.root):
        return beside
    return store.path(run_directory(run_id))


def _is_workable(parent: str, root: str) -> bool:
    same_device = os.stat(parent).st_dev == os.stat(root).st_dev
    return same_device and os.access(parent, os.W_OK | os.X_OK)


def can_swap(swap: Swap) -> bool:
    """Whether this directory can be exchanged as a whole."""
    if not sys.platform.startswith("linux") or os.path.ismount(swap.live):
        return False
    # A root cannot be swapped with something inside itself.
    if swap.other.startswith(f"{swap.live}/"):
        return False
    if not os.access(os.path.dirname(swap.live), os.W_OK):
        return False
    # Whoever stands in the directory would be left in the old one.
    if _is_inside(swap.live):
        return False
    # In a sticky directory nobody can take away what another one owns.
    if os.stat(swap.live).st_mode & stat.S_ISVTX and os.geteuid() != 0:
        return False
    if swap.is_tree:
        return _is_one_device(swap.live)
    # Directories cannot be hard-linked; moving them would hide their rows for a moment.
    with os.scandir(swap.live) as entries:
        folders = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    return folders <= {WORK_DIRECTORY}


def _is_one_device(folder: str) -> bool:
    """Whether nothing below is mounted from elsewhere: it would stay behind."""
    device = os.stat(folder).st_dev
    walk = os.walk(folder, onerror=local_paths.raise_unless_gone)
    below = (f"{parent}/{name}" for parent, folders, _ in walk for name in folders)
    try:
        return all(os.lstat(path).st_dev == device and not os.path.ismount(path) for path in below)
    except PermissionError:  # what cannot be looked into cannot be taken along
        return False


def _is_inside(folder: str) -> bool:
    try:
        return f"{os.getcwd()}/".startswith(f"{folder}/")
    except FileNotFoundError:  # our own directory is gone: it cannot be this one
        return False


def build(store: Store, swap: Swap, run_id: str) -> bool:
    """Make the successor; False (and nothing left) where the file system cannot link."""
    try:
        os.makedirs(swap.other)
        if not _copy_attributes(swap.live, swap.other):
            raise PermissionError(errno.EPERM, "cannot keep the owner", swap.live)
        folders: list[str] = []
        linked = _link_unchanged(swap, folders)
        _link_added(swap, folders)
        linked = _link_unchanged(swap, folders, linked)
        manifest = {"successor": os.stat(swap.other).st_ino, "linked": linked}
        store.write_durably(swap.manifest, json.dumps(manifest).encode())
        # Only the root has this run's journal; another dataset inside has a journal of its own.
        if local_paths.is_directory(f"{swap.live}/{run_directory(run_id)}"):
            _link_work_directory(swap, run_id)
        _sync_all(store, [*folders, swap.other, os.path.dirname(os.path.dirname(swap.other))])
    except OSError as error:
        if error.errno not in _NOT_LINKABLE:
            raise
        store.delete(swap.manifest)
        discard(store, swap)
        return False
    return True


def _sync_all(store: Store, folders: list[str]) -> None:
    """Sync directories; many at once, for a file system writes them out together."""
    if len(folders) <= _SYNCERS:
        for folder in folders:
            store.sync_directory(folder)
        return
    with ThreadPoolExecutor(_SYNCERS, thread_name_prefix="sync") as pool:
        for _ in pool.map(store.sync_directory, folders):
            pass


def is_exchanged(swap: Swap) -> bool:
    """Whether `other` is the retired directory, whatever writers did to the live one since."""
    if not has_manifest(swap):
        return False
    return local_paths.inode(swap.other) not in (None, _read_manifest(swap).successor)


def is_successor_live(swap: Swap) -> bool:
    """The same question where `other` may be lost: is the live directory the one we built?"""
    return has_manifest(swap) and local_paths.inode(swap.live) == _read_manifest(swap).successor


def has_manifest(swap: Swap) -> bool:
    """Whether a successor was completed; stays True after the retired directory is dropped."""
    return local_paths.exists(swap.manifest)


def exchange(store: Store, swap: Swap) -> bool:
    """Swap the two directories atomically; False where the file system cannot."""
    if not exchange_paths(swap.live, swap.other):
        return False
    _carry_leases(swap)
    store.sync_directory(os.path.dirname(swap.live))
    store.sync_directory(os.path.dirname(swap.other))
    return True


def exchange_paths(left: str, right: str) -> bool:
    """renameat2(RENAME_EXCHANGE); False where kernel or file system lack it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EBUSY, errno.EXDEV, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), left)


def changed_inputs(store: Store, swap: Swap, groups: tuple[GroupEntry, ...]) -> list[str]:
    """Inputs in the retired directory that are not what was read: nobody can reach them now."""
    changed = []
    for entry in (entry for group in groups for entry in group.inputs):
        listed = store.stat(f"{swap.other}/{swap.name(entry.path)}")
        if listed is None or listed.version != entry.version:
            changed.append(entry.path)
    return changed


def reconcile(swap: Swap, *, deletions: bool) -> None:
    """Bring what writers did to the retired directory since it was linked into the live one.

    `deletions` must be False once anything of the retired directory may have been purged: a
    missing name would then be our own doing and not a writer's.
    """
    _reconcile(swap, swap.own_names, {}, deletions=deletions)


def _reconcile(
    swap: Swap, own: Collection[str], replaceable: Mapping[str, int], *, deletions: bool
) -> None:
    if not local_paths.is_directory(swap.other):
        return
    linked = _read_manifest(swap).linked
    for name, entry in list(_entries(swap.other, swap.is_tree)):
        if name in own or entry.inode() == linked.get(name):
            continue
        known = replaceable.get(name, linked.get(name))
        _carry(entry.path, f"{swap.live}/{name}", known)
    for name, inode in linked.items() if deletions else ():
        target = f"{swap.live}/{name}"
        gone = not local_paths.exists(f"{swap.other}/{name}")
        if gone and local_paths.inode(target) == inode:
            os.unlink(target)


def undo(store: Store, swap: Swap) -> None:
    """Make the old directory live again and drop the successor."""
    exchanged = is_exchanged(swap)
    inputs = _inodes(swap.other if exchanged else swap.live, swap.removed)
    if exchanged:
        exchange(store, swap)
    if has_manifest(swap):
        # Without a manifest the successor was never live and holds only links of ours. An input's
        # name in it is a writer's later version of that input.
        _reconcile(swap, swap.new_names, inputs, deletions=True)
        store.delete(swap.manifest)
    discard(store, swap)


def retire(store: Store, swap: Swap) -> None:
    """Drop the old directory after everything late has been carried over."""
    reconcile(swap, deletions=False)
    discard(store, swap)


def discard(store: Store, swap: Swap) -> None:
    """Delete whichever of the two directories is not live."""
    store.delete_tree(swap.other)
    store.remove_if_empty(os.path.dirname(swap.other))


def _sidecar(name: str) -> str:
    """The checksum file that Hadoop keeps beside a local file."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"


def _inodes(folder: str, names: Iterable[str]) -> dict[str, int]:
    found = {name: local_paths.inode(f"{folder}/{name}") for name in names}
    return {name: inode for name, inode in found.items() if inode is not None}


def _copy_attributes(source: str, target: str) -> bool:
    kept = local_paths.give_owner(target, os.stat(source))
    shutil.copystat(source, target)
    return kept


def _link_unchanged(
    swap: Swap, made: list[str], linked: Mapping[str, int] | None = None
) -> dict[str, int]:
    result = dict(linked or {})
    own = swap.own_names
    for name, entry in _entries(swap.live, swap.is_tree):
        if name in own or name in result or entry.is_dir(follow_symlinks=False):
            continue
        # The inode of the link, not of the listing: the file may just have been replaced.
        with contextlib.suppress(FileNotFoundError):
            _make_folder(swap, os.path.dirname(name), made)
            os.link(entry.path, f"{swap.other}/{name}", follow_symlinks=False)
            result[name] = os.lstat(f"{swap.other}/{name}").st_ino
    return result


def _link_added(swap: Swap, made: list[str]) -> None:
    for folder in dict.fromkeys(os.path.dirname(name) for name in swap.added):
        _make_folder(swap, folder, made)
    for name, staged in swap.added.items():
        os.link(staged, f"{swap.other}/{name}")


def _make_folder(swap: Swap, folder: str, made: list[str]) -> None:
    """A directory of the successor, with the rights that it has now, or else those of the root."""
    if not folder or local_paths.is_directory(f"{swap.other}/{folder}"):
        return
    _make_folder(swap, os.path.dirname(folder), made)
    path, live = f"{swap.other}/{folder}", f"{swap.live}/{folder}"
    os.mkdir(path)
    _copy_attributes(live if local_paths.is_directory(live) else swap.live, path)
    made.append(path)


def _entries(folder: str, deep: bool, below: str = "") -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """What is in a directory; with `deep`, all files below it instead, by their paths from it."""
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        name = f"{below}{entry.name}"
        if not deep or not entry.is_dir(follow_symlinks=False):
            yield name, entry
        elif name != WORK_DIRECTORY:
            # A directory may be dropped while it is looked through.
            with contextlib.suppress(FileNotFoundError):
                yield from _entries(entry.path, deep, f"{name}/")


def _files(folder: str) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if not entry.is_dir(follow_symlinks=False))


def _link_work_directory(swap: Swap, run_id: str) -> None:
    """The journal and the lease must be found in the root on either side of the swap."""
    for folder in (LEASES, run_directory(run_id)):
        os.makedirs(f"{swap.other}/{folder}")
        for entry in _files(f"{swap.live}/{folder}"):
            if entry.name.endswith(".json"):
                os.link(entry.path, f"{swap.other}/{folder}/{entry.name}")


def _carry_leases(swap: Swap) -> None:
    """Whoever took a lease in the root that just stepped aside still holds it."""
    if not local_paths.is_directory(f"{swap.other}/{LEASES}"):
        return
    os.makedirs(f"{swap.live}/{LEASES}", exist_ok=True)
    for entry in _files(f"{swap.other}/{LEASES}"):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(entry.path, f"{swap.live}/{LEASES}/{entry.name}")


def _read_manifest(swap: Swap) -> _Manifest:
    with open(swap.manifest, encoding="utf-8") as file:
        return _Manifest(**json.load(file))


def _carry(source: str, target: str, linked_inode: int | None) -> None:
    """Move a late arrival, unless a still later one is at its place already."""
    if local_paths.is_directory(source) and local_paths.is_directory(target):
        for entry in list(os.scandir(source)):
            _carry(entry.path, f"{target}/{entry.name}", None)
    elif local_paths.inode(target) in (None, linked_inode):
        # A writer may have dropped the whole partition since.
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
