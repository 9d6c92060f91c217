"""What is copied and what is encoded anew, the same on every engine and store."""

import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_tests.datasets import Lake, assert_same_table, one_row_files, row_counts
from maintenance_tests.stitching import column_bytes

HEALTHY = 100_000


def healthy(start: int = 0, rows: int = HEALTHY) -> Any:
    """A table that is a healthy row group."""
    return pa.table({"id": pa.array(range(start, start + rows), pa.int32())})


def healthy_files(lake: Lake, count: int, directory: str = "", **options: Any) -> Any:
    """Files of one healthy row group each; what a reader sees of them together."""
    prefix = f"{directory}/" if directory else ""
    for part in range(count):
        lake.write(f"{prefix}part-{part}.parquet", healthy(part * HEALTHY), **options)
    return lake.read(directory)


def test_healthy_row_groups_are_copied(engine: str, lake: Lake) -> None:
    before = healthy_files(lake, 3)
    chunks = [column_bytes(lake.get(name))[0] for name in lake.files()]
    result = lake.compact(engine)
    assert (result.mode, result.modes, result.passes) == ("stitch", {"stitch": 1}, 1)
    assert result.written_by in ({engine: 1}, {"pyarrow": 1})  # memory:// is of this process only
    assert_same_table(lake.read(), before)
    assert column_bytes(lake.get(lake.only_file())) == chunks


def test_a_second_run_is_a_no_op(engine: str, lake: Lake) -> None:
    healthy_files(lake, 2)
    one_row_files(lake.below("day=1"), 3)
    lake.compact(engine)
    before = lake.tree()
    result = lake.compact(engine)
    assert (result.stats.compacted_file_count, result.mode) == (0, "none")
    assert lake.tree() == before


def test_runs_of_small_row_groups_are_encoded_in_between(engine: str, lake: Lake) -> None:
    sizes = [HEALTHY, 10, 20, 30, HEALTHY, 40]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    for at, (start, rows) in enumerate(zip(starts, sizes, strict=True)):
        lake.write(f"part-{at}.parquet", healthy(start, rows))
    before = lake.read()
    predicted = lake.compact(engine, dry_run=True)
    result = lake.compact(engine)
    assert (predicted.mode, result.mode) == ("hybrid", "hybrid")
    assert result.mode_reasons == predicted.mode_reasons
    assert_same_table(lake.read(), before)
    metadata = lake.open(lake.only_file()).metadata
    # The last one stands alone: encoding it would make nothing better.
    found = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert found == [HEALTHY, 60, HEALTHY, 40]
    assert lake.compact(engine).stats.compacted_file_count == 0


def test_an_oversized_file_is_split_between_row_groups(engine: str, lake: Lake) -> None:
    lake.write("a.parquet", healthy(0, 4 * HEALTHY), row_group_size=HEALTHY, write_page_index=True)
    before, chunks = lake.read(), column_bytes(lake.get("a.parquet"))
    result = lake.compact(engine, target_rows_per_file=2 * HEALTHY)
    assert (result.mode, row_counts(lake, lake.files())) == ("stitch", [2 * HEALTHY] * 2)
    assert [g for name in lake.files() for g in column_bytes(lake.get(name))] == chunks
    assert_same_table(lake.read(), before)
    assert lake.compact(engine, target_rows_per_file=2 * HEALTHY).stats.compacted_file_count == 0


def test_a_row_group_that_is_cut_through_is_encoded(engine: str, local: Lake) -> None:
    for part, rows in enumerate((HEALTHY, 2 * HEALTHY, HEALTHY)):
        local.write(f"{part}.parquet", healthy(part * 2 * HEALTHY, rows), row_group_size=rows)
    before = sorted(local.column("id"))
    bound = 150_000
    result = local.compact(engine, target_rows_per_file=bound)
    assert max(row_counts(local, local.files())) <= bound
    assert result.mode == "hybrid"
    assert sorted(local.column("id")) == before
    assert local.compact(engine, target_rows_per_file=bound).stats.compacted_file_count == 0


