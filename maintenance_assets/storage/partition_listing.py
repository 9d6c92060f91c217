"""A dataset's partitions one after the other, from listings alone: no footer is read."""

import os
from collections.abc import Iterator

from maintenance_assets.storage.discovery import DATA_SUFFIX
from maintenance_assets.storage.filesystems import Listed, Store
from maintenance_assets.storage.local_paths import raise_unless_gone

Partition = tuple[str, list[Listed]]
"""A directory as seen from the root, and its data files."""
Place = tuple[str, ...]
"""A directory by its segments, which is the order of the walk."""


def iter_partitions(store: Store, after: str | None = None) -> Iterator[Partition]:
    """Each directory with data files, in a fixed order; `after` resumes behind one of them."""
    walk = _walk_local if store.is_local else _walk_remote
    yield from walk(store, None if after is None else _place(after))


def _place(directory: str) -> Place:
    return tuple(directory.split("/")) if directory else ()


def _is_passed(place: Place, after: Place | None) -> bool:
    """Whether a directory was seen already."""
    return after is not None and place <= after


def _is_wholly_passed(place: Place, after: Place | None) -> bool:
    """Whether everything below a directory was seen already, too."""
    return after is not None and place < after[: len(place)]


def _walk_local(store: Store, after: Place | None) -> Iterator[Partition]:
    for folder, folders, names in os.walk(store.root, onerror=raise_unless_gone):
        place = _place(store.relative(folder))
        folders[:] = sorted(
            name
            for name in folders
            if not _is_hidden(name) and not _is_wholly_passed((*place, name), after)
        )
        if _is_passed(place, after):
            continue
        found = (store.stat(f"{folder}/{name}") for name in names if _is_data(name))
        files = [listed for listed in found if listed is not None]
        if files:
            yield store.relative(folder), files


def _walk_remote(store: Store, after: Place | None) -> Iterator[Partition]:
    """One listing for each directory, made only when its turn comes: a tick may stop anywhere."""
    waiting: list[Place] = [()]
    while waiting:
        place = waiting.pop()
        directory = "/".join(place)
        listing = store.entries(store.path(directory))
        # The last one is taken first, and what lies below it before what comes next to it.
        waiting += [
            (*place, name)
            for name in reversed(listing.directories)
            if not _is_hidden(name) and not _is_wholly_passed((*place, name), after)
        ]
        files = [listed for listed in listing.files if _is_data(_name(listed.path))]
        if files and not _is_passed(place, after):
            yield directory, files


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _is_data(name: str) -> bool:
    return name.endswith(DATA_SUFFIX) and not _is_hidden(name)
