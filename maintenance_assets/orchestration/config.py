"""Datasets as the user declares them: one model behind every door."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import dagster
import fsspec
import yaml
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
from maintenance_assets.model.health import HealthPolicy
from maintenance_assets.model.policy import DEFAULT_TARGET_BYTES, MIB, codec_name
from maintenance_assets.planning.packing import SMALL

_KEY = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SAME_STORE = {"local": "file", "": "file", "s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
# Strict: `true` and "128" are slips of the pen, not numbers.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class DatasetConfig(BaseModel):
    """One dataset: where it is, how its files should look, and when to see to it."""

    # What was given may be a secret: it is not repeated in messages.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    key: str
    """The asset key, such as `lake/trades`."""
    path: str
    """Anything fsspec opens; `${VARIABLE}` is taken from the environment."""
    storage_options: dict[str, Any] = {}
    """For the file system; `${VARIABLE}` keeps secrets out of the file."""
    engine: Literal["spark", "duckdb", "pyarrow", "auto"] = "spark"
    target_mb_per_file: Positive | None = None
    target_rows_per_file: PositiveInt | None = None
    """A listing knows no rows: with this target alone, say small_file_mb as well."""
    compression: str | None = None
    zorder_columns: list[str] = []
    """Columns that `optimize` clusters by."""
    partition_columns: list[str] | None = None
    """Hive partition columns; found from the paths when not given, `[]` for none."""
    small_file_mb: Positive | None = None
    """Files below this are small; three quarters of the target when not given."""
    min_gain: PositiveInt = 4
    cooldown_minutes: NotNegative = 10.0
    sensor_interval_seconds: PositiveInt = 60
    max_runs_per_tick: PositiveInt = 5
    sensor_seconds: Positive = 40.0
    """Time that one tick of the sensor may take; it goes on from there at the next."""
    cron: str = "0 3 * * *"
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

    @field_validator("path", "storage_options", mode="before")
    @classmethod
    def _fill_in(cls, value: Any) -> Any:
        return _with_environment(os.fspath(value) if isinstance(value, os.PathLike) else value)

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if not path.strip():
            raise ValueError("must not be empty")
        for part in path.split("::"):
            protocol, found, _ = part.partition("://")
            if found and protocol not in fsspec.available_protocols():
                raise ValueError(f"no file system is known for '{protocol}://'")
        return path

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

    @field_validator("cron")
    @classmethod
    def _check_cron(cls, cron: str) -> str:
        try:
            dagster.ScheduleDefinition(name="check", job_name="check", cron_schedule=cron)
        except dagster.DagsterInvalidDefinitionError as error:
            raise ValueError(f"{cron!r} is not a cron schedule") from error
        return cron

    @model_validator(mode="after")
    def _check_small(self) -> Self:
        if self.small_file_mb is not None and self.small_file_mb * MIB > self.target_bytes:
            raise ValueError("small_file_mb must not exceed the target")
        return self

    @property
    def safe_name(self) -> str:
        """The key as part of the names of jobs, sensors and schedules."""
        return self.key.replace("/", "__")

    @property
    def shown_path(self) -> str:
        """The path without a password that may be in it."""
        return re.sub(r"://[^/@]*@", "://", self.path)

    @property
    def target_bytes(self) -> int:
        """The byte target that health is measured against."""
        if self.target_mb_per_file is None:
            return DEFAULT_TARGET_BYTES
        return int(self.target_mb_per_file * MIB)

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
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DatasetConfigError(f"'{file}' does not exist (MAINTENANCE_DATASETS)") from error
    except yaml.YAMLError as error:
        raise DatasetConfigError(f"'{file}' is not YAML: {error}") from error
    if not isinstance(content, Mapping) or set(content) != {"datasets"}:
        raise DatasetConfigError(f"'{file}' must have one key, `datasets`, with a list of datasets")
    if not isinstance(content["datasets"], list):
        raise DatasetConfigError(f"'{file}': `datasets` must be a list")
    try:
        return parse_datasets([beside(one, file.parent) for one in content["datasets"]])
    except DatasetConfigError as error:
        raise DatasetConfigError(f"'{file}': {error}") from error


def beside(declared: Any, folder: Path) -> Any:
    """Relative paths start at the file that names them."""
    if not isinstance(declared, Mapping) or not isinstance(declared.get("path"), str):
        return declared
    path = declared["path"]
    relative = path and "://" not in path and not path.startswith(("/", "~", "$"))
    return {**declared, "path": str(folder.resolve() / path)} if relative else declared


def parse_datasets(
    declared: Sequence[DatasetConfig | Mapping[str, Any]],
) -> tuple[DatasetConfig, ...]:
    """Check datasets one by one and against each other."""
    datasets = tuple(_parse(number, one) for number, one in enumerate(declared))
    _refuse_same_names(datasets)
    _refuse_overlaps(datasets)
    return datasets


def _parse(number: int, declared: DatasetConfig | Mapping[str, Any]) -> DatasetConfig:
    if isinstance(declared, DatasetConfig):
        return declared
    if not isinstance(declared, Mapping):
        raise DatasetConfigError(f"dataset number {number + 1} must be a mapping, got {declared!r}")
    name = repr(declared.get("key", f"number {number + 1}"))
    try:
        return DatasetConfig.model_validate(dict(declared))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "datasets"
        raise DatasetConfigError(f"dataset {name}, field '{field}': {_words(first)}") from error


def _words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        known = ", ".join(DatasetConfig.model_fields)
        return f"is not known. Known fields: {known}"
    text = str(problem["msg"])
    return text.removeprefix("Value error, ")


def _with_environment(value: Any) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, Mapping):
        return {key: _with_environment(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_environment(one) for one in value]
    return value


def _variable(match: "re.Match[str]") -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise ValueError(f"environment variable {match[1]} is not set")
    return value


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
    places = sorted((_place(dataset.path), dataset.key) for dataset in datasets)
    for (above, outer), (below, inner) in pairwise(places):
        if below[: len(above)] == above:
            raise DatasetConfigError(
                f"dataset '{inner}', field 'path': lies in the path of dataset '{outer}'"
            )


def _place(path: str) -> tuple[str, ...]:
    protocol, found, rest = path.rpartition("::")[2].partition("://")
    store = _SAME_STORE.get(protocol, protocol) if found else "file"
    rest = rest if found else path
    if store == "file":
        rest = os.path.realpath(os.path.expanduser(rest))
    return (store, *[part for part in rest.split("/") if part])
