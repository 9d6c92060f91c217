"""What was stitched is looked at again before it is published."""

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets.engines.stitch_check import Expected, check_stitched
from maintenance_assets.engines.stitch_footer import StitchObstacleError
from maintenance_assets.engines.stitch_pages import checked_pages
from maintenance_assets.engines.stitch_source import MemorySource
from maintenance_assets.engines.thrift import (
    I64,
    int_bytes,
    int_of,
    take_list,
    take_struct,
    to_int,
)
from maintenance_assets.errors import IncompleteMaintenanceError, RewriteError
from maintenance_tests.datasets import Lake, parquet_bytes
from maintenance_tests.engines.test_stitch import footer_of, with_footer

TABLE = pa.table({"id": range(600), "l": [[n, n] for n in range(600)]})
CONTENT = parquet_bytes(
    TABLE,
    write_page_index=True,
    max_rows_per_page=50,
    write_batch_size=10,
    row_group_size=300,
    bloom_filter_options={"id": {"ndv": 600}},
    sorting_columns=[pq.SortingColumn(0)],
)


def look(
    content: bytes, *, rows: int = 600, keeps_sorting: bool = True, pages: bool = True
) -> None:
    expected = Expected(
        "out", len(content), footer_of(CONTENT).row_groups, rows, keeps_sorting=keeps_sorting
    )
    check_stitched(MemorySource(content), expected, look_at_pages=pages)


@pytest.mark.parametrize("pages", [True, False])
def test_what_is_as_it_was_passes(pages: bool) -> None:
    look(CONTENT, pages=pages)


def column_of(footer: Any) -> Any:
    return footer.row_groups[1].chunks[0].column


def moved(number: int, by: int) -> Any:
    def change(footer: Any) -> None:
        column = column_of(footer)
        column[number] = column[number][0], int_bytes(int_of(column, number) + by)

    return change


def other_rows(footer: Any) -> None:
    footer.row_groups.pop()
    footer.fields[3] = I64, int_bytes(300)


def no_order(footer: Any) -> None:
    footer.row_groups[0].fields.pop(4)


def no_index(footer: Any) -> None:
    footer.row_groups[0].chunks[1].fields.pop(4)


def same_index_twice(footer: Any) -> None:
    first, second = (group.chunks[0].fields for group in footer.row_groups)
    first[4], first[5] = second[4], second[5]


WRONG = {
    "values": (moved(5, -1), "299 values in 300 rows"),
    "uncompressed size": (moved(6, 1), "described differently"),
    "data page": (moved(9, 1), "are not where they were put"),
    "dictionary page": (moved(11, 1), "are not where"),
    "bloom filter": (moved(14, 10**6), "lies outside the data"),
    "bloom filter elsewhere": (moved(14, -1), "share bytes"),
    "row groups": (other_rows, "other row groups"),
    "order": (no_order, "another order"),
    "index": (no_index, "left behind"),
    "index twice": (same_index_twice, "share bytes"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_a_footer_says_wrongly_is_found_without_a_look_at_pages(kind: str) -> None:
    change, reason = WRONG[kind]
    with pytest.raises(RewriteError, match=reason):
        look(with_footer(CONTENT, change), pages=False)


def test_rows_and_orders_are_those_of_the_plan() -> None:
    with pytest.raises(RewriteError, match="other rows than were planned"):
        look(CONTENT, rows=599)
    with pytest.raises(RewriteError, match="another order"):
        look(CONTENT, keeps_sorting=False)


def test_a_page_index_beside_the_pages_is_an_obstacle() -> None:
    start, length = footer_of(CONTENT).row_groups[0].chunks[0].extent((4, 5))
    index, _ = take_struct(CONTENT[start : start + length], 0, {1: take_locations})
    first = to_int(index[1][1][0][1][1])
    old, new = int_bytes(first), int_bytes(first + 1)
    assert len(old) == len(new) and CONTENT.count(old, start, start + length) == 1
    at = CONTENT.index(old, start)
    with pytest.raises(StitchObstacleError, match="something that is no page"):
        look(CONTENT[:at] + new + CONTENT[at + len(new) :])


def looked_at(content: bytes) -> Any:
    """Row groups of a file whose pages were looked at, as they are while they are copied."""
    groups = footer_of(content).row_groups
    for chunk in (chunk for group in groups for chunk in group.chunks):
        chunk.pages = tuple(checked_pages(MemorySource(content).read, chunk, "in"))
    return groups


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("page", [0, 3, 7])
def test_pages_that_were_looked_at_begin_in_the_copy_as_they_did(
    page: int, checksums: bool
) -> None:
    content = parquet_bytes(
        TABLE, max_rows_per_page=50, write_batch_size=10, write_page_checksum=checksums
    )
    groups = looked_at(content)
    expected = Expected("out", len(content), groups, 600, keeps_sorting=True)
    check_stitched(MemorySource(content), expected, look_at_pages=True)
    start = groups[0].chunks[1].pages[page].start
    damaged = content[: start + 4] + bytes((content[start + 4] ^ 1,)) + content[start + 5 :]
    with pytest.raises(RewriteError, match="does not begin with the bytes that were copied"):
        check_stitched(MemorySource(damaged), expected, look_at_pages=True)


def test_the_sums_of_pages_are_those_of_the_copy() -> None:
    content = parquet_bytes(TABLE, write_page_checksum=True)
    groups = looked_at(content)
    expected = Expected("out", len(content), groups, 600, keeps_sorting=True)
    last = groups[0].chunks[1].end - 1
    damaged = content[:last] + bytes((content[last] ^ 1,)) + content[last + 1 :]
    with pytest.raises(RewriteError, match="does not match its CRC checksum"):
        check_stitched(MemorySource(damaged), expected, look_at_pages=True)


def take_locations(data: bytes, position: int) -> tuple[Any, int]:
    return take_list(data, position, take_struct)


def test_a_copy_that_went_wrong_is_not_published(
    local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(2):
        local.write(f"{part}.parquet", {"id": range(100_000)})
    before = local.tree()

    def write_zeros(target: int, source: int, start: int, count: int) -> int:
        return os.write(target, bytes(count))

    monkeypatch.setattr(os, "sendfile", write_zeros)
    with pytest.raises(IncompleteMaintenanceError, match="did not come out as it has to be"):
        local.compact("pyarrow")
    assert local.tree() == before
