"""New rows from CSV, as other programs write it."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import Lakehouse
from maintenance_tests.cli.shell import Shell
from maintenance_tests.datasets import Lake

TEXTS = ["a", "", None, "NA", "NULL", "null", 'with, a "quote"', "two\nlines"]
ROWS: dict[str, list[Any]] = {
    "name": TEXTS,
    "note": list(reversed(TEXTS)),
    "n": [1, None, 3, 4, 5, 6, 7, None],
    "price": [1.5, None, float("inf"), 4.0, 5.0, 6.0, None, 0.00001],
}


def by_name(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["name"] is not None, row["name"]))


def expected() -> list[dict[str, Any]]:
    return by_name(pa.table(ROWS).to_pylist())


def export(parquet: Path, file: Path) -> None:
    """As DuckDB writes CSV: NULL is nothing, and the empty text is two quotes."""
    duckdb.sql(f"COPY (SELECT * FROM '{parquet}') TO '{file}' (HEADER)")


def test_a_csv_that_duckdb_wrote_doubles_and_changes_no_row(
    shell: Shell, local: Lake, tmp_path: Path
) -> None:
    local.write("a.parquet", ROWS)
    export(Path(local.path("a.parquet")), tmp_path / "new.csv")
    ran = shell("upsert", local.url, tmp_path / "new.csv", "--key", "name", "--json")
    assert (ran.code, ran.json["rows_inserted"]) == (0, 0), ran.err
    read = pq.read_table(local.url, partitioning=None)
    assert by_name(read.to_pylist()) == expected()


def test_nor_does_it_in_a_catalog(shell: Shell, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    pq.write_table(pa.table(ROWS), tmp_path / "rows.parquet")
    export(tmp_path / "rows.parquet", tmp_path / "new.csv")
    with Lakehouse(uri) as house:
        people = house.create_dataset("people", data=pa.table(ROWS))
        ran = shell(
            *("upsert", "people", tmp_path / "new.csv", "--key", "name", "--catalog", uri, "--json")
        )
        assert (ran.code, ran.json["rows_inserted"]) == (0, 0), ran.err
        assert by_name(people.read().to_pylist()) == expected()


def test_long_csv_may_have_line_breaks_in_its_values(
    shell: Shell, local: Lake, tmp_path: Path
) -> None:
    local.write("a.parquet", {"id": [0], "text": ["old"]})
    text = "first\n2,second\n" * 5
    lines = "".join(f'{number},"{text}"\n' for number in range(30_000))
    (tmp_path / "new.csv").write_text(f"id,text\n{lines}")
    ran = shell("upsert", local.url, tmp_path / "new.csv", "--key", "id", "--json")
    assert (ran.code, ran.json["rows_inserted"]) == (0, 29_999), ran.err
    assert set(local.column("text")) == {text}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["7", "-12", ""], [7, -12, None]),
        (["0", "9223372036854775807"], [0, 9223372036854775807]),
        (["1.5", "1e-05", "nan"], "double"),
        (["007", "12"], ["007", "12"]),
        (["00.5", "1.5"], ["00.5", "1.5"]),
        (["12E3", "7"], ["12E3", "7"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["+49301234", "1"], ["+49301234", "1"]),
        (["NA", "1"], ["NA", "1"]),
        (["true", "false"], [True, False]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_new_column_is_a_number_only_where_it_is_written_as_one(
    shell: Shell, local: Lake, tmp_path: Path, written: list[str], read: Any
) -> None:
    local.write("a.parquet", {"id": [0]})
    lines = "".join(f"{number},{value}\n" for number, value in enumerate(written))
    (tmp_path / "new.csv").write_text(f"id,code\n{lines}")
    ran = shell("upsert", local.url, tmp_path / "new.csv", "--key", "id")
    assert ran.code == 0, ran.err
    codes = pq.read_table(local.url, partitioning=None).sort_by("id")["code"]
    assert str(codes.type) == read if isinstance(read, str) else codes.to_pylist() == read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "id,price\n1,2.5\n2,cheap\n",
            "column 'price', which is double in the dataset: CSV conversion error to double: "
            "invalid value 'cheap'. Correct that value in the file; an empty field without quotes "
            "is NULL",
        ),
        (
            'id,price\n1,2.5\n2,""\n',
            "column 'price', which is double in the dataset: CSV conversion error to double: "
            "invalid value ''. Correct that value in the file; an empty field without quotes is "
            "NULL",
        ),
        (
            "id;price\n1,2\n",
            "CSV parse error: Expected 1 columns, got 2: 1,2. It must be separated by commas, with "
            "the names of the columns in its first line, and values that hold a comma in quotes",
        ),
    ],
)
def test_a_csv_that_cannot_be_read_names_file_column_and_remedy(
    shell: Shell, local: Lake, tmp_path: Path, content: str, message: str
) -> None:
    local.write("a.parquet", {"id": [0], "price": [1.0]})
    before = local.tree()
    file = tmp_path / "new.csv"
    file.write_text(content)
    ran = shell("upsert", local.url, file, "--key", "id")
    assert (ran.code, ran.error) == (2, f"new data '{file}' cannot be read: {message}")
    assert local.tree() == before


def test_a_key_that_is_there_twice_names_the_option(
    shell: Shell, local: Lake, tmp_path: Path
) -> None:
    local.write("a.parquet", {"id": [0]})
    (tmp_path / "new.csv").write_text("id\n1\n1\n")
    words: tuple[object, ...] = ("upsert", local.url, tmp_path / "new.csv", "--key", "id")
    assert shell(*words).error.endswith("or --on-duplicates last in a shell")
    assert shell(*words, "--on-duplicates", "last").code == 0
    uri = f"sqlite:///{tmp_path}/catalog.db"
    with Lakehouse(uri) as house:
        house.create_dataset("ids", {"id": "int64"})
    words = ("upsert", "ids", tmp_path / "new.csv", "--key", "id", "--catalog", uri)
    assert shell(*words).error.endswith("or --on-duplicates last in a shell")
    assert shell(*words, "--on-duplicates", "last").code == 0
