"""Status of a catalog dataset: how the files of its newest version are."""

from dataclasses import replace
from typing import Any

from maintenance_assets.model.progress import ProgressCallback
from maintenance_assets.model.status import DatasetStatus
from maintenance_assets.operations.lake_files import listed_of
from maintenance_assets.operations.lake_rewrite import in_scope
from maintenance_assets.operations.lake_session import LakeSession
from maintenance_assets.operations.status import Judging, judge


def status(
    session: LakeSession,
    name: str,
    *,
    partition_filter: Any = None,
    on_progress: ProgressCallback | None = None,
    **options: Any,
) -> DatasetStatus:
    """How the files of the newest version are."""
    judging = Judging.of(**options)
    state, files = session.at_newest(
        name, lambda state: (state, in_scope(session, state, partition_filter))
    )
    store = session.store(state)
    listed = [listed_of(store, file) for file in files]
    return replace(
        judge(store, listed, judging, on_progress),
        dataset=f"{state.name} in {store.shown}",
        holders=tuple(
            f"transaction {txn_id} is open"
            for txn_id in session.reader.open_transactions(state.dataset_id)
        ),
    )