def test_stats_are_the_same_in_every_mode(engine: str, local: Lake) -> None:
    found = {}
    for mode in ("auto", "stitch", "encode"):
        lake = local.below(mode)
        healthy_files(lake, 3)
        predicted = lake.compact(engine, mode=mode, dry_run=True)
        result = lake.compact(engine, mode=mode)
        assert predicted.mode == result.mode == ("encode" if mode == "encode" else "stitch")
        found[mode] = {k: v for k, v in result.to_dict().items() if k != "after_total_bytes"}
        assert result.stats.after_total_bytes == lake.total_bytes()
        assert lake.column("id") == list(range(3 * HEALTHY))
    assert found["auto"] == found["stitch"] == found["encode"]


def test_strict_engines_copy_as_well(engine: str, local: Lake) -> None:
    before = healthy_files(local, 2, compression="lz4")
    result = local.compact(engine, strict=True)
    assert (result.mode, result.stats.compression_codec) == ("stitch", "lz4")
    assert_same_table(local.read(), before)


def test_another_codec_is_encoded(engine: str, local: Lake) -> None:
    healthy_files(local, 2)
    result = local.compact(engine, compression="zstd")
    assert (result.mode, result.stats.compression_codec) == ("encode", "zstd")
    assert "compressed in another way" in result.mode_reasons[0]
    assert local.column("id") == list(range(2 * HEALTHY))


def test_columns_that_some_files_lack_are_encoded_for_these(engine: str, local: Lake) -> None:
    wide = healthy(0).append_column("more", pa.array(["x"] * HEALTHY))
    local.write("a.parquet", wide)
    local.write("b.parquet", healthy(HEALTHY))
    chunks = column_bytes(local.get("a.parquet"))
    result = local.compact(engine)
    assert result.mode == "hybrid"
    assert local.column("id") == list(range(2 * HEALTHY))
    assert local.column("more") == ["x"] * HEALTHY + [None] * HEALTHY
    assert column_bytes(local.get(local.only_file()))[0] == chunks[0]


def test_a_range_index_is_counted_anew(engine: str, local: Lake) -> None:
    for part in range(2):
        frame = pd.DataFrame({"a": range(HEALTHY)})
        local.write(f"{part}.parquet", pa.Table.from_pandas(frame))
    assert local.compact(engine).mode == "stitch"
    parquet = local.open(local.only_file())
    (index,) = json.loads(parquet.schema_arrow.metadata[b"pandas"])["index_columns"]
    assert (index["start"], index["stop"]) == (0, 2 * HEALTHY)
    assert parquet.read().to_pandas().index.tolist() == list(range(2 * HEALTHY))


def test_narrow_categories_are_read_from_many_row_groups(engine: str, local: Lake) -> None:
    type_ = pa.dictionary(pa.int8(), pa.string())
    for part in range(3):
        texts = [f"{part}-{n % 100}" for n in range(HEALTHY)]
        local.write(f"{part}.parquet", pa.table({"c": pa.array(texts).cast(type_)}))
    before = local.column("c")
    local.compact(engine)
    assert local.column("c") == before


def test_unknown_mode_is_refused(engine: str, local: Lake) -> None:
    one_row_files(local, 2)
    with pytest.raises(ValueError, match=r"Unknown mode 'copy'\. Known modes"):
        local.compact(engine, mode="copy")
    assert len(local.files()) == 2


def test_stitch_copies_small_row_groups_too(engine: str, lake: Lake) -> None:
    one_row_files(lake, 5)
    result = lake.compact(engine, mode="stitch")
    assert (result.mode, lake.open(lake.only_file()).num_row_groups) == ("stitch", 5)
    assert lake.column("id") == list(range(5))
    assert lake.compact(engine).stats.compacted_file_count == 0


def test_stitch_leaves_what_it_would_have_to_decode(engine: str, local: Lake) -> None:
    healthy_files(local, 2)
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match="cannot be stitched"):
        local.compact(engine, mode="stitch", compression="zstd")
    assert local.tree() == before
