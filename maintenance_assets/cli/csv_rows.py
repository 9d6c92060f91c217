"""Rows from CSV, which says neither types nor what is NULL."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_PARSE = csv.ParseOptions(newlines_in_values=True)
_PLAIN_INTEGER = r"^-?(0|[1-9][0-9]*)$"
"""No leading zero that the number would lose."""
_PLAIN_FLOAT = r"^(-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][+-][0-9]+)?|nan|-?inf)$"
"""Nor more digits before the point than a float64 holds, nor a code such as 12E3."""
_IN_COLUMN = re.compile(r"In CSV column #(\d+): (.*)", re.DOTALL)


def read_csv(file: Path, types: dict[str, Any]) -> pa.Table:
    """A table in these types; ArrowInvalid names the column.

    An empty field is NULL, and the empty text in quotes is that text. Types of other columns are
    guessed, but for numbers that are not spelled as numbers are: those stay text.
    """
    try:
        table = _read(file, types)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(_told(file, types, str(error))) from error
    except pa.ArrowNotImplementedError as error:
        raise pa.ArrowInvalid(f"{error}. Give such columns in a .parquet file") from error
    guessed = [
        field.name
        for field in table.schema
        if field.name not in types
        and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        and table.column_names.count(field.name) == 1
    ]
    if not guessed:
        return table
    texts = _read(file, dict.fromkeys(guessed, pa.string()), guessed)
    for name in guessed:
        if not _is_plain(texts[name], table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, texts[name])
    return table


def _read(file: Path, types: dict[str, Any], only: list[str] | None = None) -> pa.Table:
    options = csv.ConvertOptions(
        column_types=types,
        include_columns=only,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return csv.read_csv(file, parse_options=_PARSE, convert_options=options)


def _is_plain(texts: pa.ChunkedArray, type_: Any) -> bool:
    pattern = _PLAIN_FLOAT if pa.types.is_floating(type_) else _PLAIN_INTEGER
    return pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py() is True


def _told(file: Path, types: dict[str, Any], message: str) -> str:
    """Columns by their names instead of their places."""
    found = _IN_COLUMN.fullmatch(message)
    if found is None:
        return (
            f"{message}. It must be separated by commas, with the names of the columns in its "
            "first line, and values that hold a comma in quotes"
        )
    name = csv.open_csv(file, parse_options=_PARSE).schema.names[int(found[1])]
    known = f", which is {types[name]} in the dataset" if name in types else ""
    return (
        f"column '{name}'{known}: {found[2]}. Correct that value in the file; an empty field "
        "without quotes is NULL"
    )
