"""Console blocks: the package's own commands run in this process, others as far as they can."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyspark

from maintenance_assets.cli.main import main
from maintenance_tests.docs.pages import ROOT, Block

JARS = Path(pyspark.__file__).parent / "jars"
FROM_ELSEWHERE = {"dagster-dg-cli", "venv-pack"}
"""Packages that pages name and that this one does not need."""
SHELL_WORDS = {"cat", "cp", "mkdir", "export", "ls", "touch"}
"""Commands that a shell carries out in the page's own directory."""
NOT_CARRIED_OUT = {
    "spark-submit": "needs a cluster; its options and settings are compared with Spark's own",
    "start-connect-server.sh": "starts a server; the suite has one of its own",
    "python": "makes an environment, which needs a network",
    "source": "enters that environment",
    "venv-pack": "packs that environment; it is a program of its own",
}
"""Commands that are not run here, and why."""
_ENDS_WITH = re.compile(r"#\s*ends with (\d+)\s*$")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_HEREDOC = re.compile(r"<<'?(\w+)'?")


def commands_of(block: Block) -> Iterator[str]:
    """One command after the other: continued lines are joined, documents stay with theirs."""
    lines = iter(block.text.splitlines())
    for line in lines:
        command = line
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
        heredoc = _HEREDOC.search(command)
        if heredoc:
            command += "\n" + "".join(f"{text}\n" for text in _until(lines, heredoc[1]))
        if command.strip() and not command.lstrip().startswith("#"):
            yield command


def _until(lines: Iterator[str], end: str) -> Iterator[str]:
    for line in lines:
        yield line
        if line == end:
            return


class Console:
    """Carries out the commands of a page, in its directory."""

    def __init__(self, home: Path, set_variable: Callable[[str, str], None]) -> None:
        self._home = home
        self._set_variable = set_variable

    def run(self, block: Block) -> None:
        """Carry out a block; a command that ends otherwise than it should is an error."""
        for command in commands_of(block):
            self._one(command, block)

    def _one(self, command: str, block: Block) -> None:
        expected = _ENDS_WITH.search(command)
        words = shlex.split(command.partition("\n")[0], comments=True)
        variables = {}
        while words and _ASSIGNMENT.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = os.path.expandvars(value)
        if not words:
            return
        code = self._carry_out(words, variables, command)
        wanted = int(expected[1]) if expected else 0
        assert code == wanted, f"{block.where}: `{command}` ended with {code}"

    def _carry_out(self, words: list[str], variables: Mapping[str, str], command: str) -> int:
        match words:
            case ["export", *assignments]:
                for assignment in assignments:
                    name, _, value = assignment.partition("=")
                    self._set_variable(name, os.path.expandvars(value))
                return 0
            case ["parquet-maintenance", *rest]:
                return _in_this_process(rest, variables, self._set_variable)
            case ["dagster", "job", "execute", *rest]:
                return self._dagster(["job", "execute", *rest], variables)
            case ["dagster", *rest]:
                parse_dagster(rest)
                return 0
            case ["make", *targets]:
                return _known_targets(targets)
            case ["pip", "install", *packages]:
                return _known_packages(packages)
            case ["spark-submit" | "start-connect-server.sh", *rest]:
                check_spark_options(rest)
                return 0
            case [word, *_] if word in NOT_CARRIED_OUT:
                return 0
            case [word, *_] if word in SHELL_WORDS:
                return subprocess.run(["bash", "-euc", command], check=False).returncode
        raise AssertionError(f"nobody knows how to check `{command}`")

    def _dagster(self, words: list[str], variables: Mapping[str, str]) -> int:
        shown = {name: os.path.expanduser(value) for name, value in variables.items()}
        done = subprocess.run(
            [sys.executable, "-m", "dagster", *words],
            env={**os.environ, **shown},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.returncode


def _in_this_process(
    words: list[str], variables: Mapping[str, str], set_variable: Callable[[str, str], None]
) -> int:
    for name, value in variables.items():
        set_variable(name, value)
    if ">" in words:
        at = words.index(">")
        with open(words[at + 1], "w", encoding="utf-8") as file:
            kept, sys.stdout = sys.stdout, file
            try:
                return main(words[:at])
            finally:
                sys.stdout = kept
    return main([os.path.expanduser(os.path.expandvars(word)) for word in words])


def parse_dagster(words: list[str]) -> None:
    """Parse a `dagster` command by its own parser, without carrying it out."""
    (entry,) = entry_points(group="console_scripts", name="dagster")
    command: Any = entry.load()
    command = getattr(command, "__globals__", {}).get("cli", command)
    context = command.make_context("dagster", [], resilient_parsing=True)
    while words and hasattr(command, "get_command"):
        command = command.get_command(context, words[0])
        assert command is not None, f"dagster has no command {words[0]!r}"
        words = words[1:]
    command.make_context(command.name, list(words))


def check_spark_options(words: list[str]) -> None:
    """Options that Spark's own parser knows; settings are looked at for all pages together."""
    launcher = next(JARS.glob("spark-launcher_*.jar"))
    with zipfile.ZipFile(launcher) as jar:
        parser = jar.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    for word in words:
        assert not word.startswith("--") or word.encode() in parser, word


def _known_targets(targets: list[str]) -> int:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
    wanted = {word for word in targets if "=" not in word}
    assert wanted <= known, f"make has no target {sorted(wanted - known)}"
    return 0


def _known_packages(packages: list[str]) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = "\n".join([*project["dependencies"], *(p for one in extras.values() for p in one)])
    for package in packages:
        name, _, wanted = package.rstrip("]").partition("[")
        assert name in {".", "maintenance-assets", *FROM_ELSEWHERE} or name in named, package
        if name in {".", "maintenance-assets"}:
            assert not {one for one in wanted.split(",") if one} - set(extras), package
    return 0
