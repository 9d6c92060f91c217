"""Files of one partition with different schemas: merged without loss, or left alone by name."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_tests.datasets import Lake, assert_same_values, one_row_files

Array = Any


def merge(lake: Lake, engine: str, *tables: Any) -> pa.Table:
    """Compact files a, b, ... in the order given; what the single output holds."""
    for letter, table in zip("abcdefgh", tables, strict=False):
        lake.write(f"{letter}.parquet", table)
    lake.compact(engine)
    return lake.open(lake.only_file()).read()


def typed(values: list[Any], type_: Any) -> Array:
    return pa.array(values, type_)


def field(name: str, type_: Any, nullable: bool = True, field_id: int | None = None) -> Any:
    metadata = None if field_id is None else {"PARQUET:field_id": str(field_id)}
    return pa.field(name, type_, nullable, metadata)


# --- columns ---------------------------------------------------------------------------------


def test_added_column_is_null_in_older_rows(engine: str, lake: Lake) -> None:
    merged = merge(lake, engine, {"id": [1, 2]}, {"id": [3], "new": ["x"]})
    assert merged.to_pydict() == {"id": [1, 2, 3], "new": [None, None, "x"]}


def test_missing_column_is_null_in_newer_rows(engine: str, lake: Lake) -> None:
    merged = merge(lake, engine, {"id": [1], "old": [0.5]}, {"id": [2, 3]})
    assert merged.to_pydict() == {"id": [1, 2, 3], "old": [0.5, None, None]}


def test_reordered_columns_follow_the_first_file(engine: str, lake: Lake) -> None:
    first, second = {"a": [1], "b": ["x"], "c": [True]}, {"c": [False], "a": [2], "b": ["y"]}
    merged = merge(lake, engine, first, second)
    assert merged.column_names == ["a", "b", "c"]
    assert merged.to_pydict() == {"a": [1, 2], "b": ["x", "y"], "c": [True, False]}


def test_files_without_a_common_column_are_merged(engine: str, local: Lake) -> None:
    merged = merge(local, engine, {"a": [1]}, {"b": [2]}, {"c": [3]})
    assert merged.to_pydict() == {"a": [1, None, None], "b": [None, 2, None], "c": [None, None, 3]}


@pytest.mark.parametrize("rows", [3, 100_000])
def test_structs_of_other_names_are_other_columns(engine: str, local: Lake, rows: int) -> None:
    # As DuckDB writes them: nothing in the file tells them apart but the schema itself.
    for name in "ab":
        table = {"id": range(rows), name: [{"x": name}] * rows}
        local.write(f"{name}.parquet", table, store_schema=False)
    local.compact(engine)
    assert local.column("a") == [{"x": "a"}] * rows + [None] * rows
    assert local.column("b") == [None] * rows + [{"x": "b"}] * rows


def test_field_ids_of_structs_that_differ_are_refused(engine: str, local: Lake) -> None:
    for number, name in enumerate("ab", start=4):
        schema = pa.schema([field("s", pa.struct([("x", pa.int64())]), field_id=number)])
        table = pa.table({"s": [{"x": 1}]}, schema=schema)
        local.write(f"{name}.parquet", table, store_schema=False)
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match="field id 4 in one and 5 in the other"):
        local.compact(engine)
    assert local.tree() == before


def test_required_column_that_is_missing_elsewhere_becomes_nullable(
    engine: str, local: Lake
) -> None:
    schema = pa.schema([field("id", pa.int64(), False), field("a", pa.int8(), False)])
    first = pa.table({"id": [1], "a": [7]}, schema=schema)
    merged = merge(local, engine, first, first.drop_columns(["a"]))
    assert not merged.schema.field("id").nullable
    assert merged.schema.field("a").nullable
    assert merged.to_pydict() == {"id": [1, 1], "a": [7, None]}


def test_required_and_nullable_become_nullable(engine: str, local: Lake) -> None:
    required = pa.table({"a": [1]}, schema=pa.schema([field("a", pa.int64(), False)]))
    merged = merge(local, engine, required, {"a": [None, 2]})
    assert merged.schema.field("a").nullable
    assert merged.to_pydict() == {"a": [1, None, 2]}


def test_names_that_differ_in_case_are_not_mixed(engine: str, local: Lake) -> None:
    before = conflicting(local, pa.table({"a": [1]}), pa.table({"A": [2]}))
    assert "differ only in case" in str(assert_only_day_2_fails(local, engine, before))


def test_every_file_may_differ(engine: str, lake: Lake) -> None:
    merged = merge(
        lake,
        engine,
        {"id": typed([1], pa.int8())},
        {"x": [1.5], "id": typed([300], pa.int16())},
        {"id": typed([None], pa.null()), "y": ["t"]},
        {"y": typed(["u"], pa.large_string()), "id": typed([2**40], pa.int64())},
    )
    assert merged.schema.types == [pa.int64(), pa.float64(), pa.large_string()]
    assert merged.to_pydict() == {
        "id": [1, 300, None, 2**40],
        "x": [None, 1.5, None, None],
        "y": [None, None, "t", "u"],
    }


# --- types -----------------------------------------------------------------------------------

INTS = {8: (pa.int8(), pa.uint8()), 16: (pa.int16(), pa.uint16()), 32: (pa.int32(), pa.uint32())}
DAY = dt.datetime(2020, 1, 1, 12, 30, 1)
WORDS = ["a", None, "b"]
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def words(index: Any, values: Any = None, ordered: bool = False) -> Array:
    type_ = pa.dictionary(index, values or pa.string(), ordered)
    return pa.DictionaryArray.from_arrays(
        typed([0, None, 1], index), typed(["a", "b"], type_.value_type), ordered=ordered
    )


WIDENED: dict[str, tuple[Array, Array, Any]] = {
    **{
        f"int{b} and int64": (
            typed([-(2 ** (b - 1)), None, 2 ** (b - 1) - 1], signed),
            typed([-(2**63), None, 2**63 - 1], pa.int64()),
            pa.int64(),
        )
        for b, (signed, _) in INTS.items()
    },
    **{
        f"uint{b} and uint64": (
            typed([0, None, 2**b - 1], unsigned),
            typed([2**64 - 1], pa.uint64()),
            pa.uint64(),
        )
        for b, (_, unsigned) in INTS.items()
    },
    **{
        f"uint{b} and int{b}": (typed([0, 2**b - 1], unsigned), typed([-1, 1], signed), wider)
        for (b, (signed, unsigned)), wider in zip(
            INTS.items(), (pa.int16(), pa.int32(), pa.int64()), strict=True
        )
    },
    "uint8 and int64": (typed([255], pa.uint8()), typed([-(2**63)], pa.int64()), pa.int64()),
    "int16 and uint8": (typed([-1], pa.int16()), typed([255], pa.uint8()), pa.int16()),
    "float and double": (
        typed([0.1, float("nan"), -0.0, None], pa.float32()),
        typed([0.1, float("inf")], pa.float64()),
        pa.float64(),
    ),
    "half and float": (
        typed([0.5, float("-inf"), None], pa.float16()),
        typed([0.1, 3e38], pa.float32()),
        pa.float32(),
    ),
    "half and double": (typed([-0.0], pa.float16()), typed([1e300], pa.float64()), pa.float64()),
    "string and large_string": (
        typed(WORDS, pa.string()),
        typed(["", "é"], pa.large_string()),
        pa.large_string(),
    ),
    "binary and large_binary": (
        typed([b"\xff", None], pa.binary()),
        typed([b""], pa.large_binary()),
        pa.large_binary(),
    ),
    "string_view and string": (
        typed(["x" * 30, None], pa.string_view()),
        typed(WORDS, pa.string()),
        pa.string(),
    ),
    "dictionary and plain": (words(pa.int32()), typed(["c", None], pa.string()), pa.string()),
    "dictionary and large_string": (
        words(pa.int8()),
        typed(["c", None], pa.large_string()),
        pa.large_string(),
    ),
    "dictionaries of two indexes": (
        words(pa.int8()),
        words(pa.int32()),
        pa.dictionary(pa.int32(), pa.string()),
    ),
    "ordered and unordered dictionary": (
        words(pa.int32(), ordered=True),
        words(pa.int32()),
        pa.string(),
    ),
    "milliseconds and microseconds": (
        typed([DAY, None, dt.datetime(9999, 12, 31)], pa.timestamp("ms")),
        typed([dt.datetime(1, 1, 1)], pa.timestamp("us")),
        pa.timestamp("us"),
    ),
    "milliseconds and nanoseconds": (
        typed([DAY, None, dt.datetime(1700, 1, 1)], pa.timestamp("ms", "UTC")),
        typed([1], pa.timestamp("ns", "UTC")),
        pa.timestamp("ns", "UTC"),
    ),
    "two spellings of UTC": (
        typed([DAY], pa.timestamp("us", "UTC")),
        typed([None, DAY], pa.timestamp("us", "+00:00")),
        pa.timestamp("us", "UTC"),
    ),
    "time32 and time64": (
        typed([dt.time(23, 59, 59)], pa.time32("ms")),
        typed([86_399_999_999, None], pa.time64("us")),
        pa.time64("us"),
    ),
    "times of day": (
        typed([86_399_999_999], pa.time64("us")),
        typed([None, 86_399_999_999_999], pa.time64("ns")),
        pa.time64("ns"),
    ),
    "durations": (
        typed([-1, None, 5], pa.duration("s")),
        typed([7], pa.duration("us")),
        pa.duration("us"),
    ),
    "decimals": (
        typed([Decimal("999.99"), None], pa.decimal128(5, 2)),
        typed([Decimal("-9.9999")], pa.decimal128(5, 4)),
        pa.decimal128(7, 4),
    ),
    "decimals beyond 128 bits": (
        typed([Decimal(10**37)], pa.decimal128(38, 0)),
        typed([Decimal("0.01")], pa.decimal128(4, 2)),
        pa.decimal256(40, 2),
    ),
    "null and integer": (pa.nulls(2), typed([1, None], pa.int32()), pa.int32()),
    "null and dictionary": (pa.nulls(2), words(pa.int16()), pa.dictionary(pa.int16(), pa.string())),
    "null and timestamp": (
        pa.nulls(1),
        typed([DAY], pa.timestamp("us", "Europe/Berlin")),
        pa.timestamp("us", "Europe/Berlin"),
    ),
    "null and list": (
        pa.nulls(2),
        typed([[1], [], None], pa.list_(pa.int8())),
        pa.list_(pa.int8()),
    ),
    "null and struct": (pa.nulls(2), typed([{"x": 1}, None], None), pa.struct([("x", pa.int64())])),
    "null and map": (
        pa.nulls(1),
        typed([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int64()),
    ),
}


@pytest.mark.parametrize("swapped", [False, True], ids=["in order", "swapped"])
@pytest.mark.parametrize("name", WIDENED)
def test_types_are_widened_without_loss(engine: str, local: Lake, name: str, swapped: bool) -> None:
    left, right, expected = WIDENED[name]
    arrays = (right, left) if swapped else (left, right)
    merged = merge(local, engine, *[pa.table({"c": array}) for array in arrays])
    plain = expected.value_type if pa.types.is_dictionary(expected) else expected
    whole = pa.concat_arrays([in_type(array, plain) for array in arrays])
    assert merged.schema.field("c").type == expected
    found = in_type(pa.concat_arrays(merged.column("c").chunks), plain)
    assert_same_values(pa.table({"c": found}), pa.table({"c": whole}))


def in_type(array: Array, type_: Any) -> Array:
    """The same values, decoded and cast by pyarrow with its checks on."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(type_)


