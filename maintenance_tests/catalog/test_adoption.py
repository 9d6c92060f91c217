"""Directories change hands between plain maintenance and a catalog, and no row is lost."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import (
    CatalogError,
    Lakehouse,
    LeaseHeldError,
    UnsupportedDatasetError,
    compact,
    recover,
    repartition,
)
from maintenance_tests.datasets import Lake

NOW = timedelta(0)


def three_files(root: Path) -> Path:
    """A plain directory of three rows, each in a file of its own."""
    lake = Lake(str(root))
    for number in range(3):
        lake.write(f"f{number}.parquet", {"id": [number]})
    return root


def ids(dataset: Any) -> list[int]:
    """The ids of a dataset, in order."""
    return sorted(dataset.read(["id"]).column("id").to_pylist())


def test_a_directory_that_is_being_compacted_is_not_adopted(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = three_files(tmp_path / "plain")
    refused = []

    def adopt(progress: Any) -> None:
        if progress.phase == "execute":
            with pytest.raises(LeaseHeldError, match="being maintained") as found:
                small.register("d", root)
            refused.append(found)

    compact(root, on_progress=adopt)
    assert refused
    assert small.datasets() == ()
    assert ids(small.register("d", root)) == [0, 1, 2]


def test_a_compaction_that_listed_the_files_before_they_were_adopted_gives_up(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = three_files(tmp_path / "plain")

    def adopt(progress: Any) -> None:
        if progress.phase == "discover" and not small.datasets():
            small.register("d", root)

    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        compact(root, on_progress=adopt)
    assert ids(small.dataset("d")) == [0, 1, 2]
    assert small.fsck().problems == ()


def test_a_partition_that_was_adopted_meanwhile_is_not_rewritten_from_above(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = tmp_path / "plain"
    three_files(root / "k=a")

    def adopt(progress: Any) -> None:
        if progress.phase == "discover" and not small.datasets():
            small.register("d", root / "k=a")

    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        compact(root, on_progress=adopt)
    assert ids(small.dataset("d")) == [0, 1, 2]


KILLED_BEFORE_ITS_INPUTS_ARE_GONE = """
import os, signal, sys
from maintenance_assets import compact
from maintenance_assets.storage import exchange, publish

exchange.can_swap = lambda swap: False
publish.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
compact(sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process is killed")
def test_an_interrupted_maintenance_is_resolved_before_files_are_adopted(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = three_files(tmp_path / "plain")
    command = [sys.executable, "-c", KILLED_BEFORE_ITS_INPUTS_ARE_GONE, str(root)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(list(root.glob("*.parquet"))) == 4
    dataset = small.register("d", root)
    assert ids(dataset) == [0, 1, 2]
    assert not (root / "_maintenance").exists()
    assert recover(root).actions == ()
    assert ids(dataset) == [0, 1, 2]
    assert small.fsck().problems == ()


def test_nothing_is_put_into_or_around_the_directory_of_another_catalog(
    small: Lakehouse, tmp_path: Path
) -> None:
    dataset = small.create_dataset("d", {"id": "int64"}, path=tmp_path / "deep" / "d")
    root = Path(dataset.path)
    plain = three_files(tmp_path / "plain")
    with Lakehouse(f"sqlite:///{tmp_path}/other.db") as other:
        for path in (root / "below", root.parent):
            with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
                other.create_dataset("e", {"id": "int64"}, path=path)
    with pytest.raises(UnsupportedDatasetError, match="lakehouse catalog"):
        repartition(plain, root / "below", ["id"])
    assert [path.name for path in root.iterdir()] == ["_lakehouse"]
    assert len(list(plain.iterdir())) == 3


def test_a_mark_that_unregister_did_not_come_to_remove_is_no_obstacle(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = three_files(tmp_path / "plain")
    small.register("d", root)
    mark = (root / "_lakehouse" / "dataset.json").read_bytes()
    small.unregister("d")
    (root / "_lakehouse").mkdir()
    (root / "_lakehouse" / "dataset.json").write_bytes(mark)
    assert ids(small.register("again", root)) == [0, 1, 2]


def test_files_that_nobody_committed_do_not_become_rows_of_a_plain_directory(
    small: Lakehouse,
) -> None:
    dataset = small.create_dataset("d", data={"id": [1]})
    dataset.append({"id": [2]})
    dataset.tag("first", 1)
    stray = Path(dataset.path) / "late.parquet"
    pq.write_table(pa.table({"id": [99]}), stray)
    with pytest.raises(CatalogError, match=r"'late\.parquet' is in no version"):
        small.unregister("d")
    assert dataset.tags() == {"first": 1}
    stray.unlink()
    small.unregister("d")
    assert sorted(pq.read_table(stray.parent).column("id").to_pylist()) == [1, 2]


def test_unregister_gives_nothing_up_while_others_are_at_work(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", data={"id": [1]})
    dataset.append({"id": [2]})
    dataset.tag("first", 1)
    session = small._session
    with (
        session.transaction(session.reader.dataset("d"), "append"),
        pytest.raises(CatalogError, match="1 operation"),
    ):
        small.unregister("d")
    assert dataset.tags() == {"first": 1}
    assert dataset.read(version=1).num_rows == 1


def test_a_summary_of_files_that_are_gone_is_not_given_back(
    small: Lakehouse, tmp_path: Path
) -> None:
    root = three_files(tmp_path / "plain")
    summary = root / "_metadata"
    pq.write_metadata(pa.schema([("id", pa.int64())]), summary)
    small.register("d", root)
    small.unregister("d")
    assert summary.exists()
    small.register("d", root).compact()
    small.unregister("d")
    assert [path.suffix for path in root.iterdir()] == [".parquet"]


def test_files_of_types_that_do_not_mix_are_not_given_back(small: Lakehouse) -> None:
    dataset = small.create_dataset("d", data={"id": [1], "code": [7]})
    with pytest.warns(UserWarning, match="both become text"):
        dataset.append({"id": [2], "code": ["x7"]}, on_mismatch="string")
    with pytest.raises(CatalogError, match="'code', which is int64 there and string in others"):
        small.unregister("d")
    dataset.overwrite(dataset.read())
    small.unregister("d")
    found = pq.read_table(dataset_root(small, "d")).to_pydict()
    assert found == {"id": [1, 2], "code": ["7", "x7"]}


def test_a_directory_that_plain_readers_would_skip_is_not_given_back(small: Lakehouse) -> None:
    schema = {"id": "int64", "_k": "string"}
    dataset = small.create_dataset("d", schema, partition_by=["_k"])
    dataset.append({"id": [1], "_k": ["a"]})
    with pytest.raises(CatalogError, match="readers of plain directories skip"):
        small.unregister("d")
    dataset.repartition([])
    small.unregister("d")
    assert pq.read_table(dataset_root(small, "d")).num_rows == 1


def dataset_root(house: Lakehouse, name: str) -> str:
    """Where a dataset of that name lies by default."""
    return house._path_of(name)
