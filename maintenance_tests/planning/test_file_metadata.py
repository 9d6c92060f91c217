"""Merging file metadata: what is true of all files stays, what would be stale goes."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.planning.file_metadata import (
    calendar_of,
    merge_file_metadata,
    with_row_count,
)
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas

SPARK_ROW = "org.apache.spark.sql.parquet.row.metadata"
FIELDS = pa.schema({"a": pa.int8()})


def _merge(*metadata: dict[str, str], merged: Any = FIELDS) -> tuple[dict[bytes, bytes], Any]:
    sources = [(f"f{i}", FIELDS.with_metadata(m)) for i, m in enumerate(metadata)]
    return merge_file_metadata(sources, merged)


def test_equal_keys_are_kept_and_arrow_schema_never_is() -> None:
    same = {"k": "v", "ARROW:schema": "x", SPARK_ROW: "row", "pandas": "not json"}
    kept, notes = _merge(same, same)
    assert kept == {b"k": b"v", SPARK_ROW.encode(): b"row", b"pandas": b"not json"}
    assert notes == ()


def test_key_absent_from_some_files_is_kept_when_equal_in_the_others() -> None:
    assert _merge({"k": "v"}, {}, {"k": "v"}) == ({b"k": b"v"}, ())


def test_differing_key_is_kept_from_the_first_path_with_a_note() -> None:
    sources = [("b", FIELDS.with_metadata({"k": "2"})), ("a", FIELDS.with_metadata({"k": "1"}))]
    kept, notes = merge_file_metadata(sources, FIELDS)
    assert kept == {b"k": b"1"}
    assert notes == ("file metadata 'k': differs, kept from 'a'",)


@pytest.mark.parametrize(
    "key", [SPARK_ROW, "parquet.avro.schema", "avro.schema", "iceberg.schema",
            "parquet.proto.descriptor"],
)  # fmt: skip
def test_key_that_describes_the_schema_is_dropped_unless_it_is_true_of_the_result(key: str) -> None:
    note = (f"file metadata {key!r}: dropped, it does not describe the merged columns",)
    wider = pa.schema({"a": pa.int8(), "b": pa.int8()})
    required = pa.schema([pa.field("a", pa.int8(), nullable=False)])
    assert _merge({key: "1"}, {key: "1"}) == ({key.encode(): b"1"}, ())
    assert _merge({key: "1"}, {key: "2"}) == ({}, note)
    assert _merge({key: "1"}, {}) == ({}, note)
    assert _merge({key: "1"}, {key: "1"}, merged=wider) == ({}, note)
    assert _merge({key: "1"}, {key: "1"}, merged=required) == ({}, note)


def test_writer_model_name_is_an_ordinary_key() -> None:
    assert _merge({"writer.model.name": "avro"}, {})[0] == {b"writer.model.name": b"avro"}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, False),
        ({b"org.apache.spark.version": b"2.4.8"}, True),
        ({b"org.apache.spark.version": b"3.0.0"}, False),
        ({b"org.apache.spark.version": b"3.5.0", b"org.apache.spark.legacyDateTime": b""}, True),
        ({b"org.apache.spark.legacyDateTime": b""}, False),
    ],
)
def test_legacy_calendar_is_told_as_spark_tells_it(
    metadata: dict[bytes, bytes], expected: bool
) -> None:
    assert calendar_of(metadata).legacy_dates is expected


@pytest.mark.parametrize(
    ("version", "keys", "expected"),
    [
        ("3.0.3", [], (False, True, b"Asia/Tokyo")),
        ("3.1.0", [], (False, False, None)),
        ("3.5.0", ["legacyINT96"], (False, True, b"Asia/Tokyo")),
        ("3.5.0", ["legacyDateTime"], (True, False, b"Asia/Tokyo")),
        ("2.4.8", [], (True, True, b"Asia/Tokyo")),
    ],
)
def test_int96_and_zones_are_told_as_spark_tells_them(
    version: str, keys: list[str], expected: Any
) -> None:
    named = {"version": version, "timeZone": "Asia/Tokyo", **dict.fromkeys(keys, "")}
    metadata = {f"org.apache.spark.{k}".encode(): v.encode() for k, v in named.items()}
    assert calendar_of(metadata) == expected


# --- GeoParquet ------------------------------------------------------------------------------


def _geo(bbox: Any = None, crs: str = "OGC:CRS84") -> dict[str, str]:
    column = {"encoding": "WKB", "crs": crs} | ({} if bbox is None else {"bbox": bbox})
    geo = {"version": "1.1.0", "primary_column": "a", "columns": {"a": column}}
    return {"geo": json.dumps(geo)}


def _box(kept: dict[bytes, bytes]) -> Any:
    return json.loads(kept[b"geo"])["columns"]["a"].get("bbox")


def test_geo_boxes_are_united() -> None:
    kept, notes = _merge(_geo([0, 1, 5, 6]), _geo([-3, 2, 4, 9]))
    assert _box(kept) == [-3, 1, 5, 9]
    assert notes == ()
    solid, _ = _merge(_geo([0, 0, 0, 1, 1, 1]), _geo([5, 5, -5, 6, 6, 0]))
    assert _box(solid) == [0, 0, -5, 6, 6, 1]


@pytest.mark.parametrize(
    "other", [None, [0, 0, 0, 1, 1, 1], [170, 0, -170, 1], [0, 0, float("nan"), 1], "odd", [1, 2]]
)
def test_geo_box_without_a_union_is_left_out_with_a_note(other: Any) -> None:
    kept, notes = _merge(_geo([0, 0, 1, 1]), _geo(other))
    assert _box(kept) is None
    assert json.loads(kept[b"geo"])["columns"]["a"]["encoding"] == "WKB"
    assert notes == ("file metadata 'geo': bounding box of 'a' dropped, it has no union",)


def test_geo_that_differs_in_more_than_boxes_is_dropped() -> None:
    for other in (_geo(crs="EPSG:3857"), {}, {"geo": "{}"}, {"geo": "not json"}):
        kept, notes = _merge(_geo(), other)
        assert kept == {}
        assert notes[0].startswith("file metadata 'geo': dropped")


BOX = st.lists(st.integers(-90, 90), min_size=4, max_size=4).map(
    lambda b: [*map(min, b[:2], b[2:]), *map(max, b[:2], b[2:])]
)


@settings(deadline=None)
@given(st.lists(BOX, min_size=1, max_size=4))
def test_geo_union_covers_every_box_and_touches_its_sides(boxes: list[list[int]]) -> None:
    union = _box(_merge(*map(_geo, boxes))[0])
    for side, pick in enumerate((min, min, max, max)):
        assert union[side] == pick(box[side] for box in boxes)


# --- pandas ----------------------------------------------------------------------------------


def _compact(folder: Path, frames: list[pd.DataFrame]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Write each frame, merge the files as an engine would, read the result with pandas."""
    paths = [folder / f"{i}.parquet" for i in range(len(frames))]
    for path, frame in zip(paths, frames, strict=True):
        frame.to_parquet(path)
    merged = merge_schemas([SchemaSource(str(p), pq.read_schema(p)) for p in paths])
    schema = merged.schema
    tables = [_conform(pq.read_table(p), schema) for p in paths]
    rows = sum(t.num_rows for t in tables)
    whole = pa.concat_tables(tables).replace_schema_metadata(with_row_count(schema, rows).metadata)
    pq.write_table(whole, folder / "out.parquet")
    return pd.read_parquet(folder / "out.parquet"), merged.notes


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: list[Any] = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_range_indexes_become_one_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int]
) -> None:
    frames = [pd.DataFrame({"a": pd.Series(range(n), dtype="int64")}) for n in lengths]
    read, notes = _compact(tmp_path_factory.mktemp("range"), frames)
    pd.testing.assert_frame_equal(read, pd.concat(frames, ignore_index=True))
    assert isinstance(read.index, pd.RangeIndex)
    assert notes == ()


