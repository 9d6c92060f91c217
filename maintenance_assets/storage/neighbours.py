"""Other datasets that share files with this one: at its root, or a directory above or below it."""

import os
import posixpath
from collections.abc import Iterator

from maintenance_assets.errors import LeaseHeldError, RecoveryError
from maintenance_assets.storage.discovery import (
    LAKEHOUSE_MARK,
    refuse_format,
    refuse_formats_above,
)
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.journal import JOURNAL_NAME
from maintenance_assets.storage.lease import LEASES, WORK_DIRECTORY, holders_in
from maintenance_assets.storage.local_paths import raise_unless_gone


def refuse_busy_neighbours(store: Store) -> None:
    """Raise if a dataset above or below is being maintained, or was left in the middle of it.

    Also if a catalog owns any of these directories by now: it may have adopted files that were
    listed before. Call it while holding the lease: whoever comes second to look sees the other
    one's lease, or the mark that the other has left.
    """
    refuse_formats_above(store)
    for root in {*_roots_above(store), *_roots_below(store)}:
        holders = holders_in(store, f"{root}/{LEASES}")
        if holders:
            raise LeaseHeldError(
                f"'{root}' is being maintained by another process ({holders[0].describe()}), and "
                f"shares files with '{store.shown}'. Nothing was changed; try again when it has "
                "ended."
            )
        if any(
            listed.path.endswith(f"/{JOURNAL_NAME}")
            for listed in store.find(f"{root}/{WORK_DIRECTORY}")
        ):
            raise RecoveryError(
                f"'{root}' shares files with '{store.shown}' and was left in the middle of its "
                "maintenance. Nothing was changed; call recover() for that path first."
            )


def _roots_above(store: Store) -> Iterator[str]:
    folder = posixpath.dirname(store.root)
    while folder not in ("", "/"):
        if _has_work(store, folder):
            yield folder
        folder = posixpath.dirname(folder)


def _has_work(store: Store, folder: str) -> bool:
    try:
        return store.exists(f"{folder}/{WORK_DIRECTORY}")
    except (OSError, ValueError):
        return False  # a parent that may not be looked at cannot be checked


def _roots_below(store: Store) -> Iterator[str]:
    for root, name in _own_folders(store):
        if name == LAKEHOUSE_MARK:
            refuse_format(store, name, f"{root}/{name}")
        if root != store.root:
            yield root


def _own_folders(store: Store) -> Iterator[tuple[str, str]]:
    """Folders of ours at and below the root: where, and which."""
    if store.is_local:
        for folder, folders, _ in os.walk(store.root, onerror=raise_unless_gone):
            yield from ((folder, name) for name in folders if name in _OWN)
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        return
    for listed in store.find(store.root):
        for name in _OWN:
            root, found, _ = listed.path.partition(f"/{name}/")
            if found:
                yield root, name


_OWN = (WORK_DIRECTORY, LAKEHOUSE_MARK)
