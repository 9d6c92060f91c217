"""Every Arrow type that Parquet holds comes through compaction bit for bit."""

import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_tests.datasets import Lake, assert_same_table

# The stubs and pyarrow itself say little about types and arrays.
Array = Any
UNITS: tuple[Any, ...] = ("s", "ms", "us", "ns")
MAX = 2**63 - 1
# Parquet has no seconds: they are stored as milliseconds and must fit those.
REACH = {"s": MAX // 1000, "ms": MAX, "us": MAX, "ns": MAX}


def integers(bits: int, signed: bool) -> list[int | None]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [low, high, None, 0, 1, high - 1]


def floats(bits: int) -> Array:
    """NaNs of several payloads, both zeros, both infinities, a denormal and a null."""
    kind, exponent = {16: ("u2", 0x7C00), 32: ("u4", 0x7F800000), 64: ("u8", 0x7FF << 52)}[bits]
    sign = 1 << (bits - 1)
    patterns = [0, sign, exponent, sign | exponent, exponent | 1, sign | exponent | 7, 1, 0]
    array = np.array(patterns, kind).view(f"f{bits // 8}")
    return pa.array(array, mask=np.array([False] * 7 + [True]))


def decimals(build: Any, precision: int, scale: int) -> Array:
    largest = Decimal(f"{'9' * precision}E-{scale}")
    smallest = Decimal(f"1E-{scale}")
    values = [largest, largest.copy_negate(), None, Decimal(0), smallest]
    return pa.array(values, build(precision, scale))


def moments(type_: Any, reach: int) -> Array:
    return pa.array([0, -1, None, 1, reach, -reach, 1_700_000_000], pa.int64()).cast(type_)


def coded(values: list[Any], index: Any, type_: Any, ordered: bool = False) -> Array:
    plain: Any = pa.array(values, type_).dictionary_encode()
    codes = plain.indices.cast(index)
    return pa.DictionaryArray.from_arrays(codes, plain.dictionary, ordered=ordered)


def stored(type_: Any, storage: Array) -> Array:
    return pa.ExtensionArray.from_storage(type_, storage)


TEXTS = ["", "a", None, "é\U0001f600", "x" * 40, "\x00"]
BYTES = [b"", b"a", None, b"\x00\xff", b"y" * 40, b"\xfe"]
IDS = [uuid.UUID(int=n).bytes for n in (0, 1, 2**127, 2**128 - 1)]
MAP = pa.map_(pa.string(), pa.struct([("x", pa.int8()), ("y", pa.list_(pa.float32()))]))
DEEP = pa.list_(pa.struct([("m", MAP), ("l", pa.large_list(pa.list_(pa.string())))]))

FLAT: dict[str, Array] = {
    "bool": pa.array([True, None, False, True]),
    **{f"int{b}": pa.array(integers(b, True), getattr(pa, f"int{b}")()) for b in (8, 16, 32, 64)},
    **{
        f"uint{b}": pa.array(integers(b, False), getattr(pa, f"uint{b}")()) for b in (8, 16, 32, 64)
    },
    **{f"float{b}": floats(b) for b in (16, 32, 64)},
    **{
        f"decimal{bits}({p},{s})": decimals(getattr(pa, f"decimal{bits}"), p, s)
        for bits, sizes in {
            32: [(1, 0), (5, 2), (9, 9)],
            64: [(10, 0), (18, 4)],
            128: [(3, 1), (19, 2), (38, 0), (38, 38)],
            256: [(2, 1), (39, 5), (76, 40)],
        }.items()
        for p, s in sizes
    },
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array(BYTES),
    "large_binary": pa.array(BYTES, pa.large_binary()),
    "binary_view": pa.array(BYTES, pa.binary_view()),
    "fixed_size_binary": pa.array([b"abc", None, b"\x00\xff\x00"], pa.binary(3)),
    "date32": pa.array([0, -1, None, 2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32()),
    "date64": pa.array([0, None, -86_400_000, 86_400_000 * 10**6], pa.int64()).cast(pa.date64()),
    "time32[s]": pa.array([0, None, 86_399], pa.time32("s")),
    "time32[ms]": pa.array([0, None, 86_399_999], pa.time32("ms")),
    "time64[us]": pa.array([0, None, 86_399_999_999], pa.time64("us")),
    "time64[ns]": pa.array([0, None, 86_399_999_999_999], pa.time64("ns")),
    **{
        f"timestamp[{u},{z}]": moments(pa.timestamp(u, z), REACH[u])
        for u in UNITS
        for z in (None, "UTC", "Europe/Berlin", "+05:30")
    },
    **{f"duration[{u}]": moments(pa.duration(u), MAX) for u in UNITS},
    "null": pa.nulls(4),
}
CODED: dict[str, Array] = {
    "category": coded(TEXTS, pa.int32(), pa.string()),
    "category of int8": coded(TEXTS, pa.int8(), pa.string()),
    "category of uint16": coded(TEXTS, pa.uint16(), pa.string()),
    "category of int64": coded(TEXTS, pa.int64(), pa.string()),
    "ordered category": coded(TEXTS, pa.int32(), pa.string(), ordered=True),
    "category of large strings": coded(TEXTS, pa.int32(), pa.large_string()),
    "category of bytes": coded(BYTES, pa.int32(), pa.binary()),
    "category of integers": coded([1, None, 2, 2], pa.int32(), pa.int64()),
    "category of floats": coded([1.5, None, -0.0, 1.5], pa.int16(), pa.float64()),
    "category of moments": coded([1, None, 2, 1], pa.int32(), pa.timestamp("us", "UTC")),
}
NESTED: dict[str, Array] = {
    "list": pa.array([[1, None], [], None, [2, 3, 4]], pa.list_(pa.int32())),
    "large_list": pa.array([["a", None], [], None, ["b"]], pa.large_list(pa.string())),
    "fixed_size_list": pa.array([[1, 2], None, [None, 3], [4, 5]], pa.list_(pa.int16(), 2)),
    "list_view": pa.array([[1, None], [], None, [2]], pa.list_view(pa.int64())),
    "large_list_view": pa.array([["a"], [], None, [None]], pa.large_list_view(pa.string())),
    "list of null": pa.array([[None], [], None, [None, None]], pa.list_(pa.null())),
    "list of lists": pa.array([[[1], [], None], [], None, [[None, 2]]]),
    "list of categories": pa.ListArray.from_arrays(
        pa.array([0, 2, 2, None, 6], pa.int32()), coded(TEXTS, pa.int8(), pa.string())
    ),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}]),
    "struct of null": pa.array([{"a": None}, None, {"a": None}], pa.struct([("a", pa.null())])),
    "struct of categories": pa.StructArray.from_arrays(
        [coded(TEXTS, pa.int8(), pa.string())], ["c"]
    ),
    "struct of required": pa.array(
        [{"a": 1}, None, {"a": 3}], pa.struct([pa.field("a", pa.int8(), nullable=False)])
    ),
    "list of required": pa.array(
        [[1], None, [], [2, 3]], pa.list_(pa.field("element", pa.int8(), nullable=False))
    ),
    "map": pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int32())),
    "sorted map": pa.array([[(1, "a")], [], None], pa.map_(pa.int8(), pa.string(), True)),
    "map of required": pa.array(
        [[("k", 1)], None, []],
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    ),
    "deep": pa.array(
        [
            [{"m": [("k", {"x": 1, "y": [0.5, None]}), ("l", None)], "l": [["a", None], []]}],
            [],
            None,
            [None, {"m": None, "l": None}, {"m": [], "l": [None]}],
            [{"m": [("z", {"x": None, "y": None})], "l": []}],
        ],
        DEEP,
    ),
}
EXTENSIONS: dict[str, Array] = {
    "uuid": stored(pa.uuid(), pa.array([*IDS, None], pa.binary(16))),
    "json": stored(pa.json_(), pa.array(['{"a": 1}', None, "[]", ""])),
    "json in large strings": stored(
        pa.json_(pa.large_string()), pa.array(["{}", None, "1"], pa.large_string())
    ),
    "bool8": stored(pa.bool8(), pa.array([1, None, 0, 2], pa.int8())),
    "opaque": stored(
        pa.opaque(pa.int32(), "point", "vendor"), pa.array([1, None, 3, 4], pa.int32())
    ),
    "tensor": stored(
        pa.fixed_shape_tensor(pa.int32(), [2, 2]),
        pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.list_(pa.int32(), 4)),
    ),
    "list of uuid": pa.ListArray.from_arrays(
        pa.array([0, 2, None, 4], pa.int32()), stored(pa.uuid(), pa.array(IDS, pa.binary(16)))
    ),
}
COLUMNS = {**FLAT, **CODED, **NESTED, **EXTENSIONS}


