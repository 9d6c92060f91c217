"""An object store in a local directory whose first writer waits, so that a test can act meanwhile.

The first to open a staged file for writing leaves its process number in `<control>/first` and goes
on when `<control>/go` exists. Like an object store it makes directories as needed.
"""

import os
import time
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem


class PausingFileSystem(AbstractFileSystem):
    """Local files behind a face that is not local."""

    protocol = "pausing"
    root_marker = "/"

    def __init__(self, control: str, **options: Any) -> None:
        super().__init__(control=control, **options)
        self._control = Path(control)
        self._local = LocalFileSystem(auto_mkdir=True)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        return self._local.ls(path, detail=detail)

    def info(self, path: str, **_: Any) -> Any:
        return self._local.info(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        self._local.cp_file(path1, path2)

    def rm_file(self, path: str) -> None:
        self._local.rm_file(path)

    def rmdir(self, path: str) -> None:
        self._local.rmdir(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode == "wb" and ".staged." in path:
            self._pause()
        return self._local.open(path, mode)

    def _pause(self) -> None:
        try:
            handle = os.open(self._control / "first", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        with os.fdopen(handle, "w") as first:
            first.write(str(os.getpid()))
        while not (self._control / "go").exists():
            time.sleep(0.05)
