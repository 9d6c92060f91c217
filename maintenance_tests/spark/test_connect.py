"""A Spark Connect server in another process: the same engine, without a Java of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.servers import SECRET, S3Server
from maintenance_tests.spark.processes import Child, child, connect_server
from maintenance_tests.spark.test_secrets import assert_not_in, event_log_settings
from maintenance_tests.spark_sessions import FAST

pytestmark = [pytest.mark.spark, pytest.mark.slow, ONE_WORKER]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server, and the folder of its logs."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {**FAST, "spark.master": "local[2,4]", **event_log_settings(folder / "events")}
    with connect_server(folder, settings) as address:
        yield address, folder


@pytest.fixture(scope="module")
def client(server: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """A process that knows the server from SPARK_REMOTE."""
    with child(tmp_path_factory.mktemp("client"), SPARK_REMOTE=server[0]) as process:
        yield process


def test_groups_are_rewritten_by_the_server(client: Child, local: Lake) -> None:
    for day in range(3):
        one_row_files(local, 4, f"day={day}", start=day * 10)
    answer = client.compact(local)
    assert answer.get("written_by") == {"spark": 3}, answer
    assert answer["session"]["kind"] == "connect"
    assert [local.column("id", f"day={day}") for day in range(3)] == [
        [0, 1, 2, 3],
        [10, 11, 12, 13],
        [20, 21, 22, 23],
    ]
    assert sorted(local.tree()) == local.files()


def test_rows_are_shuffled_by_the_server(client: Child, local: Lake) -> None:
    for number in range(4):
        local.write(f"{number}.parquet", {"id": [i * 4 + number for i in range(25)]})
    answer = client.optimize(local, ["id"], target_rows_per_file=20)
    assert answer.get("written_by") == {"spark": 1}, answer
    assert answer["session"]["kind"] == "connect"
    assert len(local.files()) == 5
    assert local.column("id") == list(range(100))
    assert sorted(local.tree()) == local.files()


def test_second_run_uses_the_same_session(client: Child, local: Lake) -> None:
    one_row_files(local, 3)
    assert client.compact(local)["stats"]["after_file_count"] == 1
    assert client.compact(local)["stats"]["compacted_file_count"] == 0


def test_broken_page_is_named(client: Child, local: Lake) -> None:
    one_row_files(local, 2)
    data = bytearray(local.get("part-00001.parquet"))
    data[4:40] = b"\xff" * 36
    local.put("part-00001.parquet", bytes(data))
    before = local.tree()
    answer = client.compact(local)
    assert answer["error"] == "IncompleteMaintenanceError"
    assert local.path("part-00001.parquet") in answer["message"]
    assert local.tree() == before


def test_s3_through_the_server_shows_no_secret(
    client: Child, server: tuple[str, Path], s3: S3Server
) -> None:
    lake = Lake(f"s3://{s3.bucket}/connect", s3.storage_options)
    one_row_files(lake, 5)
    answer = client.compact(lake)
    assert answer.get("written_by") == {"spark": 1}, answer
    assert lake.column("id") == [0, 1, 2, 3, 4]
    assert_not_in(SECRET, [client.log, *server[1].rglob("*")], must_have="rewrite_groups")
