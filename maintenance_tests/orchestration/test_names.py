"""What a dataset becomes, under names that can be guessed, alone or among other definitions."""

import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import dagster
import fsspec
import pytest
from dagster_pyspark import LazyPySparkResource
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets import build_definitions
from maintenance_assets.orchestration.engine_resource import EngineResource
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import KEY, declared, location, two_days


def test_names_follow_from_the_key(local: Lake) -> None:
    two_days(local)
    defs = build_definitions([declared(local)])
    repository = defs.get_repository_def()
    jobs = {name for name in repository.job_names if not name.startswith("__")}
    operations = {"compact", "recover", "delete", "update", "upsert", "repartition"}
    assert jobs == {f"lake__trades__{operation}" for operation in operations}
    assert [s.name for s in repository.sensor_defs] == ["lake__trades__small_files"]
    assert [s.name for s in repository.schedule_defs] == ["lake__trades__scheduled_compaction"]
    graph = defs.resolve_asset_graph()
    assert graph.get_all_asset_keys() == {KEY}
    assert {check.name for check in graph.asset_check_keys} == {
        "small_files",
        "schema_drift",
        "rows_preserved",
        "leftovers",
    }


def test_everything_is_in_the_pool_of_its_dataset(local: Lake) -> None:
    defs = build_definitions([declared(local)])
    assert defs.resolve_assets_def(KEY).op.pool == "dataset:lake/trades"
    for name in ("compact", "recover"):
        job = defs.resolve_job_def(f"lake__trades__{name}")
        assert {node.definition.pool for node in job.nodes} == {"dataset:lake/trades"}  # type: ignore[attr-defined]


def test_jobs_run_in_one_process_and_are_not_tried_again_blindly(local: Lake) -> None:
    job = build_definitions([declared(local)]).resolve_job_def("lake__trades__compact")
    assert job.executor_def is dagster.in_process_executor
    assert job.tags["dagster/retry_on_asset_or_op_failure"] == "false"


def test_the_asset_says_what_it_is(local: Lake) -> None:
    fields = {
        "owners": ["team:markets"],
        "tags": {"tier": "gold"},
        "group": "lake",
        "description": "All trades.",
        "engine": "duckdb",
        "max_age_hours": 24,
    }
    spec = build_definitions([declared(local, **fields)]).resolve_assets_def(KEY).get_asset_spec()
    assert spec.owners == ["team:markets"]
    assert spec.tags["tier"] == "gold"
    assert spec.kinds == {"parquet", "duckdb"}
    assert spec.group_name == "lake"
    assert spec.description == "All trades."
    assert spec.metadata["dagster/uri"] == local.url
    assert spec.freshness_policy == dagster.FreshnessPolicy.time_window(timedelta(hours=24))


def test_sensor_and_schedule_ship_stopped(local: Lake) -> None:
    defs = build_definitions([declared(local, cron="15 4 * * *", sensor_interval_seconds=33)])
    repository = defs.get_repository_def()
    (sensor,), (schedule,) = repository.sensor_defs, repository.schedule_defs
    assert sensor.default_status is dagster.DefaultSensorStatus.STOPPED
    assert schedule.default_status is dagster.DefaultScheduleStatus.STOPPED
    assert sensor.minimum_interval_seconds == 33
    assert schedule.cron_schedule == "15 4 * * *"


@pytest.mark.parametrize(
    ("columns", "is_partitioned"), [(None, True), (["date"], True), ([], False)]
)
def test_partitions_are_found_or_as_declared(
    local: Lake, columns: list[str] | None, is_partitioned: bool
) -> None:
    two_days(local)
    defs = build_definitions([declared(local, partition_columns=columns)])
    found = defs.resolve_assets_def(KEY).partitions_def
    assert isinstance(found, dagster.DynamicPartitionsDefinition) is is_partitioned


def test_files_in_the_root_do_not_hide_the_partitions(local: Lake) -> None:
    two_days(local)
    local.write("stray.parquet", {"id": [1], "name": ["x"]})
    defs = build_definitions([declared(local)])
    assert defs.resolve_assets_def(KEY).partitions_def is not None


def test_a_store_that_cannot_be_reached_takes_nothing_down(tmp_path: Any) -> None:
    nowhere = {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}, "key": "a", "secret": "b"}
    broken = {"key": "a", "path": "s3://bucket/a", "storage_options": nowhere}
    defs = build_definitions([broken, declared(Lake(str(tmp_path)))])
    assert len(defs.resolve_asset_graph().get_all_asset_keys()) == 2


