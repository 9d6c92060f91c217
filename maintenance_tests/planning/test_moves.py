"""Rows that move come to directories as the dataset spells them."""

from typing import Any

import pyarrow as pa

from maintenance_assets.planning.moves import Moves

SCHEMA = pa.schema([("month", pa.int64()), ("city", pa.string())])
EXISTING = ["x/month=01/city=a", "x/month=2/city=a", "x/month=12/city=b%2Fc"]


def targets(base: str, **values: list[Any]) -> list[str]:
    moves = Moves.of(list(values), SCHEMA, EXISTING)
    batch = pa.RecordBatch.from_pydict(values, schema=pa.schema([SCHEMA.field(n) for n in values]))
    codes, directories = moves.targets(batch, base)
    return [directories[code] for code in codes]


def test_only_the_segments_of_new_values_change() -> None:
    assert targets("x/month=01/city=a", city=["a", "b/c", "d e", None]) == [
        "x/month=01/city=a",
        "x/month=01/city=b%2Fc",
        "x/month=01/city=d e",
        "x/month=01/city=__HIVE_DEFAULT_PARTITION__",
    ]


def test_a_value_keeps_the_spelling_that_it_has() -> None:
    assert targets("x/month=01/city=a", month=[1, 2, 3, 12]) == [
        "x/month=01/city=a",
        "x/month=2/city=a",
        "x/month=3/city=a",
        "x/month=12/city=a",
    ]
    assert targets("x/month=2/city=a", month=[1]) == ["x/month=01/city=a"]


def test_several_values_change_at_once() -> None:
    assert targets("x/month=01/city=a", month=[2, 7], city=["a", "é"]) == [
        "x/month=2/city=a",
        "x/month=7/city=é",
    ]


def test_a_directory_without_the_key_is_not_left() -> None:
    assert targets("plain/city=a", month=[5, 6]) == ["plain/city=a", "plain/city=a"]


def test_new_rows_get_all_segments() -> None:
    moves = Moves.of(["month", "city"], SCHEMA, EXISTING)
    batch = pa.RecordBatch.from_pydict({"month": [1, 4], "city": ["a", ""]}, schema=SCHEMA)
    codes, directories = moves.whole(batch)
    assert [directories[code] for code in codes] == ["month=01/city=a", "month=4/city="]
