"""The same maintenance on a dataset of a catalog: committed as a version, told with its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster

from maintenance_assets.api.lakehouse import LakeDataset, LakeMaintenance
from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.model.lakehouse import Commit
from maintenance_assets.orchestration.catalog_look import OpenDataset, open_dataset
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.work import Clustering, Done

AUTHOR = "dagster"
HISTORY_ROWS = 10
"""Versions that are shown with each run: the catalog has all of them."""
_CELL = 80


@dataclass(frozen=True, slots=True)
class CatalogWork:
    """Work on a dataset of a catalog."""

    dataset: DatasetConfig
    message: str
    """What the history says of the versions that come of it."""

    def rewrite(self, clustering: Clustering | None, settings: Mapping[str, Any]) -> Done:
        """Rewrite as a version; earlier ones stay readable."""
        noted = {**settings, "author": AUTHOR, "message": self.message}
        failed: tuple[str, ...] = ()
        with open_dataset(self.dataset) as opened:
            try:
                made = _rewritten(opened, clustering, noted)
            except IncompleteMaintenanceError as error:
                made, failed = error.result, (str(error),)
            return Done(made.result, failed, version_metadata(opened.lake, made.version))

    def recover(self) -> tuple[str, ...]:
        """Give up transactions of processes that died."""
        with open_dataset(self.dataset) as opened:
            given = opened.house.recover(dataset=opened.lake.name)[opened.lake.name]
        return tuple(
            f"gave up {one.operation} transaction {one.txn_id} of {one.owner}; vacuum will delete "
            f"what it wrote ({one.paths} files)"
            for one in given
        )


def _rewritten(
    opened: OpenDataset, clustering: Clustering | None, options: Mapping[str, Any]
) -> LakeMaintenance:
    if clustering is None:
        return opened.lake.compact(**options)
    return opened.lake.optimize(clustering.columns, curve=clustering.curve, **options)


def version_metadata(lake: LakeDataset, version: int | None = None) -> dict[str, Any]:
    """A version (the newest by default), the transaction that made it, and what came before."""
    history = lake.history(HISTORY_ROWS)
    number = history[0].version if version is None else version
    table = dagster.MetadataValue.md(history_table(history))
    metadata: dict[str, Any] = {"version": number, "history": table}
    ids = [commit.txn_id for commit in history if commit.version == number]
    return {**metadata, "commit_id": ids[0]} if ids else metadata


def history_table(history: Sequence[Commit]) -> str:
    """The newest versions, as a page shows them."""
    lines = [
        "| version | committed | operation | rows | files | author | message |",
        "|---:|---|---|---:|---:|---|---|",
    ]
    for one in history[:HISTORY_ROWS]:
        version = f"{one.version} (expired)" if one.expired else str(one.version)
        at = one.committed_at.isoformat(sep=" ", timespec="seconds")
        names = [_cell(text) for text in (one.operation, one.author, one.message)]
        lines.append(
            f"| {version} | {at} | {names[0]} | {one.total_rows} | {one.total_files} | "
            f"{names[1]} | {names[2]} |"
        )
    if history and history[-1].version:
        lines.append(f"| ... and {history[-1].version} before | | | | | | |")
    return "\n".join(lines)


def _cell(text: str | None) -> str:
    """What anybody may have written, inside a table."""
    words = " ".join((text or "").split()).replace("|", "\\|")
    return words if len(words) <= _CELL else f"{words[:_CELL]} ..."
