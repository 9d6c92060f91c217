"""Files become few, rows stay, and the figures are those on disk."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintenance_assets import compact_parquet_dataset_pyarrow
from maintenance_tests.datasets import OWN_NAME, Lake, one_row_files, row_counts

CANONICAL = {
    "before_file_count",
    "after_file_count",
    "before_total_bytes",
    "after_total_bytes",
    "compacted_file_count",
    "rewritten_bytes",
    "compression_codec",
    "dry_run",
}


def test_thousand_files_become_one_row_group(engine: str, local: Lake) -> None:
    one_row_files(local, 1000)
    stats = local.compact(engine).to_dict()
    parquet = local.open(local.only_file())
    assert parquet.num_row_groups == 1
    assert parquet.read().column("id").to_pylist() == list(range(1000))
    assert (stats["before_file_count"], stats["after_file_count"]) == (1000, 1)


def test_many_files_become_one_on_every_store(engine: str, lake: Lake) -> None:
    one_row_files(lake, 40)
    assert lake.compact(engine).stats.after_file_count == 1
    assert lake.column("id") == list(range(40))
    assert lake.column("name") == [f"n{i}" for i in range(40)]


def test_nothing_else_is_left_after_compaction(engine: str, lake: Lake) -> None:
    one_row_files(lake, 5)
    lake.compact(engine)
    assert list(lake.tree()) == [lake.only_file()]


def test_stats_are_canonical_and_measured_on_disk(engine: str, lake: Lake) -> None:
    one_row_files(lake, 6)
    before = lake.total_bytes()
    stats = lake.compact(engine).to_dict()
    assert set(stats) == CANONICAL
    assert stats == {
        "before_file_count": 6,
        "after_file_count": 1,
        "before_total_bytes": before,
        "after_total_bytes": lake.total_bytes(),
        "compacted_file_count": 6,
        "rewritten_bytes": before,
        "compression_codec": "snappy",
        "dry_run": False,
    }


def test_second_run_is_a_no_op_with_zeros(engine: str, lake: Lake) -> None:
    one_row_files(lake, 6)
    lake.compact(engine)
    before = lake.tree()
    stats = lake.compact(engine).to_dict()
    assert lake.tree() == before
    assert (stats["compacted_file_count"], stats["rewritten_bytes"]) == (0, 0)
    assert (stats["before_file_count"], stats["after_file_count"]) == (1, 1)
    assert stats["before_total_bytes"] == stats["after_total_bytes"] == lake.total_bytes()
    assert "planned_groups" not in stats


def test_append_between_runs_loses_nothing(engine: str, lake: Lake) -> None:
    one_row_files(lake, 3)
    lake.compact(engine)
    one_row_files(lake, 3, start=3)
    lake.compact(engine)
    assert len(lake.files()) == 1
    assert sorted(lake.column("id")) == [0, 1, 2, 3, 4, 5]


def test_dry_run_writes_nothing_and_predicts_the_run(engine: str, lake: Lake) -> None:
    one_row_files(lake, 4, "day=1")
    one_row_files(lake, 3, "day=2")
    one_row_files(lake, 1, "day=3")
    before = lake.tree()
    predicted = lake.compact(engine, dry_run=True).to_dict()
    assert lake.tree() == before
    assert set(predicted) == CANONICAL | {"planned_groups"}
    assert predicted["planned_groups"] == [
        [lake.path(f"day=1/part-{i:05}.parquet") for i in range(4)],
        [lake.path(f"day=2/part-{i:05}.parquet") for i in range(3)],
    ]
    real = lake.compact(engine).to_dict()
    for key in CANONICAL - {"after_total_bytes", "dry_run"}:
        assert predicted[key] == real[key], key
    assert (predicted["dry_run"], real["dry_run"]) == (True, False)
    assert (real["after_file_count"], real["compacted_file_count"]) == (3, 7)


def test_dry_run_of_a_no_op_plans_no_groups(engine: str, local: Lake) -> None:
    one_row_files(local, 1)
    stats = local.compact(engine, dry_run=True).to_dict()
    assert (stats["planned_groups"], stats["compacted_file_count"]) == ([], 0)


def test_dry_run_predicts_row_splits(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": list(range(100))})
    predicted = local.compact(engine, target_rows_per_file=30, dry_run=True).stats
    real = local.compact(engine, target_rows_per_file=30).stats
    assert predicted.after_file_count == real.after_file_count == 4


def test_outputs_are_named_after_a_uuid7_in_their_partition(engine: str, lake: Lake) -> None:
    one_row_files(lake, 2, "day=1")
    one_row_files(lake, 2)
    lake.compact(engine)
    names = lake.files()
    assert len(names) == 2
    assert sum(bool(re.fullmatch(OWN_NAME, name)) for name in names) == 1
    assert sum(bool(re.fullmatch("day=1/" + OWN_NAME, name)) for name in names) == 1


def test_row_target_is_a_hard_bound(engine: str, lake: Lake) -> None:
    for part in range(10):
        lake.write(f"part-{part}.parquet", {"id": list(range(part * 7, part * 7 + 7))})
    lake.compact(engine, target_rows_per_file=20)
    assert sorted(row_counts(lake, lake.files())) == [17, 17, 18, 18]
    assert sorted(lake.column("id")) == list(range(70))


def test_oversized_file_is_split_at_the_row_bound(engine: str, lake: Lake) -> None:
    lake.write("big.parquet", {"id": list(range(100))})
    stats = lake.compact(engine, target_rows_per_file=30).to_dict()
    assert row_counts(lake, lake.files()) == [25, 25, 25, 25]
    assert sorted(lake.column("id")) == list(range(100))
    assert (stats["compacted_file_count"], stats["after_file_count"]) == (1, 4)


def test_one_row_bound_gives_one_row_per_file(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": [1, 2, 3]})
    local.compact(engine, target_rows_per_file=1)
    assert row_counts(local, local.files()) == [1, 1, 1]


def test_rows_keep_the_order_of_file_names(engine: str, local: Lake) -> None:
    for part in range(30):
        start = part * 190
        local.write(f"part-{part:03}.parquet", {"id": list(range(start, start + 190))})
    local.compact(engine, target_rows_per_file=1000)
    assert local.column("id") == list(range(30 * 190))


def test_file_exactly_at_the_row_bound_is_left(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": list(range(30))})
    before = local.tree()
    assert local.compact(engine, target_rows_per_file=30).stats.compacted_file_count == 0
    assert local.tree() == before


def test_row_bound_holds_together_with_a_byte_target(engine: str, local: Lake) -> None:
    for part in range(5):
        local.write(f"part-{part}.parquet", {"id": list(range(part * 10, part * 10 + 10))})
    local.compact(engine, target_mb_per_file=128, target_rows_per_file=25)
    assert sorted(row_counts(local, local.files())) == [25, 25]


def test_byte_target_splits_a_large_file(engine: str, local: Lake) -> None:
    values = random_integers(100_000)
    local.write("a.parquet", {"id": values}, compression="none")
    local.compact(engine, target_mb_per_file=0.25)
    sizes = [len(local.get(name)) for name in local.files()]
    assert len(sizes) == 4
    assert max(sizes) < 1.1 * 0.25 * 1024 * 1024
    assert sorted(local.column("id")) == sorted(values)


def test_column_without_a_dictionary_does_not_grow(engine: str, local: Lake) -> None:
    for part in range(2):
        table = {"id": random_integers(20_000, part)}
        local.write(f"part-{part}.parquet", table, compression="none", use_dictionary=False)
    stats = local.compact(engine).stats
    assert stats.after_total_bytes <= 1.02 * stats.before_total_bytes


def test_tiny_row_groups_are_repaired_in_a_single_file(engine: str, lake: Lake) -> None:
    lake.write("a.parquet", {"id": list(range(64))}, row_group_size=1)
    stats = lake.compact(engine).to_dict()
    assert lake.open(lake.only_file()).num_row_groups == 1
    assert lake.column("id") == list(range(64))
    assert (stats["compacted_file_count"], stats["after_file_count"]) == (1, 1)
    assert lake.compact(engine).stats.compacted_file_count == 0


def test_all_empty_files_keep_their_schema(engine: str, lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int16(), nullable=False), ("at", pa.timestamp("ms"))])
    for part in range(3):
        lake.write(f"part-{part}.parquet", schema.empty_table())
    lake.compact(engine)
    parquet = lake.open(lake.only_file())
    assert parquet.metadata.num_rows == 0
    assert parquet.schema_arrow.equals(schema)


def test_empty_files_merge_with_full_ones(engine: str, local: Lake) -> None:
    local.write("a.parquet", pa.table({"id": pa.array([], pa.int64())}))
    local.write("b.parquet", {"id": [1, 2]})
    local.compact(engine)
    assert local.open(local.only_file()).read().column("id").to_pylist() == [1, 2]


def test_small_memory_budget_changes_no_rows(engine: str, local: Lake) -> None:
    for part in range(4):
        local.write(f"part-{part}.parquet", {"id": list(range(part * 1000, part * 1000 + 1000))})
    local.compact(engine, memory_budget_mb=0.01, max_workers=2)
    assert len(local.files()) == 1
    assert local.column("id") == list(range(4000))


def test_seed_function_returns_the_canonical_dict(local: Lake) -> None:
    one_row_files(local, 3)
    stats: dict[str, Any] = compact_parquet_dataset_pyarrow(local.url, 128, None, None, "zstd")
    assert set(stats) == CANONICAL
    assert (stats["after_file_count"], stats["compression_codec"]) == (1, "zstd")


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "brotli", "lz4", "none"])
def test_codec_of_the_sources_is_kept(engine: str, local: Lake, codec: str) -> None:
    for part in range(2):
        table = {"id": [part] * 50, "text": ["abc"] * 50}
        local.write(f"part-{part}.parquet", table, compression=codec)
    assert local.compact(engine).to_dict()["compression_codec"] == codec
    assert codecs_of(local) == [codec, codec]
    assert local.column("id") == [0] * 50 + [1] * 50


def test_codec_per_column_is_kept(engine: str, local: Lake) -> None:
    codecs = {"a": "zstd", "b.list.element": "gzip", "c": "none"}
    for part in range(2):
        table = {"a": [part], "b": [[part]], "c": ["x"]}
        local.write(f"part-{part}.parquet", table, compression=codecs)
    assert local.compact(engine).to_dict()["compression_codec"] == "gzip+none+zstd"
    assert codecs_of(local) == ["zstd", "gzip", "none"]


@pytest.mark.parametrize("codec", ["zstd", "ZSTD", "gzip", "uncompressed"])
def test_given_codec_recompresses(engine: str, local: Lake, codec: str) -> None:
    one_row_files(local, 3)
    name = {"ZSTD": "zstd", "uncompressed": "none"}.get(codec, codec)
    assert local.compact(engine, compression=codec).to_dict()["compression_codec"] == name
    assert codecs_of(local) == [name, name]


def codecs_of(lake: Lake) -> list[str]:
    """The codec of each column of the only file."""
    group = lake.open(lake.only_file()).metadata.row_group(0)
    names = [group.column(i).compression.lower() for i in range(group.num_columns)]
    return ["none" if name == "uncompressed" else name for name in names]


def random_integers(count: int, seed: int = 0) -> list[int]:
    """Numbers that no encoding makes smaller."""
    return [int(n) for n in np.random.default_rng(seed).integers(0, 2**62, count)]
