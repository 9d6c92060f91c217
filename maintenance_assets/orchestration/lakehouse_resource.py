"""Catalog datasets for other assets: a resource to work with, and an IO manager between assets."""

import json
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal

import dagster
from pydantic import Field

from maintenance_assets.api.lakehouse import LakeDataset, Lakehouse
from maintenance_assets.operations.lake_write import WriteResult
from maintenance_assets.orchestration.catalog_work import version_metadata
from maintenance_assets.orchestration.variables import filled_text, with_environment
from maintenance_assets.planning.partitions import format_partition


class LakehouseResource(dagster.ConfigurableResource):  # type: ignore[type-arg]
    """A catalog; opened anew by whoever asks."""

    catalog_uri: str
    """`${VARIABLE}` keeps passwords out of what Dagster shows of its resources."""
    root: str | None = None
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """For the file system; `${VARIABLE}` as in `catalog_uri`."""
    lease_seconds: float = 600.0

    def open(self) -> Lakehouse:
        """The catalog, to be closed by the caller (or used in a `with` statement)."""
        return Lakehouse(
            filled_text(self.catalog_uri),
            self.root,
            storage_options=with_environment(self.storage_options) or None,
            lease=timedelta(seconds=self.lease_seconds),
        )


class LakehouseIOManager(dagster.ConfigurableIOManager):
    """Keeps what assets return in catalog datasets of their keys, one version per run.

    A step that is tried again commits once. Inputs are pyarrow tables. A run of a partitioned asset
    replaces its own partitions: the dataset is partitioned by the column that holds their keys, the
    one that the asset's metadata `partition_expr` names, or else the first partition column.
    """

    lakehouse: LakehouseResource
    mode: Literal["overwrite", "append"] = "overwrite"

    def handle_output(self, context: dagster.OutputContext, obj: Any) -> None:
        """Write what an asset returned; its dataset is made by the first run."""
        if obj is None:
            return
        name = _name(context.asset_key)
        with self.lakehouse.open() as house:
            is_new = name not in house.datasets()
            given = (context.definition_metadata or {}).get("partition_by", ())
            by = given if is_new else house.dataset(name).partition_by
            own = self._own_partitions(context, name, by)
            if is_new:
                house.create_dataset(name, _schema(obj), by)
            dataset = house.dataset(name)
            written = self._write(dataset, obj, context, own)
            shown = version_metadata(dataset, written.version)
        context.add_output_metadata(
            {
                **shown,
                "dataset": name,
                "dagster/row_count": written.rows,
                "files": len(written.files),
            }
        )

    def _own_partitions(
        self, context: dagster.OutputContext, name: str, by: Sequence[str]
    ) -> list[str] | None:
        """The partitions of the dataset that a run stands for; None for all of it."""
        if self.mode == "append" or not context.has_asset_partitions:
            return None
        metadata = context.definition_metadata or {}
        column = str(metadata.get("partition_expr") or next(iter(by), ""))
        if column not in by:
            asset = context.asset_key.to_user_string()
            raise ValueError(_UNPARTITIONED.format(asset, name, column or "..."))
        return [format_partition([(column, key)]) for key in context.asset_partition_keys]

    def _write(
        self, dataset: LakeDataset, obj: Any, context: dagster.OutputContext, own: list[str] | None
    ) -> WriteResult:
        noted: dict[str, Any] = {
            "txn_id": _transaction(context),
            "author": "dagster",
            "message": f"run {context.run_id}",
        }
        if self.mode == "append":
            return dataset.append(obj, **noted)
        return dataset.overwrite(obj, partition_filter=own, **noted)

    def load_input(self, context: dagster.InputContext) -> Any:
        """The newest version of the dataset of the upstream asset."""
        with self.lakehouse.open() as house:
            return house.dataset(_name(context.asset_key)).read()


_UNPARTITIONED = (
    "asset {0} is partitioned and dataset '{1}' is not, by the column of its keys: each run would "
    "replace the rows of all others. Give the asset metadata={{'partition_by': ['{2}']}} (a "
    "dataset that is there takes repartition()), or the IO manager mode='append'"
)
_MOST_KEYS = 200
"""Characters of keys that are shown in the id of a transaction."""


def _transaction(context: dagster.OutputContext) -> str:
    """The same for a step that is tried again."""
    keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
    told = "-".join(keys)
    if len(told) > _MOST_KEYS:
        told = f"{len(keys)}-{sha256(json.dumps(keys).encode()).hexdigest()}"
    words = [
        "dagster",
        context.run_id,
        context.asset_key.to_user_string(),
        *([told] if told else []),
    ]
    return "-".join(words)


def _name(key: dagster.AssetKey) -> str:
    return "__".join(key.path)


def _schema(obj: Any) -> Any:
    from maintenance_assets.operations.incoming import incoming

    return incoming(obj).schema
