"""Partition values that look like paths: rows keep them, and nothing is written elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from maintenance_assets import Lakehouse, repartition, update, upsert
from maintenance_tests.datasets import Lake

WICKED = [
    "../../up",
    "..",
    ".",
    "/etc/passwd",
    "a/../../b",
    "..\\..\\x",
    "%2e%2e",
    "%2e%2e%2fx",
    "..%2f..%2fx",
    "nul\0l",
    "line\nbreak",
    "~",
    "_hidden",
    ".hidden",
    "a=b/c=d",
    "__HIVE_DEFAULT_PARTITION__x",
]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory for datasets; in the end there is nothing else in it or beside it."""
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    yield home
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    assert {path.name for path in home.iterdir()} <= {"lake", "target", "catalog.db"}


def assert_one_level(lake: Lake) -> None:
    """Each value is one directory directly below the root."""
    names = lake.files()
    assert names
    for name in names:
        folder, _, file = name.partition("/")
        assert folder.startswith("name=")
        assert "/" not in file
        assert "\0" not in name


def start(home: Path) -> Lake:
    lake = Lake(str(home / "lake"))
    table = {"id": list(range(len(WICKED))), "name": ["plain"] * len(WICKED)}
    lake.write("name=plain/a.parquet", table)
    return lake


def test_repartition_keeps_them_inside(home: Path, engine: str) -> None:
    lake, target = Lake(str(home / "lake")), Lake(str(home / "target"))
    lake.write("a.parquet", {"id": list(range(len(WICKED))), "name": WICKED})
    repartition(lake.url, target.url, ["name"], engine=engine)
    assert_one_level(target)
    assert sorted(target.column("name")) == sorted(WICKED)


def test_upsert_keeps_them_inside(home: Path, engine: str) -> None:
    lake = start(home)
    new = pa.table({"id": list(range(len(WICKED))), "name": WICKED})
    result = upsert(lake.url, new, ["id"], engine=engine)
    assert result.stats.rows_updated == len(WICKED)
    assert_one_level(lake)
    assert sorted(lake.column("name")) == sorted(WICKED)


@pytest.mark.parametrize("value", WICKED, ids=ascii)
def test_update_keeps_a_moved_row_inside(home: Path, value: str) -> None:
    lake = start(home)
    update(lake.url, "id = 1", {"name": value})
    assert_one_level(lake)
    assert sorted(lake.column("name")) == sorted([value] + ["plain"] * (len(WICKED) - 1))


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_value_too_long_for_a_directory_is_refused_before_anything_is_written(
    home: Path, dry_run: bool
) -> None:
    lake = start(home)
    before, backups = lake.tree(), home / "backups"
    new = pa.table({"id": [99], "name": ["é" * 126]})
    with pytest.raises(ValueError, match="a file system takes 255"):
        update(lake.url, "id = 1", {"name": "x" * 251}, dry_run=dry_run)
    with pytest.raises(ValueError, match="a file system takes 255"):
        upsert(lake.url, new, ["id"], backup_path=backups, dry_run=dry_run)
    assert lake.tree() == before
    assert not backups.exists()


def test_a_catalog_keeps_them_inside(home: Path) -> None:
    with Lakehouse(f"sqlite:///{home}/catalog.db") as house:
        rows = {"id": list(range(len(WICKED))), "name": WICKED}
        made = house.create_dataset(
            "lake", {"id": "int64", "name": "string"}, partition_by=["name"]
        )
        made.append(rows)
        made.update("id = 3", {"name": "../../again"})
        made.upsert({"id": [4], "name": ["../../more"]}, ["id"])
        made.compact()
        found = made.read(["id", "name"]).sort_by("id")["name"].to_pylist()
        assert found == [*WICKED[:3], "../../again", "../../more", *WICKED[5:]]
        assert_one_level(Lake(made.path))
        assert house.fsck().problems == ()
