"""Completion scripts, evaluated by the shells themselves."""

import shutil
import subprocess

import pytest

from maintenance_assets.cli.completion import script
from maintenance_assets.cli.parser import build_parser
from maintenance_tests.cli.shell import Shell


def completions(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"{script(build_parser(), 'bash')}\n"
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        '_parquet_maintenance\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), []),
        (("comp",), ["compact", "completion"]),
        (("datasets", ""), ["check", "list"]),
        (("vacuum", "--de"), ["--debug", "--delete"]),
        (("fsck", "--cat"), ["--catalog"]),
        (("datasets", "check", "--op"), ["--open"]),
        (("compact", "--eng"), ["--engine"]),
        (("compact", "lake", "--dry"), ["--dry-run"]),
        (("compact", "--engine", "d"), ["duckdb"]),
        (("compact", "--compression", "z"), ["zstd"]),
        (("optimize", "--curve", ""), ["hilbert", "morton", "linear"]),
        (("delete", "--dry"), ["--dry-run"]),
        (("compact", "some/pa"), []),
    ],
    ids=" ".join,
)
def test_bash_completes(words: tuple[str, ...], expected: list[str]) -> None:
    found = completions("parquet-maintenance", *words)
    assert set(found) >= set(expected)
    if words != ("",):
        assert [word for word in found if word not in ("-h", "--help")] == expected
    else:
        assert {"status", "plan", "compact", "--version"} <= set(found)


def test_both_shells_get_a_script(shell: Shell) -> None:
    assert "complete -F _parquet_maintenance parquet-maintenance" in shell("completion", "bash").out
    assert "bashcompinit" in shell("completion", "zsh").out
    assert shell("completion", "tcsh").code == 2


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_takes_the_script() -> None:
    code = f"autoload -Uz compinit && compinit -u\n{script(build_parser(), 'zsh')}"
    done = subprocess.run(["zsh", "-fc", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
