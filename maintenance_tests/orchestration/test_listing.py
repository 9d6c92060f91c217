"""Partitions from listings: in one order, and from any place on."""

import os
from pathlib import Path
from typing import Any

import pytest

from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.partition_listing import iter_partitions
from maintenance_tests.datasets import Lake

PLACES = ["", "a=1", "a=1/b=1", "a=1/b=2", "a=10", "a=2/b=1/c=1", "b", "b/c"]


def store_of(lake: Lake) -> Store:
    return open_store(lake.url, storage_options=dict(lake.storage_options) or None)


def fill(lake: Lake, places: list[str]) -> None:
    for place in places:
        for name in ("x.parquet", "y.parquet", "_hidden.parquet", ".z.parquet", "notes.txt"):
            lake.put(f"{place}/{name}".lstrip("/"), b"12345")
    lake.put("_maintenance/run/x.parquet", b"1")
    lake.put("a=1/_temporary/x.parquet", b"1")


@pytest.mark.parametrize("places", [PLACES, PLACES[1:]], ids=["with root", "without root"])
def test_each_directory_once_and_from_any_place_on(lake: Lake, places: list[str]) -> None:
    fill(lake, places)
    store = store_of(lake)
    found = list(iter_partitions(store))
    assert [name for name, _ in found] == places
    for _, files in found:
        assert sorted(file.path.rpartition("/")[2] for file in files) == ["x.parquet", "y.parquet"]
        assert {file.size_bytes for file in files} == {5}
    for index, place in enumerate(places):
        rest = [name for name, _ in iter_partitions(store, place)]
        assert rest == places[index + 1 :]


@pytest.mark.parametrize(
    ("after", "rest"),
    [("a=1/b=15", PLACES[3:]), ("a", PLACES[1:]), ("zzz", []), ("a=1/b=2/c=3", PLACES[4:])],
)
def test_a_place_that_is_gone_is_passed(local: Lake, after: str, rest: list[str]) -> None:
    fill(local, PLACES)
    assert [name for name, _ in iter_partitions(store_of(local), after)] == rest


def test_nothing_there_is_nothing_found(lake: Lake) -> None:
    assert list(iter_partitions(store_of(lake))) == []


def test_what_was_seen_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(500):
        folder = tmp_path / f"date={number:03}"
        folder.mkdir()
        for name in range(4):
            (folder / f"{name}.parquet").write_bytes(b"")
    opened: list[str] = []
    scandir = os.scandir

    def watched(path: Any) -> Any:
        opened.append(os.path.basename(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", watched)
    rest = list(iter_partitions(open_store(tmp_path), "date=489"))
    assert [name for name, _ in rest] == [f"date={n}" for n in range(490, 500)]
    assert opened == [tmp_path.name, *(f"date={n}" for n in range(489, 500))]
