"""Other assets read and write catalog datasets."""

from pathlib import Path
from typing import Any

import dagster
import pyarrow as pa
import pytest

from maintenance_assets import Lakehouse
from maintenance_assets.orchestration.lakehouse_resource import (
    LakehouseIOManager,
    LakehouseResource,
)


@dagster.asset(io_manager_key="lake", metadata={"partition_by": ["day"]})
def trades() -> Any:
    return pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


@dagster.asset(io_manager_key="lake", key_prefix="gold")
def counts(trades: pa.Table) -> Any:
    return trades.group_by("day").aggregate([("id", "count")])


@dagster.asset
def checked(house: LakehouseResource) -> int:
    with house.open() as lakehouse:
        return lakehouse.dataset("trades").read(where="day = 'a'").num_rows


def test_passwords_come_from_the_environment_when_a_catalog_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_FOLDER", str(tmp_path))
    monkeypatch.setenv("LAKE_SECRET", "hunter2hunter2")
    catalog = LakehouseResource(
        catalog_uri="sqlite:///${LAKE_FOLDER}/catalog.db",
        root="memory://resource-lake",
        storage_options={"secret": "${LAKE_SECRET}"},
    )
    with catalog.open() as house:
        house.create_dataset("a", {"id": "int64"})
    assert (tmp_path / "catalog.db").exists()
    assert "hunter2" not in repr(catalog)
    monkeypatch.delenv("LAKE_SECRET")
    with pytest.raises(ValueError, match="LAKE_SECRET is not set"):
        catalog.open()


def test_assets_hand_each_other_versions_of_catalog_datasets(tmp_path: Path) -> None:
    catalog = LakehouseResource(catalog_uri=f"sqlite:///{tmp_path}/catalog.db")
    resources = {"lake": LakehouseIOManager(lakehouse=catalog), "house": catalog}
    for _ in range(2):
        result = dagster.materialize([trades, counts], resources=resources)
        assert result.success
    (event,) = result.asset_materializations_for_node("trades")
    shown = {name: value.value for name, value in event.metadata.items()}
    assert (shown["dataset"], shown["version"], shown["dagster/row_count"]) == ("trades", 2, 3)
    assert shown["commit_id"] == f"dagster-{result.run_id}-trades"
    assert [line.split(" | ")[0] for line in str(shown["history"]).splitlines()[2:]] == [
        "| 2",
        "| 1",
        "| 0",
    ]
    assert dagster.materialize([checked], resources=resources).output_for_node("checked") == 2
    with Lakehouse(catalog.catalog_uri) as house:
        assert house.datasets() == ("gold__counts", "trades")
        assert house.dataset("trades").partition_by == ("day",)
        assert house.dataset("trades").read().num_rows == 3
        assert [c.operation for c in house.dataset("trades").history()] == [
            "overwrite",
            "overwrite",
            "create",
        ]
        assert house.dataset("gold__counts").read().num_rows == 2


DAYS = dagster.StaticPartitionsDefinition(["a", "b"])


@dagster.asset(io_manager_key="lake", partitions_def=DAYS, metadata={"partition_by": ["day"]})
def daily(context: dagster.AssetExecutionContext) -> Any:
    return pa.table({"id": [1, 2], "day": [context.partition_key] * 2})


@dagster.asset(io_manager_key="lake", partitions_def=DAYS)
def flat(context: dagster.AssetExecutionContext) -> Any:
    return pa.table({"id": [1], "day": [context.partition_key]})


def test_a_run_of_one_partition_keeps_the_rows_of_the_others(tmp_path: Path) -> None:
    catalog = LakehouseResource(catalog_uri=f"sqlite:///{tmp_path}/catalog.db")
    resources = {"lake": LakehouseIOManager(lakehouse=catalog)}
    for day in ("a", "b", "a"):
        assert dagster.materialize([daily], resources=resources, partition_key=day).success
    with Lakehouse(catalog.catalog_uri) as house:
        found = house.dataset("daily").read().to_pydict()
        assert sorted(zip(found["day"], found["id"], strict=True)) == [
            ("a", 1),
            ("a", 2),
            ("b", 1),
            ("b", 2),
        ]
    with pytest.raises(ValueError, match="each run would replace the rows of all others"):
        dagster.materialize([flat], resources=resources, partition_key="a")
    with Lakehouse(catalog.catalog_uri) as house:
        assert house.datasets() == ("daily",)
    adding = {"lake": LakehouseIOManager(lakehouse=catalog, mode="append")}
    assert dagster.materialize([flat], resources=adding, partition_key="a").success
    assert dagster.materialize([flat], resources=adding, partition_key="b").success
    with Lakehouse(catalog.catalog_uri) as house:
        assert sorted(house.dataset("flat").read().column("day").to_pylist()) == ["a", "b"]


class Rows(dagster.Config):
    regions: list[str]


@dagster.asset(
    io_manager_key="lake",
    partitions_def=DAYS,
    metadata={"partition_by": ["region", "day"], "partition_expr": "day"},
)
def by_region(context: dagster.AssetExecutionContext, config: Rows) -> Any:
    rows = len(config.regions)
    return pa.table(
        {
            "region": pa.array(config.regions, pa.string()),
            "day": pa.array([context.partition_key] * rows, pa.string()),
        }
    )


@dagster.asset(io_manager_key="lake", partitions_def=DAYS, metadata={"partition_by": ["region"]})
def by_another_column() -> Any:
    return pa.table({"region": ["eu", "us"], "day": ["a", "a"]})


def regions(*names: str) -> dagster.RunConfig:
    return dagster.RunConfig(ops={"by_region": Rows(regions=list(names))})


def test_a_run_replaces_its_own_partitions_however_many_the_dataset_has_of_them(
    tmp_path: Path,
) -> None:
    catalog = LakehouseResource(catalog_uri=f"sqlite:///{tmp_path}/catalog.db")
    resources = {"lake": LakehouseIOManager(lakehouse=catalog)}
    found = []
    for day, names in (("a", ("eu", "us")), ("b", ("eu",)), ("a", ("us",)), ("b", ())):
        result = dagster.materialize(
            [by_region], resources=resources, partition_key=day, run_config=regions(*names)
        )
        assert result.success
        with Lakehouse(catalog.catalog_uri) as house:
            rows = house.dataset("by_region").read().to_pydict()
        found.append(sorted(zip(rows["day"], rows["region"], strict=True)))
    assert found == [
        [("a", "eu"), ("a", "us")],
        [("a", "eu"), ("a", "us"), ("b", "eu")],
        [("a", "us"), ("b", "eu")],
        [("a", "us")],
    ]


def test_a_dataset_that_is_partitioned_by_something_else_is_refused(tmp_path: Path) -> None:
    catalog = LakehouseResource(catalog_uri=f"sqlite:///{tmp_path}/catalog.db")
    resources = {"lake": LakehouseIOManager(lakehouse=catalog)}
    with pytest.raises(ValueError, match="the data has rows outside"):
        dagster.materialize([by_another_column], resources=resources, partition_key="a")
    with Lakehouse(catalog.catalog_uri) as house:
        assert house.dataset("by_another_column").read().num_rows == 0
