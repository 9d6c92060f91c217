"""Exit codes, and errors in one line that names the thing."""

import os
from pathlib import Path

import pytest
from botocore.exceptions import NoCredentialsError

from maintenance_assets.cli.exits import Exit, exit_of_error, one_line
from maintenance_assets.errors import (
    BackupError,
    ConcurrentChangeError,
    DatasetConfigError,
    EngineUnavailableError,
    LeaseLostError,
    RecoveryError,
    UnsupportedDatasetError,
)
from maintenance_assets.storage.filesystems import open_store
from maintenance_assets.storage.lease import Lease
from maintenance_tests.cli.shell import Shell, run_process
from maintenance_tests.datasets import Lake, one_row_files


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("frobnicate",), "invalid choice: 'frobnicate'"),
        (("compact",), "the following arguments are required: PATH"),
        (("compact", "x", "--target-mb", "many"), "invalid float value: 'many'"),
        (("compact", "x", "--engine", "abacus"), "invalid choice: 'abacus'"),
        (("compact", "x", "--dry"), "unrecognized arguments: --dry"),
        (("compact", "/nowhere/at/all"), "Dataset path '/nowhere/at/all' does not exist"),
        (("compact", "/nowhere", "--target-mb", "0"), "target_mb_per_file must be > 0"),
        (("compact", "/nowhere", "--target-mb", "nan"), "target_mb_per_file must be > 0"),
        (("optimize", "/nowhere", "--zorder", ""), "zorder_columns must name at least one column"),
        (("execute", "/nowhere/plan.json"), "Plan '/nowhere/plan.json' does not exist"),
        (("compact", "nothing://x"), "Protocol not known: nothing"),
        (("compact", "memory://"), "path must name a directory, got 'memory://'"),
        (("status", "/nowhere", "--min-gain", "0"), "min_gain must be a whole number >= 1"),
        (("compact", "/nowhere", "--storage-option", "x"), "number 1 must be written key=value"),
        (("history", "/nowhere", "--backup-path", "/nowhere/b"), "cannot be kept in '/nowhere/b'"),
    ],
)
def test_wrong_usage_is_2_and_one_line(shell: Shell, words: tuple[str, ...], message: str) -> None:
    ran = shell(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.error


def test_no_partition_matches_the_filter(shell: Shell, local: Lake) -> None:
    one_row_files(local, 3, "a=1")
    ran = shell("compact", local.url, "--partition", "a=2")
    assert ran.code == 2
    assert f"No parquet files found under '{local.url}' matching filter" in ran.error


@pytest.mark.parametrize("partition", ["../other", "a=1/../../other", ".."])
def test_a_filter_that_leaves_the_dataset_is_refused(
    shell: Shell, tmp_path: Path, partition: str
) -> None:
    lake, other = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "other"))
    one_row_files(lake, 3, "a=1")
    one_row_files(other, 3)
    before = other.tree()
    ran = shell("compact", lake.url, "--partition", partition)
    assert ran.code == 2
    assert "must stay below the dataset root" in ran.error
    assert other.tree() == before


def test_another_format_is_refused_with_2(shell: Shell, local: Lake) -> None:
    local.write("a.parquet", {"id": [1]})
    local.put("_delta_log/0.json", b"{}")
    ran = shell("compact", local.url)
    assert ran.code == 2
    assert "a Delta table" in ran.error


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_file_is_nothing_to_recover(shell: Shell, local: Lake, words: tuple[str, ...]) -> None:
    local.write("a.parquet", {"id": [1]})
    ran = shell("recover", f"{local.url}/a.parquet", *words)
    assert ran.code == 2
    assert ran.error.endswith("is a file. Give the directory that holds it.")


def test_a_target_that_is_in_use_is_2_and_named(shell: Shell, local: Lake, tmp_path: Path) -> None:
    one_row_files(local, 2)
    one_row_files(Lake(str(tmp_path / "target")), 1)
    ran = shell("repartition", local.url, tmp_path / "target", "--by", "id")
    assert ran.code == 2
    assert ran.error.startswith(f"Target '{tmp_path / 'target'}' is not empty: it holds '")
    assert ran.error.endswith("give a new or an empty directory.")


def test_a_link_that_leaves_the_dataset_is_refused(shell: Shell, tmp_path: Path) -> None:
    one_row_files(Lake(str(tmp_path / "lake")), 3)
    one_row_files(Lake(str(tmp_path / "other")), 3)
    os.symlink(tmp_path / "other", tmp_path / "lake" / "inside")
    ran = shell("compact", tmp_path / "lake")
    assert ran.code == 2
    assert "is a symbolic link" in ran.error


def test_an_unreadable_file_is_1(shell: Shell, local: Lake) -> None:
    local.put("a.parquet", b"not parquet at all")
    ran = shell("compact", local.url)
    assert ran.code == 1
    assert "1 file(s) cannot be read as Parquet" in ran.error
    assert "Repair them" in ran.error


