"""A DuckDB of another version, in an environment of its own, that attaches DuckLakes."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from maintenance_assets.catalog.file_lock import lock_of

VERSION = "1.5.5"
EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")
_PACKAGES = [
    f"duckdb=={VERSION}",
    *(f"duckdb-extension-{name.replace('_', '-')}=={VERSION}" for name in EXTENSIONS),
]
_INSTALL_SECONDS = 600.0

_LOOP = f"""
import importlib.util, json, sys
import duckdb
connection = duckdb.connect(config={{"autoinstall_known_extensions": "false"}})
for name in {EXTENSIONS!r}:
    (folder,) = importlib.util.find_spec("duckdb_extension_" + name).submodule_search_locations
    connection.execute(
        f"LOAD '{{folder}}/extensions/v{VERSION}/{{name}}.duckdb_extension'")
for line in sys.stdin:
    try:
        result = connection.execute(json.loads(line))
        names = [column[0] for column in result.description or ()]
        types = [str(column[1]) for column in result.description or ()]
        answer = {{"names": names, "types": types, "rows": result.fetchall()}}
    except duckdb.Error as error:
        answer = {{"error": str(error)}}
    print(json.dumps(answer, default=str), flush=True)
"""


class ForeignRefusalError(Exception):
    """What the other DuckDB said."""


class NotInstalledError(Exception):
    """The packages could not be had."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a statement."""

    names: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]


def install_reader(folder: Path) -> Path:
    """The Python of an environment in that folder, made by whoever comes first."""
    python, done = folder / "bin" / "python", folder / "installed"
    folder.mkdir(parents=True, exist_ok=True)
    with lock_of(str(folder / "catalog")).hold(_INSTALL_SECONDS):
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            got = subprocess.run(
                [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", *_PACKAGES],
                capture_output=True,
                text=True,
                timeout=_INSTALL_SECONDS,
            )
            if got.returncode:
                raise NotInstalledError((got.stderr.strip() or "pip failed").splitlines()[-1])
            done.touch()
    return python


class DuckLakeReader:
    """A process that carries out statements one after the other."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-c", _LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, statement: str) -> Answer:
        """Carry out a statement; ForeignRefusalError with what DuckDB says otherwise."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ForeignRefusalError(answer["error"])
        rows = [tuple(row) for row in answer["rows"]]
        return Answer(answer["names"], answer["types"], rows)

    def texts(self, query: str) -> list[tuple[str | None, ...]]:
        """The rows of a query, every value as DuckDB spells it."""
        return self.run(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})").rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()
