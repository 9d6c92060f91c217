"""The status of a dataset on every store; looking changes nothing."""

import pytest

from maintenance_assets import status
from maintenance_assets.model.status import DatasetStatus
from maintenance_tests.datasets import Lake, one_row_files


def status_of(lake: Lake, **options: object) -> DatasetStatus:
    return status(lake.url, storage_options=dict(lake.storage_options) or None, **options)  # type: ignore[arg-type]


def test_status_on_every_store(lake: Lake) -> None:
    one_row_files(lake, 6, "date=1")
    one_row_files(lake, 1, "date=2")
    lake.put("date=2/_ignored.parquet", b"x")
    before = lake.tree()
    found = status_of(lake, cooldown_minutes=0)
    assert (found.file_count, found.partitions, found.rows, found.row_groups) == (7, 2, 7, 7)
    assert found.total_bytes == lake.total_bytes()
    assert (found.gain, found.in_need) == (5, 1)
    assert found.health.score == pytest.approx(100 * (1 - 5 / 7))
    assert [part.health.partition for part in found.worst] == ["date=1"]
    assert (found.holders, found.leftovers, found.unreadable) == ((), (), ())
    assert sum(bucket.files for bucket in found.histogram) == 7
    assert lake.tree() == before


def test_a_scope_is_respected(local: Lake) -> None:
    one_row_files(local, 6, "date=1")
    one_row_files(local, 3, "date=2")
    assert status_of(local, partition_filter="date=2").file_count == 3


def test_a_row_target_is_what_decides(local: Lake) -> None:
    """A listing knows no rows: files with all the rows that they may have are no debt."""
    one_row_files(local, 6)
    assert status_of(local, target_rows_per_file=1).health.score == 100.0
    assert status_of(local, target_rows_per_file=3).gain == 4


def test_the_worst_come_first_and_are_bounded(local: Lake) -> None:
    for day, count in (("a", 3), ("b", 9), ("c", 6)):
        one_row_files(local, count, f"day={day}")
    found = status_of(local, worst=2)
    assert [part.health.partition for part in found.worst] == ["day=b", "day=c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_gain": 0}, "min_gain must be a whole number >= 1"),
        ({"min_gain": 1.5}, "min_gain must be a whole number >= 1"),
        ({"cooldown_minutes": -1}, "cooldown_minutes must be >= 0"),
        ({"small_file_mb": 0}, "small_file_mb must be > 0"),
        ({"target_mb_per_file": -1}, "target_mb_per_file must be > 0"),
    ],
)
def test_wrong_options_are_refused_before_any_look(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        status("/nowhere/at/all", **options)  # type: ignore[arg-type]
