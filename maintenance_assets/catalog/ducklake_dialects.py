"""What the DuckLake views have to say differently in each database.

DuckDB reads the views of a SQLite file by running them itself: those two speak the same.
"""

from dataclasses import dataclass

from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Dialect:
    """What has to be said differently."""

    moment: str
    """Microseconds since 1970, `{}`, as a time that DuckDB takes for one with a zone."""
    number: str
    """A bound `{}` of a column of numbers below 2^63, as text."""
    plain: str
    """Whether a bound `{}` of texts is short and plain, so that it is a value, and a whole one."""
    text: str
    """A plain bound `{}` as text."""


_NEGATIVE = "CASE WHEN substr(hex({}), 1, 2) = '00' THEN 18446744073709551616 ELSE 0 END"

_DUCKDB_MOMENT = "strftime(make_timestamp({}), '%Y-%m-%d %H:%M:%S.%f') || '+00'"
_DUCKDB = Dialect(
    moment=_DUCKDB_MOMENT,
    number="CAST(CAST(CAST('0x' || substr(hex({0}), 3) AS UBIGINT) AS HUGEINT) - "
    f"{_NEGATIVE.format('{0}')} AS VARCHAR)",
    plain="regexp_matches(hex({}), '^([2-6][0-9A-F]|7[0-9A-E])+$') AND octet_length({}) < 16",
    text="decode({})",
)
_DIALECTS = {
    "sqlite": _DUCKDB,
    "duckdb": _DUCKDB,
    "postgresql": Dialect(
        moment="timestamptz 'epoch' + {} * interval '1 microsecond'",
        number="CAST(CAST(CAST('x' || substr(encode({}, 'hex'), 3) AS BIT(64)) AS BIGINT) AS TEXT)",
        plain="encode({}, 'hex') ~ '^([2-6][0-9a-f]|7[0-9a-e])+$' AND octet_length({}) < 16",
        text="convert_from({}, 'UTF8')",
    ),
}


def dialect_of(connection: Connection) -> Dialect:
    """How the views are written in this database."""
    return _DIALECTS[connection.dialect.name]