def column(array: Array, nullable: bool = True) -> pa.Table:
    return pa.table([array], schema=pa.schema([pa.field("c", array.type, nullable=nullable)]))


def all_types(rows: int) -> pa.Table:
    """One table with a column of each type, and an id."""
    every = {
        name: pa.concat_arrays([array] * (rows // len(array) + 1)).slice(0, rows)
        for name, array in COLUMNS.items()
    }
    return pa.table({"id": list(range(rows)), **every})


def nulls(type_: Any, count: int) -> Array:
    # pa.nulls puts nulls into the required fields of a struct too.
    return pa.array([None] * count, type_) if pa.types.is_struct(type_) else pa.nulls(count, type_)


def without_nulls(array: Array) -> Array:
    # pyarrow filters no views.
    return pa.concat_arrays([array.slice(i, 1) for i in range(len(array)) if array[i].is_valid])


def assert_round_trip(
    lake: Lake, engine: str, tables: Sequence[Any], physical: bool = True, **options: Any
) -> Any:
    """Compact files of one schema; what is read, and how it is stored, does not change."""
    for number, table in enumerate(tables):
        if isinstance(table, bytes):
            lake.put(f"part-{number}.parquet", table)
        else:
            lake.write(f"part-{number}.parquet", table, **options)
    expected = lake.read()
    sources = [lake.open(name) for name in lake.files()]
    lake.compact(engine)
    parquet = lake.open(lake.only_file())
    assert_same_table(parquet.read(), expected)
    if physical:
        assert leaves(parquet) == leaves(sources[0])
    return parquet


def leaves(parquet: Any) -> list[tuple[Any, ...]]:
    """Parquet's own view of each leaf column."""
    found = [parquet.schema.column(i) for i in range(len(parquet.schema))]
    return [(c.path, c.physical_type, logical(c), c.max_definition_level) for c in found]


def logical(column: Any) -> str:
    """The logical type; that an integer is a signed one of its width goes without saying."""
    plain = {"INT32": "Int(bitWidth=32, isSigned=true)", "INT64": "Int(bitWidth=64, isSigned=true)"}
    found = str(column.logical_type)
    return "None" if found == plain.get(column.physical_type) else found


@pytest.mark.parametrize("name", COLUMNS)
def test_values_and_type_are_kept(engine: str, local: Lake, name: str) -> None:
    table = column(COLUMNS[name])
    assert_round_trip(local, engine, [table, table.slice(1), table.slice(0, 2)])


@pytest.mark.parametrize("name", [n for n in COLUMNS if n != "null"])
def test_required_columns_stay_required(engine: str, local: Lake, name: str) -> None:
    table = column(without_nulls(COLUMNS[name]), nullable=False)
    parquet = assert_round_trip(local, engine, [table, table])
    assert not parquet.schema_arrow.field("c").nullable


@pytest.mark.parametrize("name", COLUMNS)
def test_null_and_empty_files_join_full_ones(engine: str, local: Lake, name: str) -> None:
    array = COLUMNS[name]
    empty = column(nulls(array.type, 3))
    assert_round_trip(local, engine, [empty, column(array), empty, empty.slice(0, 0)])


def test_columns_of_nulls_only_keep_their_types(engine: str, lake: Lake) -> None:
    table = pa.table({name: nulls(array.type, 2) for name, array in COLUMNS.items()})
    assert_round_trip(lake, engine, [table, table])


def test_empty_files_keep_every_type(engine: str, local: Lake) -> None:
    table = pa.table({name: array.slice(0, 0) for name, array in COLUMNS.items()})
    assert_round_trip(local, engine, [table, table])


def test_all_types_at_once_on_every_store(engine: str, lake: Lake) -> None:
    table = all_types(12)
    assert_round_trip(lake, engine, [table.slice(0, 5), table.slice(5, 1), table.slice(6)])


def test_all_types_are_cut_at_a_row_bound(engine: str, local: Lake) -> None:
    table = all_types(30)
    for part in range(3):
        local.write(f"part-{part}.parquet", table.slice(part * 10, 10))
    expected = local.read()
    local.compact(engine, target_rows_per_file=7)
    outputs = [local.open(name).read() for name in local.files()]
    outputs.sort(key=lambda output: output.column("id")[0].as_py())
    assert len(outputs) == 5
    assert max(output.num_rows for output in outputs) <= 7
    assert_same_table(pa.concat_tables(outputs), expected)


def test_all_types_stream_through_a_small_budget(engine: str, local: Lake) -> None:
    # pyarrow itself cannot read nested categories of several row groups.
    table = all_types(3000).drop_columns(["list of categories", "struct of categories"])
    for part in range(2):
        local.write(f"part-{part}.parquet", table.slice(part * 1500, 1500), row_group_size=400)
    expected = local.read()
    local.compact(engine, memory_budget_mb=1)
    assert_same_table(local.open(local.only_file()).read(), expected)


def test_nested_categories_can_be_read_after_a_small_budget(engine: str, local: Lake) -> None:
    words = coded([f"w{n % 50}" for n in range(1000)], pa.int32(), pa.string())
    table = column(pa.ListArray.from_arrays(pa.array(range(1001), pa.int32()), words))
    for part in range(2):
        local.write(f"part-{part}.parquet", table)
    expected = local.read()
    local.compact(engine, memory_budget_mb=0.05, max_workers=1)
    assert_same_table(local.open(local.only_file()).read(), expected)


def test_nested_categories_in_several_row_groups_are_kept(engine: str, local: Lake) -> None:
    words = coded([f"w{n % 50}" for n in range(1000)], pa.int32(), pa.string())
    table = column(pa.ListArray.from_arrays(pa.array(range(1001), pa.int32()), words))
    for part in range(2):
        local.write(f"part-{part}.parquet", table, row_group_size=300)
    local.compact(engine)
    parquet = local.open(local.only_file())
    groups = [parquet.read_row_group(index) for index in range(parquet.num_row_groups)]
    found = [value for group in groups for value in group.column(0).to_pylist()]
    assert found == table.column(0).to_pylist() * 2


def test_special_floats_inside_lists_keep_their_bits(engine: str, local: Lake) -> None:
    offsets = pa.array([0, 3, 8], pa.int32())
    table = pa.table({f"f{b}": pa.ListArray.from_arrays(offsets, floats(b)) for b in (16, 32, 64)})
    for part in range(2):
        local.write(f"part-{part}.parquet", table)
    local.compact(engine)
    found = local.open(local.only_file()).read()
    for bits in (16, 32, 64):
        values = pa.concat_arrays([c.flatten() for c in found.column(f"f{bits}").chunks])
        whole = np.concatenate([floats(bits).fill_null(0).to_numpy()] * 2)
        assert values.fill_null(0).to_numpy().tobytes() == whole.tobytes()
        assert values.null_count == 2


def test_each_file_may_have_its_own_dictionary(engine: str, lake: Lake) -> None:
    words: list[list[Any]] = [["b", "a", None], ["c", "a"], ["d", None, "b"]]
    tables = [column(coded(w, pa.int8(), pa.string())) for w in words]
    assert_round_trip(lake, engine, tables)
    assert lake.column("c") == ["b", "a", None, "c", "a", "d", None, "b"]


def too_many_words(first: int, shape: str) -> Array:
    """More than half of what an 8-bit index counts."""
    array = coded([f"w{n}" for n in range(first, first + 100)], pa.int8(), pa.string())
    if shape == "struct":
        return pa.StructArray.from_arrays([array], ["x"])
    if shape == "list":
        return pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), array)
    return array


