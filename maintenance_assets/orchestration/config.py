"""Datasets as the user declares them: one model behind every door."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import dagster
import fsspec
from fsspec.implementations.cached import CachingFileSystem
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from maintenance_assets.errors import DatasetConfigError
from maintenance_assets.model.clustering import Curve
from maintenance_assets.model.health import HealthPolicy
from maintenance_assets.model.policy import DEFAULT_TARGET_BYTES, MIB, codec_name
from maintenance_assets.model.urls import shown_url
from maintenance_assets.orchestration.catalog_config import CatalogConfig
from maintenance_assets.orchestration.field_types import (
    Cron,
    NotNegative,
    Positive,
    PositiveInt,
    TickSeconds,
)
from maintenance_assets.orchestration.variables import beside, filled_path, with_environment
from maintenance_assets.planning.debts import Limits
from maintenance_assets.planning.packing import SMALL
from maintenance_assets.planning.plain_yaml import load_yaml

_KEY = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")
_SAME_STORE = {"local": "file", "": "file", "s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}


class DatasetConfig(BaseModel):
    """One dataset: where it is, how its files should look, and when to see to it."""

    # What was given may be a secret: it is not repeated in messages.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    key: str
    """The asset key, such as `lake/trades`."""
    catalog: CatalogConfig | None = None
    """The catalog that the dataset has its versions in; none for a plain directory."""
    path: str = Field("", validate_default=True)
    """Anything fsspec opens; `${VARIABLE}` is taken from the environment. A catalog knows its
    directories: what is given beside one must be the same."""
    storage_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """For the file system; `${VARIABLE}` keeps secrets out of the file."""
    engine: Literal["spark", "duckdb", "pyarrow", "auto"] = "spark"
    target_mb_per_file: Positive | None = None
    target_rows_per_file: PositiveInt | None = None
    """A listing knows no rows: with this target alone, say small_file_mb as well."""
    compression: str | None = None
    zorder_columns: list[str] = []
    """Columns that `optimize` clusters by; the dataset has that job where they are given."""
    curve: Curve = "hilbert"
    """How several of these columns become one order."""
    optimize_cron: Cron | None = None
    """When a schedule clusters the dataset; there is none when not given."""
    backup_path: str | None = None
    """Where delete, update and upsert keep what they replace, on the dataset's store or a local
    disk; they make no backups when not given."""
    partition_columns: list[str] | None = None
    """Hive partition columns; found from the paths when not given, `[]` for none."""
    small_file_mb: Positive | None = None
    """Files below this are small; three quarters of the target when not given."""
    min_gain: PositiveInt = 4
    cooldown_minutes: NotNegative = 10.0
    sensor_interval_seconds: PositiveInt = 60
    max_runs_per_tick: PositiveInt = 5
    max_gb_per_tick: Positive | None = None
    """Small files, in GiB, that one tick may ask to be rewritten; a single run may exceed it."""
    sensor_seconds: TickSeconds = 40.0
    """Time that one tick of the sensor may take; it goes on from there at the next."""
    cron: Cron = "0 3 * * *"
    """When the schedule looks; it ships stopped."""
    max_age_hours: Positive | None = None
    """Without maintenance for this long, the dataset is shown as overdue."""
    owners: list[str] = []
    tags: dict[str, str] = {}
    group: str | None = None
    description: str | None = None

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str) -> str:
        if not _KEY.fullmatch(key) or "__" in key:
            raise ValueError(
                "must be names of letters, digits and single underscores, joined by '/'"
            )
        return key

    @field_validator("path", "backup_path", mode="before")
    @classmethod
    def _fill_in_path(cls, path: Any, info: ValidationInfo) -> Any:
        path = os.fspath(path) if isinstance(path, os.PathLike) else path
        return beside(filled_path(path), info.context) if isinstance(path, str) else path

    @field_validator("catalog", mode="before")
    @classmethod
    def _take_address(cls, catalog: Any) -> Any:
        return {"uri": catalog} if isinstance(catalog, str) else catalog

    @field_validator("storage_options", mode="before")
    @classmethod
    def _fill_in_options(cls, options: Any) -> Any:
        return with_environment(options)

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str, info: ValidationInfo) -> str:
        if not path and info.data.get("catalog") is not None:
            return path
        if not path.strip():
            raise ValueError("is required without a catalog, and must not be empty")
        for part in path.split("::"):
            _check_file_system(part, is_chained="::" in path)
        _check_directory(path)
        return path

    @field_validator("backup_path")
    @classmethod
    def _check_backup_path(cls, backup_path: str | None, info: ValidationInfo) -> str | None:
        if backup_path is not None and info.data.get("catalog") is not None:
            raise ValueError("has no use beside a catalog, whose versions can be restored")
        return backup_path

    @field_validator("partition_columns", "zorder_columns")
    @classmethod
    def _check_column_names(cls, columns: list[str] | None) -> list[str] | None:
        for column in columns or ():
            if not column.strip():
                raise ValueError("a name must not be empty")
            if (columns or ()).count(column) > 1:
                raise ValueError(f"'{column}' is given twice")
        return columns

    @field_validator("compression")
    @classmethod
    def _check_compression(cls, compression: str | None) -> str | None:
        return codec_name(compression)

    @field_validator("owners", "tags", "group")
    @classmethod
    def _check_for_dagster(cls, value: Any, info: ValidationInfo) -> Any:
        field = "group_name" if info.field_name == "group" else str(info.field_name)
        try:
            dagster.AssetSpec("checked", **{field: value})
        except dagster.DagsterInvalidDefinitionError as error:
            raise ValueError(str(error).replace(" for asset 'AssetKey(['checked'])'", "")) from None
        return value

    @model_validator(mode="after")
    def _check_small(self) -> Self:
        if self.small_file_mb is not None and self.small_file_mb * MIB > self.target_bytes:
            raise ValueError("small_file_mb must not exceed the target")
        return self

    @model_validator(mode="after")
    def _check_clustering(self) -> Self:
        if self.optimize_cron is not None and not self.zorder_columns:
            raise ValueError("optimize_cron needs zorder_columns to cluster by")
        return self

    @property
    def safe_name(self) -> str:
        """The key as part of the names of jobs, sensors and schedules."""
        return self.key.replace("/", "__")

    @property
    def catalog_name(self) -> str:
        """The dataset's name in its catalog."""
        named = None if self.catalog is None else self.catalog.dataset
        return self.safe_name if named is None else named

    @property
    def directory(self) -> str:
        """The path of a plain dataset; a catalog's directory is nothing to work on as such."""
        if self.catalog is not None:
            raise ValueError(f"dataset '{self.key}' is maintained through its catalog")
        return self.path

    @property
    def shown_path(self) -> str:
        """Where the dataset is, without a password that may be in it."""
        if self.catalog is not None:
            return f"{self.catalog.shown}#{self.catalog_name}"
        return shown_url(self.path)

    @property
    def place(self) -> tuple[str, ...]:
        """Protocol, endpoint and directories: where the data is, however the path spells it."""
        if not self.path and self.catalog is not None:
            return (*self.catalog.server, self.catalog_name)
        store, rest = _store_and_rest(self.path)
        if store == "file":
            return (store, "", *_segments(os.path.realpath(os.path.expanduser(rest))))
        return (store, _endpoint(self.storage_options), *_segments(rest))

    @property
    def is_local(self) -> bool:
        """Whether looking at the data asks no other machine, nor a database that may be busy."""
        return self.catalog is None and _store_and_rest(self.path)[0] == "file"

    @property
    def target_bytes(self) -> int:
        """The byte target that health is measured against."""
        if self.target_mb_per_file is None:
            return DEFAULT_TARGET_BYTES
        return int(self.target_mb_per_file * MIB)

    @property
    def tick_limits(self) -> Limits:
        """What one tick of the sensor may take and ask for."""
        most = None if self.max_gb_per_tick is None else int(self.max_gb_per_tick * 1024 * MIB)
        return Limits(self.sensor_seconds, self.max_runs_per_tick, most)

    @property
    def freshness_policy(self) -> dagster.FreshnessPolicy | None:
        """How long the dataset may go without maintenance."""
        if self.max_age_hours is None:
            return None
        return dagster.FreshnessPolicy.time_window(timedelta(hours=self.max_age_hours))

    @property
    def health_policy(self) -> HealthPolicy:
        """When small files are worth a run."""
        small = (
            SMALL * self.target_bytes if self.small_file_mb is None else self.small_file_mb * MIB
        )
        return HealthPolicy(
            self.target_bytes, max(1, int(small)), self.min_gain, self.cooldown_minutes * 60
        )