def test_range_index_keeps_its_name_and_is_numbered_again_with_a_note(tmp_path: Path) -> None:
    frames = [
        pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(10, 14, 2, name="row")),
        pd.DataFrame({"a": [3]}, index=pd.RangeIndex(1, name="row")),
    ]
    read, notes = _compact(tmp_path, frames)
    expected = pd.DataFrame({"a": [1, 2, 3]}, index=pd.RangeIndex(3, name="row"))
    pd.testing.assert_frame_equal(read, expected)
    assert notes == ("file metadata 'pandas': rows of the range index are numbered from 0 again",)


def test_single_file_keeps_a_range_index_that_does_not_start_at_zero(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(10, 14, 2))
    read, notes = _compact(tmp_path, [frame])
    pd.testing.assert_frame_equal(read, frame)
    assert notes == ()


@pytest.mark.parametrize(
    "indexes",
    [
        (pd.Index([7, 9], name="key"), pd.Index([1], name="key")),
        (pd.Index(["x", "y"]), pd.Index(["z"])),
        (
            pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["l", "m"]),
            pd.MultiIndex.from_tuples([("z", 3)], names=["l", "m"]),
        ),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), pd.to_datetime(["2021-01-01"])),
    ],
)
def test_real_index_columns_that_agree_are_kept(tmp_path: Path, indexes: Any) -> None:
    frames = [
        pd.DataFrame({"a": [1, 2]}, index=indexes[0]),
        pd.DataFrame({"a": [3], "b": ["new"]}, index=indexes[1]),
    ]
    read, _ = _compact(tmp_path, frames)
    expected = pd.concat(frames)
    assert list(read.index) == list(expected.index)
    assert read.index.names == expected.index.names
    assert read["a"].tolist() == [1, 2, 3]
    assert read["b"].isna().tolist() == [True, True, False]


