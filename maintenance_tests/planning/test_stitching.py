"""What is copied, what is encoded anew, and where outputs are cut: pure arithmetic."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets.model.files import DataFile, FileSchema, Snapshot, SortedColumn
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.model.policy import CompactionPolicy, Mode
from maintenance_assets.planning.compaction import plan_compaction
from maintenance_assets.planning.stitching import Copied, Encoded, Recipe, Span, recipe

MB = 1_000_000
WRITER = "parquet-cpp-arrow version 26.0.1"
SCHEMA = FileSchema(pa.schema([("n", pa.int64())]), "n", ("n",), ("INT64",), True)
WIDE = FileSchema(
    pa.schema([("n", pa.int64()), ("m", pa.int64())]), "w", ("n", "m"), ("INT64", "INT64"), True
)


def file(
    name: str,
    *groups: tuple[int, int],
    created_by: str = WRITER,
    schema: FileSchema = SCHEMA,
    codec: str = "snappy",
    sorting: tuple[SortedColumn, ...] = (),
) -> DataFile:
    """A file of row groups, each of so many rows and bytes."""
    rows, size = sum(g[0] for g in groups), sum(g[1] for g in groups)
    several = len(groups) > 1
    return DataFile(
        path=f"lake/{name}.parquet",
        size_bytes=size + 1000,
        num_rows=rows,
        version="1",
        schema=schema,
        data_bytes=size,
        decoded_bytes=8 * rows,
        row_group_count=len(groups),
        codecs=(codec,) * len(schema.leaves),
        encodings=("dictionary",) * len(schema.leaves),
        sorting=sorting,
        created_by=created_by,
        group_rows=tuple(g[0] for g in groups) if several else (),
        group_bytes=tuple(g[1] for g in groups) if several else (),
    )


def planned(*files: DataFile, mode: Mode = "auto", **targets: int) -> RewriteGroup:
    """The only group of a plan."""
    policy = CompactionPolicy(targets.get("size", 128 * MB), targets.get("rows"), mode=mode)
    (group,) = plan_compaction(Snapshot("lake", files), policy).groups
    return group


GOOD, SMALL = (50_000, 2 * MB), (1000, 10_000)


def test_healthy_row_groups_are_copied() -> None:
    group = planned(file("a", GOOD, GOOD), file("b", GOOD))
    assert (group.mode, group.mode_reason) == ("stitch", "nothing is decoded")
    assert recipe(group) == Recipe(((Copied(Span(0, 0, 2)), Copied(Span(1, 0, 1))),), ())


@pytest.mark.parametrize(
    ("rows", "size", "mode"),
    [
        (100_000, 10, "stitch"),
        (10, 1_000_000, "stitch"),
        (99_999, 999_999, "encode"),
        (1, 1, "encode"),
    ],
)
def test_what_counts_as_healthy(rows: int, size: int, mode: str) -> None:
    assert planned(file("a", (rows, size)), file("b", (rows, size))).mode == mode


def test_row_groups_that_are_large_once_decoded_are_healthy() -> None:
    files = [replace(file(name, SMALL), decoded_bytes=32 * 1024 * 1024) for name in "ab"]
    assert planned(*files).mode == "stitch"


def test_only_runs_of_small_row_groups_are_encoded() -> None:
    group = planned(file("a", GOOD, SMALL, SMALL), file("b", SMALL), file("c", GOOD, SMALL, GOOD))
    assert group.mode == "hybrid"
    assert recipe(group) == Recipe(
        outputs=((Copied(Span(0, 0, 1)), Encoded(0, 3000), Copied(Span(2, 0, 3))),),
        runs=((Span(0, 1, 3), Span(1, 0, 1)),),
    )


def test_nothing_is_copied_where_all_is_small() -> None:
    group = planned(*(file(f"{n}", SMALL) for n in range(5)))
    assert (group.mode, group.mode_reason) == ("encode", "all row groups are small")


def test_row_groups_without_rows_are_left_out() -> None:
    group = planned(file("a", (0, 0), GOOD, (0, 0)), file("b", (0, 0)), file("c", GOOD))
    assert recipe(group).outputs == ((Copied(Span(0, 1, 2)), Copied(Span(2, 0, 1))),)


def test_files_without_rows_are_encoded() -> None:
    assert planned(file("a", (0, 0)), file("b", (0, 0))).mode_reason == "there are no rows"


UNLIKE = {
    "another schema": (
        {"schema": WIDE},
        "the columns of some files are not those of the output",
    ),
    "another codec": (
        {"codec": "zstd"},
        "some files are compressed in another way than the output",
    ),
    "an unknown writer": ({"created_by": "fastparquet 2024.2"}, "the writer 'fastparquet 2024.2'"),
    "an old writer": (
        {"created_by": "parquet-mr version 1.8.1 (build 4aba)"},
        "the writer 'parquet-mr version 1.8.1",
    ),
    "no writer": ({"created_by": ""}, "the writer ''"),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_a_file_that_is_unlike_the_output_is_encoded(kind: str) -> None:
    traits, reason = UNLIKE[kind]
    odd = file("b", GOOD, **traits)  # type: ignore[arg-type]
    rest = [file(name, GOOD) for name in "acd"]
    group = planned(*rest[:1], odd, *rest[1:])
    assert reason in group.mode_reason
    if kind == "another schema":  # the merged schema is that of the odd one
        assert recipe(group).runs == ((Span(0, 0, 1),), (Span(2, 0, 1), Span(3, 0, 1)))
    else:
        assert (group.mode, recipe(group).runs) == ("hybrid", ((Span(1, 0, 1),),))


@pytest.mark.parametrize(
    "created_by",
    [
        WRITER,
        "parquet-mr version 1.17.0 (build 1234)",
        "parquet-mr version 1.12.3-databricks-0002 (build 24)",
        "DuckDB version v2.0.0 (build d54cbbe3df)",
        "Polars (python) version 2.1.0 (build 7f90)",
        "parquet-rs version 55.0.0",
        "delta-rs version py-1.6.0",
    ],
)
def test_writers_whose_files_are_copied(created_by: str) -> None:
    group = planned(*(file(name, GOOD, created_by=created_by) for name in "ab"))
    assert group.mode == "stitch"


def test_a_given_codec_that_the_files_have_asks_for_nothing() -> None:
    files = (file("a", GOOD), file("b", GOOD))
    same = CompactionPolicy(128 * MB, None, "snappy")
    other = CompactionPolicy(128 * MB, None, "zstd")
    assert plan_compaction(Snapshot("lake", files), same).groups[0].mode == "stitch"
    (group,) = plan_compaction(Snapshot("lake", files), other).groups
    assert group.mode == "encode"
    assert "compressed in another way" in group.mode_reason


def test_categories_that_have_to_be_compared_are_encoded() -> None:
    ordered = pa.schema([("n", pa.dictionary(pa.int8(), pa.string(), ordered=True))])
    nested = pa.schema([("n", pa.list_(pa.dictionary(pa.int8(), pa.string())))])
    for schema, why in ((ordered, "ordered categories"), (nested, "inside a nested column")):
        traits = FileSchema(schema, "d", ("n",), ("BYTE_ARRAY String",), True)
        group = planned(*(file(name, GOOD, schema=traits) for name in "ab"))
        assert group.mode == "encode"
        assert why in group.mode_reason


def test_files_whose_row_groups_are_not_known_are_encoded() -> None:
    unknown = replace(file("b", GOOD, GOOD), group_rows=(), group_bytes=())
    group = planned(file("a", GOOD), unknown)
    assert (group.mode, recipe(group).runs) == ("hybrid", ((Span(1, 0, 2),),))


# -- cuts --------------------------------------------------------------------------------------

TEN = (100_000, 10 * MB)


def test_an_oversized_file_is_split_between_row_groups() -> None:
    group = planned(file("a", *[TEN] * 40), size=100 * MB)
    assert group.mode == "stitch"
    assert group.output_rows == (1_000_000,) * 4
    assert recipe(group).outputs[1] == (Copied(Span(0, 10, 20)),)


def test_a_split_file_keeps_its_declared_order() -> None:
    order = (SortedColumn("n"),)
    split = planned(file("a", *[TEN] * 40, sorting=order), size=100 * MB)
    merged = planned(file("a", TEN, sorting=order), file("b", TEN, sorting=order))
    assert (split.keeps_copied_sorting, merged.keeps_copied_sorting) == (True, False)
    # What is encoded after all has other row groups.
    assert (split.writer.sorting, merged.writer.sorting) == ((), ())
    assert split.notes == ()


def test_cuts_move_to_the_nearest_row_group() -> None:
    # 270 MB at 64 MB are five files of 54 MB; cut between row groups of 30 MB it is four or five.
    group = planned(file("a", *[(100_000, 30 * MB)] * 9), size=64 * MB)
    assert group.mode == "stitch"
    assert all(rows % 100_000 == 0 for rows in group.output_rows)
    assert max(group.output_rows) <= 300_000


def test_a_row_group_that_is_too_large_is_cut_through() -> None:
    group = planned(file("a", (1_000_000, 400 * MB)), size=100 * MB)
    assert (group.mode, group.mode_reason) == ("encode", "outputs end inside row groups")
    assert group.output_rows == (250_000,) * 4


def test_only_the_row_group_that_is_cut_through_is_encoded() -> None:
    sizes = [(1_000_000, 100 * MB), (1_500_000, 150 * MB), (500_000, 50 * MB), (900_000, 90 * MB)]
    group = planned(file("a", *sizes), size=100 * MB)
    assert group.mode == "hybrid"
    spans = [span for run in recipe(group).runs for span in run]
    assert 0 < sum(span.stop - span.first for span in spans) < 4


def test_the_row_bound_is_never_broken_by_copying() -> None:
    group = planned(file("a", *[(150_000, 2 * MB)] * 4), size=10_000 * MB, rows=200_000)
    assert max(group.output_rows) <= 200_000
    assert sum(group.output_rows) == 600_000


GROUPS = st.tuples(
    st.integers(0, 300_000), st.integers(1, 40 * MB), st.sampled_from(["copy", "odd"])
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(GROUPS, min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(1, 100 * MB),
    st.none() | st.integers(1000, 500_000),
    st.sampled_from(["auto", "stitch", "encode"]),
)
def test_every_row_is_in_one_place_and_in_order(
    found: list[list[tuple[int, int, str]]], size: int, bound: int | None, mode: Mode
) -> None:
    files = tuple(
        file(
            f"{number:02}",
            *[(rows, size) for rows, size, _ in groups],
            created_by=WRITER if groups[0][2] == "copy" else "?",
        )
        for number, groups in enumerate(found)
    )
    policy = CompactionPolicy(size, bound, mode=mode)
    for group in plan_compaction(Snapshot("lake", files), policy).groups:
        assert sum(group.output_rows) == group.total_rows
        # What decodes nothing cannot cut through a row group.
        whole = max(rows for source in group.files for rows, _ in source.row_groups)
        most = max(bound or 0, whole) if mode == "stitch" else bound or 0
        assert bound is None or max(group.output_rows) <= most
        assert group.total_rows == 0 or min(group.output_rows) > 0
        if group.mode != "encode":
            assert_all_rows_once(group)


def assert_all_rows_once(group: RewriteGroup) -> None:
    found = recipe(group)
    assert (group.mode == "stitch") == (not found.runs)
    left = [
        sum(group.files[s.file].row_groups[i][0] for s in run for i in range(s.first, s.stop))
        for run in found.runs
    ]
    order: list[tuple[int, int]] = []
    entered: set[int] = set()
    for rows, parts in zip(group.output_rows, found.outputs, strict=True):
        total = 0
        for part in parts:
            if isinstance(part, Encoded):
                total += part.rows
                left[part.run] -= part.rows
                spans = found.runs[part.run] if part.run not in entered else ()
                entered.add(part.run)
            else:
                spans = (part.span,)
                groups = group.files[part.span.file].row_groups[part.span.first : part.span.stop]
                total += sum(count for count, _ in groups)
            order += [(s.file, i) for s in spans for i in range(s.first, s.stop)]
        assert total == rows
    assert left == [0] * len(found.runs)
    full = [
        (number, at)
        for number, source in enumerate(group.files)
        for at, (rows, _) in enumerate(source.row_groups)
        if rows
    ]
    assert order == full


# -- one plan is enough ------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1000, 300_000), st.integers(1, 90 * MB)), min_size=1),
        min_size=1,
        max_size=10,
    ),
    st.integers(20 * MB, 200 * MB),
    st.none() | st.integers(50_000, 2_000_000),
)
def test_planning_what_was_stitched_finds_nothing(
    found: list[list[tuple[int, int]]], size: int, bound: int | None
) -> None:
    # Rows of one size each: then an output has its share of bytes, wherever it is cut.
    even = [[(rows, rows * 300) for rows, _ in groups] for groups in found]
    files = tuple(file(f"{number:02}", *groups) for number, groups in enumerate(even))
    policy = CompactionPolicy(size, bound)
    plan = plan_compaction(Snapshot("lake", files), policy)
    outputs = [rows for group in plan.groups for rows in group.output_rows]
    merged = [
        replace(
            file("x", (rows, rows * 300)),
            path=f"lake/compact-01890a5d-ac96-774b-bcce-{number:012x}.parquet",
        )
        for number, rows in enumerate(outputs)
    ]
    left = {item.path for item in plan.untouched}
    after = (*(f for f in files if f.path in left), *merged)
    assert plan_compaction(Snapshot("lake", after), policy).groups == ()


# -- mode="stitch" -----------------------------------------------------------------------------


def test_stitch_copies_row_groups_of_any_size() -> None:
    group = planned(*(file(f"{n}", SMALL) for n in range(5)), mode="stitch")
    assert (group.mode, recipe(group).runs) == ("stitch", ())


def test_stitch_keeps_to_the_row_bound_where_it_can_cut() -> None:
    files = [file(f"{n}", (60_000, 2 * MB)) for n in range(5)]
    group = planned(*files, mode="stitch", size=10_000 * MB, rows=150_000)
    assert (group.mode, group.output_rows) == ("stitch", (120_000, 120_000, 60_000))
    sizes = [(100_000, MB), (300_000, 3 * MB), (100_000, MB), (50_000, MB)]
    group = planned(file("a", *sizes), mode="stitch", size=10_000 * MB, rows=200_000)
    assert group.output_rows == (100_000, 300_000, 150_000)


def test_stitch_refuses_what_would_have_to_be_decoded() -> None:
    files = (file("a", GOOD), file("b", GOOD, created_by="?"))
    plan = plan_compaction(Snapshot("lake", files), CompactionPolicy(mode="stitch"))
    assert plan.groups == ()
    assert "the writer '?' is not known, so the files cannot be stitched" in plan.failures[0].reason
    assert {item.reason for item in plan.untouched} == {"not_stitchable"}


def test_stitch_does_not_repair_and_leaves_what_it_cannot_cut() -> None:
    policy = CompactionPolicy(100 * MB, mode="stitch")
    tiny = file("a", *[(1000, MB)] * 80)
    whole = file("b", (10, 400 * MB))
    for found in (tiny, whole):
        plan = plan_compaction(Snapshot("lake", (found,)), policy)
        assert (plan.groups, plan.failures) == ((), ())


def test_encode_copies_nothing() -> None:
    group = planned(file("a", GOOD), file("b", GOOD), mode="encode")
    assert (group.mode, group.mode_reason) == ("encode", "asked for")


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown mode 'fast'\. Known modes: auto, stitch"):
        CompactionPolicy.from_targets(mode="fast")
