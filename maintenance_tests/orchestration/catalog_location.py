"""A dataset of a catalog in a Dagster instance."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster

from maintenance_assets import Lakehouse, build_definitions
from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_tests.orchestration.location import DAYS, NAME, Location

ALL_IDS = [*range(6), *range(100, 106)]
DAY_NAMES = tuple(day.partition("=")[2] for day in DAYS)


def two_days(house: Lakehouse, count: int = 6, root: Path | None = None) -> LakeDataset:
    """The dataset lake__trades: files of one row each in two partitions; version 2."""
    schema = {"id": "int64", "date": "string"}
    lake = house.create_dataset(NAME, schema, ["date"], path=root)
    for number, day in enumerate(DAY_NAMES):
        numbers = list(range(100 * number, 100 * number + count))
        lake.append({"id": numbers, "date": [day] * count}, target_rows_per_file=1)
    return lake


def declared(catalog: Any, **fields: Any) -> dict[str, Any]:
    """The dataset lake/trades; nothing waits for files to cool down."""
    common = {"key": "lake/trades", "engine": "pyarrow", "cooldown_minutes": 0}
    return {**common, "catalog": catalog, **fields}


def ids(trades: LakeDataset, version: int | None = None) -> list[int]:
    """The ids of a version, in order."""
    return sorted(trades.read(["id"], version=version).column("id").to_pylist())


def parquet_files(trades: LakeDataset) -> list[str]:
    """The files of all versions that lie in the dataset's directory."""
    return sorted(path.name for path in Path(trades.path).rglob("*.parquet"))


@contextmanager
def catalog_location(catalog: Any, **fields: Any) -> Iterator[Location]:
    """The dataset in an instance of its own."""
    with TemporaryDirectory() as home, dagster.DagsterInstance.local_temp(home) as instance:
        yield Location(build_definitions([declared(catalog, **fields)]), instance)


def run(place: Location, operation: str, **config: Any) -> dagster.ExecuteInProcessResult:
    """Run a job of the dataset with this configuration."""
    return place.run(operation, {"ops": {f"{operation}_{NAME}": {"config": config}}})


def update_job(uri: str) -> dagster.JobDefinition:
    """A job that another process could build as well."""
    return build_definitions([declared(uri)]).resolve_job_def(f"{NAME}__update")
