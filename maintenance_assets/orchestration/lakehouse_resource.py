"""Catalog datasets for other assets: a resource to work with, and an IO manager between assets."""

from datetime import timedelta
from typing import Any, Literal

import dagster
from pydantic import Field

from maintenance_assets.api.lakehouse import LakeDataset, Lakehouse
from maintenance_assets.operations.lake_write import WriteResult
from maintenance_assets.orchestration.catalog_work import version_metadata
from maintenance_assets.orchestration.variables import filled_text, with_environment


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

    A step that is tried again commits once. Inputs are pyarrow tables. Of a partitioned asset a run
    replaces the partitions of the dataset that its rows are in.
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
            if self.mode == "overwrite" and context.has_asset_partitions and not by:
                raise ValueError(_UNPARTITIONED.format(context.asset_key.to_user_string(), name))
            if is_new:
                house.create_dataset(name, _schema(obj), by)
            dataset = house.dataset(name)
            written = self._write(dataset, obj, context)
            shown = version_metadata(dataset, written.version)
        context.add_output_metadata(
            {
                **shown,
                "dataset": name,
                "dagster/row_count": written.rows,
                "files": len(written.files),
            }
        )

    def _write(self, dataset: LakeDataset, obj: Any, context: dagster.OutputContext) -> WriteResult:
        parts = list(context.asset_partition_keys) if context.has_asset_partitions else []
        words = ["dagster", context.run_id, context.asset_key.to_user_string(), *parts]
        noted = {
            "txn_id": "-".join(words),
            "author": "dagster",
            "message": f"run {context.run_id}",
        }
        if self.mode == "append":
            return dataset.append(obj, **noted)
        return dataset.overwrite(obj, dynamic=bool(parts), **noted)

    def load_input(self, context: dagster.InputContext) -> Any:
        """The newest version of the dataset of the upstream asset."""
        with self.lakehouse.open() as house:
            return house.dataset(_name(context.asset_key)).read()


_UNPARTITIONED = (
    "asset {0} is partitioned and dataset '{1}' is not: each run would replace the rows of all "
    "others. Give the asset metadata={{'partition_by': [...]}} (a dataset that is there takes "
    "repartition()), or the IO manager mode='append'"
)


def _name(key: dagster.AssetKey) -> str:
    return "__".join(key.path)


def _schema(obj: Any) -> Any:
    from maintenance_assets.operations.incoming import incoming

    return incoming(obj).schema
