"""Stitched files: every byte of every column as it was, under a footer that all readers follow."""

import base64
import io
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from maintenance_assets.engines.stitch_footer import (
    KEY_VALUES,
    ROW_GROUPS,
    StitchObstacleError,
    parse_footer,
)
from maintenance_assets.engines.stitch_source import MemorySource
from maintenance_assets.engines.stitch_writer import StitchedFile
from maintenance_assets.engines.thrift import I64, int_bytes, list_bytes, struct_bytes, to_int
from maintenance_assets.errors import IncompleteMaintenanceError, UnreadableFileError
from maintenance_tests.datasets import Lake, assert_same_table, parquet_bytes
from maintenance_tests.engines.test_page_checksums import page_bytes
from maintenance_tests.stitching import (
    assert_read_alike,
    chunk_facts,
    column_bytes,
    parquet_table,
    stitched,
    with_duckdb,
    with_polars,
    with_pyarrow,
)

ROWS = 300
WRITERS: dict[str, Any] = {
    "pyarrow": (with_pyarrow, {}),
    "pyarrow v2 pages": (with_pyarrow, {"data_page_version": "2.0", "compression": "zstd"}),
    "pyarrow page index": (
        with_pyarrow,
        {"write_page_index": True, "max_rows_per_page": 20, "row_group_size": 90},
    ),
    "pyarrow checksums": (with_pyarrow, {"write_page_checksum": True, "row_group_size": 70}),
    "pyarrow bloom filters": (
        with_pyarrow,
        {"bloom_filter_options": {"id": {"ndv": 300}, "text": {"ndv": 20}}, "row_group_size": 80},
    ),
    "pyarrow everything": (
        with_pyarrow,
        {
            "data_page_version": "2.0",
            "write_page_index": True,
            "write_page_checksum": True,
            "bloom_filter_options": {"id": {"ndv": 300}},
            "row_group_size": 50,
            "data_page_size": 100,
            "write_batch_size": 10,
            "compression": "zstd",
        },
    ),
    "pyarrow plain": (
        with_pyarrow,
        {"use_dictionary": False, "compression": "none", "write_statistics": False},
    ),
    "pyarrow encodings": (
        with_pyarrow,
        {
            "use_dictionary": False,
            "column_encoding": {
                "id": "DELTA_BINARY_PACKED",
                "text": "DELTA_BYTE_ARRAY",
                "price": "BYTE_STREAM_SPLIT",
                "flag": "RLE",
            },
        },
    ),
    "pyarrow 1.0": (with_pyarrow, {"version": "1.0"}),
    "pyarrow without an Arrow schema": (with_pyarrow, {"store_schema": False}),
    "duckdb": (with_duckdb, {}),
    "duckdb zstd": (with_duckdb, {"compression": "zstd", "row_group_size": 2048}),
    "polars": (with_polars, {}),
    "polars row groups": (
        with_polars,
        {"row_group_size": 100, "data_page_size": 200, "compression": "snappy"},
    ),
    "polars plain": (with_polars, {"compression": "uncompressed", "statistics": "full"}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_chunks_are_the_same_bytes_and_all_readers_agree(local: Lake, writer: str) -> None:
    write, options = WRITERS[writer]
    contents = [write(parquet_table(ROWS, start), **options) for start in (0, ROWS, 5 * ROWS)]
    name = stitched(local, *contents)
    output = local.get(name)
    assert column_bytes(output) == [group for c in contents for group in column_bytes(c)]
    assert chunk_facts(output) == [group for c in contents for group in chunk_facts(c)]
    sources = [pq.read_table(io.BytesIO(content)) for content in contents]
    assert_read_alike(local, name, pa.concat_tables(sources))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "brotli", "lz4", "none"])
def test_every_codec_is_kept(local: Lake, codec: str) -> None:
    contents = [
        with_pyarrow(parquet_table(ROWS, n * ROWS), compression=codec, write_page_index=True)
        for n in range(2)
    ]
    name = stitched(local, *contents)
    assert_read_alike(local, name, parquet_table(2 * ROWS))


