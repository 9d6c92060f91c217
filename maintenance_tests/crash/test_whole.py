"""What happens to a run that stands or falls as a whole when others write at the same time."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from maintenance_assets.operations.naming import output_name, uuid7
from maintenance_assets.storage import exchange
from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.journal import OutputEntry, run_directory
from maintenance_assets.storage.lease import Lease
from maintenance_assets.storage.publish import publish_tree
from maintenance_tests.crash.helpers import Scratch, ids, leftovers, visible_files, write
from maintenance_tests.crash.whole import Scope, move_rows

SCOPES: list[Scope] = ["all", "tree"]


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def before_exchange(
    monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]
) -> None:
    """Another writer acts at the moment of the n-th exchange."""
    original, seen = exchange.exchange_paths, [0]

    def exchange_paths(left: str, right: str) -> bool:
        seen[0] += 1
        if seen[0] == number:
            act()
        return original(left, right)

    monkeypatch.setattr(exchange, "exchange_paths", exchange_paths)


@pytest.mark.parametrize("scope", SCOPES)
def test_rows_move_and_nothing_is_left(tmp_path: Path, scope: Scope) -> None:
    scratch = Scratch(tmp_path, "hive")
    root = scratch.fresh()
    assert move_rows(root, scope).mode == "exchange"
    assert ids(root) == list(range(scratch.rows))
    assert [path.parent.name for path in visible_files(root)] == (
        ["p=0", "p=1", "p=2"] if scope == "all" else ["r=x"] * 3
    )
    assert leftovers(root) == []
    assert (root / "p=0" / "notes.txt").read_text() == "not data"


def test_replaced_input_at_second_directory_takes_all_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Scratch(tmp_path, "hive").fresh()
    replaced = root / "p=1" / "small-0.parquet"

    def replace() -> None:
        write(tmp_path / "new.parquet", range(1000, 1003))
        os.replace(tmp_path / "new.parquet", replaced)

    old = tree(root)
    # The first exchange is that of the new directory p=2, which has no inputs.
    before_exchange(monkeypatch, 3, replace)
    published = move_rows(root, "all")
    assert (published.groups, published.mode) == ((), "none")
    assert "p=1/small-0.parquet' was changed by another writer" in published.conflicts[0][1]
    new = tree(root)
    assert new.pop("p=1/small-0.parquet") == replaced.read_bytes()
    del old["p=1/small-0.parquet"]
    assert new == old
    assert leftovers(root) == []


@pytest.mark.parametrize("scope", SCOPES)
def test_error_on_the_way_takes_all_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    root = Scratch(tmp_path, "hive").fresh()
    old = tree(root)

    def fail() -> None:
        raise OSError(28, "No space left on device")

    before_exchange(monkeypatch, 2 if scope == "all" else 1, fail)
    with pytest.raises(OSError, match="No space left"):
        move_rows(root, scope)
    assert tree(root) == old
    assert leftovers(root) == []


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("place", ["p=0/late.parquet", "p=9/late.parquet"])
def test_file_that_arrives_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: Scope, place: str
) -> None:
    scratch = Scratch(tmp_path, "hive")
    root = scratch.fresh()
    before_exchange(monkeypatch, 1, lambda: write(root / place, [5000]))
    assert move_rows(root, scope).groups
    assert ids(root) == [*range(scratch.rows), 5000]
    assert (root / place).exists()
    assert leftovers(root) == []


def test_tree_keeps_what_is_not_data_and_rights(tmp_path: Path) -> None:
    root = Scratch(tmp_path, "hive").fresh()
    (root / "_state").mkdir()
    (root / "_state" / "offsets.json").write_text("{}")
    (root / "_state").chmod(0o700)
    root.chmod(0o750)
    move_rows(root, "tree")
    assert (root / "_state" / "offsets.json").read_text() == "{}"
    assert (root / "_state").stat().st_mode & 0o777 == 0o700
    assert (root / "q=0" / "r=x").stat().st_mode & 0o777 == 0o750
    assert not (root / "p=1").exists()


def test_tree_replaced_input_leaves_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Scratch(tmp_path, "hive").fresh()
    before_exchange(monkeypatch, 1, lambda: write(root / "p=1" / "small-1.parquet", [7]))
    published = move_rows(root, "tree")
    assert published.groups == ()
    assert "small-1.parquet' was changed" in published.conflicts[0][1]
    assert {path.parent.name for path in visible_files(root)} == {"p=0", "p=1"}
    assert leftovers(root) == []


def fill(root: Store) -> None:
    """One file into an empty root."""
    run_id = uuid7()
    with Lease(root, run_id, "fill") as lease:
        name = output_name("part")
        staged = f"{run_directory(run_id)}/{name}.staged"
        with root.open_output(root.path(staged)) as sink:
            sink.write(b"bytes")
        publish_tree(root, lease, run_id, "fill", [], [OutputEntry(staged, f"a=1/{name}")])


@pytest.mark.parametrize("url", ["local", "memory://fill-tree"])
def test_empty_root_is_filled_and_a_full_one_refused(tmp_path: Path, url: str) -> None:
    store = open_store(str(tmp_path / "new") if url == "local" else url)
    fill(store)
    (file,) = store.find(store.root)
    assert store.relative(file.path).startswith("a=1/part-")
    with pytest.raises(FileExistsError, match="is not empty: it holds 'a=1'"):
        fill(store)
    if url == "local":
        shutil.rmtree(store.root)
    else:
        fsspec.filesystem("memory").rm(store.root, recursive=True)
