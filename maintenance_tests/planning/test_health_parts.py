"""What a health score is made of, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from maintenance_assets.model.clustering import Layout
from maintenance_assets.model.files import ColumnRange, DataFile, FileSchema
from maintenance_assets.model.health import DatasetHealth, HealthPolicy, HealthReport
from maintenance_assets.operations.naming import output_name
from maintenance_assets.planning.health import measure_partition
from maintenance_assets.planning.health_parts import (
    clustered_by,
    dataset_report,
    footer_health,
    listing_report,
    partition_report,
)
from maintenance_assets.planning.layout import with_layout
from maintenance_assets.planning.range_depth import Depth, depth_of
from maintenance_assets.planning.survey import drifted_columns, schema_count, size_histogram

POLICY = HealthPolicy(target_bytes=1000, small_bytes=750)
PLAIN = pa.schema([("id", pa.int64())])
LAYOUT = Layout("hilbert", ("id",), 8, "grid", "run", 4, 1000, None, (100,), ())


def file(
    name: str, schema: pa.Schema = PLAIN, bounds: tuple[Any, Any] | None = None, **changes: Any
) -> DataFile:
    known = FileSchema(schema, str(schema) + str(schema.metadata), tuple(schema.names), (), True)
    ranges = (ColumnRange("id", pa.scalar(bounds[0]), pa.scalar(bounds[1])),) if bounds else ()
    plain = DataFile(f"/p/{name}", 1000, 100, "v", known, 900, 900, 1, ("zstd",), ranges=ranges)
    return replace(plain, **changes)


def clustered(*bounds: tuple[Any, Any]) -> list[DataFile]:
    schema = with_layout(PLAIN, LAYOUT)
    return [file(output_name("optimized"), schema, one, has_page_index=True) for one in bounds]


def healthy(files: int = 4) -> Any:
    return measure_partition("p", [(f"f{n}", 1000, "v", 0.0) for n in range(files)], POLICY)


def points(report: HealthReport) -> dict[str, float]:
    return {part.name: part.points for part in report.parts if part.points}


def test_a_listing_knows_small_files_and_scores_as_ever() -> None:
    part = measure_partition("p", [(f"f{n}", 500, "v", 0.0) for n in range(8)], POLICY)
    report = listing_report(part)
    assert report.score == part.score == 50.0
    assert report.explained() == ("small files: -50.0 (8 small files of 8, 4 could be saved)",)
    dataset = DatasetHealth(1, 8, 4000, 8, 4)
    assert listing_report(dataset).score == dataset.score


def test_a_healthy_partition_has_all_points_and_nothing_to_explain() -> None:
    report = partition_report(healthy(), footer_health([file("a"), file("b")]))
    assert (report.score, report.explained()) == (100.0, ())


def test_tiny_row_groups_cost_up_to_thirty_points() -> None:
    tiny = file("a", row_group_count=50, num_rows=100)
    report = partition_report(healthy(), footer_health([tiny, file("b")]))
    assert points(report) == {"tiny row groups": 15.0}
    assert "1 of 2 files are cut into row groups" in report.explained()[0]


def test_another_schema_than_most_costs_up_to_ten_points() -> None:
    wider = pa.schema([("id", pa.int64()), ("name", pa.string())])
    files = [file("a"), file("b"), file("c"), file("d", wider)]
    assert points(partition_report(healthy(), footer_health(files))) == {"schema drift": 2.5}


def test_schemas_that_cannot_be_merged_cost_twenty_more() -> None:
    files = [file("a"), file("b", pa.schema([("id", pa.string())]))]
    report = partition_report(healthy(), footer_health(files))
    assert points(report) == {"schema drift": 25.0}
    assert (
        "1 partition(s) cannot be merged: column 'id' is int64 in '/p/a'" in report.parts[2].reason
    )


def test_metadata_of_a_schema_is_no_drift() -> None:
    files = [file("a"), file("b", PLAIN.with_metadata({"pandas": "{}"}))]
    assert points(partition_report(healthy(), footer_health(files))) == {}
    assert schema_count(files) == 1


def test_files_that_cannot_be_read_cost_their_share() -> None:
    report = partition_report(healthy(4), footer_health([file("a")]), unreadable=1)
    assert points(report) == {"unreadable files": 25.0}


def test_a_score_never_falls_below_nothing() -> None:
    part = measure_partition("p", [(f"f{n}", 1, "v", 0.0) for n in range(100)], POLICY)
    assert partition_report(part, None, unreadable=100).score == 0.0


def test_a_dataset_weighs_partitions_by_their_files() -> None:
    tiny = footer_health([file("a", row_group_count=50)])
    good = footer_health([file(f"{n}") for n in range(9)])
    report = dataset_report(DatasetHealth(2, 10, 10_000, 0, 0), {"a": tiny, "b": good})
    assert points(report) == {"tiny row groups": 3.0}


def test_clustered_files_that_do_not_overlap_are_healthy() -> None:
    files = clustered((0, 9), (10, 19), (20, 29), (30, 39))
    assert clustered_by(files) == ("id",)
    assert depth_of(files, ("id",)) == Depth(files=4, columns=1, depth=1.0)
    assert points(partition_report(healthy(), footer_health(files))) == {}


def test_a_shared_bound_is_no_overlap() -> None:
    found = depth_of(clustered((0, 10), (10, 20), (20, 30)), ("id",))
    assert found is not None
    assert found.depth == 1.0


def test_clustered_files_that_all_overlap_cost_forty_points() -> None:
    files = clustered(*[(0, 100)] * 4)
    found = footer_health(files)
    assert found.depth is not None
    assert (found.depth.depth, found.depth.excess) == (4.0, 1.0)
    report = partition_report(healthy(), found)
    assert points(report) == {"overlap": 40.0}
    assert "a look-up by a clustering column opens 100% of the files" in report.explained()[0]


def test_files_that_nobody_clustered_have_no_overlap_to_speak_of() -> None:
    files = [file("a", bounds=(0, 100)), file("b", bounds=(0, 100))]
    assert footer_health(files).depth is None
    assert depth_of(files[:1], ("id",)) is None


def test_files_without_known_ranges_are_opened_by_every_look_up() -> None:
    silent = file("new")
    nulls = replace(file("nulls"), ranges=(ColumnRange("id", None, None, all_null=True),))
    found = depth_of([*clustered((0, 9), (10, 19)), silent, nulls], ("id",))
    assert found is not None
    assert found.depth == 2.0


def test_ranges_of_types_that_cannot_be_compared_count_as_overlap() -> None:
    found = depth_of([*clustered((0, 9)), *clustered(("a", "b"))], ("id",))
    assert found is not None
    assert found.depth == 2.0


@pytest.mark.parametrize(
    ("files", "columns", "ideal"), [(100, 1, 1.0), (100, 2, 10.0), (64, 3, 16.0)]
)
def test_the_ideal_depth(files: int, columns: int, ideal: float) -> None:
    assert Depth(files, columns, 1.0).ideal == pytest.approx(ideal)


def histogram(sizes: Sequence[int]) -> list[tuple[int | None, int, int]]:
    return [(b.below_bytes, b.files, b.total_bytes) for b in size_histogram(sizes) if b.files]


def test_a_histogram_of_sizes() -> None:
    assert histogram([0, 4095, 4096, 200 * 1024**2, 5 * 1024**3]) == [
        (4096, 2, 4095),
        (65536, 1, 4096),
        (256 * 1024**2, 1, 200 * 1024**2),
        (None, 1, 5 * 1024**3),
    ]
    assert histogram([]) == []


def test_columns_that_differ() -> None:
    wider = pa.schema([("id", pa.int32()), ("name", pa.string())])
    id_, name = drifted_columns([file("a"), file("b"), file("c", wider)])
    assert (id_.column, id_.types, id_.missing) == ("id", {"int64": 2, "int32": 1}, 0)
    assert (name.column, name.types, name.missing) == ("name", {"string": 1}, 2)
    assert drifted_columns([file("a"), file("b")]) == ()