def test_the_footer_says_who_wrote_and_in_which_schema(local: Lake) -> None:
    name = stitched(local, *(with_duckdb(parquet_table(ROWS, n * ROWS)) for n in range(2)))
    metadata = local.open(name).metadata
    assert metadata.created_by.startswith("DuckDB version v")
    assert "duckdb_schema" in str(metadata.schema)


def test_files_of_two_writers_are_stitched_where_they_mean_the_same(local: Lake) -> None:
    # DuckDB says of INT64 that it is a signed integer of 64 bits, PyArrow does not.
    tables = [parquet_table(ROWS, start) for start in (0, ROWS)]
    name = stitched(local, with_pyarrow(tables[0]), with_duckdb(tables[1], compression="snappy"))
    assert_read_alike(local, name, pa.concat_tables(tables))
    # Neither is the writer of all: readers judge statistics by that name.
    assert local.open(name).metadata.created_by.startswith("parquet-cpp-arrow version")


def named(content: bytes, name: str) -> bytes:
    """The same file by another writer."""

    def change(footer: Any) -> None:
        footer.fields[6] = (8, bytes((len(name),)) + name.encode())

    return with_footer(content, change)


@pytest.mark.parametrize(
    ("writers", "expected"),
    [
        (["parquet-mr version 1.13.1", "parquet-mr version 1.12.3"], "parquet-mr version 1.12.3"),
        (["parquet-mr version 1.9.0", "parquet-mr version 1.13.1"], "parquet-mr version 1.9.0"),
        (["parquet-mr version 1.13.1", "DuckDB version v1.4.0"], "parquet-cpp-arrow version"),
        (["parquet-mr version 1.13.1", "someone"], "parquet-cpp-arrow version"),
    ],
)
def test_several_versions_of_one_writer_keep_its_name(writers: list[str], expected: str) -> None:
    content = parquet_bytes({"id": [1, 2]})
    sink = io.BytesIO()
    output = StitchedFile(sink, footer_of(content), footer_of(content), keep_sorting=False)
    for writer in writers:
        part = named(content, f"{writer} (build abc)")
        footer = footer_of(part)
        output.append(MemorySource(part), footer, footer.row_groups)
    output.finish()
    assert pq.read_metadata(io.BytesIO(sink.getvalue())).created_by.startswith(expected)


def with_codecs(table: Any, *codecs: str) -> bytes:
    """A file of row groups of several codecs, as parquet-mr's `merge` makes them."""
    sink = io.BytesIO()
    base = footer_of(parquet_bytes(table))
    output = StitchedFile(sink, base, base, keep_sorting=False)
    for codec in codecs:
        part = parquet_bytes(table, compression=codec)
        footer = footer_of(part)
        output.append(MemorySource(part), footer, footer.row_groups)
    output.finish()
    return sink.getvalue()


@pytest.mark.parametrize("codecs", [("snappy", "zstd"), ("zstd", "snappy")])
def test_a_codec_that_is_asked_for_is_that_of_all_row_groups(local: Lake, codecs: Any) -> None:
    table = pa.table({"id": pa.array(range(100_000), pa.int32())})
    for part in range(2):
        local.put(f"{part}.parquet", with_codecs(table, *codecs))
    result = local.compact("pyarrow", compression="zstd")
    metadata = local.open(local.only_file()).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    assert {group.column(0).compression for group in groups} == {"ZSTD"}
    assert (result.mode, result.stats.compression_codec) == ("encode", "zstd")
    assert local.column("id") == 4 * list(range(100_000))


def test_more_row_groups_than_ordinals(local: Lake) -> None:
    rows = 20_000
    contents = [
        parquet_bytes({"id": range(start, start + rows)}, row_group_size=1) for start in (0, rows)
    ]
    name = stitched(local, *contents)
    metadata = local.open(name).metadata
    assert metadata.num_row_groups == 2 * rows > 32_767
    path = local.path(name)
    assert pq.read_table(path).column("id").to_pylist() == list(range(2 * rows))
    with duckdb.connect() as connection:
        total = connection.read_parquet(path).aggregate("sum(id)").fetchall()
    assert total == [(rows * (2 * rows - 1),)]
    scan = pl.scan_parquet(path).filter(pl.col("id").is_in([5, 33_000, 39_999]))
    assert scan.collect()["id"].to_list() == [5, 33_000, 39_999]


