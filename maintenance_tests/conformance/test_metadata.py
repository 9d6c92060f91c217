"""What a file says beside its values: nullability, field ids, metadata, codec, row groups."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_tests.datasets import Lake, assert_same_table

ID = "PARQUET:field_id"
SPARK_ROW = "org.apache.spark.sql.parquet.row.metadata"


def field(name: str, type_: Any, number: int, nullable: bool = True, **more: str) -> Any:
    return pa.field(name, type_, nullable, {ID: str(number), **more})


NESTED = pa.schema(
    [
        field("id", pa.int64(), 1, nullable=False, comment="the key"),
        field(
            "s",
            pa.struct(
                [
                    field("x", pa.int32(), 3, nullable=False, unit="m"),
                    field("l", pa.list_(field("element", pa.string(), 5, nullable=False)), 4),
                ]
            ),
            2,
        ),
        field(
            "m",
            pa.map_(
                field("key", pa.string(), 7, nullable=False),
                field("value", pa.int64(), 8, nullable=False),
            ),
            6,
        ),
    ],
    metadata={"owner": "team é", "bytes": b"\xff\x00", "empty": "", "json": '{"a": [1]}'},
)
ROWS = [
    {"id": 1, "s": {"x": 1, "l": ["a"]}, "m": [("k", 1)]},
    {"id": 2, "s": None, "m": []},
    {"id": 3, "s": {"x": 3, "l": None}, "m": None},
]


def write_parts(lake: Lake, table: pa.Table, parts: int = 3, **options: Any) -> pa.Table:
    for part in range(parts):
        lake.write(f"part-{part}.parquet", table, **options)
    return lake.read()


def compacted(lake: Lake, engine: str, **options: Any) -> Any:
    lake.compact(engine, **options)
    return lake.open(lake.only_file())


def with_metadata(*entries: Mapping[str, str]) -> list[pa.Table]:
    return [
        pa.table({"id": [n]}).replace_schema_metadata(dict(entry))
        for n, entry in enumerate(entries)
    ]


def merged(lake: Lake, engine: str, tables: list[pa.Table]) -> tuple[dict[str, str], str]:
    """File metadata after compaction (without Arrow's own), and the notes as one text."""
    for number, table in enumerate(tables):
        lake.write(f"part-{number}.parquet", table)
    notes = lake.compact(engine).notes
    found = lake.open(lake.only_file()).schema_arrow.metadata or {}
    return {k.decode(): v.decode() for k, v in found.items()}, "\n".join(notes)


# --- fields ----------------------------------------------------------------------------------


def test_nullability_ids_and_metadata_are_kept(engine: str, lake: Lake) -> None:
    expected = write_parts(lake, pa.Table.from_pylist(ROWS, NESTED))
    parquet = compacted(lake, engine)
    assert_same_table(parquet.read(), expected)
    assert parquet.schema_arrow.metadata == NESTED.metadata


def test_parquet_itself_knows_the_field_ids(engine: str, local: Lake) -> None:
    write_parts(local, pa.Table.from_pylist(ROWS, NESTED))
    before = str(local.open("part-0.parquet").schema).split("\n", 1)[1]
    parquet = compacted(local, engine)
    text = str(parquet.schema).split("\n", 1)[1]
    assert text == before
    assert all(f"field_id={number} " in text for number in range(1, 9))


def test_field_ids_are_kept_without_an_arrow_schema(engine: str, local: Lake) -> None:
    table = pa.Table.from_pylist(ROWS, NESTED.remove_metadata())
    expected = write_parts(local, table, store_schema=False)
    parquet = compacted(local, engine)
    assert_same_table(parquet.read(), expected)
    assert all(f"field_id={number} " in str(parquet.schema) for number in range(1, 9))


def test_field_ids_are_kept_when_a_file_is_split(engine: str, local: Lake) -> None:
    local.write("a.parquet", pa.Table.from_pylist(ROWS, NESTED))
    local.compact(engine, target_rows_per_file=1)
    assert len(local.files()) == 3
    for name in local.files():
        schema = local.open(name).schema_arrow
        assert schema.field("s").type.field("x").metadata[ID.encode()] == b"3"
        assert schema.metadata == NESTED.metadata


def test_field_ids_are_kept_when_columns_are_added(engine: str, local: Lake) -> None:
    first = pa.schema([field("a", pa.int32(), 1), field("b", pa.string(), 2)])
    second = pa.schema(
        [field("b", pa.string(), 2), field("a", pa.int64(), 1), field("c", pa.int8(), 3)]
    )
    local.write("part-0.parquet", pa.table({"a": [1], "b": ["x"]}, schema=first))
    local.write("part-1.parquet", pa.table({"b": ["y"], "a": [2], "c": [3]}, schema=second))
    schema = compacted(local, engine).schema_arrow
    ids = {f.name: f.metadata[ID.encode()] for f in schema}
    assert ids == {"a": b"1", "b": b"2", "c": b"3"}


def test_field_id_of_one_file_is_given_to_all(engine: str, local: Lake) -> None:
    local.write("part-0.parquet", {"a": [1]})
    local.write(
        "part-1.parquet", pa.table({"a": [2]}, schema=pa.schema([field("a", pa.int64(), 9)]))
    )
    parquet = compacted(local, engine)
    assert parquet.schema_arrow.field("a").metadata[ID.encode()] == b"9"
    assert parquet.read().column("a").to_pylist() == [1, 2]


def test_field_metadata_that_differs_is_the_first_files(engine: str, local: Lake) -> None:
    for number, comment in enumerate(("old", "new")):
        schema = pa.schema([pa.field("a", pa.int64(), metadata={"comment": comment, comment: "x"})])
        local.write(f"part-{number}.parquet", pa.table({"a": [number]}, schema=schema))
    notes = local.compact(engine).notes
    found = local.open(local.only_file()).schema_arrow.field("a").metadata
    assert found == {b"comment": b"old", b"old": b"x", b"new": b"x"}
    assert any("'a'" in note and "'comment'" in note for note in notes)


# --- file metadata ---------------------------------------------------------------------------


def test_equal_file_metadata_is_kept(engine: str, lake: Lake) -> None:
    entry = {"owner": "é", "empty": "", "long": "x" * 100_000}
    assert merged(lake, engine, with_metadata(entry, entry, entry)) == (entry, "")


def test_file_metadata_of_some_files_is_kept(engine: str, local: Lake) -> None:
    found, notes = merged(local, engine, with_metadata({"a": "1"}, {}, {"b": "2"}))
    assert (found, notes) == ({"a": "1", "b": "2"}, "")


def test_file_metadata_that_differs_is_the_first_files(engine: str, local: Lake) -> None:
    found, notes = merged(local, engine, with_metadata({"run": "1"}, {"run": "2"}))
    assert found == {"run": "1"}
    assert "'run'" in notes
    assert local.path("part-0.parquet") in notes


def test_file_metadata_without_an_arrow_schema_is_kept(engine: str, lake: Lake) -> None:
    """As Spark, DuckDB and Java write it."""
    for number in range(2):
        lake.put(f"part-{number}.parquet", foreign_file(number, {"owner": "spark", "k": "v"}))
    parquet = compacted(lake, engine)
    assert parquet.metadata.metadata == {b"owner": b"spark", b"k": b"v"}
    assert parquet.read().column("id").to_pylist() == [0, 1]


def foreign_file(number: int, metadata: dict[str, str]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": [number]})
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return bytes(sink.getvalue().to_pybytes())


def test_arrow_schema_is_stored_where_any_file_has_it(engine: str, local: Lake) -> None:
    local.write("part-0.parquet", {"id": [0]}, store_schema=False)
    local.write("part-1.parquet", {"id": [1]})
    assert b"ARROW:schema" in compacted(local, engine).metadata.metadata


def test_schema_in_another_notation_is_kept_while_it_is_true(engine: str, local: Lake) -> None:
    entry = {SPARK_ROW: '{"type":"struct","fields":[]}', "org.apache.spark.version": "4.0.0"}
    assert merged(local, engine, with_metadata(entry, entry)) == (entry, "")


def test_schema_in_another_notation_is_dropped_when_columns_change(
    engine: str, local: Lake
) -> None:
    first, second = with_metadata({SPARK_ROW: "{}", "k": "v"}, {SPARK_ROW: "{}", "k": "v"})
    found, notes = merged(local, engine, [first, second.append_column("new", [["x"]])])
    assert found == {"k": "v"}
    assert SPARK_ROW in notes


def test_pandas_metadata_counts_the_rows_of_each_output(engine: str, lake: Lake) -> None:
    for number, length in enumerate((3, 4, 2)):
        frame = pd.DataFrame({"a": range(length), "c": pd.Categorical(["x"] * length)})
        lake.write(f"part-{number}.parquet", pa.Table.from_pandas(frame))
    lake.compact(engine, target_rows_per_file=5)
    assert len(lake.files()) == 2
    for name in lake.files():
        parquet = lake.open(name)
        rows = parquet.metadata.num_rows
        pandas = json.loads(parquet.schema_arrow.metadata[b"pandas"])
        assert pandas["index_columns"] == [
            {"kind": "range", "name": None, "start": 0, "stop": rows, "step": 1}
        ]
        assert [column["name"] for column in pandas["columns"]] == ["a", "c"]
        frame = parquet.read().to_pandas()
        assert frame.index.tolist() == list(range(rows))
        assert isinstance(frame["c"].dtype, pd.CategoricalDtype)


def test_pandas_index_of_several_levels_is_kept(engine: str, local: Lake) -> None:
    frames = [
        pd.DataFrame(
            {"v": [n, n + 1]},
            pd.MultiIndex.from_tuples([("x", n), ("y", n)], names=["letter", "number"]),
        )
        for n in (0, 2)
    ]
    for number, frame in enumerate(frames):
        local.write(f"part-{number}.parquet", pa.Table.from_pandas(frame))
    found = compacted(local, engine).read().to_pandas()
    pd.testing.assert_frame_equal(found, pd.concat(frames))


# --- codec, order and row groups -------------------------------------------------------------


def codecs(parquet: Any) -> list[str]:
    group = parquet.metadata.row_group(0)
    return [group.column(i).compression for i in range(group.num_columns)]


def test_codec_that_most_bytes_have_wins(engine: str, lake: Lake) -> None:
    lake.write("part-0.parquet", {"a": list(range(5000))}, compression="zstd")
    lake.write("part-1.parquet", {"a": [1]}, compression="gzip")
    lake.write("part-2.parquet", {"a": [2]}, compression="gzip")
    assert codecs(compacted(lake, engine)) == ["ZSTD"]


def test_codec_of_an_added_column_is_one_of_the_sources(engine: str, local: Lake) -> None:
    local.write("part-0.parquet", {"a": [1]}, compression="zstd")
    local.write("part-1.parquet", {"a": [2], "b": ["x"]}, compression="zstd")
    assert codecs(compacted(local, engine)) == ["ZSTD", "ZSTD"]


def test_codec_of_an_output_file_is_kept_by_the_next_run(engine: str, local: Lake) -> None:
    write_parts(local, pa.table({"a": [1]}), compression="snappy")
    local.compact(engine, compression="zstd")
    local.write("late.parquet", {"a": [2]}, compression="zstd")
    assert codecs(compacted(local, engine)) == ["ZSTD"]


ORDER = [pq.SortingColumn(0)]


def test_declared_order_is_not_claimed_for_merged_files(engine: str, lake: Lake) -> None:
    for number in range(2):
        table = {"a": [number, number + 2]}
        lake.write(f"part-{number}.parquet", table, sorting_columns=ORDER)
    notes = lake.compact(engine).notes
    parquet = lake.open(lake.only_file())
    assert sorted(parquet.read().column("a").to_pylist()) == [0, 1, 2, 3]
    assert parquet.metadata.row_group(0).sorting_columns == ()
    assert any("sort order (a)" in note for note in notes)


def test_files_of_different_declared_order_are_treated_as_predicted(
    engine: str, local: Lake
) -> None:
    orders = {"none": None, "up": ORDER, "down": [pq.SortingColumn(0, descending=True)]}
    for name, order in orders.items():
        for part in range(2):
            local.write(f"{name}-{part}.parquet", {"a": [name]}, sorting_columns=order)
    predicted = local.compact(engine, dry_run=True).stats
    real = local.compact(engine).stats
    assert predicted.after_file_count == real.after_file_count == len(local.files())
    assert sorted(local.column("a")) == ["down", "down", "none", "none", "up", "up"]


def test_small_row_groups_of_many_files_become_one(engine: str, lake: Lake) -> None:
    for number in range(4):
        ids = list(range(number * 50, number * 50 + 50))
        lake.write(f"part-{number}.parquet", {"id": ids}, row_group_size=5)
    parquet = compacted(lake, engine)
    assert parquet.num_row_groups == 1
    assert parquet.metadata.row_group(0).num_rows == 200
    assert parquet.read().column("id").to_pylist() == list(range(200))


def test_row_groups_are_bounded(engine: str, local: Lake) -> None:
    rows = 700_000
    for number in range(3):
        ids = pa.array(range(number * rows, number * rows + rows), pa.int32())
        local.write(f"part-{number}.parquet", {"id": ids}, row_group_size=100_000)
    parquet = compacted(local, engine)
    sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    assert sum(sizes) == 3 * rows
    assert max(sizes) <= 1024 * 1024
    assert min(sizes[:-1]) >= 100_000  # what the planner calls healthy
    column = parquet.read().column("id")
    assert column.equals(pa.chunked_array([pa.array(range(3 * rows), pa.int32())]))


def test_statistics_of_the_output_are_those_of_its_values(engine: str, local: Lake) -> None:
    for number, values in enumerate(([5, None, 9], [-3, 7], [None])):
        local.write(f"part-{number}.parquet", {"a": pa.array(values, pa.int64())})
    statistics = compacted(local, engine).metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max, statistics.null_count) == (-3, 9, 2)
