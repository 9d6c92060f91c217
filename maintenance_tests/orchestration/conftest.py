"""A store that fails at the worst moment, and a dataset of a catalog."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets import Lakehouse
from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.catalog_location import two_days


class Forgetful(MemoryFileSystem):
    """Takes everything, and lists nothing any more once a compacted file is in place."""

    protocol = "forgetful"
    failing = True

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("forgetful://", "memory://")))

    def find(self, path: str, *rest: Any, **options: Any) -> Any:
        """List a tree, until there is something to hide."""
        found = super().find(path, *rest, **options)
        if self.failing and any("/compact-" in name and ".parquet" in name for name in found):
            settled = not any("_maintenance" in name for name in found)
            if settled:
                raise OSError("503: slow down")
        return found


@pytest.fixture
def forgetful() -> Iterator[Lake]:
    """A dataset on such a store."""
    fsspec.register_implementation("forgetful", Forgetful, clobber=True)
    yield Lake("forgetful://forgetful/lake")
    Forgetful.failing = False
    try:
        Forgetful().rm("/forgetful", recursive=True)
    finally:
        Forgetful.failing = True


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Where a catalog is going to be."""
    return f"sqlite:///{tmp_path}/lake/catalog.db"


@pytest.fixture
def house(uri: str) -> Iterator[Lakehouse]:
    """The catalog."""
    with Lakehouse(uri) as lakehouse:
        yield lakehouse


@pytest.fixture
def trades(house: Lakehouse) -> LakeDataset:
    """A dataset in need of maintenance."""
    return two_days(house)
