"""Secrets reach the store and nothing else."""

import json
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets.cli.secrets import Secrets
from maintenance_assets.cli.storage_options import storage_options
from maintenance_tests.cli.shell import Shell
from maintenance_tests.datasets import Lake, one_row_files

SECRET = "s3cr3t/Value+1"


class LockedFileSystem(MemoryFileSystem):
    """A store that wants a password, and is careless with it in its errors."""

    protocol = "locked"
    cachable = False

    def __init__(self, password: str = "", **options: object) -> None:
        super().__init__(**options)
        if password != SECRET:
            raise PermissionError(f"wrong password {password!r} for locked://")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("locked://", "memory://")))

    def cat_file(self, path: str, *arguments: object, **options: object) -> object:
        if "leak" in path:
            raise OSError(f"GET {path}?password={SECRET} failed")
        return super().cat_file(path, *arguments, **options)


@pytest.fixture(autouse=True)
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("locked", LockedFileSystem, clobber=True)
    monkeypatch.setattr(LockedFileSystem, "store", {})
    monkeypatch.setattr(LockedFileSystem, "pseudo_dirs", [""])


@pytest.fixture
def lake() -> Lake:
    lake = Lake("locked:///lake", {"password": SECRET})
    one_row_files(lake, 4)
    return lake


OPTION = ("--storage-option", f"password={SECRET}")


def test_an_option_on_the_command_line_opens_the_store(shell: Shell, lake: Lake) -> None:
    assert shell("compact", lake.url, *OPTION, "--json").json["after_file_count"] == 1