@pytest.mark.parametrize("shape", ["flat", "struct", "list"])
def test_dictionary_that_outgrows_its_index_is_refused(
    engine: str, local: Lake, shape: str
) -> None:
    for part in range(2):
        local.write(f"part-{part}.parquet", column(too_many_words(100 * part, shape)))
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match=r"dictionary index of c\b"):
        local.compact(engine)
    assert local.tree() == before


def test_extension_type_that_is_not_registered_is_kept(engine: str, local: Lake) -> None:
    metadata = {"ARROW:extension:name": "our.point", "ARROW:extension:metadata": "srid=4326"}
    schema = pa.schema([pa.field("c", pa.binary(), metadata=metadata)])
    table = pa.table([pa.array([b"p", None])], schema=schema)
    parquet = assert_round_trip(local, engine, [table, table])
    assert parquet.schema_arrow.field("c").metadata[b"ARROW:extension:name"] == b"our.point"


def test_columns_of_one_name_stay_apart(engine: str, local: Lake) -> None:
    for part in range(2):
        local.write(f"part-{part}.parquet", pa.table([[part], [f"t{part}"]], names=["c", "c"]))
    local.compact(engine)
    found = local.open(local.only_file()).read()
    assert found.column_names == ["c", "c"]
    assert [c.to_pylist() for c in found.columns] == [[0, 1], ["t0", "t1"]]