def test_a_busy_dataset_is_3_and_names_who_holds_it(shell: Shell, local: Lake) -> None:
    one_row_files(local, 3)
    with Lease(open_store(local.url), "01890000-0000-7000-8000-000000000000", "compact"):
        ran = shell("compact", local.url)
        status = shell("status", local.url)
    assert ran.code == 3
    assert "is being maintained by another process: compact run 01890000-0000-7000" in ran.error
    assert status.code == 0
    assert "busy: compact run 01890000" in status.out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("new.csv", b"id,s\n1,a,b\n", "Expected 2 columns, got 3"),
        ("new.csv", b"", "Empty CSV file"),
        ("new.csv", b"id\nabc\n", "conversion error to int64: invalid value 'abc'"),
        ("new.json", b"{", "JSON parse error"),
        ("new.parquet", b"no parquet", "Parquet"),
    ],
)
def test_new_rows_that_cannot_be_read_are_2_and_named(
    shell: Shell, local: Lake, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    one_row_files(local, 2)
    (tmp_path / name).write_bytes(content)
    ran = shell("upsert", local.url, tmp_path / name, "--key", "id")
    assert ran.code == 2
    assert ran.error.startswith(f"new data '{tmp_path / name}' cannot be read: ")
    assert message in ran.error


def test_a_plan_that_cannot_be_saved_is_named_and_leaves_nothing(
    shell: Shell, local: Lake, tmp_path: Path
) -> None:
    one_row_files(local, 2)
    ran = shell("plan", local.url, "--save", tmp_path / "no" / "plan.json")
    assert ran.code == 2
    assert ran.error.startswith(f"Plan '{tmp_path}/no/plan.json' cannot be saved: there is no")
    (tmp_path / "plans").mkdir()
    ran = shell("plan", local.url, "--save", tmp_path / "plans")
    assert ran.code == 1
    assert f"'{tmp_path / 'plans'}'" in ran.error
    assert [path.name for path in tmp_path.iterdir() if "tmp-" in path.name] == []


def test_a_datasets_yaml_that_is_no_text_is_named(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "datasets.yaml").write_bytes(b"\xff\xfe\x00")
    ran = shell("datasets", "check", tmp_path / "datasets.yaml")
    assert ran.code == 2
    assert ran.error == f"'{tmp_path / 'datasets.yaml'}': is not YAML: it is not text"


def test_a_plan_that_is_a_directory_is_one_line(shell: Shell, tmp_path: Path) -> None:
    ran = shell("execute", tmp_path)
    assert ran.code == 1
    assert ran.error.startswith("IsADirectoryError: ")


def conflicting(local: Lake) -> None:
    local.write("a=1/x.parquet", {"id": [1]})
    local.write("a=1/y.parquet", {"id": ["one"]})


def test_work_that_was_done_in_part_is_4_and_told_as_json(shell: Shell, local: Lake) -> None:
    conflicting(local)
    one_row_files(local, 3, "a=2")
    ran = shell("compact", local.url, "--json")
    assert ran.code == 4
    assert "1 group(s) were left as they were: column 'id' is" in ran.error
    assert ran.json["compacted_file_count"] == 3
    assert len(ran.json["failures"][0]["paths"]) == 2


def test_work_of_which_nothing_could_be_done_is_1(shell: Shell, local: Lake) -> None:
    conflicting(local)
    before = local.tree()
    assert shell("compact", local.url).code == 1
    assert local.tree() == before


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LeaseLostError("x"), Exit.TRY_AGAIN),
        (ConcurrentChangeError("x"), Exit.TRY_AGAIN),
        (UnsupportedDatasetError("x"), Exit.USAGE),
        (DatasetConfigError("x"), Exit.USAGE),
        (EngineUnavailableError("x"), Exit.FAILED),
        (RecoveryError("x"), Exit.FAILED),
        (BackupError("x"), Exit.FAILED),
        (PermissionError("x"), Exit.FAILED),
        (BrokenPipeError("a store hung up"), Exit.FAILED),
        (MemoryError(), Exit.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_by_what_the_caller_can_do(error: Exception, code: Exit) -> None:
    assert exit_of_error(error) == code


def test_messages_are_unfolded() -> None:
    pointing = ValueError("Unknown column 'pric'\n  id > 3 and pric > 2\n             ^^^^")
    assert one_line(pointing) == "Unknown column 'pric' (at 'pric' in: id > 3 and pric > 2)"
    cut_short = ValueError("Expected a value\n  id >\n      ^")
    assert one_line(cut_short) == "Expected a value (at the end of: id >)"
    whole = ValueError("A result of * is out of range\n  id * 4\n  ^^^^^^")
    assert one_line(whole) == "A result of * is out of range (in: id * 4)"
    assert one_line(ValueError("a\n\n  b")) == "a b"
    assert one_line(OSError("disk\nfull")) == "OSError: disk full (--debug shows the trace)"
    assert one_line(MemoryError()) == "MemoryError: MemoryError (--debug shows the trace)"


def test_errors_of_a_store_name_the_dataset_and_the_remedy() -> None:
    denied = PermissionError("Access Denied")
    assert one_line(denied, "s3://me:pw@bucket/lake") == (
        "PermissionError: Access Denied ('s3://bucket/lake'; --debug shows the trace)"
    )
    named = OSError("'/lake/a' is broken")
    assert one_line(named, "/lake") == "OSError: '/lake/a' is broken (--debug shows the trace)"
    no_credentials = NoCredentialsError()
    assert one_line(no_credentials, "s3://b/lake") == (
        "NoCredentialsError: Unable to locate credentials ('s3://b/lake'; give credentials in the "
        "environment or with --storage-option; --debug shows the trace)"
    )
    missing = ImportError("Please install gcsfs to access Google Storage")
    assert "the extras s3, gcs and azure install" in one_line(missing, "gs://b/lake")


def test_debug_shows_the_trace_before_the_line(shell: Shell) -> None:
    ran = shell("compact", "/nowhere/at/all", "--debug")
    lines = ran.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("parquet-maintenance: error: Dataset path")


def test_help_and_version_end_with_0(shell: Shell) -> None:
    assert shell("--version").out == "parquet-maintenance 0.1.0\n"
    for words in (("--help",), ("compact", "--help"), ("datasets", "check", "--help")):
        ran = shell(*words)
        assert ran.code == 0
        assert "exit codes:" in ran.out


def test_a_process_ends_with_the_code_and_one_line() -> None:
    ran = run_process("compact", "/nowhere/at/all")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error == "Dataset path '/nowhere/at/all' does not exist"
