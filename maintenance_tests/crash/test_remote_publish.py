"""Publishing on a store far away: many files are asked for at once, and each is still looked at."""

import errno
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from maintenance_assets import IncompleteMaintenanceError, compact
from maintenance_assets.model.progress import Progress

FILES = 60
"""More than are asked for one by one."""
ROOT = "/far/lake"


class FarStore(MemoryFileSystem):
    """A store in memory that counts what it is asked for."""

    protocol = "far"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: Counter[str] = Counter()
        self.before_delete: Callable[[str], None] | None = None
        self.listings_say_otherwise = False

    def info(self, path: str, **options: Any) -> Any:
        """One look at one object."""
        self.asked[path] += 1
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """A listing, perhaps with another mark of a version than a look at the object has."""
        found = super().ls(path, detail=detail, **options)
        if detail and self.listings_say_otherwise:
            return [{**entry, "created": entry.get("created", 0), "etag": "no"} for entry in found]
        return found

    def rm_file(self, path: str) -> None:
        """Something may happen right before."""
        if self.before_delete is not None:
            self.before_delete(path)
        super().rm_file(path)

    def write(self, number: int, value: int) -> None:
        """A file of one row."""
        with self.open(name_of(number), "wb") as handle:
            pq.write_table(pa.table({"id": [value]}), handle)

    def ids(self) -> list[int]:
        """All values that a reader finds."""
        paths = [path for path in self.find(ROOT) if path.endswith(".parquet")]
        return sorted(v for p in paths for v in pq.read_table(self.open(p))["id"].to_pylist())


def name_of(number: int) -> str:
    return f"{ROOT}/part-{number:02}.parquet"


@pytest.fixture
def far() -> Iterator[FarStore]:
    fs = FarStore()
    for number in range(FILES):
        fs.write(number, number)
    fs.asked.clear()
    yield fs
    fs.before_delete = None
    fs.rm("/far", recursive=True)


def test_an_input_is_asked_for_once_before_it_goes(far: FarStore) -> None:
    compact(ROOT, filesystem=far)
    assert far.ids() == list(range(FILES))
    inputs = {name_of(number) for number in range(FILES)}
    assert not [path for path in far.find(ROOT) if path in inputs]
    # What lies in one directory is otherwise seen in its listing.
    assert max(far.asked[path] for path in inputs) == 1


def test_a_cache_that_forgets_at_the_same_time_does_not_stop_a_run(
    far: FarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = Counter[str]()

    def forget(path: str | None = None) -> None:
        forgotten[str(path)] += 1
        if path is not None and forgotten[path] % 2:
            raise KeyError(path)  # as fsspec's listings do where two threads forget one

    monkeypatch.setattr(far, "invalidate_cache", forget)
    assert compact(ROOT, filesystem=far).stats.after_file_count == 1
    assert far.ids() == list(range(FILES))
    assert forgotten[ROOT] > 1


def test_listings_that_know_other_versions_are_not_believed(far: FarStore) -> None:
    def turn(progress: Progress) -> None:
        far.listings_say_otherwise = progress.phase == "execute"

    result = compact(ROOT, filesystem=far, on_progress=turn)
    assert not result.conflicts
    assert result.stats.after_file_count == 1
    assert far.ids() == list(range(FILES))


@pytest.mark.parametrize("gone", [False, True], ids=["replaced", "deleted"])
def test_one_of_many_inputs_that_changes_meanwhile_drops_its_group(
    far: FarStore, gone: bool
) -> None:
    def interfere(progress: Progress) -> None:
        if progress.phase == "execute":
            far.rm_file(name_of(41)) if gone else far.write(41, 1041)

    result = compact(ROOT, filesystem=far, on_progress=interfere)
    assert "part-41" in result.conflicts[0].reason
    assert result.stats.compacted_file_count == 0
    kept = [number for number in range(FILES) if number != 41]
    assert far.ids() == (kept if gone else [*kept, 1041])


def test_an_input_that_is_replaced_while_the_others_are_deleted_stays(far: FarStore) -> None:
    def replace_the_last(path: str) -> None:
        if path == name_of(0):  # goes first, alone
            far.write(FILES - 1, 1000)

    far.before_delete = replace_the_last
    compact(ROOT, filesystem=far)
    assert far.ids() == [*range(FILES), 1000]


def test_a_first_input_that_may_not_be_deleted_takes_the_group_back(far: FarStore) -> None:
    def deny(path: str) -> None:
        if path == name_of(0):
            raise PermissionError(errno.EACCES, "object is locked", path)

    far.before_delete = deny
    with pytest.raises(IncompleteMaintenanceError, match="object is locked"):
        compact(ROOT, filesystem=far)
    assert far.ids() == list(range(FILES))
    assert len([path for path in far.find(ROOT) if path.endswith(".parquet")]) == FILES
