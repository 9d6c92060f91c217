"""A dataset's partitions one after the other, from listings alone: no footer is read."""

import os
from collections import defaultdict
from collections.abc import Iterator

from maintenance_assets.storage.discovery import DATA_SUFFIX
from maintenance_assets.storage.filesystems import Listed, Store
from maintenance_assets.storage.local_paths import raise_unless_gone


def iter_partitions(store: Store, after: str | None = None) -> Iterator[tuple[str, list[Listed]]]:
    """Each directory with data files, in a fixed order; `after` resumes behind one of them."""
    walk = _walk_local if store.is_local else _walk_remote
    for directory, files in walk(store, _order(after) if after is not None else None):
        if after is None or _order(directory) > _order(after):
            yield directory, files


def _order(directory: str) -> tuple[str, ...]:
    return tuple(directory.split("/")) if directory else ()


def _walk_local(store: Store, after: tuple[str, ...] | None) -> Iterator[tuple[str, list[Listed]]]:
    for folder, folders, names in os.walk(store.root, onerror=raise_unless_gone):
        depth = _order(store.relative(folder))
        # What is wholly before the place to resume from need not be opened.
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(("_", ".")) and not _is_before((*depth, name), after)
        )
        data = [name for name in names if _is_data(name)]
        found = (store.stat(f"{folder}/{name}") for name in data)
        files = [listed for listed in found if listed is not None]
        if files:
            yield store.relative(folder), files


def _is_before(path: tuple[str, ...], after: tuple[str, ...] | None) -> bool:
    return after is not None and path < after[: len(path)]


def _walk_remote(store: Store, after: tuple[str, ...] | None) -> Iterator[tuple[str, list[Listed]]]:
    names = sorted(name for name in store.children(store.root) if not name.startswith(("_", ".")))
    here = [listed for name in names if _is_data(name) if (listed := _stat(store, name))]
    if here:
        yield "", here
    for name in names:
        if _is_data(name) or _is_before((name,), after):
            continue
        folders: defaultdict[str, list[Listed]] = defaultdict(list)
        for listed in store.find(store.path(name)):
            relative = store.relative(listed.path)
            parts = relative.split("/")
            if _is_data(parts[-1]) and not any(p.startswith(("_", ".")) for p in parts):
                folders["/".join(parts[:-1])].append(listed)
        yield from sorted(folders.items(), key=lambda item: _order(item[0]))


def _is_data(name: str) -> bool:
    return name.endswith(DATA_SUFFIX) and not name.startswith(("_", "."))


def _stat(store: Store, name: str) -> Listed | None:
    return store.stat(store.path(name))
