"""DuckDB: what COPY writes itself, what takes another way, and what is said about it."""

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import DuckDBParquetHandler, IncompleteMaintenanceError, compact
from maintenance_assets.engines import duckdb_sql
from maintenance_tests.datasets import Lake, assert_same_table, one_row_files, split_in_two

KEPT = pa.table(
    {
        "i8": pa.array([1, None, -3], pa.int8()),
        "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "f": pa.array([-0.0, 1.5, None], pa.float32()),
        "d": pa.array([float("inf"), -0.0, None]),
        "s": ["a'b", "", None],
        "large": pa.array(["a", None, "ü"], pa.large_string()),
        "b": [b"\x00\xff", None, b""],
        "flag": [True, None, False],
        "day": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
        "at": pa.array([-1, None, 2**52], pa.timestamp("us")),
        "zoned": pa.array([1, None, 2], pa.timestamp("us", "Europe/Berlin")),
        "nanos": pa.array([1, None, 2**60], pa.timestamp("ns")),
        "time": pa.array([1, None, 2], pa.time64("us")),
        "list": [[1, None], None, []],
        "struct": [{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)


def test_common_types_are_copied_by_duckdb_itself(local: Lake) -> None:
    expected = split_in_two(local, KEPT)
    result = local.compact("duckdb", strict=True)
    assert result.written_by == {"duckdb": 1}
    assert result.notes == ()
    assert_same_table(local.open(local.only_file()).read(), expected)


def test_copy_keeps_field_ids_and_metadata(local: Lake) -> None:
    item = pa.field("element", pa.int64(), metadata={"PARQUET:field_id": "4"})
    nested = pa.struct([pa.field("x", pa.list_(item), metadata={"PARQUET:field_id": "3"})])
    fields = [
        pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "1", "unit": "kg"}),
        pa.field("it's", nested, metadata={"PARQUET:field_id": "2"}),
    ]
    schema = pa.schema(fields, metadata={"owner": "o'neil", "raw": b"\x00\xff", "k y": "v"})
    expected = split_in_two(local, pa.table([[1, 2], [{"x": [1]}, None]], schema=schema))
    assert local.compact("duckdb", strict=True).written_by == {"duckdb": 1}
    assert_same_table(local.open(local.only_file()).read(), expected)


def test_missing_and_reordered_columns_are_copied_by_duckdb(local: Lake) -> None:
    local.write("a.parquet", {"a": [1], "b": ["x"]})
    local.write("b.parquet", {"b": ["y"], "c": [1.5], "a": [2]})
    assert local.compact("duckdb").written_by == {"duckdb": 1}
    assert local.open(local.only_file()).read().to_pydict() == {
        "a": [1, 2],
        "b": ["x", "y"],
        "c": [None, 1.5],
    }


def test_names_that_look_like_patterns_are_taken_literally(local: Lake) -> None:
    for number, name in enumerate(["g*", "gx", "h[1]", "h1", "q?", "qq"]):
        local.write(f"{name}.parquet", {"id": [number]})
    result = local.compact("duckdb", target_rows_per_file=2)
    assert result.written_by == {"duckdb": 3}
    assert sorted(local.column("id")) == [0, 1, 2, 3, 4, 5]


def typed(values: list[Any], type_: Any) -> pa.Table:
    return pa.table({"c": pa.array(values, type_)})


REQUIRED = pa.table([[1, 2]], schema=pa.schema([pa.field("c", pa.int64(), nullable=False)]))
OTHER_WAYS: dict[str, tuple[pa.Table, dict[str, Any], str, str]] = {
    "required": (REQUIRED, {}, "duckdb-arrow", "required column 'c'"),
    "milliseconds": (typed([1, 2], pa.timestamp("ms")), {}, "duckdb-arrow", "column 'c'"),
    "decimals": (typed([Decimal("1.5"), None], pa.decimal128(9, 2)), {}, "duckdb-arrow", "decimal"),
    "codec": (typed([1, 2], pa.int64()), {"compression": "lz4"}, "duckdb-arrow", "LZ4"),
    "page index": (typed([1, 2], pa.int64()), {"write_page_index": True}, "duckdb-arrow", "index"),
    "encoding": (
        typed([1.5, 2.5], pa.float64()),
        {"use_byte_stream_split": True, "use_dictionary": False},
        "duckdb-arrow",
        "encodings",
    ),
    "float16": (typed([1.5, None], pa.float16()), {}, "pyarrow", "column 'c' of type halffloat"),
    "zoned nanoseconds": (
        typed([1, 2], pa.timestamp("ns", "UTC")),
        {},
        "pyarrow",
        r"column 'c' of type timestamp\[ns, tz=UTC\]",
    ),
    "fixed binary": (
        typed([b"abc", None], pa.binary(3)),
        {},
        "pyarrow",
        "column 'c' of type fixed",
    ),
    "duration": (typed([1, None], pa.duration("us")), {}, "pyarrow", "type duration"),
    "dictionary": (
        pa.table({"c": pa.array(["a", "b"]).dictionary_encode()}),
        {},
        "pyarrow",
        "column 'c' of type dictionary",
    ),
    "int96": (
        typed([1, 2], pa.timestamp("ns")),
        {"use_deprecated_int96_timestamps": True},
        "pyarrow",
        "INT96",
    ),
}


@pytest.mark.parametrize("case", OTHER_WAYS)
def test_what_copy_would_change_takes_another_way(local: Lake, case: str) -> None:
    table, options, engine, reason = OTHER_WAYS[case]
    expected = split_in_two(local, table, **options)
    preview = local.compact("duckdb", dry_run=True)
    result = local.compact("duckdb")
    assert preview.written_by == result.written_by == {engine: 1}
    assert preview.engine_notes == result.engine_notes
    (note,) = result.engine_notes
    assert re.search(reason, note)
    assert_same_table(local.open(local.only_file()).read(), expected)


@pytest.mark.parametrize("case", OTHER_WAYS)
def test_strict_refuses_by_name(local: Lake, case: str) -> None:
    table, options, _, reason = OTHER_WAYS[case]
    split_in_two(local, table, **options)
    before = local.tree()
    (failure,) = local.compact("duckdb", strict=True, dry_run=True).failures
    assert re.search(reason, failure.reason)
    with pytest.raises(IncompleteMaintenanceError, match=reason):
        local.compact("duckdb", strict=True)
    assert local.tree() == before


def test_text_that_is_not_utf8_is_written_by_pyarrow(local: Lake) -> None:
    """DuckDB refuses such text while it reads: another way is found in the middle of the work."""
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    table = pa.table({"c": text})
    for part in range(2):
        local.write(f"{part}.parquet", table)
    result = local.compact("duckdb")
    assert result.written_by == {"pyarrow": 1}
    assert any("DuckDB failed" in note for note in result.engine_notes)
    found = local.open(local.only_file()).read().column("c").cast(pa.binary()).to_pylist()
    assert found == [b"\xff\xfe"] * 2


def test_types_that_differ_are_widened_by_our_table(local: Lake) -> None:
    local.write("a.parquet", typed([2**63 - 1], pa.int64()))
    local.write("b.parquet", typed([1], pa.int8()))
    result = local.compact("duckdb")
    assert result.written_by == {"pyarrow": 1}
    assert local.open(local.only_file()).schema_arrow.field("c").type == pa.int64()


def test_groups_choose_their_way_one_by_one(local: Lake) -> None:
    one_row_files(local, 3, "day=1")
    for part in range(2):
        local.write(f"day=2/{part}.parquet", typed([1.5], pa.float16()))
    assert local.compact("duckdb").written_by == {"duckdb": 1, "pyarrow": 1}


def test_large_groups_spill_within_the_limit(local: Lake) -> None:
    rows = 400_000
    for part in range(3):
        texts = [f"{part}-{n}-{'x' * 40}" for n in range(rows // 4)] * 4
        local.write(f"{part}.parquet", {"text": texts}, row_group_size=50_000)
    result = local.compact("duckdb", memory_budget_mb=128)
    assert result.written_by == {"duckdb": 1}
    assert local.open(local.only_file()).metadata.num_rows == 3 * rows


def test_quoting() -> None:
    con = duckdb.connect()
    for value in ("it's", 'say "no"', "a\\b", "x\ny", "ü"):
        assert con.execute(f"SELECT {duckdb_sql.text(value)}").fetchone() == (value,)
        assert con.execute(f"SELECT {duckdb_sql.blob(value.encode())}").fetchone() == (
            value.encode(),
        )
        con.execute(f"SELECT 1 AS {duckdb_sql.name(value)}")
        assert con.description is not None and con.description[0][0] == value


def test_handler_returns_the_canonical_stats(tmp_path: Path) -> None:
    for name in ("a", "b"):
        one_row_files(Lake(str(tmp_path / name)), 5)
    with DuckDBParquetHandler() as handler:
        planned = handler.compact_parquet_dataset(tmp_path / "a", dry_run=True)
        stats = handler.compact_parquet_dataset(tmp_path / "a", target_mb_per_file=64)
    expected = compact(tmp_path / "b").to_dict()
    assert planned["planned_groups"][0] == [f"{tmp_path}/a/part-0000{n}.parquet" for n in range(5)]
    assert {k: v for k, v in stats.items() if k != "after_total_bytes"} == {
        k: v for k, v in expected.items() if k != "after_total_bytes"
    }


def test_handler_takes_storage_options_or_a_file_system() -> None:
    with pytest.raises(ValueError, match="not both"):
        DuckDBParquetHandler({"anon": True}, filesystem=pa.fs.LocalFileSystem())
    memory = Lake("memory://handled")
    one_row_files(memory, 3)
    stats = DuckDBParquetHandler().compact_parquet_dataset(memory.url)
    assert stats["after_file_count"] == 1
    assert memory.column("id") == [0, 1, 2]


def test_output_has_no_more_files_open(local: Lake) -> None:
    """After a run its inputs can be removed and the store written again at once."""
    one_row_files(local, 3)
    local.compact("duckdb")
    local.write(local.only_file(), pq.read_table(local.path(local.only_file())))
    assert local.column("id") == [0, 1, 2]


def test_bits_of_nan_are_kept(local: Lake) -> None:
    bits = pa.array([0x7FF8000000000001, 0xFFF8000000000002, 0x7FF8000000000000], pa.uint64())
    table = pa.table({"c": pa.Array.from_buffers(pa.float64(), 3, bits.buffers()), "k": ["a"] * 3})
    for part in range(2):
        local.write(f"{part}.parquet", table)
    result = local.compact("duckdb")
    assert result.written_by == {"duckdb-arrow": 1}
    found = local.open(local.only_file()).read().column("c").combine_chunks()
    assert found.view(pa.uint64()).to_pylist() == bits.to_pylist() * 2


ODD_NAMES = {
    "empty field": pa.table({"s": pa.array([{"": 1, "x": 2}])}),
    "field with NUL": pa.table({"s": pa.array([{"a\0b": 1, "x": 2}])}),
    "column with NUL": pa.table({"a\0b": [1], "a": [2]}),
}


@pytest.mark.parametrize("case", ODD_NAMES)
def test_names_that_duckdb_changes_lose_no_value(local: Lake, case: str) -> None:
    table = ODD_NAMES[case]
    required = pa.field("r", pa.int64(), nullable=False)
    whole = table.append_column(required, pa.array([1]))
    for part in range(2):
        local.write(f"{part}.parquet", whole)
    expected = local.read()
    assert local.compact("duckdb").written_by == {"pyarrow": 1}
    assert_same_table(local.open(local.only_file()).read(), expected)


def test_geometry_stays_the_bytes_it_was(local: Lake) -> None:
    # A point with an SRID (EWKB), which DuckDB's own geometry type drops.
    point = bytes.fromhex("0101000020E6100000000000000000F03F0000000000000040")
    column = {"encoding": "WKB", "geometry_types": []}
    geo = json.dumps({"version": "1.1.0", "primary_column": "g", "columns": {"g": column}})
    table = pa.table({"g": [point]}).replace_schema_metadata({"geo": geo})
    for part in range(2):
        local.write(f"{part}.parquet", table)
    assert local.compact("duckdb").written_by == {"duckdb": 1}
    assert local.column("g") == [point] * 2
    assert local.get(local.only_file()).count(b'"primary_column"') <= 2  # footer and Arrow schema


def test_decimal_beyond_its_precision_is_not_cut_off(local: Lake) -> None:
    wide = pa.array([123456789], pa.int32()).view(pa.int32())
    column = pa.Array.from_buffers(pa.decimal32(4, 2), 1, wide.buffers())
    for part in range(2):
        local.write(f"{part}.parquet", pa.table({"c": column}), store_decimal_as_integer=True)
    expected = local.read().column("c").to_pylist()
    assert local.compact("duckdb").written_by == {"pyarrow": 1}
    assert local.open(local.only_file()).read().column("c").to_pylist() == expected


def test_metadata_key_that_is_not_text_is_kept(local: Lake) -> None:
    schema = pa.schema([("a", pa.int64())], metadata={b"\xff\xfe": b"v"})
    for part in range(2):
        local.write(f"{part}.parquet", pa.table([[part]], schema=schema))
    one_row_files(local, 3, "day=1")
    assert local.compact("duckdb").written_by == {"duckdb-arrow": 1, "duckdb": 1}
    key = next(name for name in local.files() if "/" not in name)
    assert local.open(key).schema_arrow.metadata == {b"\xff\xfe": b"v"}