def test_index_columns_that_disagree_become_ordinary_columns(tmp_path: Path) -> None:
    frames = [
        pd.DataFrame({"a": [1]}, index=pd.Index([7], name="key")),
        pd.DataFrame({"a": [2]}),
    ]
    read, notes = _compact(tmp_path, frames)
    assert read["a"].tolist() == [1, 2]
    assert read["key"].isna().tolist() == [False, True]
    assert "file metadata 'pandas': dropped, the files have different index columns" in notes


def test_index_column_whose_merged_type_no_file_describes_drops_the_key(tmp_path: Path) -> None:
    frames = [
        pd.DataFrame({"a": [1]}, index=pd.Index([7], name="key", dtype=kind))
        for kind in ("uint8", "int8")
    ]
    read, notes = _compact(tmp_path, frames)
    assert read["key"].tolist() == [7, 7]
    assert any("no file describes" in note for note in notes)


def test_categories_strings_and_extension_types_survive(tmp_path: Path) -> None:
    frames = [
        pd.DataFrame(
            {
                "c": pd.Categorical(values),
                "n": pd.array([1, None], dtype="Int64"),
                "t": pd.to_datetime(pd.Series(["2020-01-01", None])).dt.tz_localize("UTC"),
            }
        )
        for values in (["x", "y"], ["z", "x"])
    ]
    read, _ = _compact(tmp_path, frames)
    assert read["c"].tolist() == ["x", "y", "z", "x"]
    assert isinstance(read["c"].dtype, pd.CategoricalDtype)
    assert str(read["n"].dtype) == "Int64"
    assert read["n"].isna().tolist() == [False, True, False, True]
    assert str(read["t"].dt.tz) == "UTC"


def test_widened_column_is_described_by_a_file_that_has_the_wide_type(tmp_path: Path) -> None:
    frames = [pd.DataFrame({"n": pd.array([1, None], dtype=kind)}) for kind in ("Int8", "Int32")]
    read, _ = _compact(tmp_path, frames)
    assert str(read["n"].dtype) == "Int32"
    assert read["n"].dropna().tolist() == [1, 1]


