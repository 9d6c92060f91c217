"""Every Arrow type that Parquet holds comes through repartition bit for bit, on every engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from maintenance_assets import repartition
from maintenance_assets.engines.spark_engine import SparkEngine
from maintenance_assets.errors import RewriteError
from maintenance_tests.conformance.test_types import COLUMNS, all_types, leaves
from maintenance_tests.datasets import Lake, assert_same_table

ORDERED = [name for name in COLUMNS if "ordered" in name]
NESTED_CATEGORIES = ["list of categories", "struct of categories"]


def picked(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    """Some rows; PyArrow can take no views."""
    return pa.concat_tables([table.slice(row, 1) for row in rows]).combine_chunks()


def assert_all_moved(source: Lake, target: Lake, keys: int) -> None:
    """Each directory has the rows of its key, in their order, with type and storage."""
    expected = source.read()
    key = expected.column("key").to_pylist()
    physical = leaves(source.open(source.files()[0]))
    for value in range(keys):
        rows = [row for row, found in enumerate(key) if found == value]
        assert_same_table(target.read(f"key={value}"), picked(expected, rows))
        assert leaves(target.open(target.files(f"key={value}")[0])) == physical


def with_key(table: pa.Table, keys: int) -> pa.Table:
    return table.append_column("key", pa.array([n % keys for n in range(len(table))], pa.int8()))


@pytest.mark.parametrize("name", COLUMNS)
def test_values_and_type_are_kept(local: Lake, tmp_path: Path, name: str) -> None:
    array = COLUMNS[name]
    table = with_key(pa.table({"c": pa.concat_arrays([array, array])}), 2)
    local.write("a.parquet", table.slice(0, len(array)))
    local.write("b.parquet", table.slice(len(array)))
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["key"])
    assert_all_moved(local, target, 2)


def test_all_types_at_once(engine: str, local: Lake, tmp_path: Path) -> None:
    table = with_key(all_types(24), 3)
    local.write("a.parquet", table.slice(0, 10))
    local.write("b.parquet", table.slice(10))
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["key"], engine=engine)
    assert_all_moved(local, target, 3)


def test_all_types_are_spilled_and_come_back(local: Lake, tmp_path: Path) -> None:
    table = with_key(all_types(600).drop_columns(NESTED_CATEGORIES), 3)
    for part in range(6):
        local.write(f"{part}.parquet", table.slice(part * 100, 100))
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["key"], memory_budget_mb=0.1, max_workers=1)
    assert_all_moved(local, target, 3)


def write_notes(lake: Lake, lacking: int, other: Any = None) -> list[str | None]:
    """Two files, one with a text that repeats; returns the notes in the order of ids."""
    notes: list[str | None] = []
    for number in range(2):
        # The file that has the column is the larger one: by that one it is decided how to read.
        rows = 1000 if number == lacking else 2000
        ids = range(len(notes), len(notes) + rows)
        columns: dict[str, Any] = {"id": list(ids), "p": [n % 2 for n in ids]}
        found = other if number == lacking else pa.array(["x"] * rows)
        if found is not None:
            columns["note"] = found
        lake.write(f"a={number + 1}/0.parquet", pa.table(columns))
        notes += [None] * rows if found is None else found.to_pylist()
    return notes


def assert_noted(lake: Lake, notes: list[str | None], directories: set[str]) -> None:
    """Each row has its note."""
    assert {name.split("/")[0] for name in lake.files()} == directories
    rows = dict(zip(lake.column("id"), lake.column("note"), strict=True))
    assert [rows[number] for number in range(len(notes))] == notes


@pytest.mark.parametrize("lacking", [0, 1])
@pytest.mark.parametrize("in_place", [False, True])
def test_text_that_repeats_may_be_missing_from_a_file(
    engine: str, local: Lake, tmp_path: Path, lacking: int, in_place: bool
) -> None:
    notes = write_notes(local, lacking)
    target = local if in_place else Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["p"], engine=engine)
    assert_noted(target, notes, {"p=0", "p=1"})
    schema = target.open(target.files("p=0")[0]).schema_arrow
    assert schema.field("note").type == pa.string()


@pytest.mark.parametrize("lacking", [0, 1])
def test_text_that_makes_directories_may_be_missing_from_a_file(
    engine: str, local: Lake, tmp_path: Path, lacking: int
) -> None:
    notes = write_notes(local, lacking)
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["note"], engine=engine)
    assert_noted(target, notes, {"note=x", "note=__HIVE_DEFAULT_PARTITION__"})


OTHERS: dict[str, Any] = {
    "null": pa.nulls(1000),
    "large": pa.array(["y", None] * 500, pa.large_string()),
    "view": pa.array(["y", None] * 500, pa.string_view()),
    "category": pa.array(["y", None] * 500).dictionary_encode(),
    "all null": pa.nulls(1000, pa.string()),
}


@pytest.mark.parametrize("lacking", [0, 1])
@pytest.mark.parametrize("other", OTHERS)
def test_text_that_repeats_may_be_of_another_type_in_a_file(
    local: Lake, tmp_path: Path, other: str, lacking: int
) -> None:
    notes = write_notes(local, lacking, OTHERS[other])
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["p"])
    assert_noted(target, notes, {"p=0", "p=1"})


@pytest.mark.spark
@pytest.mark.xdist_group("servers")
def test_all_types_travel_through_the_shuffle(spark: Any, local: Lake, tmp_path: Path) -> None:
    table = with_key(all_types(48).drop_columns([*NESTED_CATEGORIES, *ORDERED]), 3)
    for part in range(4):
        local.write(f"{part}.parquet", table.slice(part * 12, 12))
    target = Lake(str(tmp_path / "target"))
    engine = SparkEngine(spark, shuffle_bytes=0)
    repartition(local.url, target.url, ["key"], engine=engine)
    assert_all_moved(local, target, 3)


NOT_IN_POLARS = {
    name for name in COLUMNS if any(part in name for part in ("decimal256", "+05:30", "list_view"))
} | {"duration[s]", "struct of required"}


def halved(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns((pl.col("key") // 2).alias("half"))


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NOT_IN_POLARS])
def test_polars_gives_columns_back_as_they_were(local: Lake, tmp_path: Path, name: str) -> None:
    table = with_key(pa.table({"c": COLUMNS[name]}), 2)
    local.write("a.parquet", table)
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["key", "half"], transform_fn=halved)
    assert_same_table(
        target.read("key=1").drop_columns(["half"]),
        picked(local.read(), [row for row in range(len(table)) if row % 2]),
    )


@pytest.mark.parametrize("name", sorted(NOT_IN_POLARS))
def test_what_polars_cannot_hold_is_refused_by_name(local: Lake, tmp_path: Path, name: str) -> None:
    local.write("a.parquet", with_key(pa.table({"c": COLUMNS[name]}), 2))
    target = Lake(str(tmp_path / "target"))
    with pytest.raises(RewriteError, match=r"polars .* column 'c'.* as pyarrow\.Table"):
        repartition(local.url, target.url, ["key"], transform_fn=halved)
    assert target.tree() == {}


@pytest.mark.parametrize("name", sorted(NOT_IN_POLARS))
def test_a_function_over_arrow_tables_gets_every_type(
    local: Lake, tmp_path: Path, name: str
) -> None:
    def same(rows: pa.Table) -> pa.Table:
        return rows

    table = with_key(pa.table({"c": COLUMNS[name]}), 2)
    local.write("a.parquet", table)
    target = Lake(str(tmp_path / "target"))
    repartition(local.url, target.url, ["key"], transform_fn=same)
    assert_same_table(
        target.read("key=0"), picked(local.read(), [r for r in range(len(table)) if r % 2 == 0])
    )
