"""What others may have put among our own files: nothing outside of the dataset is touched."""

import json
from pathlib import Path
from typing import Any

import pytest

from maintenance_assets import (
    MaintenanceError,
    RecoveryError,
    UnsupportedDatasetError,
    compact,
    delete,
    recover,
    restore,
)
from maintenance_tests.crash.helpers import make

RUN = "01890000-0000-7000-8000-000000000000"
OTHER = "01890000-0000-7000-8000-000000000001"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path / "lake", "hive")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious.parquet").write_text("precious")
    (tmp_path / "outside" / RUN).mkdir()
    (tmp_path / "outside" / RUN / "x.staged").write_text("precious")
    return tmp_path / "lake"


def everything(root: Path) -> dict[str, bytes]:
    """All files of the dataset and beside it."""
    found = (path for path in root.parent.rglob("*") if path.is_file())
    return {str(path.relative_to(root.parent)): path.read_bytes() for path in found}


def journal(**changed: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "run_id": RUN,
        "operation": "compact",
        "state": "published",
        "groups": [],
        "discarded": [],
        "scope": "directory",
    } | changed


def group(directory: str = "p=0", **changed: Any) -> dict[str, Any]:
    return {"directory": directory, "inputs": [], "outputs": []} | changed


OUTSIDE = "../outside/precious.parquet"


@pytest.mark.parametrize(
    "content",
    [
        journal(discarded=[OUTSIDE]),
        journal(discarded=["/etc/hostname"]),
        journal(discarded=["p=0/../../outside/precious.parquet"]),
        journal(discarded=["link/precious.parquet"]),
        journal(discarded=[{"path": OUTSIDE}]),
        journal(discarded=[""]),
        journal(groups=[group(inputs=[{"path": OUTSIDE, "version": "1"}])]),
        journal(groups=[group(directory="../outside")]),
        journal(groups=[group(directory="link")], scope="all"),
        journal(
            groups=[group(outputs=[{"staged": OUTSIDE, "final": "p=0/x.parquet"}])],
            state="prepared",
        ),
        journal(
            groups=[group(outputs=[{"staged": f"_maintenance/{RUN}/0.staged", "final": OUTSIDE}])],
            state="prepared",
        ),
        journal(run_id=OTHER),
        journal(run_id="../../outside"),
        journal(groups="none"),
    ],
    ids=lambda content: str({k: v for k, v in content.items() if k != "format"})[40:110],
)
@pytest.mark.parametrize("action", [recover, compact])
def test_a_journal_that_names_what_is_elsewhere_is_refused(
    root: Path, content: dict[str, Any], action: Any
) -> None:
    (root / "_maintenance" / RUN).mkdir(parents=True)
    (root / "_maintenance" / RUN / "journal.json").write_text(json.dumps(content))
    if "link" in json.dumps(content):
        (root / "link").symlink_to(root.parent / "outside")
    before = everything(root)
    with pytest.raises(RecoveryError, match=r"journal .* cannot be read: .* Nothing was changed"):
        action(root)
    assert everything(root) == before


@pytest.mark.parametrize("place", ["_maintenance", "_maintenance/leases"])
def test_a_work_directory_that_is_elsewhere_is_refused(root: Path, place: str) -> None:
    (root / place).parent.mkdir(exist_ok=True)
    (root / place).symlink_to(root.parent / "outside")
    before = everything(root)
    for action in (compact, recover):
        with pytest.raises(UnsupportedDatasetError, match="is behind a symbolic link"):
            action(root)
    assert everything(root) == before


def test_a_run_that_is_elsewhere_is_refused(root: Path) -> None:
    (root / "_maintenance").mkdir()
    (root / "_maintenance" / RUN).symlink_to(root.parent / "outside" / RUN)
    before = everything(root)
    for action in (recover, compact):
        with pytest.raises(RecoveryError, match="is a symbolic link"):
            action(root)
    assert everything(root) == before


def test_a_backup_that_leads_elsewhere_is_not_restored(root: Path) -> None:
    backups = root.parent / "backups"
    made = delete(root, "id = 1", backup_path=backups).backup_id
    assert made is not None
    (kept,) = (backups / made).rglob("*.parquet")
    kept.rename(root.parent / "outside" / "moved.parquet")
    kept.symlink_to(root.parent / "outside" / "moved.parquet")
    before = everything(root)
    with pytest.raises(MaintenanceError, match="symbolic link"):
        restore(root, made, backup_path=backups)
    assert everything(root) == before


def test_nothing_is_restored_through_a_link_in_the_dataset(root: Path) -> None:
    backups = root.parent / "backups"
    made = delete(root, "id = 1", backup_path=backups).backup_id
    assert made is not None
    manifest = backups / made / "manifest.json"
    manifest.write_text(manifest.read_text().replace("p=0/", "link/"))
    (root / "link").symlink_to(root.parent / "outside")
    (backups / made / "data" / "p=0").rename(backups / made / "data" / "link")
    before = everything(root)
    with pytest.raises(MaintenanceError):
        restore(root, made, backup_path=backups)
    after = {name: content for name, content in everything(root).items() if "lake/" not in name}
    assert after == {name: content for name, content in before.items() if "lake/" not in name}