def test_integer_column_labels_that_disagree_with_text_drop_the_key(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(pd.DataFrame({0: [1]}))
    text = pa.Table.from_pandas(pd.DataFrame({"0": [1]}))
    kept, notes = merge_file_metadata([("a", table.schema), ("b", text.schema)], table.schema)
    assert kept == {}
    assert notes == (
        "file metadata 'pandas': dropped, the files have different kinds of column labels",
    )


def test_file_without_pandas_metadata_joins_a_range_index_but_not_a_real_one() -> None:
    plain = pa.schema({"a": pa.int64()})
    ranged = pa.Table.from_pandas(pd.DataFrame({"a": [1]})).schema
    kept, notes = merge_file_metadata([("a", ranged), ("b", plain)], plain)
    assert json.loads(kept[b"pandas"])["index_columns"][0]["kind"] == "range"
    assert notes == ()
    real = pa.Table.from_pandas(pd.DataFrame({"b": [1]}, index=pd.Index([5], name="a"))).schema
    kept, notes = merge_file_metadata([("a", real), ("b", plain)], plain)
    assert kept == {}
    assert "different index columns" in notes[0]


def test_pandas_details_that_differ_are_kept_from_the_first_file_with_a_note() -> None:
    frames = [pd.DataFrame({"a": [1]}) for _ in range(2)]
    frames[0].attrs["unit"], frames[1].attrs["unit"] = "m", "km"
    schemas = [pa.Table.from_pandas(f).schema for f in frames]
    kept, notes = merge_file_metadata([("a", schemas[0]), ("b", schemas[1])], schemas[0])
    assert json.loads(kept[b"pandas"])["attributes"] == {"unit": "m"}
    assert notes == ("file metadata 'pandas': 'attributes' differs, kept from the first file",)


@pytest.mark.parametrize("broken", ["{", "[]", "{}", '{"index_columns": [], "columns": [1]}'])
def test_pandas_metadata_in_another_form_is_dropped_when_it_differs(broken: str) -> None:
    good = pa.Table.from_pandas(pd.DataFrame({"a": [1]})).schema
    odd = good.with_metadata({"pandas": broken})
    kept, notes = merge_file_metadata([("a", good), ("b", odd)], good)
    assert kept == {}
    assert notes == ("file metadata 'pandas': dropped, not in the form pandas writes",)
    assert with_row_count(odd, 5) == odd


def test_row_count_is_left_alone_without_a_range_index() -> None:
    indexed = pa.Table.from_pandas(pd.DataFrame({"a": [1]}, index=["x"])).schema
    for schema in (FIELDS, FIELDS.with_metadata({"k": "v"}), indexed):
        assert with_row_count(schema, 9) is schema


def test_row_count_keeps_other_metadata() -> None:
    schema = pa.Table.from_pandas(pd.DataFrame({"a": [1]})).schema
    schema = schema.with_metadata({**(schema.metadata or {}), b"k": b"v"})
    counted = with_row_count(schema, 9)
    assert counted.metadata[b"k"] == b"v"
    assert json.loads(counted.metadata[b"pandas"])["index_columns"] == [
        {"kind": "range", "name": None, "start": 0, "stop": 9, "step": 1}
    ]


METADATA = st.dictionaries(st.sampled_from(["k", "l", "geo", "pandas", SPARK_ROW]), st.text("ab"))


@settings(deadline=None)
@given(st.lists(METADATA, min_size=1, max_size=3))
def test_merged_metadata_does_not_depend_on_the_order_of_sources(metadata: list[Any]) -> None:
    sources = [(f"f{i}", FIELDS.with_metadata(m)) for i, m in enumerate(metadata)]
    outcomes = [merge_file_metadata(order, FIELDS) for order in permutations(sources)]
    assert all(outcome == outcomes[0] for outcome in outcomes)
