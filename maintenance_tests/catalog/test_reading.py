"""Reads open what can hold the rows, and the result is the same whether or not anything is ruled
out."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maintenance_assets import Lakehouse
from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_assets.operations.lake_bounds import key_bounds
from maintenance_assets.planning.predicates import parse_predicate


@pytest.fixture
def numbers(small: Lakehouse) -> LakeDataset:
    """Ten files of ten ids, in groups of five rows; every third value is missing."""
    dataset = small.create_dataset("numbers", {"id": pa.int64(), "v": pa.float64()})
    for start in range(0, 100, 10):
        ids = list(range(start, start + 10))
        data = {"id": ids, "v": [None if i % 3 == 0 else i / 4 for i in ids]}
        dataset.append(data, row_group_rows=5)
    return dataset


def read_groups(dataset: LakeDataset, where: str) -> list[tuple[int, ...]]:
    """Row groups of each file that a read would open."""
    fragments = dataset.to_arrow_dataset(where=where).get_fragments()
    return [tuple(group.id for group in fragment.row_groups) for fragment in fragments]


def test_files_and_row_groups_are_ruled_out_by_the_catalog(numbers: LakeDataset) -> None:
    assert numbers.read(where="id = 42").to_pydict() == {"id": [42], "v": [None]}
    assert read_groups(numbers, "id = 42") == [(0,)]
    assert read_groups(numbers, "id BETWEEN 48 AND 52") == [(1,), (0,)]
    assert read_groups(numbers, "id > 200") == []
    assert read_groups(numbers, "v < 0.5") == [(0,)]
    assert read_groups(numbers, "id IS NULL") == []
    assert numbers.read(where="id > 200").num_rows == 0
    assert numbers.read(["v"], where="id IN (1, 98)").to_pydict() == {"v": [0.25, 24.5]}


def test_files_that_are_ruled_out_are_not_even_opened(numbers: LakeDataset) -> None:
    kept = numbers.files()[4].path
    for path in Path(numbers.path).rglob("*.parquet"):
        if path.name != kept:
            path.write_bytes(b"no longer Parquet")
    assert numbers.read(where="id = 42").num_rows == 1
    assert numbers.to_arrow_dataset().to_table(filter=pc.field("id") == 42).num_rows == 1


def test_later_filters_of_other_libraries_are_null_safe(numbers: LakeDataset) -> None:
    dataset = numbers.to_arrow_dataset()
    missing = dataset.to_table(filter=pc.field("v").is_null())
    assert missing.column("id").to_pylist() == [i for i in range(100) if i % 3 == 0]
    relation = numbers.to_duckdb()
    assert len(relation.filter("v IS NULL AND id < 10").fetchall()) == 4
    assert len(relation.filter("v IS NULL OR v > 24").fetchall()) == 36
    polars = numbers.to_polars()
    assert polars.filter(pl.col("v").is_null()).collect().height == 34
    assert polars.filter(pl.col("id") == 7).select("v").collect().item() == 1.75


def test_other_libraries_see_the_same_rows(numbers: LakeDataset) -> None:
    total = sum(range(100))
    context = datafusion.SessionContext()
    numbers.to_datafusion(context)
    batches = context.sql("SELECT sum(id) AS s FROM numbers").collect()
    assert batches[0].column(0).to_pylist() == [total]
    assert sum(numbers.to_daft().to_pydict()["id"]) == total
    assert sum(numbers.to_daft(where="id < 10").to_pydict()["id"]) == 45
    con = duckdb.connect()
    numbers.to_duckdb(con)
    assert con.sql("SELECT sum(id) FROM numbers").fetchall() == [(total,)]
    numbers.to_duckdb(con, version=1)
    assert con.sql("SELECT sum(id) FROM numbers").fetchall() == [(45,)]


def test_other_libraries_see_the_version_of_a_tag_or_a_moment(numbers: LakeDataset) -> None:
    numbers.tag("first", 1)
    moment = next(commit.committed_at for commit in numbers.history() if commit.version == 2)
    for asked, rows in (({"tag": "first"}, 10), ({"as_of": moment}, 20), ({"version": 3}, 30)):
        assert len(numbers.to_duckdb(**asked).fetchall()) == rows
        assert numbers.to_polars(**asked).collect().height == rows
        assert numbers.to_datafusion(datafusion.SessionContext(), **asked).count() == rows
        assert numbers.to_daft(**asked).count_rows() == rows
        assert numbers.to_arrow_dataset(**asked).count_rows() == rows


def test_other_libraries_see_only_the_rows_of_a_condition(numbers: LakeDataset) -> None:
    for where, rows in (("id = 42", 1), ("v > 20", 12), ("id > 200", 0), ("v IS NULL", 34)):
        assert numbers.read(where=where).num_rows == rows
        assert len(numbers.to_duckdb(where=where).fetchall()) == rows
        assert numbers.to_polars(where=where).collect().height == rows
        assert numbers.to_datafusion(datafusion.SessionContext(), where=where).count() == rows
        assert numbers.to_daft(where=where).count_rows() == rows


@pytest.mark.parametrize("place", ["plain", "a[1]b", "a*", "{x}", "50%", "a b", "k=v"])
def test_other_libraries_take_no_path_for_a_pattern(
    small: Lakehouse, tmp_path: Path, place: str
) -> None:
    schema = {"id": "int64", "k": "string"}
    dataset = small.create_dataset("d", schema, ["k"], path=tmp_path / place / "d")
    dataset.append({"id": [1, 2, 3], "k": ["x?", "xy", "50%/x"]})
    for key, id_ in (("x?", 1), ("50%/x", 3)):
        dataset.delete(f"k <> '{key}'")
        for found in (dataset.to_daft().to_pydict(), dataset.to_polars().collect().to_dict()):
            assert {name: list(values) for name, values in found.items()} == {
                "id": [id_],
                "k": [key],
            }
        dataset.restore(1)


class Stream:
    """Nothing but an Arrow C stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def test_any_arrow_stream_can_be_written(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", data=Stream(pa.table({"id": [1]})))
    dataset.append(Stream(pa.table({"id": [2]})))
    dataset.upsert(Stream(pa.table({"id": [2, 3]})), ["id"])
    assert sorted(dataset.read().column("id").to_pylist()) == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.xdist_group("servers")
def test_spark_reads_and_is_read(small: Lakehouse, spark: Any) -> None:
    dataset = small.create_dataset("s", data={"id": [1, 2], "name": ["a", None]})
    dataset.rename_column("name", "label")
    frame = dataset.to_spark(spark)
    assert sorted(tuple(row) for row in frame.collect()) == [(1, "a"), (2, None)]
    dataset.append(frame.filter("id = 1"))
    assert sorted(dataset.read().column("id").to_pylist()) == [1, 1, 2]
    done = dataset.compact(engine="spark")
    assert done.to_dict()["after_file_count"] in (1, 2)
    assert small.fsck().problems == ()


VALUES = pa.table(
    {
        "i": pa.array(range(8), pa.int64()),
        "n": pa.array([1, None, -5, 2**62, 0, 7, None, 3], pa.int64()),
        "f": pa.array([1.5, float("nan"), None, -0.0, 0.0, float("inf"), -2.0, 1.5]),
        "s": pa.array(["a", "", None, "z" * 100, "é", "Z", "a\x00", "a"]),
        "b": pa.array([True, False, None, True, True, False, None, False]),
        "d": pa.array([Decimal("1.10"), None, Decimal("-2.00"), *[Decimal("0.00")] * 5]),
        "t": pa.array([0, 1, None, 2**40, -1, 5, 6, 7], pa.timestamp("us", "UTC")),
    }
)
PREDICATES = (
    "n = 1",
    "n <> 1",
    "n > 0",
    "NOT (n > 0)",
    "n IS NULL",
    "n IN (7, -5)",
    "n NOT IN (7, -5)",
    "n BETWEEN -10 AND 3",
    "f > 1",
    "f <> 1.5",
    "f = 0",
    "f < 0",
    "s = 'a'",
    "s > 'Z'",
    "s LIKE 'z%'",
    "s IS NULL OR n > 2",
    "b",
    "NOT b",
    "b IS NULL",
    "d > 1",
    "d = 0",
    "t >= TIMESTAMPTZ '1970-01-01 00:00:00+00'",
    "n > 0 AND s = 'a'",
    "n > 0 OR f < 0",
    "n = 7 OR s = 'z' OR d > 1",
    "i = 1 OR i = 3 AND s > 'Z' OR n IN (0, 3)",
    "s IN ('a', 'Z', NULL)",
    "s LIKE 'a_' OR t < TIMESTAMPTZ '1970-01-01 00:00:00+00'",
    "NOT (n = 1 OR s LIKE 'a%')",
)


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.integers(0, 7), max_size=12), st.lists(st.integers(1, 4), max_size=4))
def test_results_are_equal_whether_or_not_anything_is_ruled_out(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("pruned")
    table = VALUES.take(pa.array(order, pa.int64()))
    with Lakehouse(f"sqlite:///{folder}/catalog.db") as house:
        dataset = house.create_dataset("d", VALUES.schema)
        start = 0
        for size in [*sizes, len(order)]:
            if start < len(order):
                dataset.append(table.slice(start, size), row_group_rows=2)
                start += size
        # One file and one row group: nothing to rule anything out by, but the rows themselves.
        whole = house.create_dataset("whole", VALUES.schema)
        whole.append(table)
        everything = whole.to_duckdb()
        for where in PREDICATES:
            expected = everything.filter(where).to_arrow_table()
            pruned = dataset.read(["i"], where=where)
            assert ids(pruned) == ids(expected), where


def ids(table: pa.Table) -> list[int]:
    """Which rows of the values there are."""
    return sorted(table.column("i").to_pylist())


def test_partition_values_survive_any_spelling(house: Lakehouse) -> None:
    values = ["a/b", "", None, "100%", "x=y", " end ", "ünï", "__HIVE_DEFAULT_PARTITION__", "'"]
    dataset = house.create_dataset(
        "spelled", {"id": pa.int64(), "k": pa.string()}, partition_by=["k"]
    )
    dataset.append({"id": list(range(len(values))), "k": values})
    for number, value in enumerate(values):
        where = "k IS NULL" if value is None else f"k = '{value.replace(chr(39), chr(39) * 2)}'"
        assert dataset.read(where=where).to_pydict() == {"id": [number], "k": [value]}
        fragments = dataset.to_arrow_dataset(where=where).get_fragments()
        assert len(list(fragments)) == 1
    assert len(dataset.files()) == len(values)
    assert house.fsck().problems == ()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id IN (3, 57, 200)", [3, 57]),
        ("id = 3 OR id = 57 AND k = 'k57'", [3, 57]),
        ("id = 3 OR k = 'k57'", [3, 57]),
        ("id < 1 OR id > 98 OR k LIKE 'k57%'", [0, 57, 99]),
        ("k LIKE 'k91%' AND (id = 91 OR id = 3)", [91]),
    ],
)
def test_alternatives_rule_files_out_in_every_database(
    house: Lakehouse, where: str, expected: list[int]
) -> None:
    dataset = house.create_dataset("numbers", {"id": "int64", "k": "string"})
    for start in range(0, 100, 10):
        ids_ = range(start, start + 10)
        dataset.append({"id": list(ids_), "k": [f"k{id_}" for id_ in ids_]})
    session = house._session
    state = session.reader.dataset("numbers")
    predicate = parse_predicate(where).bind(state.schema.arrow)
    physical = session.reader.physical_schemas(state.dataset_id)
    bounds = key_bounds(predicate, state.schema, physical)
    files = session.reader.files(state.dataset_id, state.head, bounds)
    assert len(files) == len({id_ // 10 for id_ in expected})
    assert sorted(dataset.read(where=where).column("id").to_pylist()) == expected


def test_typed_partitions_rule_files_out(house: Lakehouse) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("hour", pa.int32())])
    dataset = house.create_dataset("typed", schema, partition_by=["day", "hour"])
    days = pa.array([0, 0, 1, 2, None], pa.date32())
    dataset.append({"id": [1, 2, 3, 4, 5], "day": days, "hour": [9, 10, 11, 9, 10]})
    assert len(dataset.files()) == 5
    where = "day >= DATE '1970-01-02'"
    assert sorted(dataset.read(["id"], where=where).column("id").to_pylist()) == [3, 4]
    assert len(list(dataset.to_arrow_dataset(where=where).get_fragments())) == 2
    assert dataset.read(["id"], where="hour = 10 AND day IS NULL").to_pydict() == {"id": [5]}
    assert dataset.read().schema == schema


def test_no_transaction_of_the_database_is_open_while_rows_are_written(
    house: Lakehouse, catalog_uri: str
) -> None:
    schema = pa.schema([("id", pa.int64())])
    dataset = house.create_dataset("slow", schema)
    seen = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            # Whoever holds a write lock here keeps this other connection from its commit.
            with Lakehouse(catalog_uri) as other:
                assert [t.operation for t in other.dataset("slow").transactions()] == ["append"]
                other.dataset("slow").append({"id": [100 + number]})
                seen.append(other.dataset("slow").read().num_rows)
            yield pa.record_batch([pa.array([number])], schema=schema)

    dataset.append(pa.RecordBatchReader.from_batches(schema, rows()))
    assert seen == [1, 2, 3]
    assert sorted(dataset.read().column("id").to_pylist()) == [0, 1, 2, 100, 101, 102]
