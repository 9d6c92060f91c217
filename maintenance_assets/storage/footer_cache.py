"""What footers said stays known while their files stay the same."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from maintenance_assets.model.files import DataFile, Snapshot
from maintenance_assets.storage.discovery import list_dataset, read_listed
from maintenance_assets.storage.filesystems import Store

MOST_PARTS = 1_000_000
"""Files and row groups that are remembered, of all datasets together: some hundred megabytes."""
SETTLED_SECONDS = 60.0
"""A file that changes twice within one tick of a store's clock may look as if it had not."""


@dataclass(slots=True)
class FooterCache:
    """Reads a footer once for each path, size and version (inode and mtime, or etag).

    Every discovery lists the dataset anew; only files that the listing shows unchanged are known.
    """

    most_parts: int = MOST_PARTS
    _kept: OrderedDict[Hashable, Mapping[str, DataFile]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def discover(self, place: Hashable, store: Store, now: float) -> Snapshot:
        """What `discover` finds; `place` tells this dataset and its store from all others."""
        with self._lock:
            known = self._kept.get(place)
        listing = list_dataset(store)
        snapshot = read_listed(store, listing, known=known)
        settled = {
            listed.path
            for listed in listing.data
            if listed.modified_at is not None and listed.modified_at < now - SETTLED_SECONDS
        }
        self._keep(place, {file.path: file for file in snapshot.files if file.path in settled})
        return snapshot

    def _keep(self, place: Hashable, files: Mapping[str, DataFile]) -> None:
        """Remember these and nothing else of a dataset; the ones not looked at for long go."""
        with self._lock:
            self._kept.pop(place, None)
            if _parts(files) > self.most_parts:
                return  # it would drive out all others, and then itself
            self._kept[place] = files
            parts = {name: _parts(kept) for name, kept in self._kept.items()}
            while sum(parts.values()) > self.most_parts:
                oldest, _ = self._kept.popitem(last=False)
                del parts[oldest]


def _parts(files: Mapping[str, DataFile]) -> int:
    return sum(1 + file.row_group_count for file in files.values())