def load_datasets(file: Path) -> tuple[DatasetConfig, ...]:
    """Read `datasets.yaml`; every mistake is named with its dataset and field."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DatasetConfigError(f"'{file}' does not exist (MAINTENANCE_DATASETS)") from error
    except UnicodeDecodeError:
        raise DatasetConfigError(f"'{file}': is not YAML: it is not text") from None
    try:
        content = load_yaml(text)
    except ValueError as error:
        raise DatasetConfigError(f"'{file}': {error}") from None
    try:
        return parse_datasets(_declared_in(content), file.parent)
    except DatasetConfigError as error:
        raise DatasetConfigError(f"'{file}': {error}") from error


def _declared_in(content: Any) -> list[Any]:
    if not isinstance(content, Mapping) or set(content) != {"datasets"}:
        raise DatasetConfigError("must have one key, `datasets`, with a list of datasets")
    if not isinstance(content["datasets"], list):
        raise DatasetConfigError("`datasets` must be a list")
    return content["datasets"]


def parse_datasets(
    declared: Sequence[DatasetConfig | Mapping[str, Any]], folder: Path | None = None
) -> tuple[DatasetConfig, ...]:
    """Check datasets one by one and against each other; relative paths start at `folder`."""
    datasets = tuple(_parse(number, one, folder) for number, one in enumerate(declared))
    _refuse_same_names(datasets)
    _refuse_overlaps(datasets)
    _refuse_same_versions(datasets)
    return datasets


def _parse(
    number: int, declared: DatasetConfig | Mapping[str, Any], folder: Path | None
) -> DatasetConfig:
    if isinstance(declared, DatasetConfig):
        return declared
    if not isinstance(declared, Mapping):
        # What was given may be a URL with a password.
        raise DatasetConfigError(
            f"dataset number {number + 1} must be a mapping, got {type(declared).__name__}"
        )
    name = repr(declared.get("key", f"number {number + 1}"))
    try:
        return DatasetConfig.model_validate(dict(declared), context=folder)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "datasets"
        raise DatasetConfigError(f"dataset {name}, field '{field}': {_words(first)}") from error


def _words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        model = CatalogConfig if problem["loc"][0] == "catalog" else DatasetConfig
        known = ", ".join(model.model_fields)
        return f"is not known. Known fields: {known}"
    text = str(problem["msg"])
    return text.removeprefix("Value error, ")


def _check_file_system(part: str, *, is_chained: bool) -> None:
    """What `open_store` would refuse, before anything is opened."""
    word, found, _ = part.partition("://")
    if found and not _is_known(word):
        raise ValueError(f"no file system is known for '{word}://'")
    if (found or is_chained) and issubclass(_class_of(word) or object, CachingFileSystem):
        raise ValueError(f"'{word}' is a cache, which may show old bytes; leave it out")


def _is_known(protocol: str) -> bool:
    # A registered class is in the registry, a registered name among the available protocols.
    return protocol in fsspec.registry or protocol in fsspec.available_protocols()


def _class_of(protocol: str) -> Any:
    """The protocol's file system, or None where its library is not installed here."""
    try:
        return fsspec.get_filesystem_class(protocol) if _is_known(protocol) else None
    # It is somebody else's module that is imported here.
    except Exception:
        return None


