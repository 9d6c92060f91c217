"""Compaction plans: what they promise, and that one plan is enough."""

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance_assets import (
    CompactionGroup,
    FileInfo,
    MaintenanceStats,
    plan_compaction_groups,
)
from maintenance_assets.model.files import (
    DataFile,
    FileSchema,
    Snapshot,
    SortedColumn,
    UntouchedFile,
)
from maintenance_assets.model.policy import MIB, CompactionPolicy
from maintenance_assets.planning.compaction import (
    group_output_rows,
    has_tiny_row_groups,
    plan_compaction,
    plan_groups,
)

REASONS = {"at_target", "singleton", "no_gain"}
DIRECTORIES = ("", "lake", "lake/a=1", "lake/a=01", "lake/a=1/b=2", "lake/A=1")
T = 1_000_000
BYTES = CompactionPolicy(target_bytes=T)
ROWS = CompactionPolicy(target_bytes=None, target_rows=T)
BOTH = CompactionPolicy(target_bytes=T, target_rows=T)
MODES = st.sampled_from([BYTES, ROWS, BOTH])

# From empty to many times the target, with the neighbourhood of every limit.
WEIGHT = st.one_of(
    st.integers(0, 2 * T),
    st.integers(0, 30 * T),
    st.builds(
        lambda share, off: max(0, int(share * T) + off),
        st.sampled_from([0.1, 0.375, 0.5, 0.75, 0.95, 1.0, 1.1, 1.8, 2.0, 2.2, 8.0]),
        st.integers(-1, 1),
    ),
)


@st.composite
def file_lists(draw: st.DrawFn, weight: st.SearchStrategy[int] = WEIGHT) -> list[FileInfo]:
    sizes = draw(st.lists(st.tuples(st.sampled_from(DIRECTORIES), weight, weight), max_size=40))
    return [
        FileInfo(join(directory, f"f{index:04}.parquet"), size, rows)
        for index, (directory, size, rows) in enumerate(sizes)
    ]


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def split(total: int, parts: int) -> list[int]:
    each, extra = divmod(total, parts)
    return [each + (index < extra) for index in range(parts)]


def own_name(number: int) -> str:
    """A name like those of outputs, whose order says nothing."""
    return f"compact-{uuid.UUID(int=random.Random(number).getrandbits(128))}.parquet"


def simulate(
    files: Iterable[FileInfo], groups: Iterable[Sequence[FileInfo]], policy: CompactionPolicy
) -> list[FileInfo]:
    """The files after a plan was carried out, bytes and rows split evenly."""
    left = {file.path: file for file in files}
    result: list[FileInfo] = []
    for group in groups:
        for file in group:
            del left[file.path]
        rows = group_output_rows(group, policy)
        sizes = split(sum(file.size_bytes for file in group), len(rows))
        for size, row_count in zip(sizes, rows, strict=True):
            name = own_name(len(result))
            result.append(FileInfo(join(group[0].directory, name), size, row_count))
    return [*left.values(), *result]


def settles(files: Sequence[FileInfo], policy: CompactionPolicy) -> bool:
    groups, _ = plan_groups(files, policy)
    return plan_groups(simulate(files, groups, policy), policy)[0] == []


ORDER = (SortedColumn("n", descending=True),)
SCHEMA = FileSchema(pa.schema([("n", pa.int64())]), "n", ("n",), ("INT64",), True)
OTHER = FileSchema(pa.schema([("n", pa.string())]), "other", ("n",), ("BYTE_ARRAY String",), True)


def data_file(
    path: str,
    size_bytes: int = 1000,
    num_rows: int = 1000,
    row_groups: int = 1,
    sorting: tuple[SortedColumn, ...] = (),
    schema: FileSchema = SCHEMA,
) -> DataFile:
    return DataFile(
        path=path,
        size_bytes=size_bytes,
        num_rows=num_rows,
        version="1",
        schema=schema,
        data_bytes=max(0, size_bytes - 100),
        decoded_bytes=8 * num_rows,
        row_group_count=row_groups,
        codecs=("snappy",),
        encodings=("dictionary",),
        sorting=sorting,
    )