@pytest.mark.parametrize("name", ["a.b", "", " ", "ü", "x y", 'q"q', "it's", "a/b", "element"])
def test_odd_column_names_are_kept(engine: str, local: Lake, name: str) -> None:
    table = pa.table({name: [1, None], "list": [[{name: 1}], None]})
    assert_round_trip(local, engine, [table, table])


def test_rows_without_columns_are_counted(engine: str, local: Lake) -> None:
    assert assert_round_trip(local, engine, [pa.table({}), pa.table({})]).metadata.num_columns == 0


# --- ways to store ---------------------------------------------------------------------------

TIMES = pa.table(
    {
        "naive": pa.array([0, None, -(10**9), 10**12], pa.timestamp("us")),
        "nanos": pa.array([0, None, -1, MAX], pa.timestamp("ns")),
    }
)
PRICES = pa.table(
    {str(t.type): t for name, t in FLAT.items() if name.startswith(("decimal32", "decimal128"))}
)
PLAIN = pa.table(
    {
        "n": pa.array([1, None, 3] * 40, pa.int64()),
        "f": pa.array([0.5, float("inf"), None] * 40, pa.float64()),
        "s": pa.array(["prefix-a", None, "prefix-b"] * 40),
        "b": pa.array([b"abcd", None, b"\x00\x00\x00\x00"] * 40, pa.binary(4)),
        "l": pa.array([[1], None, []] * 40, pa.list_(pa.int32())),
    }
)
STORED: dict[str, dict[str, Any]] = {
    "byte stream split": {"use_dictionary": False, "use_byte_stream_split": ["n", "f", "b"]},
    "delta": {
        "use_dictionary": False,
        "column_encoding": {"n": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
    },
    "delta lengths": {
        "use_dictionary": False,
        "column_encoding": {"s": "DELTA_LENGTH_BYTE_ARRAY", "b": "DELTA_BYTE_ARRAY"},
    },
    "plain": {"use_dictionary": False},
    "pages of version 2": {"data_page_version": "2.0"},
    "uncompressed pages of version 2": {"data_page_version": "2.0", "compression": "none"},
    "page checksums": {"write_page_checksum": True},
    "tiny pages": {"data_page_size": 16, "write_batch_size": 4},
    "no statistics": {"write_statistics": False},
    "bloom filters": {"bloom_filter_options": {"n": {"ndv": 100, "fpp": 0.01}, "s": True}},
    "content defined chunks": {"use_content_defined_chunking": True},
    "format 1.0": {"version": "1.0"},
    "format 2.4": {"version": "2.4"},
    "no Arrow schema": {"store_schema": False},
    "lists of items": {"use_compliant_nested_type": False},
    "lists of items, no Arrow schema": {"use_compliant_nested_type": False, "store_schema": False},
}


@pytest.mark.parametrize("way", STORED)
def test_every_way_to_store_is_read_back(engine: str, local: Lake, way: str) -> None:
    assert_round_trip(local, engine, [PLAIN, PLAIN.slice(60)], **STORED[way])


def test_page_index_is_kept(engine: str, local: Lake) -> None:
    parquet = assert_round_trip(local, engine, [PLAIN, PLAIN], write_page_index=True)
    chunk = parquet.metadata.row_group(0).column(0)
    assert chunk.has_offset_index
    assert chunk.has_column_index


@pytest.mark.parametrize("name", [n for n in COLUMNS if n != "null"])
def test_types_without_an_arrow_schema_are_kept(engine: str, local: Lake, name: str) -> None:
    table = column(COLUMNS[name])
    parquet = assert_round_trip(local, engine, [table, table.slice(1)], store_schema=False)
    assert b"ARROW:schema" not in (parquet.metadata.metadata or {})


@pytest.mark.parametrize("store_schema", [True, False])
def test_int96_timestamps_stay_int96(engine: str, lake: Lake, store_schema: bool) -> None:
    options = {"use_deprecated_int96_timestamps": True, "store_schema": store_schema}
    parquet = assert_round_trip(lake, engine, [TIMES, TIMES.slice(1)], **options)
    assert {parquet.schema.column(i).physical_type for i in range(2)} == {"INT96"}


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.timestamp("us")), pa.struct([("t", pa.timestamp("us"))])]
)
def test_nested_int96_timestamps_stay_int96(engine: str, local: Lake, type_: Any) -> None:
    value: Any = [10**6, None] if pa.types.is_list(type_) else {"t": 10**6}
    table = column(pa.array([value, None], type_))
    parquet = assert_round_trip(local, engine, [table, table], use_deprecated_int96_timestamps=True)
    assert parquet.schema.column(0).physical_type == "INT96"