def test_ordinals_are_counted_anew(local: Lake) -> None:
    def numbered(footer: Any) -> None:
        footer.row_groups[0].fields[7] = (4, int_bytes(0))

    contents = [with_footer(parquet_bytes({"id": [n]}), numbered) for n in range(5)]
    groups = footer_of(local.get(stitched(local, *contents))).row_groups
    assert [to_int(group.fields[7][1]) for group in groups] == [0, 1, 2, 3, 4]


def footer_of(content: bytes) -> Any:
    return parse_footer(content, "a file", len(content))


def with_footer(content: bytes, change: Any) -> bytes:
    """The same data under a footer that was changed."""
    footer = footer_of(content)
    change(footer)
    size = int.from_bytes(content[-8:-4], "little")
    groups = []
    for group in footer.row_groups:
        chunks = [
            struct_bytes({**chunk.fields, 3: (12, struct_bytes(chunk.column))})
            for chunk in group.chunks
        ]
        groups.append(struct_bytes({**group.fields, 1: (9, list_bytes(chunks))}))
    fields = struct_bytes({**footer.fields, ROW_GROUPS: (9, list_bytes(groups))})
    return content[: -8 - size] + fields + len(fields).to_bytes(4, "little") + b"PAR1"


def test_a_footer_that_is_taken_apart_is_put_together_the_same() -> None:
    content = with_pyarrow(parquet_table(50), write_page_index=True)
    assert with_footer(content, lambda footer: None) == content


# -- obstacles ---------------------------------------------------------------------------------


def set_field(where: Any, number: int) -> Any:
    def change(footer: Any) -> None:
        where(footer)[number] = (I64, int_bytes(1))

    return change


def other_order(footer: Any) -> None:
    footer.fields.pop(7)


OBSTACLES = {
    "a field of the file": (set_field(lambda f: f.fields, 12), "a file has field 12"),
    "a field of a row group": (
        set_field(lambda f: f.row_groups[0].fields, 11),
        "a row group has field 11",
    ),
    "a field of a column": (
        set_field(lambda f: f.row_groups[0].chunks[0].column, 30),
        "a column's metadata has field 30",
    ),
    "no order of values": (other_order, "different orders of values"),
}


@pytest.mark.parametrize("kind", OBSTACLES)
def test_what_is_not_known_is_encoded_and_said(local: Lake, kind: str) -> None:
    change, reason = OBSTACLES[kind]
    table = pa.table({"id": range(100_000)})
    local.write("a.parquet", table)
    local.put("b.parquet", with_footer(parquet_bytes(table), change))
    result = local.compact("pyarrow")
    assert (result.mode, result.stats.after_file_count) == ("encode", 1)
    assert any(reason in note for note in result.engine_notes)
    assert local.column("id") == [*range(100_000), *range(100_000)]


def test_stitch_fails_where_a_footer_is_not_understood(local: Lake) -> None:
    change, reason = OBSTACLES["a field of a row group"]
    local.write("a.parquet", {"id": [1]})
    local.put("b.parquet", with_footer(parquet_bytes({"id": [2]}), change))
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match=reason):
        local.compact("pyarrow", mode="stitch")
    assert local.tree() == before


def test_pages_that_do_not_add_up_are_encoded(local: Lake) -> None:
    def longer(footer: Any) -> None:
        chunk = footer.row_groups[0].chunks[0]
        chunk.column[5] = (I64, int_bytes(99_999))

    local.write("a.parquet", {"id": range(100_000)})
    local.put("b.parquet", with_footer(parquet_bytes({"id": range(100_000)}), longer))
    with pytest.raises(IncompleteMaintenanceError):
        local.compact("pyarrow", mode="stitch")
    assert len(local.files()) == 2