@pytest.mark.parametrize("name", ["options.json", "options.yaml"])
def test_an_options_file_fills_in_the_environment(
    shell: Shell, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LOCKED_WORD", SECRET)
    file = tmp_path / name
    file.write_text('{"password": "${LOCKED_WORD}"}')
    assert shell("status", lake.url, "--storage-options-file", file).code == 0
    monkeypatch.setenv("MAINTENANCE_STORAGE_OPTIONS_FILE", str(file))
    assert shell("status", lake.url).code == 0


def test_options_come_from_the_environment(
    shell: Shell, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINTENANCE_STORAGE_OPTIONS", json.dumps({"password": SECRET}))
    assert shell("status", lake.url).code == 0


def test_no_output_of_any_command_has_the_secret(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    runs = [
        shell("status", lake.url, *OPTION),
        shell("status", lake.url, *OPTION, "--json"),
        shell("plan", lake.url, *OPTION, "--save", plan),
        shell("plan", lake.url, *OPTION, "--json", "--debug"),
        shell("execute", plan, *OPTION, "--debug"),
        shell("recover", lake.url, *OPTION),
        shell("status", lake.url, "--storage-option", f"password={SECRET}x", "--debug"),
        shell("compact", lake.url, *OPTION, "--storage-optin", f"password={SECRET}"),
        shell("compact", lake.url, "--storage-option", SECRET),
        shell("compact", lake.url, "--storage-optin", SECRET),
    ]
    assert [ran.code for ran in runs] == [0, 0, 0, 0, 0, 0, 1, 2, 2, 2]
    for ran in runs:
        assert SECRET not in ran.out + ran.err
    assert SECRET not in plan.read_text()
    assert "password" not in plan.read_text()


def test_a_careless_error_of_a_store_is_printed_without_it(shell: Shell, lake: Lake) -> None:
    lake.put("leak/a.parquet", b"0123456789abcdef")
    ran = shell("compact", lake.url, *OPTION, "--debug")
    assert ran.code == 1
    assert SECRET not in ran.out + ran.err
    assert "password=***" in ran.err


def test_the_secrets_of_a_datasets_yaml_are_not_repeated(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKED_WORD", SECRET)
    monkeypatch.setattr(LockedFileSystem, "find", careless)
    file = tmp_path / "datasets.yaml"
    options = "storage_options: {password: '${LOCKED_WORD}'}"
    file.write_text(f"datasets:\n  - {{key: a, path: 'locked:///lake', {options}}}\n")
    ran = shell("datasets", "check", file, "--open", "--debug")
    assert ran.code == 2
    assert "LIST *** failed" in ran.err
    assert SECRET not in ran.out + ran.err


def careless(*arguments: object, **options: object) -> object:
    raise OSError(f"LIST {SECRET} failed")


def test_values_are_not_repeated_where_they_are_out_of_place(shell: Shell) -> None:
    ran = shell("compact", "lake", "--storage-option", "key=abc", f"secret={SECRET}")
    assert ran.code == 2
    assert "unrecognized arguments: secret (see" in ran.err
    ran = shell(f"ftp://me:{SECRET}@host/lake")
    assert ran.code == 2
    assert "s3cr3t" not in ran.err


def test_a_password_in_a_url_is_not_repeated(shell: Shell) -> None:
    ran = shell("compact", f"nothing://user:{SECRET.replace('/', '')}@host/lake")
    assert ran.code == 2
    assert "s3cr3t" not in ran.err


def test_values_of_secret_variables_are_hidden(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    ran = shell("compact", tmp_path / "hunter2hunter2")
    assert "does not exist" in ran.error
    assert "hunter2" not in ran.error


def test_json_stays_json_whatever_a_secret_is(
    shell: Shell, local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_row_files(local, 4)
    monkeypatch.setenv("TOKEN_CACHE", "false")
    options = ("--storage-option", "a=file", "--storage-option", "b=false,")
    ran = shell("compact", local.url, *options, "--json")
    assert (ran.json["before_file_count"], ran.json["dry_run"]) == (4, False)


def test_harmless_options_stay_readable() -> None:
    secrets = Secrets()
    secrets.learn({"endpoint_url": "http://store:9000", "client_kwargs": {"region_name": "lake"}})
    secrets.learn({"nested": [{"token": "abcdef"}], "key": b"bytes!"})
    assert secrets.hide("http://store:9000/lake abcdef bytes!") == "http://store:9000/lake *** ***"


def test_the_longest_secret_is_hidden_first() -> None:
    secrets = Secrets()
    secrets.learn({"a": "abcd", "b": "abcdefgh"})
    assert secrets.hide("x abcdefgh y abcd") == "x *** y ***"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a=1"], {"a": "1"}),
        (["a=x=y"], {"a": "x=y"}),
        (["a=true", "b=false", "c=null"], {"a": True, "b": False, "c": None}),
        (["a:=1", 'b:={"c": [1]}'], {"a": 1, "b": {"c": [1]}}),
        (["c.u=x", "c.v=${NAME}"], {"c": {"u": "x", "v": "value"}}),
        ([], None),
    ],
    ids=str,
)
def test_options_are_read(given: list[str], expected: object) -> None:
    assert storage_options(given, None, {"NAME": "value"}) == expected


def test_later_sources_win() -> None:
    environment = {"MAINTENANCE_STORAGE_OPTIONS": '{"a": "1", "b": "1"}'}
    assert storage_options(["a=2"], None, environment) == {"a": "2", "b": "1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([SECRET], "number 1 must be written key=value"),
        (["a=1", f"=={SECRET}"], "number 2 must be written key=value"),
        (["a:={secret"], "must be followed by JSON"),
        (["a=1", "a.b=2"], "'a' is no group of options"),
        (["a=${NOT_THERE}"], "environment variable NOT_THERE is not set"),
    ],
)
def test_wrong_options_are_named_without_their_values(given: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("$", r"\$")) as caught:
        storage_options(given, None, {})
    assert "s3cr3t" not in str(caught.value)
    assert "{secret" not in str(caught.value)


@pytest.mark.parametrize("content", ["[1, 2]", "{", "plain: [", "1: x"])
def test_a_wrong_options_file_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "options"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"storage options file '.*options'"):
        storage_options([], str(file), {})


def test_yaml_cannot_build_objects(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text("a: !!python/object/apply:os.getpid []")
    with pytest.raises(ValueError, match="is not YAML"):
        storage_options([], str(file), {})


def test_a_few_lines_of_yaml_cannot_stand_for_billions_of_values(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    file = tmp_path / "options.yaml"
    for text in ("\n".join(lines), "a: &a [*a]", "[" * 5000):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"stands for 200,000 values or more|too deeply"):
            storage_options([], str(file), {})


def test_broken_yaml_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(f"secret: {SECRET}: [\n")
    with pytest.raises(ValueError, match=r"is not YAML: .* in line 1") as caught:
        storage_options([], str(file), {})
    assert "s3cr3t" not in str(caught.value)
