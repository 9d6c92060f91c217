"""Every code block of the documentation runs, page by page and from top to bottom.

A page has a directory of its own with a small lake in it. Its blocks share names and files, as they
do for whoever follows the page. What cannot run here is in `NOT_RUN`, with the reason.
"""

import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
import s3fs

from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake
from maintenance_tests.docs.console import NOT_CARRIED_OUT, Console, commands_of
from maintenance_tests.docs.declarations import check_yaml
from maintenance_tests.docs.pages import ROOT, Block, blocks_of, pages
from maintenance_tests.servers import KEY, SECRET, S3Server

START = datetime(2025, 11, 4)
BUCKET = "market-data"
WITH_SPARK = {"docs/spark.md"}
WITH_S3 = {"docs/object-stores.md", "docs/spark.md"}
"""Pages whose `s3://` paths are opened; elsewhere they are only declared."""
NOT_RUN = {
    (
        "README.md",
        "┃ dataset                 ┃        ┃ files ┃     bytes ┃    rows ┃ row groups ┃   query ┃",
    ): "what `make demo` ends with, which test_demo.py runs",
}
"""Page and first line of a block, and why it is not run; another test checks it."""
AN_HOUR = 3600


def fill(lake: Lake) -> None:
    """Two days of trades in ten small files each, written an hour ago."""
    for day in range(2):
        for number in range(10):
            ids = range(100 * (10 * day + number), 100 * (10 * day + number) + 100)
            columns = {
                "trade_id": pa.array(ids, pa.int64()),
                "traded_at": [START + timedelta(days=day, seconds=i) for i in ids],
                "symbol": [("ABC", "XYZ", "QRS")[i % 3] for i in ids],
                "price": [None if i % 50 == 0 else i / 7 for i in ids],
                "size": [float(i % 9 - 1) for i in ids],
            }
            lake.write(f"date=2025-11-0{4 + day}/part-{number}.parquet", columns)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a page finds: a lake, our Dagster files, and variables that its examples name."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "lake" / "trades"
    fill(Lake(str(root)))
    for file in root.rglob("*.parquet"):
        os.utime(file, (time.time() - AN_HOUR,) * 2)
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    variables = {"HOME": str(tmp_path), "S3_KEY": KEY, "S3_SECRET": SECRET}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples' bucket on a real server, which the usual variables lead to."""
    fs = s3fs.S3FileSystem(**s3.storage_options)
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)
    fill(Lake(f"s3://{BUCKET}/trades", s3.storage_options))
    monkeypatch.setenv("S3_ENDPOINT", s3.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    yield
    fs.invalidate_cache()
    fs.rm(f"{BUCKET}/", recursive=True)


def marked(page: str) -> Any:
    marks = [pytest.mark.spark, ONE_WORKER] if page in WITH_SPARK else []
    marks += [pytest.mark.s3, ONE_WORKER] if page in WITH_S3 else []
    return pytest.param(page, marks=marks)


@pytest.mark.parametrize("page", [marked(page) for page in pages()])
def test_blocks_of_page_run(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page in WITH_SPARK:
        request.getfixturevalue("spark")
    if page in WITH_S3:
        request.getfixturevalue("bucket")
    reader = Reader(folder, monkeypatch)
    for block in blocks_of(page):
        if (page, block.first_line) not in NOT_RUN:
            reader.follow(block)


class Reader:
    """Does what a page says, and compares what it shows with what came out."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._console = Console(folder, monkeypatch.setenv)
        self._names: dict[str, Any] = {"__name__": "page"}
        self._shown = ""

    def follow(self, block: Block) -> None:
        """Run a block by its language."""
        match block.language:
            case "python":
                with self._recorded():
                    exec(compile(_padded(block), block.page, "exec"), self._names)
            case "console":
                with self._recorded():
                    self._console.run(block)
            case "yaml":
                check_yaml(block, self._folder)
            case "json":
                json.loads(block.text)
            case "text":
                self._compare(block)
            case other:
                raise AssertionError(f"{block.where}: nobody knows how to run {other!r}")

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        output = io.StringIO()
        with redirect_stdout(output):
            yield
        sys.stdout.write(output.getvalue())
        self._shown = output.getvalue()

    def _compare(self, block: Block) -> None:
        """Each line that is shown was printed by the block before, whatever its numbers are."""
        shown = self._shown.replace(f"{self._folder}/", "")
        printed = {_shape(line) for line in shown.splitlines()}
        for line in block.text.splitlines():
            assert _shape(line) in printed, f"{block.where}: not printed: {line!r}\n{shown}"


def _padded(block: Block) -> str:
    """Errors then name the line of the page."""
    return "\n" * block.line + block.text


def _shape(line: str) -> str:
    """A line without its figures."""
    plain = re.sub(r"[\u2588-\u258f]+", "#", line)
    plain = re.sub(r"\b\d[\d.,:]*( [KMG]i?B)?", "0", plain)
    return " ".join(plain.split())


def test_every_exception_is_still_there() -> None:
    blocks = [block for page in pages() for block in blocks_of(page)]
    assert set(NOT_RUN) <= {(block.page, block.first_line) for block in blocks}
    commands = {command.split()[0] for block in blocks for command in _commands(block)}
    assert set(NOT_CARRIED_OUT) <= commands


def _commands(block: Block) -> list[str]:
    return list(commands_of(block)) if block.language == "console" else []


def test_output_that_was_not_printed_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(folder, monkeypatch)
    reader.follow(Block("page", 1, "python", "print('12 files became 3')\n"))
    reader.follow(Block("page", 2, "text", "7 files became 1\n"))
    with pytest.raises(AssertionError, match="not printed: '7 files become 1'"):
        reader.follow(Block("page", 3, "text", "7 files become 1\n"))


@pytest.mark.parametrize(
    "text",
    [
        "parquet-maintenance status lake/nowhere\n",
        "parquet-maintenance status lake/trades  # ends with 2\n",
        "parquet-maintenance compact lake/trades --drop-run\n",
        "dagster dev --workspaces workspace.yaml\n",
        "make everything\n",
        "pip install '.[s4]'\n",
        "rm -rf lake\n",
    ],
)
def test_a_command_that_does_not_work_is_noticed(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        Reader(folder, monkeypatch).follow(Block("page", 1, "console", text))
