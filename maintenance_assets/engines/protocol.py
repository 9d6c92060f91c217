"""The contract between operations and engines."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

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
    mode: GroupMode = "encode"
    """How it was written in the end: what was to be copied may have had to be encoded."""


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
