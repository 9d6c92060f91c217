"""Two real executor processes: nothing depends on the driver, and losing one loses nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.servers import S3Server
from maintenance_tests.spark.processes import CLUSTER, Child, child, spark_home, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, ONE_WORKER]
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """A driver with two executors."""
    folder = tmp_path_factory.mktemp("cluster")
    home = str(spark_home(folder))
    with child(folder, CLUSTER, SPARK_HOME=home) as process:
        yield process


def four_partitions(lake: Lake) -> None:
    for day in range(4):
        one_row_files(lake, 3 + day, f"day={day}", start=day * 100)


def assert_compacted(lake: Lake, answer: dict[str, Any]) -> None:
    """Every row once and in order, one file per partition, and nothing else at all."""
    assert answer.get("written_by") == {"spark": 4}, answer
    for day in range(4):
        assert lake.column("id", f"day={day}") == list(range(day * 100, day * 100 + 3 + day))
    assert sorted(lake.tree()) == lake.files()
    assert len(lake.files()) == 4


def paused_writer(control: Path) -> psutil.Process:
    """The Python worker that waits in the middle of its task."""
    first = control / "first"
    number = wait_for(lambda: first.exists() and first.read_text())
    return psutil.Process(int(number))


def executor_of(worker: psutil.Process) -> psutil.Process:
    """The Java process that the worker works for."""
    (found,) = (each for each in worker.parents() if EXECUTOR in " ".join(each.cmdline()))
    return found


def test_groups_are_rewritten_on_executors(cluster: Child, local: Lake) -> None:
    four_partitions(local)
    assert_compacted(local, cluster.compact(local))


def test_groups_on_s3_are_rewritten_on_executors(cluster: Child, s3: S3Server) -> None:
    lake = Lake(f"s3://{s3.bucket}/cluster", s3.storage_options)
    four_partitions(lake)
    assert_compacted(lake, cluster.compact(lake))


def test_rows_are_cut_on_executors(cluster: Child, local: Lake) -> None:
    local.write("a.parquet", {"id": list(range(100))})
    answer = cluster.compact(local, target_rows_per_file=30)
    assert answer["stats"]["after_file_count"] == 4
    assert local.column("id") == list(range(100))


def test_broken_file_fails_its_group_only(cluster: Child, local: Lake) -> None:
    four_partitions(local)
    name = "day=1/part-00100.parquet"
    data = bytearray(local.get(name))
    data[4:40] = b"\xff" * 36
    local.put(name, bytes(data))
    answer = cluster.compact(local)
    assert answer["error"] == "IncompleteMaintenanceError"
    assert local.path(name) in answer["message"]
    assert len(local.files("day=1")) == 4
    assert [len(local.files(f"day={day}")) for day in (0, 2, 3)] == [1, 1, 1]


def test_executor_killed_in_the_middle(cluster: Child, local: Lake, tmp_path: Path) -> None:
    """The group is written again elsewhere; what the orphan writes later is taken away."""
    four_partitions(local)
    cluster.send(local, tmp_path)
    worker = paused_writer(tmp_path)
    executor = executor_of(worker)
    executor.kill()
    answer = cluster.receive()
    assert_compacted(local, answer)
    assert not executor.is_running() or executor.status() == psutil.STATUS_ZOMBIE
    let_go(tmp_path, worker)
    assert_compacted(local, answer)


def scattered(lake: Lake, files: int = 6, rows: int = 50) -> None:
    """Every file has ids from everywhere."""
    for number in range(files):
        ids = [i * files + number for i in range(rows)]
        lake.write(f"part-{number}.parquet", {"id": ids, "name": [f"n{i}" for i in ids]})


def assert_clustered(lake: Lake, answer: dict[str, Any]) -> None:
    """Every row once, each file a range of its own, and nothing else at all."""
    assert answer.get("written_by") == {"spark": 1}, answer
    assert [lake.open(name).metadata.num_rows for name in lake.files()] == [60] * 5
    assert lake.column("id") == list(range(300))
    assert lake.column("name") == [f"n{i}" for i in range(300)]
    assert sorted(lake.tree()) == lake.files()


def test_rows_are_shuffled_between_executors(cluster: Child, local: Lake) -> None:
    scattered(local)
    assert_clustered(local, cluster.optimize(local, ["id"], target_rows_per_file=60))


def test_rows_on_s3_are_shuffled_between_executors(cluster: Child, s3: S3Server) -> None:
    lake = Lake(f"s3://{s3.bucket}/shuffle", s3.storage_options)
    scattered(lake)
    assert_clustered(lake, cluster.optimize(lake, ["id"], target_rows_per_file=60))


def test_broken_file_stops_a_shuffle_and_is_named(cluster: Child, local: Lake) -> None:
    """Its key column can be read, so that it is found out only on the way."""
    scattered(local)
    name = "part-1.parquet"
    data = bytearray(local.get(name))
    chunk = local.open(name).metadata.row_group(0).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + 36] = b"\xff" * 36
    local.put(name, bytes(data))
    before = local.tree()
    answer = cluster.optimize(local, ["id"], target_rows_per_file=60)
    assert answer["error"] == "IncompleteMaintenanceError"
    assert local.path(name) in answer["message"]
    assert local.tree() == before


def test_executor_killed_in_the_middle_of_a_shuffle(
    cluster: Child, local: Lake, tmp_path: Path
) -> None:
    scattered(local)
    cluster.send(local, tmp_path, columns=["id"], target_rows_per_file=60)
    worker = paused_writer(tmp_path)
    executor_of(worker).kill()
    answer = cluster.receive()
    assert_clustered(local, answer)
    let_go(tmp_path, worker)
    assert_clustered(local, answer)


def let_go(control: Path, worker: psutil.Process) -> None:
    """Let the paused writer go on, if it still is there, and wait until it has ended."""
    (control / "go").touch()
    wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
