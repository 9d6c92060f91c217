"""Outputs have a dictionary where values repeat, whatever the many small sources had."""

import pytest

from maintenance_assets import compact
from maintenance_tests.datasets import Lake

ROWS = 5000


def encodings(lake: Lake, column: str) -> list[set[str]]:
    """How each row group of the only file holds a column."""
    metadata = lake.open(lake.only_file()).metadata
    index = metadata.schema.names.index(column)
    groups = range(metadata.num_row_groups)
    return [set(metadata.row_group(group).column(index).encodings) for group in groups]


def fill(lake: Lake, files: int) -> None:
    for number in range(files):
        first = number * ROWS
        table = {
            "id": list(range(first, first + ROWS)),
            "side": [("buy", "sell")[row % 2] for row in range(ROWS)],
        }
        lake.write(f"{number}.parquet", table)


@pytest.mark.parametrize("budget_mb", [0.25, 512], ids=["many row groups", "one row group"])
def test_values_that_never_repeat_get_no_dictionary_and_others_keep_theirs(
    local: Lake, budget_mb: float
) -> None:
    fill(local, 3)
    result = compact(local.url, memory_budget_mb=budget_mb, mode="encode")
    assert result.mode == "encode"
    assert (len(encodings(local, "id")) > 1) == (budget_mb < 1)
    assert all("RLE_DICTIONARY" not in found for found in encodings(local, "id"))
    assert all("RLE_DICTIONARY" in found for found in encodings(local, "side"))
    table = local.open(local.only_file()).read()
    assert table.column("id").to_pylist() == list(range(3 * ROWS))
    assert table.column("side").to_pylist() == ["buy", "sell"] * (3 * ROWS // 2)


def test_few_rows_keep_the_dictionaries_of_their_sources(local: Lake) -> None:
    for number in range(2):
        local.write(f"{number}.parquet", {"id": list(range(number * 10, number * 10 + 10))})
    compact(local.url, mode="encode")
    assert all("RLE_DICTIONARY" in found for found in encodings(local, "id"))


def test_a_dictionary_is_not_made_where_the_sources_had_none(local: Lake) -> None:
    for number in range(2):
        table = {"side": ["buy", "sell"] * ROWS}
        local.write(f"{number}.parquet", table, use_dictionary=False)
    compact(local.url, mode="encode")
    assert all("RLE_DICTIONARY" not in found for found in encodings(local, "side"))
