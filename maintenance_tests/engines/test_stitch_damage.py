"""Footers that do not fit their files: encoded or refused by name, never copied, never a crash."""

from typing import Any

import pyarrow as pa
import pytest

from maintenance_assets.engines.stitch_extras import Extras
from maintenance_assets.engines.stitch_footer import (
    StitchObstacleError,
    parse_footer,
    repeated_leaves,
)
from maintenance_assets.engines.stitch_pages import checked_pages
from maintenance_assets.engines.thrift import I32, I64, int_bytes
from maintenance_assets.errors import IncompleteMaintenanceError, UnreadableFileError
from maintenance_tests.datasets import Lake, parquet_bytes
from maintenance_tests.engines.test_stitch import footer_of, with_footer

ROWS = 100_000


def bloom_at(position: int) -> Any:
    def change(footer: Any) -> None:
        footer.row_groups[0].chunks[0].column[14] = I64, int_bytes(position)
        footer.row_groups[0].chunks[0].column.pop(15, None)

    return change


def test_a_bloom_filter_that_points_anywhere_is_an_obstacle_or_inside() -> None:
    content = parquet_bytes({"id": range(3000)})
    footer = footer_of(content)
    chunk = footer.row_groups[0].chunks[0]

    def read(start: int, length: int) -> bytes:
        assert 0 <= start <= start + length <= footer.data_end
        return content[start : start + length]

    for position in range(1, footer.data_end):
        bloom_at(position)(footer)
        try:
            found = Extras(read, [chunk], footer.data_end).bloom_filter(chunk)
        except StitchObstacleError:
            continue
        assert found


@pytest.mark.parametrize("engine_name", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("position", [-9, 5, 1000, "end", 10**9])
def test_a_wrong_bloom_filter_is_encoded_and_others_are_stitched(
    local: Lake, engine_name: str, position: Any
) -> None:
    good = parquet_bytes({"id": range(ROWS)})
    at = footer_of(good).data_end - 3 if position == "end" else position
    for day, second in ((1, with_footer(good, bloom_at(at))), (2, good)):
        local.put(f"day={day}/a.parquet", good)
        local.put(f"day={day}/b.parquet", second)
    result = local.compact(engine_name)
    assert result.modes == {"stitch": 1, "encode": 1}
    assert len(local.files()) == 2
    assert local.column("id") == 4 * list(range(ROWS))


def test_a_bloom_filter_of_unknown_length_is_taken_along(local: Lake) -> None:
    options: dict[str, Any] = {"bloom_filter_options": {"id": {"ndv": 100}}}
    good = parquet_bytes({"id": range(ROWS)}, **options)
    length = footer_of(good).row_groups[0].chunks[0].extent((14, 15), of_column=True)[1]

    def unmeasured(footer: Any) -> None:
        footer.row_groups[0].chunks[0].column.pop(15)

    for part in range(2):
        local.put(f"{part}.parquet", with_footer(good, unmeasured))
    assert local.compact("pyarrow").mode == "stitch"
    groups = footer_of(local.get(local.only_file())).row_groups
    assert [g.chunks[0].extent((14, 15), of_column=True)[1] for g in groups] == [length, length]


@pytest.mark.parametrize("number", [4, 6])
def test_an_index_outside_the_data_is_an_obstacle(number: int) -> None:
    content = parquet_bytes({"id": range(100)}, write_page_index=True)

    def beyond(footer: Any) -> None:
        footer.row_groups[0].chunks[0].fields[number] = I64, int_bytes(len(content) - 9)

    changed = with_footer(content, beyond)
    with pytest.raises(StitchObstacleError, match="lies outside the data"):
        parse_footer(changed, "a file", len(changed))


def test_a_page_header_that_is_nested_without_end_is_an_obstacle(local: Lake) -> None:
    good = parquet_bytes(pa.table({"id": range(ROWS)}), use_dictionary=False, compression=None)
    broken = good[:4] + b"\x1c" * 8000 + good[8004:]
    for name, content in (("a", good), ("b", broken)):
        local.put(f"{name}.parquet", content)
    with pytest.raises(IncompleteMaintenanceError, match=r"b\.parquet"):
        local.compact("pyarrow")
    assert len(local.files()) == 2


def saying_rows(content: bytes, rows: int) -> bytes:
    """A file of one row group whose footer says that it has so many rows."""

    def change(footer: Any) -> None:
        footer.row_groups[0].fields[3] = footer.fields[3] = I64, int_bytes(rows)

    return with_footer(content, change)


@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_rows_without_values_are_never_published(local: Lake, page: Any) -> None:
    good = parquet_bytes({"id": range(ROWS), "b": range(ROWS)}, data_page_version=page)
    local.put("a.parquet", good)
    local.put("b.parquet", saying_rows(good, ROWS + 10))
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match=r"b\.parquet"):
        local.compact("pyarrow")
    assert local.tree() == before


def test_values_beyond_the_rows_are_not_copied(local: Lake) -> None:
    good = parquet_bytes({"id": range(ROWS), "b": range(ROWS)})
    local.put("a.parquet", good)
    local.put("b.parquet", saying_rows(good, ROWS - 10))
    result = local.compact("pyarrow")
    assert result.mode == "encode"
    assert "100000 values in 99990 rows" in str(result.engine_notes)
    assert local.column("b") == [*range(ROWS), *range(ROWS - 10)]


def test_lists_have_as_many_rows_as_their_pages_say() -> None:
    lists = pa.array([[1, 2], []] * 50)
    content = parquet_bytes({"l": lists}, data_page_version="2.0")
    for rows, reason in ((151, "values in 151 rows"), (101, "has 100 rows in its pages")):
        with pytest.raises(StitchObstacleError, match=reason):
            look_at_pages(saying_rows(content, rows))
    look_at_pages(content)


def look_at_pages(content: bytes) -> None:
    for group in footer_of(content).row_groups:
        for chunk in group.chunks:
            list(checked_pages(lambda at, size: content[at : at + size], chunk, "a file"))


def test_columns_with_several_values_in_a_row_are_told_from_the_schema() -> None:
    inner = pa.struct([("x", pa.int8()), ("l", pa.list_(pa.int8()))])
    schema = pa.schema(
        [("a", pa.int8()), ("s", inner), ("m", pa.map_(pa.string(), inner)), ("z", pa.int8())]
    )
    footer = footer_of(parquet_bytes(schema.empty_table()))
    assert repeated_leaves(footer) == [False, False, True, True, True, True, False]


def other_type(footer: Any) -> None:
    footer.row_groups[0].chunks[0].column[1] = I32, int_bytes(6)


def other_total(footer: Any) -> None:
    footer.fields[3] = I64, int_bytes(90)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(other_type, "column 'id' has values of two types"), (other_total, "90 rows, but 100 in its")],
)
def test_a_footer_that_contradicts_itself_is_refused_by_name(
    local: Lake, change: Any, reason: str
) -> None:
    good = parquet_bytes({"id": range(100)})
    local.put("a.parquet", good)
    # On a look at statistics of another type PyArrow ended the process.
    local.put("b.parquet", with_footer(good, change))
    before = local.tree()
    with pytest.raises(UnreadableFileError, match=rf"b\.parquet.*{reason}"):
        local.compact("pyarrow")
    assert local.tree() == before
