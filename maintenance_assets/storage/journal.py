"""The journal: what a run is about to publish, written before it does and deleted last."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from maintenance_assets.errors import RecoveryError
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.lease import WORK_DIRECTORY

FORMAT = 1
JOURNAL_NAME = "journal.json"
State = Literal["prepared", "published"]


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


@dataclass(frozen=True, slots=True)
class Journal:
    """Everything recovery needs, whatever moment the power went."""

    run_id: str
    operation: str
    state: State
    groups: tuple[GroupEntry, ...]
    discarded: tuple[str, ...] = ()
    """Published outputs of groups given up because an input changed at the last moment."""

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories in which files change, in order."""
        return tuple(dict.fromkeys(group.directory for group in self.groups))

    def in_directory(self, directory: str) -> tuple[GroupEntry, ...]:
        """The groups of one directory."""
        return tuple(group for group in self.groups if group.directory == directory)


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
        return Journal(groups=groups, discarded=tuple(fields.pop("discarded")), **fields)
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
