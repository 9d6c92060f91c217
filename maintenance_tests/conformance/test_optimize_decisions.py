"""What optimize believes of the files it finds, and what it says of what it did."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_assets import IncompleteMaintenanceError, OptimizeResult, Progress, optimize
from maintenance_assets.model.clustering import ColumnOverlap
from maintenance_assets.orchestration.metadata import decisions_table, gains_chart
from maintenance_assets.planning.optimization import is_good
from maintenance_tests.conformance.test_optimize import LAYOUT
from maintenance_tests.datasets import Lake

ROWS = 2000


def cluster(lake: Lake, columns: Any = ("a",), rows: int = 100, **options: Any) -> OptimizeResult:
    return optimize(lake.url, list(columns), target_rows_per_file=rows, **options)


def numbers(rows: int = ROWS, seed: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {"row": range(rows), "a": random.permutation(rows), "b": random.integers(0, 99, rows)}
    )


def clustered(lake: Lake, table: Any = None, columns: Any = ("a",), **options: Any) -> None:
    """Twenty files of a hundred rows."""
    lake.write("x.parquet", numbers() if table is None else table)
    cluster(lake, columns, **options)


# --- layouts of others -----------------------------------------------------------------------


def test_files_written_over_ours_with_their_metadata_are_not_clustered(local: Lake) -> None:
    clustered(local, columns=("a", "b"))
    random = np.random.default_rng(1)
    for name in local.files():
        table = local.open(name).read()
        values = pa.array(random.integers(0, ROWS, table.num_rows))
        local.write(name, table.set_column(1, "a", values))
        assert LAYOUT in local.open(name).schema_arrow.metadata
    (decision,) = cluster(local, ("a", "b")).decisions
    assert (decision.action, decision.rewritten) == ("full", 20)


def test_an_index_over_other_rows_does_not_pass_for_ours(local: Lake) -> None:
    """Even a writer that does all that we do cannot keep the overlap that was foreseen."""
    clustered(local)
    random = np.random.default_rng(1)
    for name in local.files():
        table = local.open(name).read()
        values = pa.array(random.integers(0, ROWS, table.num_rows))
        local.write(name, table.set_column(1, "a", values), write_page_index=True)
    (decision,) = cluster(local).decisions
    assert (decision.action, decision.rewritten) == ("full", 20)


@pytest.mark.parametrize("by", ["compact", "optimize"])
def test_appends_in_the_schema_of_clustered_files_are_merged(local: Lake, by: str) -> None:
    clustered(local)
    schema = local.open(local.files()[0]).schema_arrow
    for number in range(5):
        one = pa.table({"row": [ROWS + number], "a": [9000 + number], "b": [0]}).cast(schema)
        local.write(f"new-{number}.parquet", one)
    if by == "compact":
        local.compact("pyarrow", target_rows_per_file=100)
    else:
        assert cluster(local).decisions[0].action == "incremental"
    assert len(local.files()) == 21
    assert len(local.column("row")) == ROWS + 5


# --- additions -------------------------------------------------------------------------------


def test_file_without_rows_disturbs_nothing(local: Lake) -> None:
    clustered(local)
    local.write("empty.parquet", numbers().slice(0, 0))
    result = cluster(local)
    assert [(d.action, d.rewritten) for d in result.decisions] == [("none", 0)]
    assert {f.reason for f in result.untouched if not f.num_rows} == {"empty"}


def test_all_null_append_goes_where_nulls_are(local: Lake) -> None:
    clustered(local)
    local.write("n.parquet", {"row": [ROWS], "a": pa.nulls(1, pa.int64()), "b": [0]})
    (decision,) = cluster(local).decisions
    assert decision.action == "incremental"
    assert decision.rewritten <= 2
    assert sorted(local.column("row")) == list(range(ROWS + 1))


def test_row_groups_of_nan_do_not_spread_an_addition(local: Lake) -> None:
    """Footers tell no range of these: that must not look like one that reaches everywhere."""
    random = np.random.default_rng(5)
    x = np.where(random.random(ROWS) < 0.3, np.nan, random.random(ROWS))
    table = numbers().append_column("x", pa.array(x))
    clustered(local, table, ("a", "x"))
    assert cluster(local, ("a", "x")).stats.compacted_file_count == 0
    later = pa.array(range(10**6, 10**6 + 100))
    local.write("n.parquet", table.slice(0, 100).set_column(1, "a", later))
    (decision,) = cluster(local, ("a", "x")).decisions
    assert decision.action == "incremental"
    assert decision.rewritten <= 4


def test_append_of_nan_alone_goes_where_nan_is(local: Lake) -> None:
    random = np.random.default_rng(5)
    x = np.where(random.random(ROWS) < 0.3, np.nan, random.random(ROWS))
    clustered(local, numbers().append_column("x", pa.array(x)), ("x",))
    local.write("n.parquet", {"row": [ROWS], "a": [0], "b": [0], "x": [float("nan")]})
    (decision,) = cluster(local, ("x",)).decisions
    assert decision.action == "incremental"
    assert decision.rewritten < 9
    assert sorted(local.column("row")) == list(range(ROWS + 1))


def test_append_all_over_the_place_is_named_as_the_reason(local: Lake) -> None:
    clustered(local)
    local.write("new.parquet", numbers().slice(0, 50))
    (decision,) = cluster(local).decisions
    assert (decision.action, decision.rewritten) == ("full", 21)
    assert decision.reason == "new files overlap all of what is clustered"


def test_outputs_that_compress_well_are_not_small(local: Lake) -> None:
    table = numbers(100_000).append_column("s", pa.array(["x" * 50] * 100_000))
    local.write("x.parquet", table, compression="none", use_dictionary=False)
    options: Any = {"target_mb_per_file": 1, "compression": "zstd"}
    optimize(local.url, ["a"], **options)
    files = len(local.files())
    assert files > 4
    assert max(len(local.get(name)) for name in local.files()) < 512 * 1024
    local.write(
        "n.parquet", table.slice(0, 5).set_column(1, "a", pa.array(range(10**6, 10**6 + 5)))
    )
    (decision,) = optimize(local.url, ["a"], **options).decisions
    assert decision.action == "incremental"
    assert decision.rewritten <= 2


def test_files_of_longer_rows_are_not_cut_the_same_way_for_ever(local: Lake) -> None:
    """Outputs have equally many rows: where these are long, a file is far above the target."""
    random = np.random.default_rng(0)
    payload = [random.bytes(5000) if n < 100 else b"x" for n in range(200)]
    local.write("a.parquet", pa.table({"row": range(200), "p": payload}), use_dictionary=False)
    target: Any = {"target_mb_per_file": 0.25}
    optimize(local.url, ["row"], **target)
    assert max(len(local.get(name)) for name in local.files()) > 1.8 * 0.25 * 1024 * 1024
    before = local.tree()
    (decision,) = optimize(local.url, ["row"], **target).decisions
    assert (decision.action, decision.rewritten) == ("none", 0)
    assert local.tree() == before


def test_one_column_cannot_hide_what_became_of_another() -> None:
    def overlap(low: float, selective: float) -> list[ColumnOverlap]:
        return [
            ColumnOverlap("low", low, low / 100),
            ColumnOverlap("a", selective, selective / 100),
        ]

    fresh = overlap(50, 4)
    assert is_good(overlap(58, 4.8), fresh)
    assert is_good(overlap(40, 5.5), fresh)
    assert not is_good(overlap(50, 6.5), fresh)
    assert not is_good(overlap(62, 5), fresh)


# --- ranges that are not known ---------------------------------------------------------------


@pytest.mark.parametrize("type_", [pa.float16(), pa.timestamp("us"), pa.date32()])
def test_values_beyond_python_are_added_incrementally(local: Lake, type_: Any) -> None:
    def values(numbers: Any) -> Any:
        if pa.types.is_float16(type_):
            return pa.array(np.asarray(numbers, np.float16))
        integers = pa.int32() if type_.bit_width == 32 else pa.int64()
        return pa.array(np.asarray(numbers) * 10**4 + 10**8, integers).view(type_)

    table = pa.table({"row": range(1000), "a": values(np.random.default_rng(0).permutation(1000))})
    clustered(local, table)
    local.write("n.parquet", pa.table({"row": [1000], "a": values([1500])}))
    (decision,) = cluster(local).decisions
    assert decision.action == "incremental"
    assert decision.rewritten <= 2


def test_share_is_unknown_where_footers_tell_no_range(local: Lake) -> None:
    long = [f"{n:04}" + "y" * 5000 for n in np.random.default_rng(0).permutation(60)]
    local.write("x.parquet", {"row": range(60), "a": long})
    result = cluster(local, rows=20)
    (gain,) = result.gains
    assert (gain.is_known_before, gain.is_known_after) == (False, False)
    assert "unknown" in gains_chart(result)
    assert cluster(local, rows=20).stats.compacted_file_count == 0


# --- what is said ----------------------------------------------------------------------------


def test_decision_tells_that_a_conflict_left_everything(local: Lake) -> None:
    for number in range(4):
        local.write(f"{number}.parquet", numbers(500, seed=number))

    def remove_one(progress: Progress) -> None:
        if progress.phase == "execute" and "2.parquet" in local.files():
            os.remove(local.path("2.parquet"))

    result = cluster(local, on_progress=remove_one)
    (decision,) = result.decisions
    assert (decision.action, decision.rewritten, decision.outputs) == ("none", 0, 0)
    assert decision.reason == result.conflicts[0].reason
    assert "| none | 0 of 4 |" in decisions_table(result)


def test_codec_of_files_that_stay_is_noted(local: Lake) -> None:
    clustered(local)
    (note,) = cluster(local, compression="zstd").notes
    assert "compression 'zstd' goes for what is rewritten" in note
    assert "snappy" in note
    assert cluster(local, compression="snappy").notes == ()


def test_name_that_a_file_has_twice_is_refused(local: Lake) -> None:
    local.write("a.parquet", pa.table([[3, 1], [9, 8], [0, 1]], names=["x", "x", "row"]))
    with pytest.raises(ValueError, match="Cannot cluster by 'x': a file has that name more than"):
        cluster(local, ["x"])


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_column_named_as_our_position_is_a_column(local: Lake, engine: str) -> None:
    name = "__maintenance_position"
    local.write("a.parquet", {"row": range(10), name: list(range(10))[::-1]})
    cluster(local, [name], engine=engine)
    assert local.column("row") == list(range(10))[::-1]


def test_categories_that_do_not_fit_their_index_are_named(local: Lake) -> None:
    for part in range(3):
        codes = pa.array([n % 100 for n in range(100)], pa.int8())
        kind = pa.DictionaryArray.from_arrays(codes, [f"{part}-{n}" for n in range(100)])
        local.write(f"{part}.parquet", pa.table({"a": range(100), "kind": kind}))
    before = local.tree()
    with pytest.raises(IncompleteMaintenanceError, match="than the dictionary index of kind can"):
        cluster(local, rows=50)
    assert local.tree() == before


@pytest.mark.parametrize("name", [".x", "a.b"])
def test_nested_name_that_looks_like_a_path_is_a_key(local: Lake, name: str) -> None:
    column = pa.StructArray.from_arrays([pa.array([3, 1, 2, 0]), pa.array([9] * 4)], [name, "x"])
    local.write("a.parquet", pa.table({"row": range(4), "k": column}))
    cluster(local, [f"k.{name}"], rows=2)
    assert local.column("row") == [3, 1, 2, 0]


def test_nested_text_that_is_not_utf8_is_a_key(local: Lake) -> None:
    codes = [bytes([255, n]) for n in range(40)]
    text = pa.Array.from_buffers(pa.string(), 40, pa.array(codes).buffers())
    column = pa.StructArray.from_arrays([text, pa.array(range(40))], ["v", "w"])
    local.write("a.parquet", pa.table({"k": column}))
    cluster(local, ["k.v"], rows=10)
    found = [
        f.read().column("k").combine_chunks().field("w") for f in map(local.open, local.files())
    ]
    assert sorted(w.to_pylist() for w in found) == [list(range(n, n + 10)) for n in (0, 10, 20, 30)]


def test_layout_holds_what_it_is_trusted_by(local: Lake, tmp_path: Path) -> None:
    clustered(local)
    name = local.files()[0]
    assert re.fullmatch(r"optimized-[0-9a-f-]{36}\.parquet", name)
    assert b'"rows": [100]' in pq.read_schema(local.path(name)).metadata[LAYOUT]
