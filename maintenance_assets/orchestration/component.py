"""The Dagster component: datasets declared in a `defs.yaml`."""

from typing import Any

import dagster

from maintenance_assets.orchestration.build import build_definitions


class MaintainedDatasets(dagster.Component, dagster.Model, dagster.Resolvable):
    """Parquet datasets that are kept healthy: assets, jobs, sensors, schedules and checks."""

    datasets: list[dict[str, Any]]
    """Each with the fields of `datasets.yaml`."""

    def build_defs(self, context: dagster.ComponentLoadContext) -> dagster.Definitions:
        """All definitions of these datasets."""
        return build_definitions(self.datasets)
