"""What the commands do and print."""

from pathlib import Path

import pytest

from maintenance_tests.cli.shell import Shell
from maintenance_tests.datasets import Lake, one_row_files

STATS = [
    "before_file_count",
    "after_file_count",
    "before_total_bytes",
    "after_total_bytes",
    "compacted_file_count",
    "rewritten_bytes",
    "compression_codec",
    "dry_run",
]
DAYS = ("date=2025-11-04", "date=2025-11-05")


def small_files(lake: Lake, count: int = 6) -> None:
    for start, day in enumerate(DAYS):
        one_row_files(lake, count, day, start * count)


def test_compact_merges_and_prints_the_canonical_stats(shell: Shell, local: Lake) -> None:
    small_files(local)
    ran = shell("compact", local.url, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert list(ran.json)[: len(STATS)] == STATS
    assert (ran.json["before_file_count"], ran.json["after_file_count"]) == (12, 2)
    assert (ran.json["dry_run"], ran.json["engine"], ran.json["publish"]) == (
        False,
        "pyarrow",
        "exchange",
    )
    assert local.column("id") == list(range(12))


def test_a_second_compact_has_nothing_to_do_and_succeeds(shell: Shell, local: Lake) -> None:
    small_files(local)
    assert "12 files became 2" in shell("compact", local.url).out
    before = local.tree()
    ran = shell("compact", local.url)
    assert ran.code == 0
    assert "nothing to do: 2 files stay as they are" in ran.out
    assert local.tree() == before


@pytest.mark.parametrize("command", [("compact", "--dry-run"), ("plan",)])
def test_a_dry_run_changes_nothing_and_names_the_groups(
    shell: Shell, local: Lake, command: tuple[str, ...]
) -> None:
    small_files(local)
    before = local.tree()
    ran = shell(*command, local.url)
    assert ran.code == 0
    assert "12 files would become 2" in ran.out
    assert all(day in ran.out for day in DAYS)
    machine = shell(*command, local.url, "--json").json
    assert machine["dry_run"] is True
    assert [len(group) for group in machine["planned_groups"]] == [6, 6]
    assert local.tree() == before


def test_only_the_named_partitions_are_rewritten(shell: Shell, local: Lake) -> None:
    small_files(local)
    ran = shell("compact", local.url, "--partition", DAYS[1], "--json")
    assert ran.json["before_file_count"] == 6
    assert (len(local.files(DAYS[0])), len(local.files(DAYS[1]))) == (6, 1)


def test_targets_compression_and_engine_are_passed_on(shell: Shell, local: Lake) -> None:
    small_files(local)
    words = ("--target-rows", 2, "--compression", "gzip", "--engine", "duckdb", "--max-workers", 1)
    found = shell("compact", local.url, *words, "--memory-budget-mb", 64, "--json").json
    assert found["engine"] == "duckdb"
    assert found["after_file_count"] == 6
    assert found["compression_codec"] == "gzip"


def test_optimize_clusters_and_tells_the_gain(shell: Shell, local: Lake) -> None:
    for number in range(4):
        local.write(f"{number}.parquet", {"id": list(range(number, 400, 4)), "v": [1.5] * 100})
    ran = shell("optimize", local.url, "--zorder", "id", "--target-rows", 100, "--json")
    assert ran.code == 0
    assert ran.json["zorder_columns"] == ["id"]
    (gain,) = ran.json["gains"]
    assert gain["share_before"] > 0.9
    assert gain["share_after"] < 0.4
    assert local.column("id") == list(range(400))
    assert "clustered by id" in shell("status", local.url).out


def test_status_explains_the_health(shell: Shell, local: Lake) -> None:
    small_files(local)
    ran = shell("status", local.url)
    assert ran.code == 0
    assert "health 17 of 100" in ran.out
    assert "small files: -83.3 (12 small files of 12, 10 could be saved)" in ran.out
    assert "compact would make 2 files of 12" in ran.out
    assert "no: 6 small files of 6, 5 could be saved, but written" in ran.out
    assert "< 4.0 KiB     12" in ran.out


def test_status_decides_as_the_sensor_does(shell: Shell, local: Lake) -> None:
    small_files(local)
    cold = shell("status", local.url, "--cooldown-minutes", 0, "--json").json
    assert cold["in_need"] == 2
    assert [part["reason"] for part in cold["worst"]] == [
        "6 small files of 6, 5 could be saved"
    ] * 2
    choosy = shell("status", local.url, "--cooldown-minutes", 0, "--min-gain", 6, "--json").json
    assert choosy["in_need"] == 0
    assert "fewer than min_gain 6" in choosy["worst"][0]["reason"]


def test_status_of_a_healthy_dataset(shell: Shell, local: Lake) -> None:
    small_files(local)
    shell("compact", local.url)
    found = shell("status", local.url, "--json").json
    assert found["health"]["score"] == 100
    assert (found["worst"], found["drift"], found["gain"]) == ([], [], 0)
    assert (found["planned_rewrites"], found["planned_outputs"]) == (0, 0)
    assert (found["file_count"], found["rows"], found["row_groups"]) == (2, 12, 2)


def test_status_shows_drift_and_what_cannot_be_merged(shell: Shell, local: Lake) -> None:
    local.write("a.parquet", {"id": [1], "name": ["x"]})
    local.write("b.parquet", {"id": ["one"]})
    found = shell("status", local.url, "--json").json
    assert found["schemas"] == 2
    assert found["drift"] == [
        {"column": "id", "types": {"int64": 1, "string": 1}, "missing": 0},
        {"column": "name", "types": {"string": 1}, "missing": 1},
    ]
    drift = next(part for part in found["health"]["parts"] if part["name"] == "schema drift")
    assert drift["points"] == 25.0
    assert "1 partition(s) cannot be merged: column 'id' is" in drift["reason"]
    assert "int64 in 1, string in 1" in shell("status", local.url).out


def test_status_names_files_that_cannot_be_read(shell: Shell, local: Lake) -> None:
    local.write("a.parquet", {"id": [1]})
    local.put("broken.parquet", b"not parquet at all")
    ran = shell("status", local.url)
    assert ran.code == 0
    assert "unreadable: 'broken.parquet': the end of the file is not a Parquet footer" in ran.out
    assert "unreadable files: -50.0 (1 of 2 files cannot be read as Parquet)" in ran.out


def test_status_counts_what_runs_left_behind(shell: Shell, local: Lake) -> None:
    local.write("a.parquet", {"id": [1]})
    run = "01890000-0000-7000-8000-000000000000"
    local.put(f"_maintenance/{run}/x.staged", b"half")
    before = local.tree()
    assert f"left behind: run {run}" in shell("status", local.url).out
    assert shell("recover", local.url, "--dry-run", "--json").json["runs"] == [run]
    assert local.tree() == before
    assert "removed staged files" in shell("recover", local.url).out
    assert list(local.tree()) == ["a.parquet"]
    assert "nothing to recover" in shell("recover", local.url).out


def test_datasets_check_lists_what_dagster_would_load(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text("datasets:\n  - {key: lake/a, path: a, engine: duckdb}\n")
    Lake(str(tmp_path / "a")).write("x.parquet", {"id": [1]})
    assert "1 dataset(s), nothing wrong" in shell("datasets", "check", file).out
    (found,) = shell("datasets", "check", file, "--open", "--json").json["datasets"]
    assert found == {
        "key": "lake/a",
        "engine": "duckdb",
        "path": str(tmp_path / "a"),
        "files": 1,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("datasets:\n  - {key: a, path: a, engin: duckdb}\n", "dataset 'a', field 'engin'"),
        ("datasets: [\n", "is not YAML"),
        ("datasets: !!python/object/apply:os.getpid []\n", "is not YAML"),
        ("datasets:\n  - {key: a, path: '${NOT_SET_ANYWHERE}'}\n", "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_datasets_check_names_the_mistake(
    shell: Shell, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text(content)
    ran = shell("datasets", "check", file)
    assert ran.code == 2
    assert message in ran.error


def test_datasets_check_open_names_a_missing_path(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text("datasets:\n  - {key: a, path: nowhere}\n")
    assert shell("datasets", "check", file).code == 0
    ran = shell("datasets", "check", file, "--open")
    assert ran.code == 2
    assert "dataset 'a', field 'path': Dataset path" in ran.error


def test_names_with_markup_and_odd_bytes_are_printed_as_they_are(shell: Shell, local: Lake) -> None:
    one_row_files(local, 6, "name=[bold]x :smile:")
    assert "name=[bold]x :smile:" in shell("plan", local.url).out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("partition_columns: [day]", "field 'partition_columns': day: not in the paths"),
        ("zorder_columns: [traded, id]", "field 'zorder_columns': Missing z-order columns: traded"),
        ("zorder_columns: [tags]", "field 'zorder_columns': Cannot cluster by 'tags'"),
    ],
)
def test_datasets_check_open_names_a_column_that_is_not_there(
    shell: Shell, tmp_path: Path, fields: str, message: str
) -> None:
    Lake(str(tmp_path / "a")).write("date=2025-11-04/x.parquet", {"id": [1], "tags": [["a"]]})
    file = tmp_path / "datasets.yaml"
    file.write_text(f"datasets:\n  - {{key: a, path: a, {fields}}}\n")
    assert shell("datasets", "check", file).code == 0
    ran = shell("datasets", "check", file, "--open")
    assert ran.code == 2
    assert f"dataset 'a', {message}" in ran.error


def test_datasets_check_open_takes_what_fits(shell: Shell, tmp_path: Path) -> None:
    Lake(str(tmp_path / "a")).write("date=2025-11-04/x.parquet", {"id": [1]})
    (tmp_path / "empty").mkdir()
    file = tmp_path / "datasets.yaml"
    file.write_text(
        "datasets:\n"
        "  - {key: a, path: a, partition_columns: [date], zorder_columns: [date, id]}\n"
        "  - {key: b, path: empty, partition_columns: [date], zorder_columns: [id]}\n"
    )
    ran = shell("datasets", "check", file, "--open")
    assert (ran.code, "2 dataset(s), nothing wrong" in ran.out) == (0, True), ran.error
