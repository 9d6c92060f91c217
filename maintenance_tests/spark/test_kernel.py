"""What an executor does with a group, without Spark around it."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets.engines.protocol import Resources, RewriteTask
from maintenance_assets.engines.spark_engine import WAVE_GROUPS, SparkEngine, waves
from maintenance_assets.engines.spark_kernel import (
    ExecutorAccess,
    make_kernel,
    pack,
    rewrite_payload,
    statistics_of,
    unpack,
)
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.policy import MIB, CompactionPolicy
from maintenance_assets.planning.compaction import plan_compaction
from maintenance_assets.storage.discovery import discover
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_tests.conftest import S3
from maintenance_tests.datasets import Lake, one_row_files


def task_of(lake: Lake, **targets: Any) -> tuple[RewriteTask, Store]:
    """The only group of a lake as a task, with a run directory that does not exist yet."""
    store = open_store(lake.url, storage_options=dict(lake.storage_options))
    policy = CompactionPolicy.from_targets(None, targets.get("rows"), None)
    (group,) = plan_compaction(discover(store, None, None), policy).groups
    staged = tuple(
        store.path(f"_maintenance/run/out-{i}.parquet.staged")
        for i in range(len(group.output_rows))
    )
    return RewriteTask(7, group, staged), store


def run(task: RewriteTask, store: Store, gate: str | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rewrite_payload(
        pack(task), pickle.dumps(store), gate, 64 * MIB
    ).to_pylist()
    return rows


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.field("element", pa.int8(), nullable=False), 2),
        pa.list_(pa.field("x", pa.int8(), metadata={"k": "v"})),
        pa.map_(pa.int8(), pa.field("value", pa.string(), nullable=False), keys_sorted=True),
        pa.dictionary(pa.int16(), pa.string(), ordered=True),
        pa.struct([pa.field("a", pa.timestamp("ns", "Europe/Berlin"), metadata={"k": "v"})]),
        pa.uuid(),
        pa.json_(),
    ],
    ids=str,
)
def test_types_survive_the_journey(local: Lake, type_: pa.DataType) -> None:
    one_row_files(local, 2)
    task, _ = task_of(local)
    schema = pa.schema([pa.field("c", type_, nullable=False)], {"owner": "é"})
    sent = unpack(pack(replace(task, group=replace(task.group, schema=schema))))
    assert sent.group.schema.equals(schema, check_metadata=True)
    assert str(sent.group.schema) == str(schema)
    assert replace(sent.group, schema=task.group.schema) == task.group


def test_one_row_per_written_file(local: Lake) -> None:
    local.write("a.parquet", {"id": [3, 1, None], "t": ["b", "a", "c"]})
    task, store = task_of(local, rows=2)
    store.make_directory(store.path("_maintenance/run"))
    rows = run(task, store)
    assert [row["rows"] for row in rows] == [2, 1]
    for row, staged in zip(rows, task.staged, strict=True):
        assert row["index"] == 7
        assert row["path"].startswith(staged + ".")
        assert row["bytes"] == Path(row["path"]).stat().st_size
        assert (row["error"], row["missing"], row["notes"]) == (None, None, "[]")
    assert json.loads(rows[0]["statistics"]) == {
        "row_groups": [2],
        "columns": {
            "id": {"null_count": 0, "min": "1", "max": "3"},
            "t": {"null_count": 0, "min": "a", "max": "b"},
        },
    }


def test_two_attempts_write_different_files(local: Lake) -> None:
    one_row_files(local, 3)
    task, store = task_of(local)
    store.make_directory(store.path("_maintenance/run"))
    first, second = run(task, store), run(task, store)
    assert first[0]["path"] != second[0]["path"]
    assert len(list(Path(local.url, "_maintenance/run").iterdir())) == 2


def test_late_attempt_does_not_make_the_run_directory_again(local: Lake) -> None:
    one_row_files(local, 3)
    task, store = task_of(local)
    before = local.tree()
    (row,) = run(task, store)
    assert "FileNotFoundError" in row["error"]
    assert local.tree() == before
    assert not Path(local.url, "_maintenance").exists()


@pytest.mark.parametrize("lake", ["memory", S3], indirect=True)
def test_late_attempt_on_an_object_store_writes_nothing(lake: Lake) -> None:
    one_row_files(lake, 3)
    task, store = task_of(lake)
    before = lake.tree()
    (row,) = run(task, store, store.path("_maintenance/run/writing"))
    assert "the run ended before this attempt did" in row["error"]
    assert lake.tree() == before


def test_attempt_that_ends_after_its_run_takes_its_file_away() -> None:
    lake = Lake("memory://late-attempt")
    lake.put("_maintenance/run/writing", b"")
    store = open_store(lake.url)
    access = ExecutorAccess(store, store.path("_maintenance/run/writing"))
    with (
        pytest.raises(RewriteError, match="ended before"),
        access.open_output(store.path("_maintenance/run/out")) as sink,
    ):
        sink.write(b"late")
        store.delete(store.path("_maintenance/run/writing"))
    assert lake.tree() == {}


def test_library_that_is_missing_is_a_row(local: Lake) -> None:
    one_row_files(local, 2)
    task, _ = task_of(local)
    store = pickle.dumps(Path()).replace(b"pathlib", b"nowhere")
    (row,) = rewrite_payload(pack(task), store, None, MIB).to_pylist()
    assert row["missing"] == "ModuleNotFoundError: No module named 'nowhere'"


def test_error_that_no_one_foresaw_is_a_row(local: Lake) -> None:
    one_row_files(local, 2)
    task, _ = task_of(local)
    (row,) = rewrite_payload(pack(task), pickle.dumps("no store"), None, MIB).to_pylist()
    assert row["error"].startswith("AttributeError: ")


def test_kernel_takes_batches_of_several_groups(local: Lake) -> None:
    one_row_files(local, 2)
    task, store = task_of(local)
    store.make_directory(store.path("_maintenance/run"))
    batch = pa.record_batch({"position": [0, 1], "payload": [pack(task), pack(task)]})
    kernel = make_kernel(pickle.dumps(store), None, MIB)
    assert [each.num_rows for each in kernel(iter([batch, batch]))] == [1, 1, 1, 1]


def test_statistics_cover_all_row_groups(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": pa.array([5, None, -2, 7], pa.int32()),
            "s": pa.array([{"x": b"\x01"}, {"x": None}, {"x": b"\xff"}, None]),
            "long": ["x" * 2000] * 4,
            "none": pa.nulls(4, pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    found = statistics_of(pq.read_metadata(tmp_path / "a.parquet"))
    assert found["row_groups"] == [2, 2]
    assert found["columns"]["n"] == {"null_count": 1, "min": "-2", "max": "7"}
    assert found["columns"]["s.x"] == {"null_count": 2, "min": "01", "max": "ff"}
    assert found["columns"]["long"] == {"null_count": 0, "min": None, "max": None}
    assert found["columns"]["none"] == {"null_count": 4, "min": None, "max": None}


def test_statistics_of_a_file_without_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([], pa.int32())}), tmp_path / "a.parquet")
    found = statistics_of(pq.read_metadata(tmp_path / "a.parquet"))
    assert found["columns"]["n"]["min"] is None


def test_waves_are_bounded_by_groups_and_by_bytes(local: Lake) -> None:
    one_row_files(local, 2)
    task, _ = task_of(local)
    assert [len(wave) for wave in waves([(task, b"")] * (WAVE_GROUPS + 1))] == [WAVE_GROUPS, 1]
    assert [len(wave) for wave in waves([(task, bytes(20 * MIB))] * 3)] == [1, 1, 1]
    assert list(waves([])) == []


def test_memory_store_is_written_on_the_driver_and_says_so() -> None:
    lake = Lake("memory://on-the-driver")
    one_row_files(lake, 3)
    result = lake.compact("spark")
    assert result.written_by == {"pyarrow": 1}
    assert any("this process only" in note for note in result.engine_notes)
    assert lake.column("id") == [0, 1, 2]


def test_memory_store_is_refused_when_strict() -> None:
    lake = Lake("memory://strict")
    one_row_files(lake, 3)
    task, store = task_of(lake)
    seen = SparkEngine().foresee(task.group, store, strict=True)
    assert "this process only" in str(seen.error)
    (outcome,) = SparkEngine().rewrite([task], store, Resources(MIB, 1, strict=True))
    assert "this process only" in str(outcome.error)
