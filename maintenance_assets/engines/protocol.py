"""The contract between operations and engines."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from maintenance_assets.model.changes import FileScan, MovedFile
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import GroupMode, RewriteGroup


class FileAccess(Protocol):
    """How an engine opens files, whatever store they are on."""

    @property
    def is_local(self) -> bool: ...

    @property
    def fs(self) -> Any: ...

    def url(self, path: str) -> str: ...

    def open_input(self, path: str) -> AbstractContextManager[Any]: ...

    def open_output(self, path: str) -> AbstractContextManager[Any]: ...

    def make_directory(self, path: str) -> None: ...

    def make_durable(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A group to rewrite, and the path that each of its outputs is written to."""

    index: int
    group: RewriteGroup
    staged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """What became of a task: the written paths in order, or the error in words."""

    index: int
    engine: str
    """Who did it: not always the engine that was asked."""
    written: tuple[str, ...] = ()
    error: str | None = None
    notes: tuple[str, ...] = ()
    moved: tuple[MovedFile, ...] = ()
    """Written files that belong into other directories."""
    mode: GroupMode = "encode"
    """How it was written in the end: what was to be copied may have had to be encoded."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A file to look into, and what its path and its footer say."""

    index: int
    file: DataFile
    directory: str
    """As seen from the root."""
    ranges_of: tuple[str, ...] = ()
    """Columns whose ranges tell which row groups need not be read."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """pyarrow scalars: columns that the file does not hold."""
    path_texts: Mapping[str, str | None] = field(default_factory=dict)
    """What the path says of columns that the file does hold: both have to agree."""


@dataclass(frozen=True, slots=True)
class ScanOutcome:
    """What was found in a file, or the error."""

    index: int
    found: FileScan | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What an engine may use: memory in decoded bytes for all workers together."""

    memory_bytes: int
    workers: int
    strict: bool = False
    """Refuse what this engine cannot keep, instead of handing it to one that can."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """What an engine would do with a group, for a dry run."""

    engine: str
    note: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows come from and where they go."""

    source: FileAccess
    target: FileAccess


class Engine(Protocol):
    """Rewrites groups; it never lists, chooses names, deletes or commits."""

    name: str

    def foresee(self, group: RewriteGroup, access: FileAccess, strict: bool) -> Foresight:
        """Who would write a group, and what is to be said about it."""
        ...

    def rewrite(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Generator[RewriteOutcome, None, None]:
        """Yield the outcome of each task as it ends, in any order; closing it stops the work."""
        ...

    def scan(
        self, tasks: Sequence[ScanTask], finder: Any, access: FileAccess, resources: Resources
    ) -> Generator[ScanOutcome, None, None]:
        """Yield what each file holds of the rows that are looked for, in any order."""
        ...

    def foresee_repartition(self, task: Any, places: Places, strict: bool) -> Foresight:
        """Who would write the rows of a `RepartitionTask`, and what is to be said about it."""
        ...

    def repartition(
        self, task: Any, places: Places, resources: Resources, report: Callable[[int], Any]
    ) -> Any:
        """Write all rows into their directories, as a `RepartitionOutcome`; RewriteError if not.

        `report` is told the number of rows that are done.
        """
        ...
