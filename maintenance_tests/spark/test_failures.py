"""What Spark's errors mean, and that no secret is in what is shown of them."""

from typing import Any

import fsspec
import pytest

from maintenance_assets.engines.spark_failures import (
    redacted,
    secret_values,
    summary,
    unavailability,
    whole_text,
)

TRACEBACK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 's3fs'
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TRACEBACK, "lack the Python module 's3fs'"),
        ("No module named 'maintenance_assets'", "lack the Python module 'maintenance_assets'"),
        ("PyArrow >= 18.0.0 must be installed; however, it was not found.", "lack pyarrow"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has ...", "another version of Python"),
        ('Cannot run program "/no/python": error=2', "cannot start Python"),
        ("Py4JNetworkError: Answer from Java side is empty", "cannot be reached any more"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "cannot be reached any more"),
        ("status = StatusCode.UNAVAILABLE", "cannot be reached any more"),
        ("Job 3 cancelled because SparkContext was shut down", "cannot be reached any more"),
    ],
)
def test_spark_at_fault_has_a_remedy(text: str, words: str) -> None:
    assert words in str(unavailability(text))


@pytest.mark.parametrize("text", ["", "ValueError: x", "OutOfMemoryError: Java heap space"])
def test_anything_else_is_the_group_s(text: str) -> None:
    assert unavailability(text) is None


def test_summary_is_the_last_python_error() -> None:
    assert summary(RuntimeError(TRACEBACK)).endswith("No module named 's3fs'")
    assert summary(RuntimeError("one\ntwo")) == "RuntimeError: one"
    assert summary(RuntimeError()) == "RuntimeError"


def test_causes_are_part_of_the_text() -> None:
    try:
        try:
            raise OSError("inner")
        except OSError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        assert whole_text(error) == "RuntimeError: outer\nOSError: inner"


class Options:
    """As much of a file system as is looked at."""

    def __init__(self, fs: Any = None, **options: Any) -> None:
        self.storage_options = options
        self.fs = fs


def test_secrets_are_found_wherever_they_are() -> None:
    inner = Options(client_kwargs={"aws_session_token": "tok-tok"}, anon=True)
    fs = Options(inner, key="AKIA1234", secret=b"s3cr3t!", account_key="acc-key", token=["t0ken"])
    assert set(secret_values(fs, ())) == {"AKIA1234", "s3cr3t!", "acc-key", "t0ken", "tok-tok"}


def test_ordinary_options_are_shown() -> None:
    fs = Options(endpoint_url="http://localhost", region="eu", anon=False, key="abc", secret=None)
    assert secret_values(fs, ()) == ()


def test_local_files_have_no_secrets() -> None:
    assert secret_values(fsspec.filesystem("file"), ()) == ()


def test_longer_secrets_go_first() -> None:
    fs = Options(key="secret", secret="secret-and-more")
    secrets = secret_values(fs, ())
    assert redacted("a secret-and-more b secret c", secrets) == "a *** b *** c"
