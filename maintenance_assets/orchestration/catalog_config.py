"""The catalog that a declared dataset lies in, and how long its old versions are kept."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from maintenance_assets.catalog.database import shown
from maintenance_assets.operations.lake_admin import RETENTION
from maintenance_assets.operations.lake_adoption import check_name
from maintenance_assets.orchestration.field_types import Cron, NotNegative, PositiveInt
from maintenance_assets.orchestration.variables import filled_text

_FILES = ("sqlite", "duckdb")
_EXPECTED = (
    "must be 'sqlite:///file', 'duckdb:///file' or 'postgresql://user@host/name', where a "
    "password has %40 for @"
)
# Less could take files from readers that are at work: a person may say so, to the vacuum job.
_Retention = Annotated[float, Field(ge=RETENTION.days, allow_inf_nan=False, strict=True)]


class CatalogConfig(BaseModel):
    """Where the versions of a dataset are kept, and for how long."""

    # An address may hold a password: it is not repeated in messages.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    uri: str = Field(repr=False)
    """`${VARIABLE}` keeps secrets out of the file; a relative file starts at the declaration's."""
    dataset: str | None = None
    """Its name in the catalog; the key with `__` for `/` when not given, as the IO manager has."""
    expire_after_days: NotNegative = 30.0
    """Versions that were replaced before that can be given up."""
    retain_last: PositiveInt = 1
    """So many versions stay readable however old they are."""
    vacuum_after_days: _Retention = float(RETENTION.days)
    """Files that no readable version needs are deleted this long after they were replaced."""
    cleanup_cron: Cron = "0 4 * * 0"
    """When the schedule expires and vacuums; it ships stopped."""

    @field_validator("uri")
    @classmethod
    def _fill_in_uri(cls, uri: str, info: ValidationInfo) -> str:
        return _located(filled_text(uri), info.context)

    @field_validator("dataset")
    @classmethod
    def _check_dataset(cls, dataset: str | None) -> str | None:
        if dataset is not None:
            check_name(dataset)
        return dataset

    @property
    def file(self) -> str | None:
        """The file that the catalog is; None on a server."""
        url = make_url(self.uri)
        is_file = url.drivername in _FILES
        return os.path.realpath(os.path.expanduser(str(url.database))) if is_file else None

    @property
    def server(self) -> tuple[str, ...]:
        """What two catalogs differ in, however their addresses are spelled."""
        url = make_url(self.uri)
        if self.file is not None:
            return (url.drivername, self.file)
        # A socket's directory, too, may be given as an option.
        host = url.host or str(url.query.get("host", ""))
        port = url.port or url.query.get("port", 5432)
        return ("postgresql", f"{host.lower()}:{port}/{url.database or ''}")

    @property
    def shown(self) -> str:
        """The address without user, password and options."""
        url = make_url(self.uri)
        return shown(url if self.file is None else url.set(database=self.file))


def _located(uri: str, folder: Any) -> str:
    """A checked address, whose file does not depend on where a process was started."""
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        raise ValueError(_EXPECTED) from None
    kind = url.drivername.partition("+")[0]
    if kind == "postgresql" and "@" not in (url.host or ""):
        return uri
    if url.drivername not in _FILES or url.host or not url.database:
        raise ValueError(_EXPECTED)
    if url.database == ":memory:":
        raise ValueError("must name a file: a catalog in memory is gone with its process")
    return _beside(url, folder).render_as_string(hide_password=False)


def _beside(url: URL, folder: Path | None) -> URL:
    path = os.path.expanduser(str(url.database))
    return url.set(database=path if folder is None else str(folder.resolve() / path))
