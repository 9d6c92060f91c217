"""Storage options reach the executors and show up nowhere."""

import base64
from collections.abc import Iterable
from pathlib import Path

import pytest

from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.servers import SECRET, S3Server
from maintenance_tests.spark.processes import CLUSTER, child, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, ONE_WORKER]
WRONG = "wrong-secret-7f3a9c"


def event_log_settings(folder: Path) -> dict[str, str]:
    """Everything Spark can write about a job, as plain text."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }


def spellings(secret: str) -> list[bytes]:
    """A secret as text, as hexadecimal digits, and inside base64 at each alignment."""
    plain = secret.encode()
    coded = [base64.b64encode(b"\0" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, plain.hex().encode(), *coded]


def assert_not_in(secret: str, paths: Iterable[Path], must_have: str) -> None:
    """The files tell of the job, and none of them has the secret."""
    contents = {path: path.read_bytes() for path in paths if path.is_file()}
    assert any(must_have.encode() in content for content in contents.values())
    for path, content in contents.items():
        for spelling in spellings(secret):
            assert spelling not in content, f"{path} shows the secret"


def test_secret_is_in_no_plan_no_event_log_and_no_log(tmp_path: Path, s3: S3Server) -> None:
    """The event log holds what explain() prints, and the settings and the failures of a job."""
    settings = CLUSTER | event_log_settings(tmp_path / "events")
    home = spark_home(tmp_path)
    lake = Lake(f"s3://{s3.bucket}/secrets", s3.storage_options)
    one_row_files(lake, 4)
    with child(tmp_path, settings, SPARK_HOME=str(home)) as process:
        answer = process.compact(lake)
        assert answer.get("written_by") == {"spark": 1}, answer
        shown = [process.log, *(tmp_path / "events").rglob("*"), *(home / "work").rglob("std*")]
    assert_not_in(SECRET, shown, must_have="MapInArrow rewrite_groups")


def test_wrong_secret_is_not_in_the_error(tmp_path: Path, s3: S3Server, spark: object) -> None:
    lake = Lake(f"s3://{s3.bucket}/wrong", s3.storage_options)
    one_row_files(lake, 4)
    before = lake.tree()
    wrong = Lake(lake.url, {**s3.storage_options, "secret": WRONG})
    with pytest.raises(OSError) as caught:
        wrong.compact("spark")
    assert WRONG not in str(caught.value)
    assert lake.tree() == before
