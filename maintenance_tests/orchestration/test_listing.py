"""Partitions from listings: in one order, and from any place on."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from maintenance_assets.storage.filesystems import Store, open_store
from maintenance_assets.storage.partition_listing import iter_partitions
from maintenance_tests.conftest import ONE_WORKER
from maintenance_tests.datasets import Lake
from maintenance_tests.servers import S3Server

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


class Counting:
    """A file system that remembers what was listed, and whether all below it was."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self.listed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.listed.append(path)
        return self._fs.ls(path, detail=detail, **options)

    def find(self, path: str, **options: Any) -> Any:
        self.listed.append(f"{path}/**")
        return self._fs.find(path, **options)


class Plain(Counting):
    """One whose listings know no `refresh`, such as that of sftp."""

    def ls(self, path: str, detail: bool = True) -> Any:  # type: ignore[override]
        return super().ls(path, detail)


@pytest.fixture(params=["memory", pytest.param("s3", marks=[pytest.mark.s3, ONE_WORKER])])
def remote(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """An empty dataset root on each kind of store that is not a local disk."""
    name = f"lake-{uuid.uuid4().hex}"
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        yield Lake(f"s3://{server.bucket}/{name}", server.storage_options)
        return
    yield Lake(f"memory://{name}")
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)


def counted(lake: Lake) -> tuple[Store, Counting]:
    store = store_of(lake)
    counting = Counting(store.fs)
    return replace(store, fs=counting), counting


def days(lake: Lake) -> list[str]:
    """Two levels, and a neighbour of the first on either side."""
    names = [f"region={region}/date={n:02}" for region in ("ap", "eu", "us") for n in range(8)]
    for name in names:
        lake.put(f"{name}/x.parquet", b"12345")
        lake.put(f"{name}/_temporary/x.parquet", b"1")
    return names


@pytest.mark.parametrize("k", [0, 9, 15, 23])
def test_a_remote_store_lists_what_lies_behind_and_its_ancestors(remote: Lake, k: int) -> None:
    names = days(remote)
    store, counting = counted(remote)
    assert [name for name, _ in iter_partitions(store, names[k])] == names[k + 1 :]
    regions = {name.partition("/")[0] for name in names[k:]}
    # The place itself is looked at once more: a partition may have others below it.
    assert [store.relative(path) for path in counting.listed] == sorted({"", *regions, *names[k:]})


def test_a_remote_walk_lists_no_more_than_was_asked_for(remote: Lake) -> None:
    names = days(remote)
    store, counting = counted(remote)
    walk = iter_partitions(store, names[9])
    assert [next(walk)[0], next(walk)[0]] == names[10:12]
    assert len(counting.listed) == len(["", "region=eu", *names[9:12]])


def test_a_remote_walk_can_be_cut_anywhere(remote: Lake) -> None:
    fill(remote, PLACES)
    store = store_of(remote)
    seen: list[str] = []
    while True:
        found = next(iter_partitions(store, seen[-1] if seen else None), None)
        if found is None:
            break
        seen.append(found[0])
    assert seen == PLACES


@pytest.mark.parametrize(
    ("after", "rest"),
    [("a=1/b=15", PLACES[3:]), ("a", PLACES[1:]), ("zzz", []), ("a=1/b=2/c=3", PLACES[4:])],
)
def test_a_remote_place_that_is_gone_is_passed(remote: Lake, after: str, rest: list[str]) -> None:
    fill(remote, PLACES)
    assert [name for name, _ in iter_partitions(store_of(remote), after)] == rest


def test_a_remote_walk_tells_what_a_listing_of_all_tells(remote: Lake) -> None:
    fill(remote, PLACES)
    store = store_of(remote)
    walked = {listed for _, files in iter_partitions(store) for listed in files}
    names = [f"{place}/{name}.parquet".lstrip("/") for place in PLACES for name in "xy"]
    assert walked == {f for f in store.find(store.root) if store.relative(f.path) in names}
    assert len(walked) == len(names)
    assert all(listed.has_version and listed.modified_at for listed in walked)


def test_names_that_a_listing_could_mistake(lake: Lake) -> None:
    own = lake.url.rpartition("/")[2]
    places = ["table.parquet", f"z/{own}", "z/z/z", own]
    for place in places:
        lake.put(f"{place}/x.parquet", b"12345")
    found = dict(iter_partitions(store_of(lake)))
    assert sorted(found) == sorted(places)
    assert all(len(files) == 1 for files in found.values())


def test_a_file_is_no_directory_of_partitions(remote: Lake) -> None:
    remote.put("x.parquet", b"12345")
    assert list(iter_partitions(store_of(remote.below("x.parquet")))) == []


def test_a_store_that_cannot_refresh_is_listed(remote: Lake) -> None:
    names = days(remote)
    store = store_of(remote)
    plain = replace(store, fs=Plain(store.fs))
    assert [name for name, _ in iter_partitions(plain)] == names


@pytest.mark.s3
@ONE_WORKER
def test_marker_objects_are_neither_files_nor_partitions(s3: S3Server) -> None:
    lake = Lake(f"s3://{s3.bucket}/lake-{uuid.uuid4().hex}", s3.storage_options)
    store = store_of(lake)
    lake.put("date=1/x.parquet", b"12345")
    for marker in ("", "date=1/", "date=2/", "date=3.parquet/"):
        store.fs.call_s3("put_object", Bucket=s3.bucket, Key=f"{lake.url[5:]}/{marker}")
    ((name, files),) = iter_partitions(store)
    assert (name, [store.relative(file.path) for file in files]) == ("date=1", ["date=1/x.parquet"])


@pytest.mark.s3
@ONE_WORKER
def test_a_stale_cache_is_not_believed(s3: S3Server) -> None:
    lake = Lake(f"s3://{s3.bucket}/lake-{uuid.uuid4().hex}", s3.storage_options)
    lake.put("region=eu/date=1/x.parquet", b"12345")
    store = store_of(lake)
    for directory in ("", "region=eu", "region=eu/date=1"):
        store.fs.ls(store.path(directory))
    other = fsspec.filesystem("s3", skip_instance_cache=True, **s3.storage_options)
    other.pipe_file(store.path("region=eu/date=1/y.parquet"), b"1")
    other.pipe_file(store.path("region=eu/date=2/x.parquet"), b"1")
    other.pipe_file(store.path("region=us/x.parquet"), b"1")
    found = {name: len(files) for name, files in iter_partitions(store)}
    assert found == {"region=eu/date=1": 2, "region=eu/date=2": 1, "region=us": 1}
