"""Rows and their places changed from a shell, and taken back."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintenance_tests.cli.shell import Shell
from maintenance_tests.datasets import Lake

ROWS: dict[str, list[object]] = {
    "id": [1, 2, 3, 4],
    "side": ["bid", "ask", "bid", "ask"],
    "price": [1.0, 2.0, 3.0, 4.0],
}


@pytest.fixture
def lake(local: Lake) -> Lake:
    for part, day in enumerate(("day=1", "day=2")):
        half = {name: values[2 * part : 2 * part + 2] for name, values in ROWS.items()}
        local.write(f"{day}/a.parquet", half)
    return local


def test_delete_takes_the_rows_that_are_meant(shell: Shell, lake: Lake) -> None:
    before = lake.tree()
    planned = shell("delete", lake.url, "--where", "price > 2.5", "--dry-run", "--json").json
    assert (planned["rows_deleted"], planned["dry_run"]) == (2, True)
    assert lake.tree() == before
    ran = shell("delete", lake.url, "--where", "price > 2.5")
    assert ran.code == 0
    assert "rows deleted: 2" in ran.out
    assert lake.column("id") == [1, 2]
    assert shell("delete", lake.url, "--where", "price > 2.5", "--json").json["rows_deleted"] == 0


def test_update_sets_values_and_expressions(shell: Shell, lake: Lake) -> None:
    words = ("--set", "side='none'", "--set", "price = price * 2")
    ran = shell("update", lake.url, "--where", "id in (2, 3)", *words, "--json")
    assert (ran.code, ran.json["rows_updated"]) == (0, 2)
    assert lake.column("side") == ["bid", "none", "none", "ask"]
    assert lake.column("price") == [1.0, 4.0, 6.0, 4.0]


def test_only_the_named_partition_is_changed(shell: Shell, lake: Lake) -> None:
    shell("delete", lake.url, "--where", "side = 'ask'", "--partition", "day=2")
    assert lake.column("id") == [1, 2, 3]


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_upsert_merges_a_file(shell: Shell, lake: Lake, tmp_path: Path, ending: str) -> None:
    new = [
        {"id": 2, "side": "new", "price": 20.5, "day": "1"},
        {"id": 9, "side": "new", "price": 90.5, "day": "2"},
    ]
    file = tmp_path / f"new.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(new), file)
    elif ending == "csv":
        file.write_text("id,side,price,day\n2,new,20.5,1\n9,new,90.5,2\n")
    else:
        file.write_text("\n".join(json.dumps(row) for row in new))
    ran = shell("upsert", lake.url, file, "--key", "id", "--partition-by", "day", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["rows_updated"], ran.json["rows_inserted"]) == (1, 1)
    assert sorted(zip(lake.column("id"), lake.column("price"), strict=True)) == [
        (1, 1.0),
        (2, 20.5),
        (3, 3.0),
        (4, 4.0),
        (9, 90.5),
    ]


def test_text_that_looks_like_a_number_stays_text(
    shell: Shell, local: Lake, tmp_path: Path
) -> None:
    local.write("a.parquet", {"id": ["007", "008"], "n": [1, 2]})
    (tmp_path / "new.csv").write_text("id,n\n008,20\n009,30\n")
    ran = shell("upsert", local.url, tmp_path / "new.csv", "--key", "id", "--json")
    assert (ran.json["rows_updated"], ran.json["rows_inserted"]) == (1, 1)
    assert sorted(local.column("id")) == ["007", "008", "009"]


def test_a_change_with_a_backup_is_taken_back(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    before = lake.tree()
    backups = ("--backup-path", tmp_path / "backups")
    deleted = shell("delete", lake.url, "--where", "id = 1", *backups, "--json").json
    (listed,) = shell("history", lake.url, *backups, "--json").json["backups"]
    assert listed["backup_id"] == deleted["backup_id"]
    assert (listed["operation"], listed["files_replaced"]) == ("delete", 1)
    assert deleted["backup_id"] in shell("history", lake.url, *backups).out
    planned = shell("restore", lake.url, deleted["backup_id"], *backups, "--dry-run")
    assert "1 files with 2 rows would come back for 1 files with 1 rows" in planned.out
    ran = shell("restore", lake.url, deleted["backup_id"], *backups, "--json")
    assert (ran.code, ran.json["rows_restored"]) == (0, 2)
    assert lake.tree() == before
    again = shell("restore", lake.url, deleted["backup_id"], *backups)
    assert again.code == 1
    assert "has nothing to bring back" in again.error


def test_history_is_that_of_one_dataset_and_marks_what_was_restored(
    shell: Shell, lake: Lake, tmp_path: Path
) -> None:
    backups = ("--backup-path", tmp_path / "backups")
    other = Lake(str(tmp_path / "other"))
    other.write("a.parquet", ROWS)
    shell("delete", other.url, "--where", "id = 1", *backups)
    ran = shell("history", lake.url, *backups)
    assert f"no backups of '{lake.url}'" in ran.out
    assert f"1 backups of other datasets: '{other.url}'" in ran.out
    first = shell("delete", lake.url, "--where", "id = 1", *backups, "--json").json["backup_id"]
    second = shell("delete", lake.url, "--where", "id = 3", *backups, "--json").json["backup_id"]
    assert shell("restore", lake.url, second, *backups).code == 0
    found = shell("history", lake.url, *backups, "--json").json
    assert found["of_other_datasets"] == 1
    assert {one["backup_id"]: one["is_restored"] for one in found["backups"]} == {
        first: False,
        second: True,
    }
    (line,) = [
        line for line in shell("history", lake.url, *backups).out.splitlines() if second in line
    ]
    assert " restored 20" in line
    missing = shell("history", tmp_path / "nowhere", *backups)
    assert (missing.code, missing.out) == (2, "")
    assert missing.error == f"Dataset path '{tmp_path / 'nowhere'}' does not exist"


def test_a_moved_dataset_is_restored_from_a_shell(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    backups = ("--backup-path", tmp_path / "backups")
    made = shell("delete", lake.url, "--where", "id = 1", *backups, "--json").json["backup_id"]
    moved = Lake(str(tmp_path / "moved"))
    Path(lake.url).rename(moved.url)
    refused = shell("restore", moved.url, made, *backups)
    assert refused.error.endswith(
        "if the dataset was moved, pass moved=True, or --moved in a shell"
    )
    assert shell("restore", moved.url, made, *backups, "--moved").code == 0
    assert sorted(moved.column("id")) == [1, 2, 3, 4]


@pytest.mark.parametrize("backup_id", ["../../etc", "..", "/etc/passwd", ".hidden", ""])
def test_a_backup_id_that_leaves_the_backups_is_refused(
    shell: Shell, lake: Lake, tmp_path: Path, backup_id: str
) -> None:
    (tmp_path / "backups").mkdir()
    ran = shell("restore", lake.url, backup_id, "--backup-path", tmp_path / "backups")
    assert ran.code == 2
    assert "backup_id must be the name of a backup" in ran.error


@pytest.mark.parametrize("path", ["../outside.parquet", "/outside.parquet", "day=1/../../x", ""])
def test_a_manifest_that_leaves_the_dataset_is_refused(
    shell: Shell, lake: Lake, tmp_path: Path, path: str
) -> None:
    backups = ("--backup-path", tmp_path / "backups")
    made = shell("delete", lake.url, "--where", "id = 1", *backups, "--json").json["backup_id"]
    manifest = tmp_path / "backups" / made / "manifest.json"
    content = json.loads(manifest.read_text())
    content["inputs"][0]["path"] = path
    manifest.write_text(json.dumps(content))
    before = lake.tree()
    ran = shell("restore", lake.url, made, *backups)
    assert ran.code == 1
    assert f"'{path}' is not a path below the dataset" in ran.error
    assert lake.tree() == before


def test_repartition_lays_files_out_anew(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    target = Lake(str(tmp_path / "by_side"))
    before = lake.tree()
    planned = shell("repartition", lake.url, target.url, "--by", "side", "--dry-run")
    assert (planned.code, "partitions created: 2" in planned.out) == (0, True)
    ran = shell("repartition", lake.url, target.url, "--by", "side", "--json")
    assert (ran.code, ran.json["rows_written"]) == (0, 4)
    assert sorted(target.column("id", "side=ask")) == [2, 4]
    assert lake.tree() == before


def test_repartition_by_a_derived_column(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    target = Lake(str(tmp_path / "target"))
    words = ("--by", "cheap", "--derive", "cheap=price < 2.5", "--drop-partition-columns")
    assert shell("repartition", lake.url, target.url, *words).code == 0
    assert sorted(target.column("id", "cheap=true")) == [1, 2]


def test_values_that_look_like_paths_stay_inside_the_target(
    shell: Shell, local: Lake, tmp_path: Path
) -> None:
    wicked = ["../../up", "/etc/passwd", "..", ".", "a/../../b", "..\\x", "%2e%2e"]
    local.write("a.parquet", {"id": list(range(len(wicked))), "name": wicked})
    outside = set(tmp_path.iterdir())
    target = Lake(str(tmp_path / "target"))
    assert shell("repartition", local.url, target.url, "--by", "name").code == 0
    assert set(tmp_path.iterdir()) - outside == {tmp_path / "target"}
    assert all(name.startswith("name=") and name.count("/") == 1 for name in target.files())
    assert sorted(target.column("name")) == sorted(wicked)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("delete", "{lake}", "--where", "prise > 1"), "Unknown column 'prise'"),
        (("delete", "{lake}", "--where", "price >"), "(at "),
        (("delete", "{lake}"), "the following arguments are required: --where"),
        (("update", "{lake}", "--where", "true", "--set", "price"), "must be written COLUMN=SQL"),
        (
            ("update", "{lake}", "--where", "true", "--set", "id=1", "--set", "id=2"),
            "names column 'id' twice",
        ),
        (("upsert", "{lake}", "/nowhere.parquet", "--key", "id"), "does not exist"),
        (("upsert", "{lake}", __file__, "--key", "id"), "must be a .parquet, .csv or .json file"),
        (("restore", "{lake}", "x", "--backup-path", "{lake}/b"), "cannot be kept in"),
        (("repartition", "{lake}", "{lake}/inside", "--by", "side"), "{lake}"),
        (("repartition", "{lake}", "{lake}2", "--by", "sied"), "sied"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_wrong_changes_are_refused_in_one_line_and_change_nothing(
    shell: Shell, lake: Lake, words: tuple[str, ...], message: str
) -> None:
    before = lake.tree()
    ran = shell(*(word.replace("{lake}", lake.url) for word in words))
    assert (ran.code, ran.out) == (2, "")
    assert message.replace("{lake}", lake.url) in ran.error
    assert lake.tree() == before
