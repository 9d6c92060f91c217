"""Many rows at once, in portions that every database takes."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert

_PORTION = 5000
_DUCKDB_VALUES = 20_000
"""DuckDB runs executemany row by row, but takes one statement with many rows quickly."""


def insert_many(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows; none is fine."""
    if not rows:
        return
    if connection.dialect.name != "duckdb":
        for start in range(0, len(rows), _PORTION):
            connection.execute(insert(table), rows[start : start + _PORTION])
        return
    portion = max(1, _DUCKDB_VALUES // len(rows[0]))
    for start in range(0, len(rows), portion):
        _insert_duckdb(connection, table, rows[start : start + portion])


def _insert_duckdb(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    names = list(rows[0])
    marks = "(" + ", ".join("?" for _ in names) + ")"
    columns = ", ".join(f'"{name}"' for name in names)
    values = tuple(row[name] for row in rows for name in names)
    text = f'INSERT INTO "{table.name}" ({columns}) VALUES ' + ", ".join([marks] * len(rows))
    connection.exec_driver_sql(text, values)