@pytest.mark.parametrize("year", [1600, 2300, 9999])
def test_int96_timestamps_beyond_nanoseconds_are_refused(
    engine: str, local: Lake, year: int
) -> None:
    far = column(pa.array([dt.datetime(2020, 1, 1), dt.datetime(year, 1, 1)], pa.timestamp("us")))
    near = column(pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us")))
    local.write("a.parquet", far, use_deprecated_int96_timestamps=True)
    local.write("b.parquet", near, use_deprecated_int96_timestamps=True)
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match=r"'c' of '.*a\.parquet' holds INT96"):
        local.compact(engine)
    assert local.tree() == before


@pytest.mark.parametrize("store_schema", [True, False])
def test_decimals_stored_as_integers_stay_integers(
    engine: str, local: Lake, store_schema: bool
) -> None:
    options = {"store_decimal_as_integer": True, "store_schema": store_schema}
    parquet = assert_round_trip(local, engine, [PRICES, PRICES], **options)
    kinds = [parquet.schema.column(i).physical_type for i in range(len(parquet.schema))]
    assert kinds == ["INT32"] * 4 + ["FIXED_LEN_BYTE_ARRAY"] * 3


def test_times_of_day_in_utc_stay_in_utc(engine: str, local: Lake) -> None:
    table = pa.table({name: FLAT[name] for name in ("time32[ms]", "time64[us]", "time64[ns]")})
    parquet = assert_round_trip(local, engine, [table, table], write_time_adjusted_to_utc=True)
    for index in range(3):
        assert "isAdjustedToUTC=true" in str(parquet.schema.column(index).logical_type)


