"""Folders for what does not fit memory: gone with the process, however that ends."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
"""Not on Windows: there, what a killed process leaves is left."""
_LOCK = "owner.lock"
_KINDS = ("cluster", "cells", "duckdb", "shuffle", "spill")


@contextmanager
def spill_folder(kind: str, parent: str | None = None) -> Iterator[str]:
    """A folder of this process in the temporary directory; those of dead ones are removed first.

    A lock tells who is alive, not a process id: containers may share the directory.
    """
    _sweep(Path(parent or tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=f"maintenance-{kind}-", dir=parent) as folder,
        open(f"{folder}/new", "w") as owner,
    ):
        # Under its name only once it is locked: nobody can come in between.
        if _lock(owner):
            Path(owner.name).rename(f"{folder}/{_LOCK}")
        yield folder


def _sweep(parent: Path) -> None:
    for kind in _KINDS:
        for lock in parent.glob(f"maintenance-{kind}-*/{_LOCK}"):
            # Another process may sweep at the same moment, or it is not ours to remove.
            with suppress(OSError), open(lock, "r+") as owner:
                if _lock(owner):
                    shutil.rmtree(lock.parent, ignore_errors=True)


def _lock(owner: Any) -> bool:
    """Whether the file is ours now; it is until it is closed, or the process is dead."""
    if LOCKS is None:
        return False
    try:
        LOCKS.flock(owner, LOCKS.LOCK_EX | LOCKS.LOCK_NB)
    except OSError:
        return False
    return True
