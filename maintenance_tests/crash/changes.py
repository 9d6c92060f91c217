"""A delete, an update that moves rows and an upsert that does everything at once, to be killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets import ChangeResult, RestoreResult, delete, restore, update, upsert
from maintenance_tests.crash.helpers import visible_files

Places = list[tuple[str, int]]
"""Every row by its partition and its id, sorted."""
NEW: dict[str, Any] = {"id": [0, 16, 2000, 2001], "p": ["1", "1", "0", "7"]}
"""One row moves, one stays, one comes to a partition that exists, one makes a new one."""


def change(action: str, root: str | Path) -> ChangeResult:
    """Carry out an action, keeping a backup beside the dataset."""
    options: dict[str, Any] = {"backup_path": backups(Path(root)), "max_workers": 1}
    if action == "vanish":
        return delete(root, "p = '1'", **options)
    if action == "delete":
        return delete(root, "id % 2 = 0 OR p = '1'", **options)
    if action == "update":
        return update(root, "id % 3 = 0", {"p": "2", "seen": True}, **options)
    checks = [f"row {i}" for i in NEW["id"]]
    return upsert(root, pa.table({**NEW, "check": checks}), ["id"], **options)


def take_back(root: str | Path) -> RestoreResult:
    """Restore the only backup there is."""
    (backup,) = backups(Path(root)).iterdir()
    return restore(root, backup.name, backup_path=backup.parent)


def backups(root: Path) -> Path:
    """Where backups of a dataset are."""
    return root.parent / "backups"


def places(root: Path) -> Places:
    """Where a reader finds which rows."""
    found = []
    for path in visible_files(root):
        with pa.OSFile(str(path), "rb") as handle:
            rows = pq.ParquetFile(handle).read(use_threads=False).to_pydict()
        assert rows["check"] == [f"row {i}" for i in rows["id"]]
        found += [(path.parent.name, i) for i in rows["id"]]
    return sorted(found)


def _deleted(old: Places) -> Places:
    return [(p, i) for p, i in old if i % 2 and p != "p=1"]


def _updated(old: Places) -> Places:
    return sorted(("p=2" if i % 3 == 0 else p, i) for p, i in old)


def _upserted(old: Places) -> Places:
    new = {i: f"p={p}" for i, p in zip(NEW["id"], NEW["p"], strict=True)}
    kept = [(p, i) for p, i in old if i not in new]
    return sorted([*kept, *((p, i) for i, p in new.items())])


EXPECTED: dict[str, Callable[[Places], Places]] = {
    "delete": _deleted,
    "update": _updated,
    "upsert": _upserted,
}
