"""Executors that lack something: one clear error, and the dataset as it was."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.servers import S3Server
from maintenance_tests.spark.processes import Child, child
from maintenance_tests.spark_sessions import FAST

pytestmark = [pytest.mark.spark, pytest.mark.slow, ONE_WORKER]

BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        with open({file!r}) as blocked:
            if name.partition(".")[0] in blocked.read().split():
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that names the modules which executors do not find."""
    file = tmp_path_factory.mktemp("blocked") / "modules"
    file.touch()
    return file


@pytest.fixture(scope="module")
def driver(blocked: Path) -> Iterator[Child]:
    """A driver whose executors have a Python of their own, started anew for each task."""
    folder = blocked.parent
    (folder / "sitecustomize.py").write_text(BLOCKER.format(file=str(blocked)))
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    settings = {**FAST, "spark.python.worker.reuse": "false"}
    with child(folder, settings, PYSPARK_PYTHON=str(python)) as process:
        yield process


@pytest.mark.parametrize("module", ["pyarrow", "maintenance_assets", "fsspec"])
def test_missing_library_is_named(driver: Child, blocked: Path, local: Lake, module: str) -> None:
    one_row_files(local, 3)
    before = local.tree()
    blocked.write_text(module)
    answer = driver.compact(local)
    assert answer["error"] == "EngineUnavailableError"
    assert "Spark's executors lack" in answer["message"]
    assert module in answer["message"]
    assert "Nothing was changed" in answer["message"]
    assert "Traceback" not in answer["message"]
    assert local.tree() == before


def test_missing_library_of_the_store_is_named(driver: Child, blocked: Path, s3: S3Server) -> None:
    lake = Lake(f"s3://{s3.bucket}/executors", s3.storage_options)
    one_row_files(lake, 3)
    before = lake.tree()
    blocked.write_text("s3fs")
    answer = driver.compact(lake)
    assert answer["error"] == "EngineUnavailableError"
    assert "'s3fs'" in answer["message"]
    assert lake.tree() == before


def test_all_is_well_once_the_libraries_are_there(
    driver: Child, blocked: Path, local: Lake
) -> None:
    one_row_files(local, 3)
    blocked.write_text("")
    assert driver.compact(local).get("written_by") == {"spark": 1}
    assert local.column("id") == [0, 1, 2]