@pytest.mark.parametrize("name", ["int8 and int64", "dictionary and plain", "null and struct"])
def test_types_are_widened_on_every_store(engine: str, lake: Lake, name: str) -> None:
    left, right, expected = WIDENED[name]
    merged = merge(lake, engine, {"c": left}, {"c": right})
    assert merged.schema.field("c").type == expected
    assert merged.column("c").to_pylist() == left.to_pylist() + right.to_pylist()


# --- nested columns --------------------------------------------------------------------------

S = pa.struct
NESTED: dict[str, tuple[Array, Array, Any, list[Any]]] = {
    "struct with an added field": (
        typed([{"x": 1}, None], S([("x", pa.int64())])),
        typed([{"x": 2, "y": "t"}], S([("x", pa.int64()), ("y", pa.string())])),
        S([("x", pa.int64()), ("y", pa.string())]),
        [{"x": 1, "y": None}, None, {"x": 2, "y": "t"}],
    ),
    "struct with reordered fields": (
        typed([{"x": 1, "y": "t"}], S([("x", pa.int64()), ("y", pa.string())])),
        typed([{"y": "u", "x": 2}, None], S([("y", pa.string()), ("x", pa.int64())])),
        S([("x", pa.int64()), ("y", pa.string())]),
        [{"x": 1, "y": "t"}, {"x": 2, "y": "u"}, None],
    ),
    "struct with a widened field": (
        typed([{"x": 1}, {"x": None}], S([("x", pa.int8())])),
        typed([{"x": 2**40}], S([("x", pa.int64())])),
        S([("x", pa.int64())]),
        [{"x": 1}, {"x": None}, {"x": 2**40}],
    ),
    "struct whose required field is missing": (
        typed([{"x": 1}, None], S([field("x", pa.int8(), False)])),
        typed([{"y": 2}], S([field("y", pa.int8(), False)])),
        S([("x", pa.int8()), ("y", pa.int8())]),
        [{"x": 1, "y": None}, None, {"x": None, "y": 2}],
    ),
    "list of widened elements": (
        typed([[1, None], [], None], pa.list_(pa.int16())),
        typed([[2**20]], pa.list_(pa.int32())),
        pa.list_(pa.int32()),
        [[1, None], [], None, [2**20]],
    ),
    "list of null and of text": (
        typed([[None], [], None], pa.list_(pa.null())),
        typed([["t", None]], pa.list_(pa.string())),
        pa.list_(pa.string()),
        [[None], [], None, ["t", None]],
    ),
    "list and large_list": (
        typed([[1], None], pa.list_(pa.int64())),
        typed([[], [2]], pa.large_list(pa.int64())),
        pa.large_list(pa.int64()),
        [[1], None, [], [2]],
    ),
    "fixed_size_list and list": (
        typed([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)),
        typed([[], [4]], pa.list_(pa.int64())),
        pa.list_(pa.int64()),
        [[1, 2], None, [3, None], [], [4]],
    ),
    "fixed_size_lists of widened elements": (
        typed([[1, 2], None], pa.list_(pa.int8(), 2)),
        typed([[None, 2**20]], pa.list_(pa.int32(), 2)),
        pa.list_(pa.int32(), 2),
        [[1, 2], None, [None, 2**20]],
    ),
    "list of required and of nullable": (
        typed([[1], None], pa.list_(field("element", pa.int64(), False))),
        typed([[None]], pa.list_(pa.int64())),
        pa.list_(pa.int64()),
        [[1], None, [None]],
    ),
    "map of widened items": (
        typed([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int8())),
        typed([[("m", 2**40)]], pa.map_(pa.large_string(), pa.int64())),
        pa.map_(pa.large_string(), pa.int64()),
        [[("k", 1), ("l", None)], None, [], [("m", 2**40)]],
    ),
    "structs in lists in structs": (
        typed([{"l": [{"x": 1}, None]}, None], S([("l", pa.list_(S([("x", pa.int8())])))])),
        typed([{"l": [{"y": "t"}]}, {"l": None}], S([("l", pa.list_(S([("y", pa.string())])))])),
        S([("l", pa.list_(S([("x", pa.int8()), ("y", pa.string())])))]),
        [{"l": [{"x": 1, "y": None}, None]}, None, {"l": [{"x": None, "y": "t"}]}, {"l": None}],
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_columns_are_merged(engine: str, local: Lake, name: str) -> None:
    left, right, expected, values = NESTED[name]
    merged = merge(local, engine, {"c": left}, {"c": right})
    assert merged.schema.field("c").type == expected
    assert merged.column("c").to_pylist() == values


def test_nested_columns_are_merged_batch_by_batch(engine: str, local: Lake) -> None:
    left = [[{"x": n}] * (n % 3) if n % 7 else None for n in range(2000)]
    first = pa.table({"c": typed(left, pa.list_(S([("x", pa.int16())])))})
    second = pa.table({"c": typed([[{"x": 2**40, "y": "t"}]], None)})
    local.write("a.parquet", first, row_group_size=300)
    local.write("b.parquet", second)
    local.compact(engine, memory_budget_mb=0.05)
    found = local.open(local.only_file()).read().column("c").to_pylist()
    wanted = [v if v is None else [{"x": e["x"], "y": None} for e in v] for v in left]
    assert found == [*wanted, [{"x": 2**40, "y": "t"}]]


def test_pandas_files_of_different_length_and_columns(engine: str, local: Lake) -> None:
    frames = [pd.DataFrame({"a": [1, 2, 3]}), pd.DataFrame({"a": [4], "b": ["x"]})]
    for letter, frame in zip("ab", frames, strict=True):
        local.write(f"{letter}.parquet", pa.Table.from_pandas(frame))
    local.compact(engine)
    frame = pd.read_parquet(local.path(local.only_file()))
    assert frame.index.tolist() == [0, 1, 2, 3]
    assert frame["a"].tolist() == [1, 2, 3, 4]
    assert frame["b"].isna().tolist() == [True, True, True, False]


def test_drift_is_told_in_notes(engine: str, local: Lake) -> None:
    local.write("a.parquet", {"id": typed([1], pa.int8())})
    local.write("b.parquet", {"id": typed([2], pa.int16()), "new": [1]})
    preview = local.compact(engine, dry_run=True)
    result = local.compact(engine)
    assert preview.notes == result.notes
    assert any("'id'" in note and "int8" in note and "int16" in note for note in result.notes)
    assert any("'new'" in note for note in result.notes)


def test_partitions_may_differ_for_good(engine: str, lake: Lake) -> None:
    for part in range(2):
        lake.write(f"day=1/{part}.parquet", {"c": [part]})
        lake.write(f"day=2/{part}.parquet", {"c": [f"t{part}"]})
    result = lake.compact(engine)
    assert result.failures == ()
    assert lake.column("c", "day=1") == [0, 1]
    assert lake.column("c", "day=2") == ["t0", "t1"]


# --- what cannot be merged -------------------------------------------------------------------


REFUSED: dict[str, tuple[Any, Any]] = {
    "text and number": (pa.string(), pa.int64()),
    "text and bytes": (pa.string(), pa.binary()),
    "number and truth": (pa.int8(), pa.bool_()),
    "int64 and uint64": (pa.int64(), pa.uint64()),
    "int8 and uint64": (pa.int8(), pa.uint64()),
    "int64 and double": (pa.int64(), pa.float64()),
    "int32 and float": (pa.int32(), pa.float32()),
    "number and decimal": (pa.int64(), pa.decimal128(38, 0)),
    "double and decimal": (pa.float64(), pa.decimal128(10, 2)),
    "decimals beyond any precision": (pa.decimal256(76, 0), pa.decimal256(76, 76)),
    "zone and none": (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    "two zones": (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "Asia/Tokyo")),
    "date and timestamp": (pa.date32(), pa.timestamp("us")),
    "time and timestamp": (pa.time64("us"), pa.timestamp("us")),
    "duration and number": (pa.duration("us"), pa.int64()),
    "bytes of two lengths": (pa.binary(3), pa.binary(4)),
    "bytes of fixed and any length": (pa.binary(3), pa.binary()),
    "lists of two sizes": (pa.list_(pa.int64(), 2), pa.list_(pa.int64(), 3)),
    "list and number": (pa.list_(pa.int64()), pa.int64()),
    "struct and text": (S([("x", pa.int64())]), pa.string()),
    "struct and map": (S([("x", pa.int64())]), pa.map_(pa.string(), pa.int64())),
    "uuid and text": (pa.uuid(), pa.string()),
    "uuid and bytes": (pa.uuid(), pa.binary(16)),
    "json and text": (pa.json_(), pa.string()),
    "category and number": (DICTIONARY, pa.int64()),
}


def conflicting(lake: Lake, left: pa.Table, right: pa.Table) -> dict[str, str]:
    """Two files that disagree in one partition, and two good partitions around it."""
    lake.write("day=2/a.parquet", left)
    lake.write("day=2/b.parquet", right)
    one_row_files(lake, 3, "day=1")
    one_row_files(lake, 2, "day=3", start=3)
    return {n: h for n, h in lake.tree().items() if n.startswith("day=2/")}


def assert_only_day_2_fails(
    lake: Lake, engine: str, before: dict[str, str]
) -> IncompleteMaintenanceError:
    with pytest.raises(IncompleteMaintenanceError) as caught:
        lake.compact(engine)
    after = lake.tree()
    assert {n: h for n, h in after.items() if n.startswith("day=2/")} == before
    assert lake.column("id", "day=1") == [0, 1, 2]
    assert lake.column("id", "day=3") == [3, 4]
    assert len(after) == 4
    assert caught.value.result.stats.compacted_file_count == 5
    assert caught.value.result.stats.after_file_count == 4
    return caught.value


def assert_named(text: str, lake: Lake, *words: str) -> None:
    for word in (*words, lake.path("day=2/a.parquet"), lake.path("day=2/b.parquet")):
        assert word in text


@pytest.mark.parametrize("name", REFUSED)
def test_conflict_is_named_and_the_others_commit(engine: str, local: Lake, name: str) -> None:
    left, right = REFUSED[name]
    before = conflicting(
        local, pa.table({"c": pa.nulls(2, left)}), pa.table({"c": pa.nulls(2, right)})
    )
    error = assert_only_day_2_fails(local, engine, before)
    (failure,) = error.result.failures
    assert_named(failure.reason, local, "'c'", read_as(left), read_as(right))
    assert_named(str(error), local, "'c'")
    assert set(failure.paths) == {local.path("day=2/a.parquet"), local.path("day=2/b.parquet")}


def read_as(type_: Any) -> str:
    """The spelling of a type as it comes out of a file; that of a map goes on."""
    return str(type_).replace("<item:", "<element:").removesuffix(">")


@pytest.mark.parametrize("name", ["text and number", "zone and none"])
def test_dry_run_tells_the_same_conflict(engine: str, lake: Lake, name: str) -> None:
    left, right = REFUSED[name]
    before = conflicting(
        lake, pa.table({"c": pa.nulls(1, left)}), pa.table({"c": pa.nulls(1, right)})
    )
    whole = lake.tree()
    preview = lake.compact(engine, dry_run=True)
    assert lake.tree() == whole
    assert len(preview.to_dict()["planned_groups"]) == 2
    result = assert_only_day_2_fails(lake, engine, before).result
    assert preview.failures == result.failures
    assert preview.stats.compacted_file_count == result.stats.compacted_file_count
    assert preview.stats.after_file_count == result.stats.after_file_count
    conflicted = [lake.path("day=2/a.parquet"), lake.path("day=2/b.parquet")]
    for outcome in (preview, result):
        assert [f.path for f in outcome.untouched if f.reason == "schema_conflict"] == conflicted


INNER: dict[str, tuple[Any, Any, str]] = {
    "struct": (S([("x", pa.int64())]), S([("x", pa.string())]), "c.x"),
    "list": (pa.list_(pa.int64()), pa.list_(pa.string()), "c.element"),
    "map": (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), "c.value"),
}


@pytest.mark.parametrize("name", INNER)
def test_conflict_inside_a_column_is_named_by_its_path(engine: str, local: Lake, name: str) -> None:
    left, right, path = INNER[name]
    before = conflicting(
        local, pa.table({"c": pa.nulls(2, left)}), pa.table({"c": pa.nulls(2, right)})
    )
    error = assert_only_day_2_fails(local, engine, before)
    assert_named(error.result.failures[0].reason, local, f"'{path}'", "int64", "string")


def test_two_field_ids_of_one_column_are_a_conflict(engine: str, local: Lake) -> None:
    tables = [
        pa.table({"c": [1]}, schema=pa.schema([field("c", pa.int64(), field_id=n)])) for n in (1, 2)
    ]
    before = conflicting(local, *tables)
    error = assert_only_day_2_fails(local, engine, before)
    assert_named(error.result.failures[0].reason, local, "'c'", "field id 1", "2")


def test_one_field_id_of_two_columns_is_a_conflict(engine: str, local: Lake) -> None:
    tables = [
        pa.table({name: [1]}, schema=pa.schema([field(name, pa.int64(), field_id=1)]))
        for name in ("c", "d")
    ]
    before = conflicting(local, *tables)
    error = assert_only_day_2_fails(local, engine, before)
    assert_named(error.result.failures[0].reason, local, "'c'", "'d'", "field id 1")


def test_the_two_files_that_disagree_are_named_among_many(engine: str, local: Lake) -> None:
    for letter, type_ in zip(
        "abcde", [pa.null(), pa.int8(), pa.int16(), pa.string(), pa.int64()], strict=True
    ):
        local.write(f"{letter}.parquet", {"c": pa.nulls(1, type_)})
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError) as caught:
        local.compact(engine)
    assert local.tree() == before
    (failure,) = caught.value.result.failures
    assert local.path("d.parquet") in failure.reason
    assert "string" in failure.reason
    assert [n for n in "abce" if local.path(f"{n}.parquet") in failure.reason] == ["b"]
    assert "int8" in failure.reason


