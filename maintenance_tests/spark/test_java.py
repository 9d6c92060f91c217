"""Which Java Spark gets: the user's if it is new enough, else the packaged one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from maintenance_assets.engines.java import (
    LEAST_VERSION,
    Java,
    cache_directory,
    find_java,
    java_version,
    make_wrapper,
    packaged_java,
    parse_version,
)
from maintenance_assets.errors import EngineUnavailableError

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(path: Path, version: str = "17.0.15", exit_code: int = 0) -> Path:
    """A program that says its version as Java does, and otherwise its arguments, one per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then\n'
        f"  echo 'openjdk version \"{version}\" 2025-04-15' >&2; exit {exit_code}\nfi\n"
        'printf "%s\\n" "$@"\n'
    )
    path.chmod(0o755)
    return path


def no_package() -> None:
    return None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019', 11),
        ('openjdk version "9.0.4"', 9),
        ("", None),
        ("no java here", None),
    ],
)
def test_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "home/bin/java", "21.0.1")
    fake_java(tmp_path / "path/java", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    java = find_java(environment, no_package, tmp_path)
    assert java == Java(21, tmp_path / "home")
    assert java.apply_to(environment) == environment


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "16.0.1"])
def test_old_java_home_is_passed_over_for_the_path(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "home/bin/java", version)
    fake_java(tmp_path / "path/java", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    java = find_java(environment, no_package, tmp_path)
    assert java == Java(17, None)
    assert java.apply_to(environment) == {"PATH": str(tmp_path / "path")}


def test_java_home_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "path/java")
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "path")}
    assert find_java(environment, no_package, tmp_path) == Java(17, None)


def test_packaged_java_is_taken_last_and_without_the_module(tmp_path: Path) -> None:
    fake_java(tmp_path / "path/java", "11.0.2")
    packaged = fake_java(tmp_path / "the package's/java", "25.0.2")
    environment = {"PATH": str(tmp_path / "path")}
    java = find_java(environment, lambda: packaged, tmp_path / "cache")
    assert java.version == 25
    assert java.home is not None
    assert java.home.is_relative_to(tmp_path / "cache")
    assert java.apply_to(environment)["JAVA_HOME"] == str(java.home)
    arguments = ["-Xmx1g", VECTOR, "a b", "", '"$HOME"', "--add-modules=other", "*"]
    shown = subprocess.run(
        [java.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert shown.split("\n")[:-1] == [a for a in arguments if a != VECTOR]


def test_wrapper_goes_elsewhere_when_the_cache_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    packaged = fake_java(tmp_path / "java")
    java = find_java({"PATH": ""}, lambda: packaged, tmp_path / "file" / "cache")
    assert java.home is not None
    assert not java.home.is_relative_to(tmp_path)
    assert java_version(java.home / "bin" / "java") == 17


def test_wrapper_of_an_earlier_time_is_mended(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "java")
    home = make_wrapper(packaged, tmp_path)
    (home / "bin" / "java").write_text("half a wra")
    assert make_wrapper(packaged, tmp_path) == home
    assert java_version(home / "bin" / "java") == 17


MAKE = "import sys; from pathlib import Path; from maintenance_assets.engines.java import *; \
home = make_wrapper(Path(sys.argv[1]), Path(sys.argv[2])); print(java_version(home / 'bin/java'))"


def test_wrapper_made_by_many_at_once_is_whole(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "java")
    command = [sys.executable, "-c", MAKE, str(packaged), str(tmp_path / "cache")]
    makers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert [maker.communicate(timeout=60)[0].strip() for maker in makers] == ["17"] * 6
    (made,) = (tmp_path / "cache").iterdir()
    assert [path.name for path in (made / "bin").iterdir()] == ["java"]


def test_no_java_says_what_was_seen_and_how_to_get_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "home/bin/java", "11.0.2")
    fake_java(tmp_path / "path/java", exit_code=1)
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    with pytest.raises(EngineUnavailableError) as caught:
        find_java(environment, no_package, tmp_path)
    text = str(caught.value)
    assert f"JAVA_HOME={tmp_path}/home is Java 11" in text
    assert f"{tmp_path}/path/java does not start" in text
    assert "maintenance-assets[java]" in text
    assert "Install Java 17+" in text


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match=r"JAVA_HOME is not set; no java on the PATH"):
        find_java({}, no_package, tmp_path)


def test_broken_package_is_said_to_be_broken(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "java", exit_code=1)
    with pytest.raises(EngineUnavailableError, match="java does not start"):
        find_java({"PATH": ""}, lambda: packaged, tmp_path)


def test_java_of_the_extra_is_new_enough(tmp_path: Path) -> None:
    assert packaged_java() is not None
    java = find_java({"PATH": ""}, cache=tmp_path)
    assert java.version >= LEAST_VERSION
    assert java.home is not None


def test_cache_is_the_user_s() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/maintenance-assets")
    assert cache_directory({}) == Path.home() / ".cache" / "maintenance-assets"


def test_looking_for_java_changes_no_variable(tmp_path: Path) -> None:
    fake_java(tmp_path / "path/java")
    before = dict(os.environ)
    find_java({"PATH": str(tmp_path / "path")}, no_package, tmp_path)
    assert dict(os.environ) == before
    assert sys.executable
