"""Clustering keeps every Arrow type bit for bit, in the key and beside it, and orders by it."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintenance_assets.engines.protocol import Engine
from maintenance_tests.conformance.test_optimize import (
    LAYOUT,
    WRITERS,
    cluster,
    sort_key,
    write_parts,
    writer_named,
)
from maintenance_tests.conformance.test_types import CODED, COLUMNS, EXTENSIONS, FLAT, coded, floats
from maintenance_tests.datasets import Lake, row_counts

Array = Any
NO_ORDER = {"tensor", "list of uuid"}
KEYS: dict[str, Array] = {
    name: array for name, array in {**FLAT, **CODED, **EXTENSIONS}.items() if name not in NO_ORDER
}
# Categories whose order or place forbids it are not shuffled: the other types would not be either.
UNSHUFFLED = {"ordered category", "list of categories", "struct of categories"}
PATTERNS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str | Engine:
    """An engine; Spark twice, for it shuffles what is large."""
    return writer_named(request.param, request)


def repeated(array: Array, rows: int) -> Array:
    return pa.concat_arrays([array] * (rows // len(array) + 1)).slice(0, rows)


def numbered(columns: dict[str, Array], rows: int) -> pa.Table:
    """Columns of so many rows, and an id by which rows are found again."""
    every = {name: repeated(array, rows) for name, array in columns.items()}
    return pa.table({"id": list(range(rows)), **every})


def whole(column: Any) -> Array:
    return pa.concat_arrays(column.chunks)


def exact(array: Array) -> list[Any]:
    """Values as something that is equal only where all bits are."""
    type_ = array.type
    if pa.types.is_floating(type_):
        return list(array.view(PATTERNS[type_.bit_width]).to_pylist())
    if pa.types.is_temporal(type_):  # many of these are beyond Python's own types
        return list(array.view(PATTERNS[type_.bit_width]).to_pylist())
    if pa.types.is_dictionary(type_):
        return exact(array.dictionary_decode())
    return [repr(value) for value in array.to_pylist()]


def rows_by_id(lake: Lake) -> dict[int, tuple[Any, ...]]:
    """Every row, whichever file it is in."""
    found: dict[int, tuple[Any, ...]] = {}
    for name in lake.files():
        table = lake.open(name).read()
        table.validate(full=True)
        columns = [exact(whole(column)) for column in table.columns]
        rows = list(zip(*columns, strict=True))
        ids = table["id"].to_pylist()
        assert not set(ids) & set(found)
        found |= dict(zip(ids, rows, strict=True))
    return found


def schemas(lake: Lake) -> list[Any]:
    """The schema of each file, without the record of its layout."""
    found = []
    for name in lake.files():
        schema = lake.open(name).schema_arrow
        metadata = {k: v for k, v in (schema.metadata or {}).items() if k != LAYOUT}
        found.append(schema.with_metadata(metadata or None))
    return found


def assert_kept(lake: Lake, writer: str | Engine, columns: list[str], **options: Any) -> None:
    """Cluster; rows and schemas are what they were."""
    rows, schema = rows_by_id(lake), schemas(lake)[0]
    result = cluster(lake, writer, columns, **options)
    assert result.stats.compacted_file_count == result.stats.before_file_count
    assert rows_by_id(lake) == rows
    for found in schemas(lake):
        assert found.equals(schema, check_metadata=True), found.to_string()


def plain_order(array: Array) -> list[tuple[int, Any]]:
    """What a value is sorted by, in terms of Python: ascending, NaN, nulls."""
    if isinstance(array.type, pa.BaseExtensionType):
        return plain_order(array.storage)
    if pa.types.is_dictionary(array.type):
        return plain_order(array.dictionary_decode())
    if pa.types.is_temporal(array.type):
        return plain_order(array.view(PATTERNS[array.type.bit_width]))
    values = array.to_pylist()
    if values and any(isinstance(value, str) for value in values):
        values = [None if value is None else value.encode() for value in values]
    return [sort_key(None if value is None else unwrapped(value)) for value in values]


def unwrapped(value: Any) -> Any:
    return float(value) if isinstance(value, np.floating) else value


def assert_ordered(lake: Lake, column: str) -> None:
    """Each file is sorted, and no file reaches into the next."""
    files = [plain_order(whole(lake.open(name).read()[column])) for name in lake.files()]
    assert all(file == sorted(file) for file in files)
    files.sort(key=lambda file: (file[0], file[-1]))
    together = [key for file in files for key in file]
    assert together == sorted(together)


# --- each type -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEYS)
def test_type_as_key_keeps_values_and_is_ordered(
    writer: str | Engine, local: Lake, name: str
) -> None:
    write_parts(local, numbered({"c": KEYS[name]}, 24), 3)
    assert_kept(local, writer, ["c"], target_rows_per_file=5)
    assert sorted(row_counts(local, local.files())) == [4, 5, 5, 5, 5]
    assert_ordered(local, "c")


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in KEYS])
def test_type_without_an_order_is_kept(writer: str | Engine, local: Lake, name: str) -> None:
    table = numbered({"c": COLUMNS[name]}, 24)
    write_parts(local, table.append_column("key", pa.array([n * 7 % 24 for n in range(24)])), 3)
    assert_kept(local, writer, ["key"], target_rows_per_file=9)
    assert_ordered(local, "key")


def test_every_type_beside_the_key_is_kept(writer: str | Engine, local: Lake) -> None:
    table = numbered(COLUMNS, 40).append_column("key", pa.array([n * 7 % 40 for n in range(40)]))
    write_parts(local, table, 4)
    assert_kept(local, writer, ["key"], target_rows_per_file=15)
    assert_ordered(local, "key")


def test_every_shuffled_type_beside_the_key_is_kept(writer: str | Engine, local: Lake) -> None:
    columns = {name: array for name, array in COLUMNS.items() if name not in UNSHUFFLED}
    table = numbered(columns, 40).append_column("key", pa.array([n * 7 % 40 for n in range(40)]))
    write_parts(local, table, 4)
    assert_kept(local, writer, ["key", "timestamp[ns,UTC]"], target_rows_per_file=15)


def test_every_type_is_clustered_on_every_store(engine: str, lake: Lake) -> None:
    write_parts(lake, numbered(COLUMNS, 30), 3)
    assert_kept(lake, engine, ["string", "decimal128(38,0)", "float64"], target_rows_per_file=12)


@pytest.mark.parametrize("start", range(0, len(KEYS), 10))
def test_ten_columns_make_a_key_together(writer: str | Engine, local: Lake, start: int) -> None:
    names = list(KEYS)[start : start + 10]
    write_parts(local, numbered({name: KEYS[name] for name in names}, 30), 3)
    assert_kept(local, writer, names, target_rows_per_file=8)
    for name in local.files():
        table = local.open(name).read()
        keys = list(zip(*(plain_order(whole(table[column])) for column in names), strict=True))
        assert keys == sorted(keys)


@pytest.mark.parametrize("name", [n for n in KEYS if n != "null"])
def test_required_key_stays_required(local: Lake, name: str) -> None:
    array = KEYS[name]
    full = pa.concat_arrays([array.slice(i, 1) for i in range(len(array)) if array[i].is_valid])
    fields = [pa.field("id", pa.int64(), False), pa.field("c", full.type, False)]
    table = pa.table([pa.array(range(12)), repeated(full, 12)], schema=pa.schema(fields))
    write_parts(local, table, 2)
    assert_kept(local, "pyarrow", ["c"], target_rows_per_file=5)
    assert not any(local.open(f).schema_arrow.field("c").nullable for f in local.files())


# --- bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_special_floats_keep_their_bits_in_key_and_payload(
    writer: str | Engine, local: Lake, bits: int
) -> None:
    key, payload = repeated(floats(bits), 32), repeated(floats(bits), 33).slice(1)
    write_parts(local, pa.table({"id": list(range(32)), "k": key, "p": payload}), 4)
    assert_kept(local, writer, ["k"], target_rows_per_file=9)
    kinds = [kind for name in by_first(local) for kind, _ in plain_order(column(local, name, "k"))]
    # Of eight patterns five are numbers, two are NaN and one is null; NaN goes before null.
    assert kinds == [0] * 20 + [1] * 8 + [2] * 4


def by_first(lake: Lake) -> list[str]:
    """Files in the order of their keys."""
    return sorted(
        lake.files(),
        key=lambda f: (plain_order(column(lake, f, "k"))[0], plain_order(column(lake, f, "k"))[-1]),
    )


def column(lake: Lake, file: str, name: str) -> Array:
    return whole(lake.open(file).read()[name])


def test_special_floats_inside_lists_and_structs_keep_their_bits(
    writer: str | Engine, local: Lake
) -> None:
    values = repeated(floats(64), 24)
    lists = pa.ListArray.from_arrays(pa.array(range(25), pa.int32()), values)
    structs = pa.StructArray.from_arrays([values], ["x"])
    write_parts(local, pa.table({"id": list(range(24)), "l": lists, "s": structs}), 3)
    cluster(local, writer, ["s.x"], target_rows_per_file=9)
    expected = dict(enumerate(exact(values)))
    for name in local.files():
        ids = column(local, name, "id").to_pylist()
        wanted = [expected[n] for n in ids]
        assert exact(column(local, name, "l").flatten()) == wanted
        assert exact(column(local, name, "s").field(0)) == wanted


def test_zeros_of_both_signs_are_equal_in_the_order(writer: str | Engine, local: Lake) -> None:
    table = pa.table({"id": list(range(8)), "k": [0.0, -0.0] * 4, "m": [7, 6, 5, 4, 3, 2, 1, 0]})
    write_parts(local, table, 2)
    assert_kept(local, writer, ["k", "m"], target_rows_per_file=8)
    assert local.column("m") == [0, 1, 2, 3, 4, 5, 6, 7]


# --- order -----------------------------------------------------------------------------------


def test_negative_decimals_come_first(writer: str | Engine, local: Lake) -> None:
    values = [Decimal(n) / 100 for n in (5, -12345, 0, -1, 99999, -100)]
    write_parts(local, numbered({"d": pa.array(values, pa.decimal128(10, 2))}, 6), 2)
    assert_kept(local, writer, ["d"], target_rows_per_file=6)
    assert local.column("id") == [1, 5, 3, 2, 0, 4]


def test_text_is_ordered_by_its_utf8_bytes(writer: str | Engine, local: Lake) -> None:
    # U+FF5E is before U+1F600 in code points and UTF-8, but behind it in UTF-16.
    words = ["\U0001f600", "\uff5e", "z", "Z", "é", "", "zz", None]
    write_parts(local, numbered({"s": pa.array(words)}, 8), 2)
    assert_kept(local, writer, ["s"], target_rows_per_file=8)
    assert local.column("s") == ["", "Z", "z", "zz", "é", "\uff5e", "\U0001f600", None]


def test_large_unsigned_integers_come_last(writer: str | Engine, local: Lake) -> None:
    values = [2**63, 0, 2**64 - 1, 2**63 - 1, None]
    write_parts(local, numbered({"u": pa.array(values, pa.uint64())}, 5), 2)
    assert_kept(local, writer, ["u"], target_rows_per_file=5)
    assert local.column("u") == [0, 2**63 - 1, 2**63, 2**64 - 1, None]


def test_neighbouring_large_integers_are_told_apart(writer: str | Engine, local: Lake) -> None:
    # As floats all of these would be equal.
    values = [2**62 + n * 7 % 16 for n in range(16)]
    write_parts(local, numbered({"i": pa.array(values)}, 16), 2)
    assert_kept(local, writer, ["i"], target_rows_per_file=8)
    assert sorted(sorted(column(local, f, "i").to_pylist())[0] - 2**62 for f in local.files()) == [
        0,
        8,
    ]


def test_categories_are_ordered_by_their_words(writer: str | Engine, local: Lake) -> None:
    # Numbered in the order of their appearance, which is another one in each file.
    files: list[list[Any]] = [["c", "a", "b"], ["b", "d", None], ["a", "e", "c"]]
    for part, words in enumerate(files):
        table = pa.table({"id": list(range(part * 3, part * 3 + 3))})
        codes = coded(words, pa.int8(), pa.string())
        local.write(f"part-{part}.parquet", table.append_column("w", codes))
    assert_kept(local, writer, ["w"], target_rows_per_file=5)
    found = sorted(column(local, f, "w").to_pylist() for f in local.files())
    assert found == [["a", "a", "b", "b", "c"], ["c", "d", "e", None]]


def test_bytes_that_start_alike_are_told_apart(writer: str | Engine, local: Lake) -> None:
    keys = [b"\x00" * 40 + bytes([n * 37 % 256]) for n in range(256)]
    write_parts(local, numbered({"b": pa.array(keys)}, 256), 4)
    assert_kept(local, writer, ["b"], target_rows_per_file=64)
    firsts = sorted(column(local, f, "b").to_pylist()[0][-1] for f in local.files())
    assert firsts == [0, 64, 128, 192]


def test_booleans_make_two_files(writer: str | Engine, local: Lake) -> None:
    write_parts(local, numbered({"b": pa.array([True, False])}, 20), 4)
    assert_kept(local, writer, ["b"], target_rows_per_file=10)
    files = sorted(column(local, f, "b").to_pylist() for f in local.files())
    assert files == [[False] * 10, [True] * 10]