def test_times_in_utc_are_not_mixed_with_others(engine: str, local: Lake) -> None:
    table = column(FLAT["time64[us]"])
    local.write("a.parquet", table, write_time_adjusted_to_utc=True)
    local.write("b.parquet", table)
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match="TIME"):
        local.compact(engine)
    assert local.tree() == before


# --- files of other writers ------------------------------------------------------------------

DUCKDB = {
    "integers": "1::utinyint a, 2::usmallint b, 3::uinteger c, 4::ubigint d, 5::tinyint e",
    "enum": "'a'::enum('a', 'b') a, NULL::enum('a', 'b') b",
    "uuid": "'00000000-0000-0000-0000-000000000001'::uuid a, NULL::uuid b",
    "json": "'{\"x\": 1}'::json a",
    "times": "'2020-01-01'::timestamp_s a, '2020-01-01'::timestamp_ns b, time '10:00:00' c",
    "time zones": "'2020-01-01'::timestamptz a",
    "times of day in a zone": "'10:00:00+01'::timetz a",
    "decimals": "1.5::decimal(4, 1) a, 1.5::decimal(15, 1) b, 1.5::decimal(30, 1) c",
    "nested": "[[1, NULL], NULL] a, {'x': [1], 'y': map {'k': 1}} b, [1, 2]::int[2] c",
    "blobs": "'\\xAA'::blob a, '101'::bit b, ''::varchar c",
}