# -- what every plan keeps ---------------------------------------------------------------------


@given(file_lists(), MODES)
def test_nothing_is_lost_and_nothing_is_there_twice(
    files: list[FileInfo], policy: CompactionPolicy
) -> None:
    groups, untouched = plan_groups(files, policy)
    planned = Counter([file.path for group in groups for file in group])
    planned.update(file.path for file in untouched)
    assert planned == Counter(file.path for file in files)


@given(file_lists(), MODES)
def test_a_group_never_crosses_directories(files: list[FileInfo], policy: CompactionPolicy) -> None:
    for group in plan_groups(files, policy)[0]:
        assert len({file.path.rpartition("/")[0] for file in group}) == 1


@given(file_lists(), MODES)
def test_every_untouched_file_is_what_it_was_and_has_a_reason(
    files: list[FileInfo], policy: CompactionPolicy
) -> None:
    known = {file.path: file for file in files}
    for left in plan_groups(files, policy)[1]:
        assert left.reason in REASONS
        source = known[left.path]
        assert (left.size_bytes, left.num_rows) == (source.size_bytes, source.num_rows)


@settings(deadline=None)
@given(file_lists(), st.integers(T // 50, 3 * T), st.none() | st.integers(T // 50, 3 * T))
def test_no_planned_output_breaks_the_row_bound(
    files: list[FileInfo], rows: int, size: int | None
) -> None:
    policy = CompactionPolicy(size, rows)
    groups, untouched = plan_groups(files, policy)
    for group in groups:
        outputs = group_output_rows(group, policy)
        assert sum(outputs) == sum(file.num_rows for file in group)
        assert max(outputs) <= rows
    assert all(left.num_rows <= rows for left in untouched)


@given(file_lists(), st.sampled_from([BYTES, BOTH]))
def test_planned_outputs_are_near_the_byte_target(
    files: list[FileInfo], policy: CompactionPolicy
) -> None:
    for group in plan_groups(files, policy)[0]:
        outputs = group_output_rows(group, policy)
        if max(outputs) > 1:
            assert sum(file.size_bytes for file in group) <= 1.1 * T * len(outputs)


@given(file_lists(), MODES)
def test_a_group_gains_something(files: list[FileInfo], policy: CompactionPolicy) -> None:
    for group in plan_groups(files, policy)[0]:
        fewer = len(group_output_rows(group, policy)) < len(group)
        by_bytes = policy.target_bytes and any(f.size_bytes > 1.8 * T for f in group)
        by_rows = policy.target_rows and any(f.num_rows > T for f in group)
        assert fewer or by_bytes or by_rows


@given(file_lists(), MODES, st.randoms(use_true_random=False))
def test_the_order_of_input_does_not_matter(
    files: list[FileInfo], policy: CompactionPolicy, rng: random.Random
) -> None:
    shuffled = list(files)
    rng.shuffle(shuffled)
    assert plan_groups(shuffled, policy) == plan_groups(files, policy)


# -- one plan is enough ------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(file_lists(), MODES)
def test_planning_the_result_of_a_plan_finds_nothing(
    files: list[FileInfo], policy: CompactionPolicy
) -> None:
    assert settles(files, policy)


@settings(max_examples=400, deadline=None)
@given(file_lists(), st.integers(T // 20, 4 * T), st.integers(T // 20, 4 * T))
def test_one_plan_settles_for_unequal_targets(files: list[FileInfo], rows: int, size: int) -> None:
    assert settles(files, CompactionPolicy(size, rows))


@settings(max_examples=400, deadline=None)
@given(file_lists(st.integers(0, 60)), st.integers(1, 12), st.none() | st.integers(1, 40))
def test_one_plan_settles_for_a_row_bound_of_a_few_rows(
    files: list[FileInfo], rows: int, size: int | None
) -> None:
    assert settles(files, CompactionPolicy(size, rows))


def test_one_plan_settles_where_rows_do_not_divide() -> None:
    # 20 rows bounded at 3 are six files of three and one of two; three such twos make two files.
    files = [FileInfo(f"f{index}.parquet", 100, 20) for index in range(3)]
    assert settles(files, CompactionPolicy(None, 3))


# -- single cases ------------------------------------------------------------------------------


def test_ten_targets_and_a_tenth_give_ten_files() -> None:
    (group,), _ = plan_groups([FileInfo("f.parquet", T * 101 // 10, T)], BYTES)
    assert group_output_rows(group, BYTES) == (T // 10,) * 10


@pytest.mark.parametrize("policy", [BYTES, ROWS, BOTH])
def test_a_lone_small_file_stays(policy: CompactionPolicy) -> None:
    files = [FileInfo(f"d={n}/f.parquet", T // 10, T // 10) for n in range(3)]
    groups, untouched = plan_groups(files, policy)
    assert groups == []
    assert {left.reason for left in untouched} == {"singleton"}


@pytest.mark.parametrize("policy", [BYTES, ROWS, BOTH])
def test_an_oversized_file_is_split(policy: CompactionPolicy) -> None:
    (group,), untouched = plan_groups([FileInfo("f.parquet", 4 * T, 4 * T)], policy)
    assert untouched == []
    assert group_output_rows(group, policy) == (T,) * 4


def test_a_file_one_row_over_the_bound_is_split() -> None:
    (group,), _ = plan_groups([FileInfo("f.parquet", 10, T + 1)], ROWS)
    assert group_output_rows(group, ROWS) == (T // 2 + 1, T // 2)


def test_files_that_would_not_become_fewer_stay() -> None:
    files = [FileInfo(f"{n}.parquet", T * 7 // 10, T) for n in range(2)]
    groups, untouched = plan_groups(files, BYTES)
    assert groups == []
    assert [left.reason for left in untouched] == ["no_gain"] * 2


def test_files_at_the_target_stay() -> None:
    files = [FileInfo(f"{n}.parquet", T * n // 10, T) for n in range(8, 19)]
    groups, untouched = plan_groups(files, BYTES)
    assert groups == []
    assert {left.reason for left in untouched} == {"at_target"}


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_files_end_near_the_lower_bound(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1_000_000, 120_000_000) for _ in range(1000)]
    files = [FileInfo(f"lake/{n:04}.parquet", size, 10**6) for n, size in enumerate(sizes)]
    plan = plan_compaction_groups(files, 128)
    after = plan["planned_stats"].after_file_count
    assert after <= 1.1 * -(-sum(sizes) // (128 * MIB))


def test_only_the_directory_as_it_is_spelled_counts() -> None:
    files = [
        FileInfo(f"{directory}/{n}.parquet", 10, 10)
        for directory in ("l/a=1", "l/a=01", "l/A=1", "l/a=1/b=1")
        for n in range(2)
    ]
    groups, _ = plan_groups(files, BYTES)
    assert [len(group) for group in groups] == [2, 2, 2, 2]


# -- row groups and sort orders ----------------------------------------------------------------


def test_tiny_row_groups_are_repaired_once_and_never_again() -> None:
    fragmented = data_file("lake/f.parquet", T, 100_000, row_groups=1000)
    (group,), untouched = plan_groups([fragmented], BYTES)
    assert (group, untouched) == ((fragmented,), [])
    # However the engine came out, our own file is not taken up again.
    output = replace(fragmented, path=f"lake/{own_name(1)}")
    groups, (left,) = plan_groups([output], BYTES)
    assert (groups, left.reason) == ([], "at_target")


def test_a_lone_small_file_of_tiny_row_groups_is_repaired_once() -> None:
    fragmented = data_file("lake/f.parquet", T // 10, 10_000, row_groups=100)
    assert len(plan_groups([fragmented], BYTES)[0]) == 1
    output = replace(fragmented, path=f"lake/{own_name(2)}")
    groups, (left,) = plan_groups([output], BYTES)
    assert (groups, left.reason) == ([], "singleton")


@pytest.mark.parametrize("prefix", ["compact", "optimized"])
def test_own_outputs_count_as_healthy(prefix: str) -> None:
    number = uuid.UUID(int=5)
    assert not has_tiny_row_groups(data_file(f"a/{prefix}-{number}.parquet", row_groups=900))
    assert has_tiny_row_groups(data_file(f"a/{prefix}-{number}.old.parquet", row_groups=900))
    assert has_tiny_row_groups(data_file(f"a/{prefix}-1.parquet", row_groups=900))


@pytest.mark.parametrize(
    ("size", "rows", "row_groups", "tiny"),
    [
        (10_000, 1000, 1, False),
        (10_000, 1000, 3, False),
        (10_000, 1000, 4, True),
        (10_000, 0, 1, False),
        (10_000, 1024 * 1024, 4, False),  # 262 144 rows each
        (10_000, 1024 * 1024, 16, True),
        (10 * 1024 * MIB, 1000, 10, False),  # 1 GiB each
    ],
)
def test_what_counts_as_tiny(size: int, rows: int, row_groups: int, tiny: bool) -> None:
    assert has_tiny_row_groups(data_file("f.parquet", size, rows, row_groups)) is tiny


def test_a_declared_order_is_noted_where_it_is_lost() -> None:
    files = tuple(data_file(f"lake/{n}.parquet", sorting=ORDER) for n in range(2))
    (group,) = plan_compaction(Snapshot("lake", files), BYTES).groups
    assert group.writer.sorting == ()
    assert any("sort order (n descending)" in note for note in group.notes)


def test_a_declared_order_is_kept_where_rows_stay_in_order() -> None:
    file = data_file("lake/a.parquet", 4 * T, 4000, sorting=ORDER)
    (group,) = plan_compaction(Snapshot("lake", (file,)), BYTES).groups
    assert len(group.output_rows) == 4
    assert group.writer.sorting == ORDER
    assert group.notes == ()


def test_an_order_inside_row_groups_is_lost_when_they_are_merged() -> None:
    file = data_file("lake/a.parquet", num_rows=4000, row_groups=400, sorting=ORDER)
    (group,) = plan_compaction(Snapshot("lake", (file,)), BYTES).groups
    assert group.writer.sorting == ()
    assert any("sort order" in note for note in group.notes)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(DIRECTORIES),
            st.integers(0, 3 * T),
            st.integers(1, 3 * T),
            st.integers(1, 500),
        ),
        max_size=30,
    ),
    MODES,
)
def test_one_plan_settles_files_with_row_groups(
    found: list[tuple[str, int, int, int]], policy: CompactionPolicy
) -> None:
    files = [
        data_file(join(directory, f"f{index:04}.parquet"), size, rows, row_groups)
        for index, (directory, size, rows, row_groups) in enumerate(found)
    ]
    groups, untouched = plan_groups(files, policy)
    left = {file.path for file in untouched}
    outputs = simulate([f for group in groups for f in group], groups, policy)
    # As fragmented as can be: our own outputs are left alone all the same.
    result = [
        data_file(join(o.directory, own_name(n)), o.size_bytes, o.num_rows, 400)
        for n, o in enumerate(outputs)
    ]
    kept = [file for file in files if file.path in left]
    assert plan_groups([*kept, *result], policy)[0] == []


# -- the plan of a discovered dataset ----------------------------------------------------------


def test_a_plan_predicts_what_it_will_do() -> None:
    files = [data_file(f"lake/{n}.parquet", 1000, 10) for n in range(10)]
    files.append(data_file("lake/z.parquet", T, 10))
    plan = plan_compaction(Snapshot("lake", tuple(files)), BYTES)
    (group,) = plan.groups
    assert group.output_rows == (100,)
    assert group.file_paths() == [file.path for file in files[:10]]
    assert [(left.path, left.reason) for left in plan.untouched] == [
        ("lake/z.parquet", "at_target")
    ]
    # Ten footers of 100 bytes become one.
    assert plan.predicted.to_dict() == {
        "before_file_count": 11,
        "after_file_count": 2,
        "before_total_bytes": T + 10_000,
        "after_total_bytes": T + 9100,
        "compacted_file_count": 10,
        "rewritten_bytes": 10_000,
        "compression_codec": "snappy",
        "dry_run": True,
        "planned_groups": [group.file_paths()],
    }


def test_a_schema_conflict_leaves_its_group_and_no_other() -> None:
    files = (
        data_file("lake/a=1/1.parquet"),
        data_file("lake/a=1/2.parquet", schema=OTHER),
        data_file("lake/a=2/1.parquet"),
        data_file("lake/a=2/2.parquet"),
    )
    plan = plan_compaction(Snapshot("lake", files), BYTES)
    assert [group.directory for group in plan.groups] == ["lake/a=2"]
    assert [failure.paths for failure in plan.failures] == [
        ("lake/a=1/1.parquet", "lake/a=1/2.parquet")
    ]
    assert [left.reason for left in plan.untouched] == ["schema_conflict"] * 2
    assert plan.predicted.compacted_file_count == 2


def test_an_empty_dataset_gives_an_empty_plan() -> None:
    plan = plan_compaction(Snapshot("lake", ()), BYTES)
    assert plan.is_empty
    assert plan.predicted.before_file_count == plan.predicted.after_file_count == 0


# -- plan_compaction_groups --------------------------------------------------------------------

SOME = [FileInfo(f"lake/{n}.parquet", 1000 + n, 10 + n) for n in range(4)]
REFUSED = [0, -1, -0.5, float("nan"), float("inf"), float("-inf"), True, False, "1", [1], 1j]


def as_dict(file: FileInfo) -> dict[str, Any]:
    return {"path": file.path, "size_bytes": file.size_bytes, "num_rows": file.num_rows}


def test_keys_and_types_of_the_answer() -> None:
    files = [*SOME, FileInfo("lake/big.parquet", 128 * MIB, 10)]
    plan = plan_compaction_groups(files, 128, None)
    assert list(plan) == ["groups", "untouched_files", "planned_stats", "planned_groups"]
    (group,) = plan["groups"]
    (left,) = plan["untouched_files"]
    assert isinstance(group, CompactionGroup)
    assert group.files == tuple(SOME)
    assert group.output_rows == (sum(file.num_rows for file in SOME),)
    assert (group.total_size_bytes, group.total_rows) == (4006, 46)
    assert isinstance(left, UntouchedFile)
    assert isinstance(left, FileInfo)
    assert (left.path, left.reason) == ("lake/big.parquet", "at_target")
    stats = plan["planned_stats"]
    assert isinstance(stats, MaintenanceStats)
    assert stats.dry_run
    assert stats.planned_groups == plan["planned_groups"] == [[file.path for file in SOME]]


def test_file_infos_dicts_and_generators_give_the_same_plan() -> None:
    expected = plan_compaction_groups(SOME, 1)
    assert plan_compaction_groups([as_dict(file) for file in SOME], 1) == expected
    assert plan_compaction_groups((file for file in SOME), 1) == expected
    assert plan_compaction_groups([SOME[0], *map(as_dict, SOME[1:])], 1) == expected
    more: list[dict[str, Any]] = [{**as_dict(file), "extra": 1} for file in SOME]
    assert plan_compaction_groups(more, 1) == expected


def test_no_target_means_128_mebibytes() -> None:
    files = [FileInfo(f"{n}.parquet", 60 * MIB, 10**6) for n in range(4)]
    assert plan_compaction_groups(files) == plan_compaction_groups(files, 128)
    assert len(plan_compaction_groups(files)["groups"][0].output_rows) == 2


def test_no_files_give_no_groups() -> None:
    plan = plan_compaction_groups([])
    assert (plan["groups"], plan["untouched_files"], plan["planned_groups"]) == ([], [], [])
    assert plan["planned_stats"].to_dict()["planned_groups"] == []


class Unread:
    """Files that must not be looked at."""

    def __iter__(self) -> Iterator[FileInfo]:
        raise AssertionError("the files were looked at before the targets")


@pytest.mark.parametrize("value", REFUSED, ids=repr)
@pytest.mark.parametrize("name", ["target_mb_per_file", "target_rows_per_file"])
def test_bad_targets_are_refused_before_anything_else(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be > 0"):
        plan_compaction_groups(Unread(), **{name: value})


def test_half_a_row_is_refused_before_anything_else() -> None:
    rows: Any = 1.5
    with pytest.raises(ValueError, match="target_rows_per_file must be a whole number"):
        plan_compaction_groups(Unread(), None, rows)


@pytest.mark.parametrize("value", [1e-12, 0.5, 1e300, 1e308, 10**400], ids=repr)
def test_any_positive_finite_size_is_a_target(value: float) -> None:
    plan = plan_compaction_groups(SOME, value, 20)
    assert plan["planned_stats"].before_file_count == len(SOME)


def test_a_path_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'lake/0\.parquet' is given twice"):
        plan_compaction_groups([*SOME, as_dict(SOME[0])])


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"path": "a"},
        {"path": "a", "size_bytes": 1},
        {"path": "a", "size_bytes": None, "num_rows": 1},
        {"path": "a", "size_bytes": -1, "num_rows": 1},
        {"path": "a", "size_bytes": 1, "num_rows": -1},
        {"path": "a", "size_bytes": "many", "num_rows": 1},
        {"path": "a", "size_bytes": float("inf"), "num_rows": 1},
        "a",
        None,
    ],
    ids=repr,
)
def test_what_is_not_a_file_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"path, size_bytes and num_rows|>= 0|invalid literal"):
        plan_compaction_groups([bad])


@settings(deadline=None)
@given(file_lists(), st.none() | st.floats(0.01, 4), st.none() | st.integers(T // 50, 3 * T))
def test_planned_stats_add_up(
    files: list[FileInfo], megabytes: float | None, rows: int | None
) -> None:
    plan = plan_compaction_groups(files, megabytes, rows)
    stats: MaintenanceStats = plan["planned_stats"]
    groups: list[CompactionGroup] = plan["groups"]
    inputs = [file for group in groups for file in group.files]
    outputs = sum(len(group.output_rows) for group in groups)
    assert stats.before_file_count == len(files)
    assert stats.after_file_count == len(plan["untouched_files"]) + outputs
    assert stats.compacted_file_count == len(inputs)
    assert stats.rewritten_bytes == sum(file.size_bytes for file in inputs)
    assert stats.before_total_bytes == stats.after_total_bytes == sum(f.size_bytes for f in files)
    assert all(sum(group.output_rows) == group.total_rows for group in groups)


# -- values ------------------------------------------------------------------------------------

CANONICAL = [
    "before_file_count",
    "after_file_count",
    "before_total_bytes",
    "after_total_bytes",
    "compacted_file_count",
    "rewritten_bytes",
    "compression_codec",
    "dry_run",
]


def test_the_exact_keys_of_the_stats() -> None:
    stats = MaintenanceStats(9, 2, 900, 800, 8, 850, "zstd", False)
    assert list(stats.to_dict()) == CANONICAL
    assert list(stats.to_dict().values()) == [9, 2, 900, 800, 8, 850, "zstd", False]
    clustered = replace(stats, zorder_columns=["a", "b"])
    assert list(clustered.to_dict()) == [*CANONICAL, "zorder_columns"]
    dry = replace(stats, dry_run=True, planned_groups=[["x"], ["y"]])
    assert list(dry.to_dict()) == [*CANONICAL, "planned_groups"]
    both = replace(clustered, planned_groups=[])
    assert list(both.to_dict()) == [*CANONICAL, "zorder_columns", "planned_groups"]


def test_the_dict_of_the_stats_is_a_copy() -> None:
    stats = MaintenanceStats(1, 1, 1, 1, 0, 0, None, True, ["a"], [["x"]])
    copied = stats.to_dict()
    copied["zorder_columns"].append("b")
    copied["planned_groups"][0].append("y")
    assert (stats.zorder_columns, stats.planned_groups) == (["a"], [["x"]])


def test_values_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match=">= 0"):
        FileInfo("a", -1, 0)
    with pytest.raises(ValueError, match=">= 0"):
        FileInfo("a", 0, -1)
    with pytest.raises(ValueError, match="at least one file"):
        CompactionGroup(())
    with pytest.raises(ValueError, match="target_bytes or target_rows"):
        CompactionPolicy(None, None)
