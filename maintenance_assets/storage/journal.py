"""The journal: what a run is about to publish, written before it does and deleted last."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

from maintenance_assets.errors import RecoveryError
from maintenance_assets.storage import local_paths
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.lease import WORK_DIRECTORY

FORMAT = 1
JOURNAL_NAME = "journal.json"
State = Literal["prepared", "published"]
Scope = Literal["directory", "all", "tree"]
"""What stands or falls together: each directory, all of them, or the root as one tree."""


@dataclass(frozen=True, slots=True)
class InputEntry:
    """A file that goes, as it was when it was read. Paths in a journal start at the root."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """A file that comes: where it was staged and what it will be called."""

    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """Inputs and the outputs that replace them, in one directory."""

    directory: str
    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]


@dataclass(frozen=True)
class Journal:
    """Everything recovery needs, whatever moment the power went."""

    run_id: str
    operation: str
    state: State
    groups: tuple[GroupEntry, ...]
    discarded: tuple[str, ...] = ()
    """Published outputs of groups given up because an input changed at the last moment."""
    scope: Scope = "directory"

    @property
    def is_whole(self) -> bool:
        """Whether all groups stand or fall together."""
        return self.scope != "directory"

    @property
    def units(self) -> tuple[str, ...]:
        """What can become visible at once: directories, or the root with all that is below."""
        return ("",) if self.scope == "tree" and self.groups else self.directories

    def unit_of(self, group: GroupEntry) -> str:
        """The unit that a group belongs to."""
        return "" if self.scope == "tree" else group.directory

    def in_unit(self, unit: str) -> tuple[GroupEntry, ...]:
        """The groups of one unit."""
        return self.groups if self.scope == "tree" else self.in_directory(unit)

    @cached_property
    def _by_directory(self) -> dict[str, tuple[GroupEntry, ...]]:
        found: dict[str, list[GroupEntry]] = {}
        for group in self.groups:
            found.setdefault(group.directory, []).append(group)
        return {directory: tuple(groups) for directory, groups in found.items()}

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories in which files change, in order."""
        return tuple(self._by_directory)

    def in_directory(self, directory: str) -> tuple[GroupEntry, ...]:
        """The groups of one directory."""
        return self._by_directory.get(directory, ())


def run_directory(run_id: str) -> str:
    """Where a run keeps its journal and staged files, seen from the root."""
    return f"{WORK_DIRECTORY}/{run_id}"


def write_journal(store: Store, journal: Journal) -> None:
    """Write the journal so that it survives a power cut."""
    content = json.dumps({"format": FORMAT, **asdict(journal)}, indent=1)
    path = store.path(f"{run_directory(journal.run_id)}/{JOURNAL_NAME}")
    store.write_durably(path, content.encode())


def read_journal(store: Store, run_id: str) -> Journal | None:
    """The journal of a run, or None if it never came that far."""
    path = store.path(f"{run_directory(run_id)}/{JOURNAL_NAME}")
    try:
        content = store.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(content)
        if fields.pop("format") != FORMAT:
            raise ValueError("it was written by another version of this package")
        groups = tuple(_group(group) for group in fields.pop("groups"))
        journal = Journal(groups=groups, discarded=tuple(fields.pop("discarded")), **fields)
        _refuse_leaving(store, journal, run_id)
        return journal
    except (ValueError, TypeError, KeyError) as error:
        raise RecoveryError(
            f"The journal '{path}' cannot be read: {error}. Nothing was changed. Recover with the "
            "version that wrote it, or keep a copy of the dataset before deleting the journal."
        ) from error


def _group(fields: dict[str, list[dict[str, str]] | str]) -> GroupEntry:
    return GroupEntry(
        directory=str(fields["directory"]),
        inputs=tuple(InputEntry(**entry) for entry in fields["inputs"]),  # type: ignore[arg-type]
        outputs=tuple(OutputEntry(**entry) for entry in fields["outputs"]),  # type: ignore[arg-type]
    )


def _refuse_leaving(store: Store, journal: Journal, run_id: str) -> None:
    """A journal is a file that others could have written to, and what it names is deleted."""
    if journal.run_id != run_id:
        raise ValueError(f"it is of run {journal.run_id!r}")
    folders = dict.fromkeys([run_directory(run_id)])
    for path in _paths(journal):
        if not isinstance(path, str) or any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"{path!r} is not a path below the dataset")
        folders[path.rpartition("/")[0]] = None
    linked = local_paths.linked_folder(store.root, folders) if store.is_local else None
    if linked is not None:
        raise ValueError(f"'{linked}' is behind a symbolic link")


def _paths(journal: Journal) -> Iterator[str]:
    yield from journal.discarded
    for group in journal.groups:
        if group.directory:
            yield f"{group.directory}/x"
        yield from (entry.path for entry in group.inputs)
        for output in group.outputs:
            yield output.staged
            yield output.final
