"""DuckDB as a judge of meaning, and conditions that are handed to DuckDB."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings

from maintenance_assets.planning.predicates import parse_predicate
from maintenance_assets.planning.sql_functions import SIGNATURES
from maintenance_tests.planning.expression_strategies import (
    CALCULATIONS,
    COMPARISONS,
    SAID_TO_DUCKDB,
    SCHEMA,
    checks,
    comparisons,
    conditions,
    rows,
)

ROWS = rows(400)
SETTINGS = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def memory() -> Iterator[Any]:
    """The rows as a table, which DuckDB knows no statistics of NaN of."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("arrow", pa.table(ROWS))
        connection.execute("CREATE TABLE rows AS SELECT * FROM arrow")
        yield connection


@pytest.fixture(scope="module")
def parquet(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Any, list[tuple[str, pa.RecordBatch]]]]:
    """The rows as files, sorted by one column each, in small row groups."""
    folder: Path = tmp_path_factory.mktemp("rows")
    files = []
    for name in ("i", "s", "t"):
        path = str(folder / f"{name}.parquet")
        table = pa.table(ROWS).sort_by(name).combine_chunks()
        pq.write_table(table, path, row_group_size=20)
        files.append((path, table.to_batches()[0]))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        yield connection, files


def judged(connection: Any, text: str, source: str = "rows") -> list[bool]:
    query = f"SELECT coalesce(({text}), FALSE) AS m FROM {source}"
    found: list[bool] = connection.sql(query).to_arrow_table()["m"].to_pylist()
    return found


@given(conditions(comparisons() | checks()))
@SETTINGS
def test_conditions_hold_for_the_same_rows_as_in_duckdb(memory: Any, text: str) -> None:
    assert parse_predicate(text).bind(SCHEMA).mask(ROWS).to_pylist() == judged(memory, text)


@pytest.mark.parametrize("call", CALCULATIONS)
def test_calculations_give_the_same_as_in_duckdb(memory: Any, call: str) -> None:
    for operator in COMPARISONS:
        text = call.format(op=operator)
        found = parse_predicate(text).bind(SCHEMA).mask(ROWS).to_pylist()
        assert found == judged(memory, text), text


def test_every_function_is_judged() -> None:
    assert set(SIGNATURES) <= set(
        re.findall(r"\w+(?=\()|(?<=extract\()\w+", " ".join(CALCULATIONS))
    )


@given(conditions(comparisons(SAID_TO_DUCKDB) | checks()))
@example("s LIKE '_' ESCAPE '!'")
@example("NOT (u IN (18446744073709551615, NULL))")
@example("c BETWEEN 'a' AND 'é'")
@example("k IS NULL OR (i8 > 1) = l")
@settings(SETTINGS, max_examples=100)
def test_duckdb_finds_the_same_rows_in_parquet(parquet: Any, text: str) -> None:
    connection, files = parquet
    predicate = parse_predicate(text).bind(SCHEMA)
    condition = predicate.duckdb_sql()
    path, batch = files[len(text) % 3]
    if condition is not None:
        query = f"SELECT count(*) FROM read_parquet('{path}') WHERE {condition}"
        matching = predicate.mask(batch).true_count
        assert connection.sql(query).fetchall() == [(matching,)], condition
        rest = batch.num_rows - matching
        assert connection.sql(f"{query} IS NOT TRUE").fetchall() == [(rest,)], condition


def said(text: str, schema: pa.Schema = SCHEMA) -> str | None:
    return parse_predicate(text).bind(schema).duckdb_sql()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i8 = 5", "(\"i8\" = CAST('5' AS TINYINT))"),
        ("s = 'it''s'", "(\"s\" = 'it''s')"),
        ("i8 = 1000", '(CASE WHEN "i8" IS NOT NULL THEN FALSE END)'),
        ("y < '2025-01-01'", "(\"y\" < DATE '2025-01-01')"),
        ("t = '2025-01-01 10:00'", "(\"t\" = TIMESTAMP '2025-01-01 10:00:00')"),
        ("z = '2025-01-01Z'", None),
        (
            "z = '2025-01-01 02:00+02:00'",
            "(\"z\" = TIMESTAMPTZ '2025-01-01 00:00:00+00:00')",
        ),
        ("d = 1.5", "(\"d\" = CAST('1.50' AS DECIMAL(10, 2)))"),
        ("b = X'00ff'", "(\"b\" = '\\x00\\xFF'::BLOB)"),
        ("s LIKE '50!%!_%' ESCAPE '!'", "(\"s\" LIKE '50!%!_%' ESCAPE '!')"),
        ("k AND NOT l", '("k" AND (NOT "l"))'),
        ("f IS NULL", '("f" IS NULL)'),
        ("i8 IN (300)", '(CASE WHEN "i8" IS NOT NULL THEN FALSE END)'),
        ("i8 IN (2, 1, NULL)", "(\"i8\" IN (CAST('1' AS TINYINT), CAST('2' AS TINYINT), NULL))"),
    ],
)
def test_what_is_said_to_duckdb(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="not a date or a timestamp"):
            said(text)
    else:
        assert said(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "f > 1",
        "g = 0.5",
        "i = f",
        "d = w",
        "i8 + 1 = 2",
        "year(t) = 2025",
        "s ILIKE 'a'",
        "CAST(s AS BIGINT) = 1",
        "CASE WHEN k THEN i8 END = 1",
        "m = '10:00'",
        "f IN (1, 2)",
        "NOT (f < 1)",
        "i8 = 1 AND f > 1",
        "coalesce(k, l)",
    ],
)
def test_what_duckdb_might_see_differently_is_not_said(text: str) -> None:
    assert said(text) is None


@pytest.mark.parametrize(
    "field",
    [
        pa.field("x", pa.timestamp("ns")),
        pa.field("x", pa.decimal256(60, 2)),
        pa.field("x", pa.float16()),
        pa.field("x", pa.time32("ms")),
        pa.field("x", pa.duration("us")),
        pa.field("x", pa.uuid()),
        pa.field("x", pa.dictionary(pa.int8(), pa.int64())),
    ],
)
def test_columns_that_duckdb_reads_as_another_type_are_not_said(field: pa.Field) -> None:
    assert said("x = x", pa.schema([field])) is None


def test_names_that_differ_in_case_only_are_not_said() -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64()), ("b", pa.int64())])
    assert said("a = 1", schema) is None
    assert said('"A" IS NULL', schema) is None
    assert said("b = 1", schema) is not None


def test_names_and_texts_are_quoted() -> None:
    schema = pa.schema([('x"; DROP TABLE rows; --', pa.string())])
    text = "\"x\"\"; DROP TABLE rows; --\" = '''; DROP TABLE rows; --'"
    assert said(text, schema) == "(\"x\"\"; DROP TABLE rows; --\" = '''; DROP TABLE rows; --')"


def test_a_nan_that_duckdb_would_lose_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "nan.parquet")
    pq.write_table(pa.table({"x": [1.0, float("nan")]}), path)
    predicate = parse_predicate("x > 5").bind(pa.schema([("x", pa.float64())]))
    assert predicate.mask(pq.read_table(path).to_batches()[0]).to_pylist() == [False, True]
    assert predicate.duckdb_sql() is None
