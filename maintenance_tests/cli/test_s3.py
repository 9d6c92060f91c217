"""The command line on an object store, with credentials that are never seen."""

import json
from pathlib import Path

import pytest

from maintenance_tests.cli.shell import Ran, run_process
from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.servers import S3Server

pytestmark = [pytest.mark.s3, ONE_WORKER]


def test_a_dataset_on_s3_is_planned_and_maintained(s3: S3Server, tmp_path: Path) -> None:
    lake = Lake(f"s3://{s3.bucket}/cli", s3.storage_options)
    one_row_files(lake, 6)
    options = tmp_path / "options.json"
    options.write_text(json.dumps(s3.storage_options))
    environment = {"MAINTENANCE_STORAGE_OPTIONS_FILE": str(options)}
    plan = tmp_path / "plan.json"

    def run(*words: object) -> Ran:
        ran = run_process(*words, environment=environment)
        assert str(s3.storage_options["secret"]) not in ran.out + ran.err
        return ran

    assert "6 small files of 6, 5 could be saved" in run("status", lake.url).out
    assert run("plan", lake.url, "--save", plan).code == 0
    assert str(s3.storage_options["secret"]) not in plan.read_text()
    assert run("execute", plan, "--debug").code == 0
    assert lake.column("id") == list(range(6))
    assert run("execute", plan).code == 3
    wrong = run("status", lake.url, "--storage-option", "secret=wrong-wrong-wrong")
    assert wrong.code == 1
    assert len(wrong.err.splitlines()) == 1