class _Keys(encryption.KmsClient):
    """Keys that are their own wrapping."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


def with_encrypted_column(table: Any) -> bytes:
    """A file whose footer everybody can read, and one of its columns nobody."""
    configuration = encryption.EncryptionConfiguration(
        footer_key="key", column_keys={"key": ["secret"]}, plaintext_footer=True
    )
    factory = encryption.CryptoFactory(lambda _: _Keys())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_encrypted_columns_are_refused_by_name(local: Lake) -> None:
    content = with_encrypted_column(pa.table({"id": range(10), "secret": range(10)}))
    with pytest.raises(StitchObstacleError, match="the file is encrypted or signed"):
        footer_of(content)
    for part in range(2):
        local.put(f"{part}.parquet", content)
    before = local.tree()
    with pytest.raises(UnreadableFileError, match="its columns are encrypted"):
        local.compact("pyarrow")
    assert local.tree() == before


# -- damage ------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_page_with_a_sum_is_found(local: Lake) -> None:
    table = parquet_table(ROWS)
    good = with_pyarrow(table, write_page_checksum=True, data_page_size=200, write_batch_size=20)
    local.put("b.parquet", good)
    for position in page_bytes(good):
        broken = bytearray(good)
        broken[position] ^= 0x10
        local.put("a.parquet", bytes(broken))
        before = local.tree()
        with pytest.raises(IncompleteMaintenanceError) as caught:
            local.compact("pyarrow", mode="stitch")
        assert local.path("a.parquet") in caught.value.result.failures[0].reason
        assert local.tree() == before


def test_a_damaged_page_is_named_and_its_group_left(local: Lake) -> None:
    table = pa.table({"id": np.random.default_rng(0).integers(0, 2**60, 100_000)})
    good = parquet_bytes(table, write_page_checksum=True)
    broken = bytearray(good)
    broken[len(broken) // 2] ^= 1
    for directory, content in (("day=1", bytes(broken)), ("day=2", good)):
        for part in range(2):
            local.put(f"{directory}/{part}.parquet", content if part else good)
    with pytest.raises(IncompleteMaintenanceError, match="CRC checksum") as caught:
        local.compact("pyarrow")
    assert caught.value.result.modes == {"stitch": 1}
    assert local.path("day=1/1.parquet") in caught.value.result.failures[0].reason
    assert (len(local.files("day=1")), len(local.files("day=2"))) == (2, 1)


def test_a_page_without_a_sum_is_copied_as_it_is(local: Lake) -> None:
    # Nobody can tell without decoding; where it cannot be decoded at all, it is now the merged
    # file that cannot be read whole, no longer one of its sources.
    content = bytearray(parquet_bytes({"id": range(1000)}, use_dictionary=False, compression=None))
    position = content.find((500).to_bytes(8, "little"))
    content[position] ^= 1
    name = stitched(local, bytes(content), parquet_bytes({"id": [7]}, compression=None))
    assert local.open(name).read().column("id").to_pylist()[500] == 501


# -- metadata ----------------------------------------------------------------------------------


def test_field_ids_and_metadata_are_kept(local: Lake) -> None:
    fields = [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7", "unit": "m"}),
        pa.field("s", pa.struct([pa.field("x", pa.int32(), metadata={"PARQUET:field_id": "9"})])),
    ]
    schema = pa.schema(fields, metadata={"owner": "us"})
    table = pa.table({"id": [1, 2], "s": [{"x": 1}, None]}, schema=schema)
    expected = pq.read_table(io.BytesIO(parquet_bytes(table)))
    name = stitched(local, parquet_bytes(table), parquet_bytes(table))
    assert_same_table(local.open(name).read(), pa.concat_tables([expected, expected]))
    assert "field_id=9" in str(local.open(name).schema)


def test_metadata_of_several_files_is_merged_as_ever(local: Lake) -> None:
    tables = [
        pa.table({"id": [n]}).replace_schema_metadata({"same": "x", "differs": str(n)})
        for n in range(2)
    ]
    name = stitched(local, *(parquet_bytes(table) for table in tables))
    found = local.open(name).schema_arrow.metadata
    assert (found[b"same"], found[b"differs"]) == (b"x", b"0")
    assert KEY_VALUES in footer_of(local.get(name)).fields


def test_int96_is_kept_however_far_it_reaches(local: Lake) -> None:
    table = pa.table({"id": [1, 2], "at": pa.array([0, 10**18], pa.timestamp("ns"))})
    content = parquet_bytes(table, use_deprecated_int96_timestamps=True, store_schema=False)
    name = stitched(local, content, content)
    assert local.open(name).schema.column(1).physical_type == "INT96"
    assert column_bytes(local.get(name)) == 2 * column_bytes(content)


@pytest.mark.parametrize(
    ("mode", "second", "noted"),
    [
        ("auto", "parquet-mr version 1.12.3", False),
        ("encode", "parquet-mr version 1.13.1", True),
        ("auto", "parquet-cpp-arrow version 26.0.0", True),
    ],
)
def test_int96_under_another_name_is_said(local: Lake, mode: Any, second: str, noted: bool) -> None:
    table = pa.table({"id": range(150_000), "at": pa.array(range(150_000), pa.timestamp("us"))})
    content = parquet_bytes(table, use_deprecated_int96_timestamps=True)
    for name, writer in (("a", "parquet-mr version 1.13.1"), ("b", second)):
        local.put(f"{name}.parquet", named(content, f"{writer} (build abc)"))
    result = local.compact("pyarrow", mode=mode)
    created_by = local.open(local.only_file()).metadata.created_by
    assert created_by.startswith("parquet-mr") is not noted
    assert ("INT96 timestamps of parquet-mr" in str(result)) is noted


def test_declared_orders_are_dropped_where_files_are_merged(local: Lake) -> None:
    options: dict[str, Any] = {"sorting_columns": [pq.SortingColumn(0)]}
    name = stitched(local, *(parquet_bytes({"id": [n]}, **options) for n in (2, 1)))
    metadata = local.open(name).metadata
    assert [metadata.row_group(i).sorting_columns for i in range(2)] == [(), ()]


def test_declared_orders_are_kept_where_a_file_is_split(local: Lake) -> None:
    order = [pq.SortingColumn(0)]
    local.write("a.parquet", {"id": range(200_000)}, row_group_size=100_000, sorting_columns=order)
    assert local.compact("pyarrow", target_rows_per_file=100_000).mode == "stitch"
    for name in local.files():
        assert list(local.open(name).metadata.row_group(0).sorting_columns) == order


@pytest.mark.parametrize("engine_name", ["pyarrow", "duckdb"])
def test_declared_orders_are_true_where_a_split_is_encoded_after_all(
    local: Lake, engine_name: Any
) -> None:
    ids = [n for start in range(8) for n in range(start, 800_000, 8)]
    options: dict[str, Any] = {"sorting_columns": [pq.SortingColumn(0)], "row_group_size": 100_000}
    content = parquet_bytes({"id": ids}, **options)
    change, reason = OBSTACLES["a field of a row group"]
    local.put("a.parquet", with_footer(content, change))
    result = local.compact(engine_name, target_rows_per_file=400_000)
    assert any(reason in note for note in result.engine_notes)
    for name in local.files():
        file = local.open(name)
        for number in range(file.num_row_groups):
            if file.metadata.row_group(number).sorting_columns:
                found = file.read_row_group(number).column("id").to_pylist()
                assert found == sorted(found)
    assert sorted(local.column("id")) == list(range(800_000))


# -- encoding by several workers ---------------------------------------------------------------


def test_several_workers_write_what_one_would(local: Lake) -> None:
    table = pa.table(
        {"id": pa.array(range(800_000), pa.int32()), "text": ["a", None, "b", "c"] * 200_000}
    )
    outputs = []
    for workers in (1, 2):
        lake = local.below(f"workers-{workers}")
        for part in range(2):
            lake.write(f"{part}.parquet", table, write_page_index=True, compression="zstd")
        result = lake.compact("pyarrow", mode="encode", max_workers=workers)
        assert (result.mode, result.stats.after_file_count) == ("encode", 1)
        outputs.append(lake.get(lake.only_file()))
        assert lake.column("id") == 2 * list(range(800_000))
    assert column_bytes(outputs[0]) == column_bytes(outputs[1])
    assert chunk_facts(outputs[0]) == chunk_facts(outputs[1])
    found = [pq.ParquetFile(io.BytesIO(output)) for output in outputs]
    assert found[0].metadata.num_row_groups == found[1].metadata.num_row_groups > 1
    assert found[0].schema_arrow.equals(found[1].schema_arrow, check_metadata=True)
    assert found[0].metadata.created_by == found[1].metadata.created_by