def duckdb_file(tmp_path: Path, columns: str) -> bytes:
    path = tmp_path / "source.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {columns}) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


@pytest.mark.parametrize("kind", DUCKDB)
def test_files_of_duckdb_keep_their_types(
    engine: str, local: Lake, tmp_path: Path, kind: str
) -> None:
    source = duckdb_file(tmp_path, DUCKDB[kind])
    local.put("part-0.parquet", source)
    local.put("part-1.parquet", source)
    expected = local.read()
    described = duckdb_types(local)
    local.compact(engine)
    assert_same_table(local.open(local.only_file()).read(), expected)
    assert duckdb_types(local) == described


def duckdb_types(lake: Lake) -> list[tuple[str, str]]:
    with duckdb.connect() as connection:
        query = f"DESCRIBE FROM read_parquet('{lake.path(lake.files()[0])}')"
        return [(row[0], row[1]) for row in connection.execute(query).fetchall()]


@pytest.mark.parametrize(
    ("columns", "named"),
    [("interval 3 day c", "INTERVAL"), ("1::variant c", "Variant|VARIANT")],
    ids=["interval", "variant"],
)
def test_parquet_types_unknown_to_arrow_are_refused(
    engine: str, local: Lake, tmp_path: Path, columns: str, named: str
) -> None:
    source = duckdb_file(tmp_path, columns)
    local.put("part-0.parquet", source)
    local.put("part-1.parquet", source)
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match=named):
        local.compact(engine)
    assert local.tree() == before


def test_files_of_polars_keep_their_types(engine: str, local: Lake, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "category": pl.Series(["a", None], dtype=pl.Categorical),
            "enum": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
            "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int8, 2)),
            "day": [dt.date(2020, 1, 1), None],
            "moment": [dt.datetime(2020, 1, 1), None],
            "lapse": [dt.timedelta(days=1), None],
            "hour": [dt.time(1), None],
            "price": pl.Series([Decimal("1.25"), None], dtype=pl.Decimal(10, 2)),
            "bytes": [b"x", None],
            "nested": [{"x": [1, None]}, None],
        }
    )
    frame.write_parquet(tmp_path / "source.parquet")
    source = (tmp_path / "source.parquet").read_bytes()
    assert_round_trip(local, engine, [source, source])
    assert pl.read_parquet(local.path(local.only_file())).equals(pl.concat([frame, frame]))
