"""Who may read: rows that few may see do not come into a file that many may read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import CompactionGroup, CompactionPlan, GroupFailure
from maintenance_assets.planning.compaction import predict_stats, predicted_codec
from maintenance_assets.storage import local_paths
from maintenance_assets.storage.filesystems import Store

P = TypeVar("P", bound=CompactionPlan)


def with_readers_apart(plan: P, files: Sequence[DataFile], store: Store) -> P:
    """The plan for these files less the groups that different users may read, with reasons."""
    failures = []
    for group in plan.groups:
        why = readers_differ(store, group.file_paths())
        if why is not None:
            failures.append(GroupFailure(tuple(group.file_paths()), why))
    if not failures:
        return plan
    refused = {path for failure in failures for path in failure.paths}
    kept = tuple(group for group in plan.groups if refused.isdisjoint(group.file_paths()))
    return replace(
        plan,
        groups=kept,
        failures=(*plan.failures, *failures),
        predicted=predict_stats(
            files,
            [CompactionGroup(group.files, group.output_rows) for group in kept],
            predicted_codec(files, kept, plan.policy),
        ),
    )


def require_same_readers(store: Store, paths: Iterable[str]) -> None:
    """PermissionError where rows of these files are to come together, and must not."""
    why = readers_differ(store, paths)
    if why is not None:
        raise PermissionError(f"{why}. Nothing was changed")


def readers_differ(store: Store, paths: Iterable[str]) -> str | None:
    """Why these files cannot become one, if different users may read them."""
    if not store.is_local:
        return None
    first, known = "", None
    for path in paths:
        readers = local_paths.readers(path)
        if known is not None and readers not in (None, known):
            return (
                f"'{first}' and '{path}' may be read by different users, and one file for both "
                "could not: give them the same owner, group and mode"
            )
        if known is None:
            first, known = path, readers
    return None
