"""The Dagster component: datasets declared in a `defs.yaml`."""

from typing import Any

import dagster

from maintenance_assets.errors import DatasetConfigError
from maintenance_assets.orchestration.build import build_definitions
from maintenance_assets.orchestration.config import beside


class MaintainedDatasets(dagster.Component, dagster.Model, dagster.Resolvable):
    """Parquet datasets that are kept healthy: assets, jobs, sensors, schedules and checks."""

    datasets: list[dict[str, Any]]
    """Each with the fields of `datasets.yaml`; a relative path starts at this folder."""

    def build_defs(self, context: dagster.ComponentLoadContext) -> dagster.Definitions:
        """All definitions of these datasets."""
        for dataset in self.datasets:
            _refuse_unset(dataset)
        return build_definitions([beside(dataset, context.path) for dataset in self.datasets])


def _refuse_unset(dataset: dict[str, Any]) -> None:
    """`{{ env.X }}` becomes the text `None` where X is not set."""
    path = str(dataset.get("path", ""))
    if "None" in path.replace("://", "/").split("/")[:2]:
        raise DatasetConfigError(
            f"dataset {dataset.get('key')!r}, field 'path': '{path}' comes from an environment "
            "variable that is not set"
        )
