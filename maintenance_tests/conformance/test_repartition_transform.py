"""The user's function over rows, batch by batch, on every engine."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from maintenance_assets import repartition
from maintenance_assets.errors import RewriteError, VerificationError
from maintenance_tests.datasets import Lake


@pytest.fixture
def target(tmp_path: Path) -> Lake:
    """Where the rows go."""
    return Lake(str(tmp_path / "target"))


def write_numbers(lake: Lake, files: int = 3, rows: int = 10) -> None:
    for part in range(files):
        ids = list(range(part * rows, part * rows + rows))
        lake.write(f"{part}.parquet", {"id": ids, "name": [f"n{i}" for i in ids]})


def add_parity(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns((pl.col("id") % 2).alias("odd"))


def test_a_function_makes_the_partition_column(engine: str, local: Lake, target: Lake) -> None:
    write_numbers(local)
    result = repartition(local.url, target.url, ["odd"], engine=engine, transform_fn=add_parity)
    assert target.column("id", "odd=1") == list(range(1, 30, 2))
    assert target.read("odd=0").schema.field("name").type == pa.string()
    assert (result.stats.rows_read, result.stats.rows_written) == (30, 30)
    assert any("transform_fn" in note for note in result.notes)


def test_a_function_of_the_script_travels_to_executors(
    engine: str, local: Lake, target: Lake
) -> None:
    write_numbers(local)
    step = 7  # known to this test alone
    repartition(
        local.url,
        target.url,
        ["k"],
        engine=engine,
        transform_fn=lambda rows: rows.with_columns((pl.col("id") // step).alias("k")),
    )
    assert target.column("id", "k=3") == list(range(21, 28))


def test_arrow_goes_in_where_the_annotation_asks_for_it(
    engine: str, local: Lake, target: Lake
) -> None:
    write_numbers(local)

    def with_length(rows: pa.Table) -> pa.Table:
        assert isinstance(rows, pa.Table)
        lengths = [len(name) for name in rows["name"].to_pylist()]
        return rows.append_column("length", pa.array(lengths, pa.int16()))

    repartition(local.url, target.url, ["length"], engine=engine, transform_fn=with_length)
    assert target.column("id", "length=2") == list(range(10))
    assert target.read("length=3").schema.field("length").type == pa.int16()


def test_a_function_over_polars_may_return_arrow(local: Lake, target: Lake) -> None:
    write_numbers(local)
    repartition(
        local.url, target.url, ["odd"], transform_fn=lambda rows: add_parity(rows).to_arrow()
    )
    assert target.column("id", "odd=0") == list(range(0, 30, 2))


def test_rows_that_a_function_drops_or_adds_are_counted(
    engine: str, local: Lake, target: Lake
) -> None:
    write_numbers(local)

    def some_twice(rows: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([rows.filter(pl.col("id") >= 20), rows.filter(pl.col("id") == 25)])

    result = repartition(local.url, target.url, ["id"], engine=engine, transform_fn=some_twice)
    assert (result.stats.rows_read, result.stats.rows_written) == (30, 11)
    assert target.column("name", "id=25") == ["n25", "n25"]


def test_in_place_a_function_may_not_drop_rows_unless_nothing_is_validated(
    engine: str, local: Lake
) -> None:
    write_numbers(local)
    before = local.tree()

    def some(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(pl.col("id") >= 20)

    with pytest.raises(VerificationError, match=r"made 10 row\(s\) of 30, and in place"):
        repartition(local.url, local.url, ["id"], engine=engine, transform_fn=some)
    assert local.tree() == before
    result = repartition(
        local.url, local.url, ["id"], engine=engine, transform_fn=some, validate=False
    )
    assert (result.stats.rows_read, result.stats.rows_written) == (30, 10)
    assert sorted(local.column("id")) == list(range(20, 30))


def test_a_function_that_drops_all_rows_leaves_the_schema(local: Lake, target: Lake) -> None:
    write_numbers(local)
    result = repartition(local.url, target.url, ["id"], transform_fn=lambda rows: rows.clear())
    assert result.stats.rows_written == 0
    assert target.read().schema.names == ["id", "name"]


def test_batches_are_no_larger_than_asked(local: Lake, target: Lake) -> None:
    write_numbers(local, files=2, rows=100)
    sizes: list[int] = []

    def seen(rows: pl.DataFrame) -> pl.DataFrame:
        sizes.append(len(rows))
        return rows

    repartition(local.url, target.url, [], transform_fn=seen, batch_rows=30)
    assert max(sizes) == 30
    assert target.column("id") == list(range(200))


def test_small_files_go_into_a_batch_together(local: Lake, target: Lake) -> None:
    write_numbers(local, files=20, rows=5)
    sizes: list[int] = []

    def seen(rows: pl.DataFrame) -> pl.DataFrame:
        sizes.append(len(rows))
        return rows

    repartition(local.url, target.url, [], transform_fn=seen, max_workers=1)
    assert max(sizes) == 100


def test_derived_columns_and_path_columns_are_there_for_the_function(
    local: Lake, target: Lake
) -> None:
    local.write("day=01/a.parquet", {"id": [1, 2]})

    def label(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns((pl.col("day") + "-" + pl.col("d").cast(str)).alias("label"))

    repartition(local.url, target.url, ["label"], derived={"d": "id * 10"}, transform_fn=label)
    assert target.column("id", "label=01-20") == [2]


def test_metadata_of_columns_that_stay_is_kept(local: Lake, target: Lake) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int32(), nullable=False, metadata={"unit": "m"})], {"owner": "me"}
    )
    local.write("a.parquet", pa.table([[1, 2]], schema=schema))
    repartition(local.url, target.url, ["odd"], transform_fn=add_parity)
    found = target.read("odd=1").schema
    assert found.field("id").equals(schema.field("id"), check_metadata=True)
    assert found.metadata == schema.metadata


def test_an_error_of_the_function_is_told_and_nothing_is_written(
    engine: str, local: Lake, target: Lake
) -> None:
    write_numbers(local)

    def fail(rows: pl.DataFrame) -> pl.DataFrame:
        if rows["id"].max() == 29:
            raise KeyError("not mine")
        return rows

    with pytest.raises(RewriteError, match=r"transform_fn raised KeyError.*not mine"):
        repartition(local.url, target.url, ["id"], engine=engine, transform_fn=fail, batch_rows=10)
    assert target.tree() == {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (lambda rows: rows.with_columns(pl.lit(1).alias("x")), "with column 'x'"),
        (lambda rows: rows.drop("name"), "without column 'name'"),
        (lambda rows: rows.with_columns(pl.col("name").str.len_bytes()), "'name' as uint32"),
    ],
)
def test_batches_with_other_columns_are_refused_by_name(
    local: Lake, target: Lake, columns: Any, message: str
) -> None:
    write_numbers(local)
    with pytest.raises(RewriteError, match=message):
        repartition(
            local.url,
            target.url,
            ["id"],
            transform_fn=lambda rows: columns(rows) if rows["id"].max() == 29 else rows,
            batch_rows=10,
        )
    assert target.tree() == {}


def test_a_narrower_type_in_a_later_batch_is_widened(local: Lake, target: Lake) -> None:
    write_numbers(local)

    def narrow(rows: pl.DataFrame) -> pl.DataFrame:
        type_ = pl.Int8 if rows["id"].max() == 29 else pl.Int64
        return rows.with_columns(pl.col("id").cast(type_).alias("k"))

    repartition(local.url, target.url, ["k"], transform_fn=narrow, batch_rows=10)
    assert target.column("k", "k=29") == [29]
    assert target.read().schema.field("k").type == pa.int64()


def test_something_else_than_rows_is_refused(local: Lake, target: Lake) -> None:
    write_numbers(local)
    with pytest.raises(RewriteError, match=r"must return a polars\.DataFrame .* got dict"):
        repartition(local.url, target.url, ["id"], transform_fn=lambda rows: rows.to_dict())


def test_categories_and_seconds_of_a_function_get_types_that_are_read_back(
    engine: str, local: Lake, target: Lake
) -> None:
    write_numbers(local)

    def enriched(rows: pa.Table) -> pa.Table:
        kinds = pa.array(["even", "odd"] * (rows.num_rows // 2), pa.large_string())
        times = pa.array([0] * rows.num_rows, pa.timestamp("s"))
        columns = {"kind": kinds.dictionary_encode(), "at": times}
        return pa.table({**{name: rows.column(name) for name in rows.column_names}, **columns})

    repartition(local.url, target.url, ["kind"], engine=engine, transform_fn=enriched)
    found = target.read("kind=odd")
    assert found.column("id").to_pylist() == list(range(1, 30, 2))
    assert found.schema.field("kind").type == pa.dictionary(pa.int32(), pa.string())
    assert found.schema.field("at").type == pa.timestamp("ms")


def test_columns_of_a_function_that_parquet_cannot_hold_are_refused_by_name(
    local: Lake, target: Lake
) -> None:
    write_numbers(local)

    def intervals(rows: pa.Table) -> pa.Table:
        type_ = pa.month_day_nano_interval()
        return rows.append_column("every", pa.array([(1, 2, 3)] * rows.num_rows, type_))

    def twice(rows: pa.Table) -> pa.Table:
        return rows.append_column("id", rows.column("id"))

    def huge(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(pl.lit(2**100, dtype=pl.Int128).alias("huge"))

    for function, message in (
        (intervals, "column 'every' as month_day_nano_interval, which Parquet cannot hold"),
        (twice, "the column 'id' more than once"),
        (huge, "column 'huge' as Int128, for which Arrow has no type"),
    ):
        with pytest.raises(RewriteError, match=message):
            repartition(local.url, target.url, ["id"], transform_fn=function)
        assert not Path(target.url).exists()


def test_partition_columns_that_the_function_does_not_make_are_named(
    local: Lake, target: Lake
) -> None:
    write_numbers(local)
    with pytest.raises(ValueError, match=r"not found in data: even\. .* id, name, odd"):
        repartition(local.url, target.url, ["even"], transform_fn=add_parity)


def test_a_dry_run_predicts_from_the_first_rows(local: Lake, target: Lake) -> None:
    write_numbers(local)
    result = repartition(local.url, target.url, ["odd"], transform_fn=add_parity, dry_run=True)
    assert result.stats.partitions_created == 2
    assert any("sample" in note for note in result.notes)
    assert not Path(target.url).exists()
