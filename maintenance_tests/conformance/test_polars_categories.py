"""Enumerations and categories of Polars: what it does not find in their list it takes for null."""

import io
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from maintenance_assets import Lakehouse, upsert
from maintenance_assets.errors import (
    IncompleteMaintenanceError,
    MaintenanceError,
    SchemaMismatchError,
)
from maintenance_tests.datasets import Lake

SHAPES: dict[str, Any] = {
    "flat": pl.col("e"),
    "in a struct": pl.struct("e").alias("e"),
    "in a list": pl.concat_list("e").alias("e"),
}


def put(lake: Lake, name: str, frame: pl.DataFrame) -> None:
    sink = io.BytesIO()
    frame.write_parquet(sink)
    lake.put(name, sink.getvalue())


def enumerated(values: list[str], listed: list[str], start: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": range(start, start + len(values)),
            "e": pl.Series(values, dtype=pl.Enum(listed)),
        }
    )


def polars_rows(lake: Lake) -> list[Any]:
    frames = [pl.read_parquet(io.BytesIO(lake.get(name))) for name in lake.files()]
    return sorted(row for frame in frames for row in frame.rows())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("longer_first", [True, False])
def test_an_enumeration_that_grew_is_the_longer_one(
    engine: str, local: Lake, shape: str, longer_first: bool
) -> None:
    frames = [enumerated(["a", "b"], ["a", "b"]), enumerated(["c", "a"], ["a", "b", "c"], 2)]
    for name, frame in zip("ba" if longer_first else "ab", frames, strict=True):
        put(local, f"{name}.parquet", frame.with_columns(SHAPES[shape]))
    expected = polars_rows(local)
    result = local.compact(engine)
    assert polars_rows(local) == expected
    assert "categories of Polars differ, they are those of the longest list" in str(result.notes)
    frame = pl.read_parquet(io.BytesIO(local.get(local.only_file())))
    assert "Enum(categories=['a', 'b', 'c'])" in str(frame.schema["e"])


@pytest.mark.parametrize("shape", SHAPES)
def test_enumerations_in_another_order_are_left(engine: str, local: Lake, shape: str) -> None:
    put(local, "a.parquet", enumerated(["a"], ["a", "b"]).with_columns(SHAPES[shape]))
    put(local, "b.parquet", enumerated(["a"], ["b", "a"]).with_columns(SHAPES[shape]))
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match="enumerations in another order"):
        local.compact(engine)
    assert local.tree() == before


def test_categories_of_several_names_can_be_read(engine: str, local: Lake) -> None:
    few = pl.Categorical(pl.Categories("few", physical=pl.UInt8))
    put(local, "a.parquet", pl.DataFrame({"c": pl.Series(["a", "b"], dtype=few)}))
    values = [f"v{n}" for n in range(1000)]
    put(local, "b.parquet", pl.DataFrame({"c": pl.Series(values, dtype=pl.Categorical)}))
    local.compact(engine)
    assert polars_rows(local) == sorted([("a",), ("b",), *((value,) for value in values)])


def test_an_enumeration_beside_ordered_categories_is_none(engine: str, local: Lake) -> None:
    put(local, "a.parquet", enumerated(["a", "b"], ["a", "b"]).select("e"))
    codes, values = pa.array([2, 0], pa.uint8()), pa.array(["a", "b", "c"])
    column = pa.DictionaryArray.from_arrays(codes, values, ordered=True)
    local.write("b.parquet", pa.table({"e": column}))
    local.compact(engine)
    assert polars_rows(local) == [("a",), ("a",), ("b",), ("c",)]


def test_rows_that_are_new_keep_to_the_enumeration(engine: str, local: Lake) -> None:
    put(local, "a.parquet", enumerated(["a", "b"], ["a", "b"]))
    before = local.tree()
    with pytest.raises(MaintenanceError, match="'zz' has no place: Polars would read it as null"):
        upsert(local.url, pa.table({"id": [8], "e": ["zz"]}), ["id"], engine=engine)
    assert local.tree() == before
    upsert(local.url, pa.table({"id": [8], "e": ["b"]}), ["id"], engine=engine)
    assert polars_rows(local) == [(0, "a"), (1, "b"), (8, "b")]


def test_a_lakehouse_keeps_to_the_enumeration(local: Lake) -> None:
    lake = Lakehouse(f"sqlite:///{local.url}.db", root=local.url)
    frame = enumerated(["a", "b"], ["a", "b"])
    dataset = lake.create_dataset("d", frame.to_arrow().schema)
    dataset.append(frame)
    with pytest.raises(SchemaMismatchError, match="'c' has no place: Polars would read it as null"):
        dataset.append(enumerated(["c"], ["a", "b", "c"]))
    dataset.append(enumerated(["b"], ["b", "a"], 2))
    assert sorted(dataset.to_polars().collect().rows()) == [(0, "a"), (1, "b"), (2, "b")]