def test_value_that_no_common_unit_holds_fails_its_group_only(engine: str, lake: Lake) -> None:
    far = pa.table({"c": typed([dt.datetime(9999, 1, 1)], pa.timestamp("ms"))})
    before = conflicting(lake, far, pa.table({"c": typed([1], pa.timestamp("ns"))}))
    error = assert_only_day_2_fails(lake, engine, before)
    (failure,) = error.result.failures
    assert "'c'" in failure.reason
    assert lake.path("day=2/a.parquet") in failure.reason
    assert "timestamp[ms]" in failure.reason
    assert "timestamp[ns]" in failure.reason


def test_several_conflicts_are_all_reported(engine: str, local: Lake) -> None:
    for day in (1, 2, 3):
        local.write(f"day={day}/a.parquet", {"c": [1]})
        local.write(f"day={day}/b.parquet", {"c": ["t"]})
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match=r"3 group\(s\) were left") as caught:
        local.compact(engine)
    assert local.tree() == before
    assert len(caught.value.result.failures) == 3
    assert caught.value.result.publish == "none"


def test_conflict_outside_the_filter_does_not_matter(engine: str, local: Lake) -> None:
    conflicting(local, pa.table({"c": [1]}), pa.table({"c": ["t"]}))
    result = local.compact(engine, partition_filter=["day=1", "day=3"])
    assert (result.failures, result.stats.after_file_count) == ((), 2)


def test_conflict_is_gone_once_the_file_is_repaired(engine: str, local: Lake) -> None:
    before = conflicting(local, pa.table({"c": [1]}), pa.table({"c": ["2"]}))
    assert_only_day_2_fails(local, engine, before)
    local.write("day=2/b.parquet", {"c": [2]})
    assert local.compact(engine).failures == ()
    assert local.column("c", "day=2") == [1, 2]
