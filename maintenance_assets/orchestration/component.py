"""The Dagster component: datasets declared in a `defs.yaml`."""

from typing import Annotated, Any

import dagster
import jinja2

from maintenance_assets.errors import DatasetConfigError
from maintenance_assets.orchestration.build import build_definitions
from maintenance_assets.orchestration.config import parse_datasets


class _Unset(jinja2.StrictUndefined):
    """A variable that is not set: no text can be made of it, but `or` takes what follows."""

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


class _Environment:
    """Dagster's `env`, whose `env.NAME` is the text `None` inside a text where NAME is not set."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._env, name)
        hint = f"environment variable {name} is not set"
        return _Unset(hint=hint) if value is None else value

    def __getitem__(self, name: str) -> Any:
        return self._env[name]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._env(*arguments, **options)


def _resolve(
    context: dagster.ResolutionContext, datasets: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    strict = context.with_scope(env=_Environment(context.scope["env"]))
    return [_resolve_dataset(strict.at_path(n), one) for n, one in enumerate(datasets)]


def _resolve_dataset(context: dagster.ResolutionContext, dataset: dict[str, Any]) -> dict[str, Any]:
    resolved = {}
    for field, value in dataset.items():
        try:
            resolved[field] = context.at_path(field).resolve_value(value)
        # A template runs code of others. Dagster shows the place in the file with any error.
        except Exception as error:
            reason = str(error).strip().rpartition("\n")[2].removeprefix("UndefinedError: ")
            where = f"dataset {dataset.get('key')!r}, field '{field}'"
            raise DatasetConfigError(f"{where}: {reason}") from None
    return resolved


class MaintainedDatasets(dagster.Component, dagster.Model, dagster.Resolvable):
    """Parquet datasets that are kept healthy: assets, jobs, sensors, schedules and checks."""

    datasets: Annotated[list[dict[str, Any]], dagster.Resolver(_resolve)]
    """Each with the fields of `datasets.yaml`; a relative path starts at this folder."""

    def build_defs(self, context: dagster.ComponentLoadContext) -> dagster.Definitions:
        """All definitions of these datasets."""
        return build_definitions(parse_datasets(self.datasets, context.path))