# Two datasets on one server: it is waited for once, and the end of Python not at all.
LOAD = """
import logging, sys
from maintenance_assets import build_definitions

logging.basicConfig()
options = {"key": "a", "secret": "b", "endpoint_url": sys.argv[1]}
declared = [{"key": k, "path": f"s3://lake/{k}", "storage_options": options} for k in "ab"]
defs = build_definitions(declared)
print(len(defs.resolve_asset_graph().get_all_asset_keys()), "assets")
"""


def test_a_store_that_never_answers_does_not_hold_up_the_load() -> None:
    # Connections are accepted by the kernel, and nobody ever reads them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", LOAD, url], capture_output=True, text=True, timeout=60
        )
    assert (done.returncode, done.stdout) == (0, "2 assets\n"), done.stderr
    for key in "ab":
        warning = f"dataset '{key}', field 'partition_columns': its store gave no answer"
        assert warning in done.stderr
    assert "Declare partition_columns" in done.stderr


class CountingFileSystem(MemoryFileSystem):
    """A remote store that counts what it is asked for."""

    protocol = "maintenancecounting"
    listed: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{cls.protocol}://")))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.listed.append(path)
        return super().ls(path, detail=detail, **options)


@pytest.mark.parametrize(
    ("names", "is_partitioned", "most"),
    [
        (["a.parquet", "b.parquet"], False, 1),
        (["stray.parquet", *(f"date={d}/{h}.parquet" for d in range(50) for h in "ab")], True, 2),
        ([f"date={d}/hour={h}/x.parquet" for d in range(9) for h in range(9)], True, 3),
        (["_tmp/date=1/x.parquet", "notes.txt", "x.parquet"], False, 2),
        (["raw/date=1/x.parquet"], True, 3),
        ([], False, 1),
    ],
)
def test_a_remote_store_is_asked_once_for_each_level(
    names: list[str], is_partitioned: bool, most: int
) -> None:
    fsspec.register_implementation("maintenancecounting", CountingFileSystem)
    store = CountingFileSystem()
    root = f"/{uuid4().hex}"
    for name in names:
        store.pipe_file(f"{root}/{name}", b"")
    CountingFileSystem.listed.clear()
    defs = build_definitions([{"key": "lake/trades", "path": f"maintenancecounting:/{root}"}])
    partitions = defs.resolve_assets_def(KEY).partitions_def
    assert (partitions is not None) is is_partitioned
    assert len(CountingFileSystem.listed) <= most


class Desk(dagster.ConfigurableResource[Any]):
    """A resource of somebody else's."""


@dagster.asset(deps=[KEY])
def report(desk: Desk) -> None:
    """An asset of somebody else's that reads the dataset."""


def test_definitions_merge_into_somebodys_own(local: Lake) -> None:
    two_days(local)
    other = dagster.Definitions(
        assets=[report], resources={"desk": Desk()}, executor=dagster.multiprocess_executor
    )
    ours = build_definitions([declared(local, partition_columns=[])])
    merged = dagster.Definitions.merge(ours, other)
    assert merged.executor is dagster.multiprocess_executor
    with dagster.DagsterInstance.ephemeral() as instance:
        job = merged.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance)
    assert result.success
    # Whoever reads the dataset is run after it, in the same run.
    assert len(result.asset_materializations_for_node("report")) == 1
    assert len(local.files()) == 2


def test_two_sets_of_datasets_merge(tmp_path: Any) -> None:
    sets = [build_definitions([{"key": key, "path": str(tmp_path / key)}]) for key in "ab"]
    assert len(dagster.Definitions.merge(*sets).resolve_asset_graph().get_all_asset_keys()) == 2


def test_a_given_pyspark_is_what_the_engines_use(local: Lake) -> None:
    pyspark = LazyPySparkResource(spark_config={"spark.app.name": "mine"})
    defs = build_definitions([declared(local)], {"pyspark": pyspark})
    engines = (defs.resources or {})["maintenance_engines"]
    assert isinstance(engines, EngineResource)
    assert engines.nested_resources["pyspark"] is pyspark


def test_given_engines_replace_the_default_ones(local: Lake) -> None:
    spark = LazyPySparkResource(spark_config={})
    engines = EngineResource(pyspark=spark, memory_budget_mb=64, strict=True)
    defs = build_definitions([declared(local)], {"maintenance_engines": engines})
    assert (defs.resources or {})["maintenance_engines"] is engines


def test_all_definitions_are_valid(local: Lake) -> None:
    with location(local) as place:
        dagster.Definitions.validate_loadable(place.definitions)


def test_the_example_of_the_guide_is_a_code_location(tmp_path: Path) -> None:
    guide = Path(__file__).resolve().parents[2] / "docs" / "dagster.md"
    _, embedding = guide.read_text(encoding="utf-8").split("## In a deployment of your own")
    example = embedding.split("```python")[1].split("```")[0]
    file = tmp_path / "location.py"
    file.write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-f", str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