def _check_directory(path: str) -> None:
    store, rest = _store_and_rest(path)
    if not _segments(os.path.realpath(os.path.expanduser(rest)) if store == "file" else rest):
        raise ValueError("must be a directory, not the root of a file system")
    # fsspec takes patterns where it deletes, too; a local `[` is nothing but a name.
    for character in "*?" if store == "file" else "*?[":
        if character in rest:
            raise ValueError(f"must be one directory: '{character}' makes it a pattern")
    if store != "file":
        _check_remote(path.rpartition("::")[2])


def _check_remote(url: str) -> None:
    """The rules of `open_store`, which needs a file system, and that may need a connection."""
    protocol, _, rest = url.partition("://")
    found = _class_of(protocol)
    stripped = str(found._strip_protocol(url)) if found else rest
    if "://" in stripped:
        raise ValueError(f"a dataset cannot be maintained on '{protocol}://'")
    segments = stripped.strip("/").split("/")
    for wrong, shown in (("", "//"), ("..", "..")):
        if wrong in segments:
            raise ValueError(f"must not contain '{shown}'")


def _refuse_same_names(datasets: Sequence[DatasetConfig]) -> None:
    seen: dict[str, str] = {}
    for dataset in datasets:
        where = f"dataset '{dataset.key}', field 'key'"
        other = seen.get(dataset.safe_name)
        if other == dataset.key:
            raise DatasetConfigError(f"{where}: is declared twice")
        if other is not None:
            raise DatasetConfigError(f"{where}: its jobs would be named like those of '{other}'")
        seen[dataset.safe_name] = dataset.key


def _refuse_overlaps(datasets: Sequence[DatasetConfig]) -> None:
    places = sorted((dataset.place, dataset.key) for dataset in datasets if dataset.path)
    for (above, outer), (below, inner) in pairwise(places):
        if below[: len(above)] == above:
            how = "is" if below == above else "lies in"
            raise DatasetConfigError(
                f"dataset '{inner}', field 'path': {how} the path of dataset '{outer}'"
            )


def _refuse_same_versions(datasets: Sequence[DatasetConfig]) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for dataset in datasets:
        if dataset.catalog is not None:
            versions = (*dataset.catalog.server, dataset.catalog_name)
            if versions in seen:
                raise DatasetConfigError(
                    f"dataset '{dataset.key}', field 'catalog': has the dataset "
                    f"'{dataset.catalog_name}' of dataset '{seen[versions]}'"
                )
            seen[versions] = dataset.key


def _store_and_rest(path: str) -> tuple[str, str]:
    """The protocol under its first name, and what follows it."""
    last = path.rpartition("::")[2]
    protocol, found, rest = last.partition("://")
    return (_SAME_STORE.get(protocol, protocol), rest) if found else ("file", last)


def _segments(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _endpoint(options: Mapping[str, Any]) -> str:
    """Two servers may have buckets of the same name."""
    client = options.get("client_kwargs")
    named = options.get("endpoint_url")
    if not named and isinstance(client, Mapping):
        named = client.get("endpoint_url")
    # Whoever names none gets this one from the AWS libraries.
    named = named or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return str(named or "").rstrip("/").lower()
