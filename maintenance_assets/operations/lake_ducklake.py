"""Datasets of a catalog as tables of DuckLake, for DuckDB to attach."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import URL

from maintenance_assets.catalog.ducklake import create_views, left_out
from maintenance_assets.operations.lake_session import LakeSession


@dataclass(frozen=True, slots=True)
class DuckLakeAccess:
    """How DuckDB attaches a catalog, and what it will not see there."""

    uri: str
    """What `ATTACH` takes; without the password of a server, which libpq looks up itself."""
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)
    """Datasets that DuckLake cannot express, and why."""

    def attach_sql(self, name: str = "lake") -> str:
        """The statement that attaches the catalog under a name."""
        quoted = name.replace('"', '""')
        text = self.uri.replace("'", "''")
        return f"ATTACH '{text}' AS \"{quoted}\" (READ_ONLY)"


def open_to_ducklake(session: LakeSession) -> DuckLakeAccess:
    """Make the views in the catalog's database, anew if they are there."""
    session.database.write(create_views)
    return DuckLakeAccess(ducklake_uri(session.database.url), session.database.read(left_out))


def ducklake_uri(url: URL) -> str:
    """A catalog's database as DuckLake calls it."""
    if url.drivername == "sqlite":
        return f"ducklake:sqlite:{url.database}"
    if url.drivername == "duckdb":
        return f"ducklake:{url.database}"
    named = {"dbname": url.database, "host": url.host, "port": url.port, "user": url.username}
    named |= {key: str(value) for key, value in url.query.items()}
    words = [f"{key}={_quoted(str(value))}" for key, value in named.items() if value]
    return f"ducklake:postgres:{' '.join(words)}"


def _quoted(word: str) -> str:
    """A value of a libpq connection string."""
    if word and not any(letter in word for letter in " '\\"):
        return word
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
