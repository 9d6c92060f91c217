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

    A step that is tried again commits once. Inputs are pyarrow tables.
    """

    lakehouse: LakehouseResource
    mode: Literal["overwrite", "append"] = "overwrite"

    def handle_output(self, context: dagster.OutputContext, obj: Any) -> None:
        """Write what an asset returned; its dataset is made by the first run."""
        if obj is None:
            return
        name = _name(context.asset_key)
        with self.lakehouse.open() as house:
            if name not in house.datasets():
                partition_by = (context.definition_metadata or {}).get("partition_by", ())
                house.create_dataset(name, _schema(obj), partition_by)
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
        txn_id = f"dagster-{context.run_id}-{context.asset_key.to_user_string()}"
        write = dataset.append if self.mode == "append" else dataset.overwrite
        return write(obj, txn_id=txn_id, author="dagster", message=f"run {context.run_id}")

    def load_input(self, context: dagster.InputContext) -> Any:
        """The newest version of the dataset of the upstream asset."""
        with self.lakehouse.open() as house:
            return house.dataset(_name(context.asset_key)).read()


def _name(key: dagster.AssetKey) -> str:
    return "__".join(key.path)


def _schema(obj: Any) -> Any:
    from maintenance_assets.operations.incoming import incoming

    return incoming(obj).schema
