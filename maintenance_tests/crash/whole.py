"""Publishing that stands or falls as a whole, driven at the level of the store."""

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintenance_assets.operations.naming import output_name, uuid7
from maintenance_assets.storage.discovery import list_dataset
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.journal import InputEntry, OutputEntry, run_directory
from maintenance_assets.storage.lease import Lease
from maintenance_assets.storage.publish import (
    Published,
    groups_by_directory,
    publish,
    publish_tree,
)
from maintenance_assets.storage.recovery import recover_run, recover_runs

Scope = Literal["all", "tree"]


def move_rows(root: str | Path, scope: Scope) -> Published:
    """Put every row into a directory by its id; with `all` some of these exist already."""
    store = open_store(root)
    run_id = uuid7()
    with Lease(store, run_id, "move") as lease:
        recover_runs(store, lease)
        files = list_dataset(store).data
        try:
            return _publish(store, lease, run_id, scope, files)
        except BaseException:
            recover_run(store, lease, run_id)
            raise


def _publish(
    store: Store, lease: Lease, run_id: str, scope: Scope, files: tuple[Listed, ...]
) -> Published:
    outputs = _staged(store, run_id, scope, [file.path for file in files])
    inputs = [InputEntry(store.relative(file.path), file.version) for file in files]
    if scope == "tree":
        return publish_tree(store, lease, run_id, "move", inputs, outputs)
    groups = groups_by_directory(inputs, outputs)
    return publish(store, lease, run_id, "move", groups, atomic=True)


def _staged(store: Store, run_id: str, scope: Scope, paths: list[str]) -> list[OutputEntry]:
    rows = pa.concat_tables(_read(path) for path in paths)
    outputs = []
    for remainder in range(3):
        # Hive partitions 0 and 1 are there, 2 is new; of the tree, all are.
        directory = f"p={remainder}" if scope == "all" else f"q={remainder}/r=x"
        name = output_name("part")
        staged = f"{run_directory(run_id)}/{name}.staged"
        part = rows.filter(pa.array([i % 3 == remainder for i in rows["id"].to_pylist()]))
        with store.open_output(store.path(staged)) as sink:
            pq.write_table(part.take(pc.sort_indices(part, [("id", "ascending")])), sink)
        outputs.append(OutputEntry(staged, f"{directory}/{name}"))
    return outputs


def _read(path: str) -> pa.Table:
    with pa.OSFile(path) as handle:
        return pq.ParquetFile(handle).read(use_threads=False)
