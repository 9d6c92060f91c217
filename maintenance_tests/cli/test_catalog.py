"""Datasets of a catalog, looked after from a shell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from maintenance_assets import Lakehouse
from maintenance_assets.cli.secrets import Secrets
from maintenance_tests.catalog.conftest import new_database, postgres
from maintenance_tests.cli.shell import Ran, Shell, run_process
from maintenance_tests.datasets import Lake, one_row_files

__all__ = ["postgres"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def house(uri: str) -> Iterator[Lakehouse]:
    """A catalog with the dataset `orders`: four versions of two files each."""
    with Lakehouse(uri) as house:
        orders = house.create_dataset(
            "orders", {"id": "int64", "day": "string", "price": "float64"}, partition_by=["day"]
        )
        for n in range(4):
            orders.append({"id": [n, n + 10], "day": ["a", "b"], "price": [float(n), None]})
        yield house


@pytest.fixture
def of_catalog(shell: Shell, house: Lakehouse, uri: str) -> Any:
    """A command with this catalog."""

    def run(*words: object) -> Ran:
        return shell(*words, "--catalog", uri)

    return run


def ids(house: Lakehouse, **version: Any) -> list[int]:
    return sorted(house.dataset("orders").read(["id"], **version)["id"].to_pylist())


ALL = [0, 1, 2, 3, 10, 11, 12, 13]


def test_datasets_are_listed(of_catalog: Any, house: Lakehouse) -> None:
    (found,) = of_catalog("datasets", "list", "--json").json["datasets"]
    assert (found["name"], found["version"], found["files"], found["rows"]) == ("orders", 4, 8, 8)
    assert found["partition_by"] == ["day"]
    assert "1 dataset(s)" in of_catalog("datasets", "list").out


def test_declared_datasets_of_a_catalog_are_looked_at(
    shell: Shell, house: Lakehouse, uri: str, tmp_path: Path
) -> None:
    file = tmp_path / "datasets.yaml"
    file.write_text(f"datasets:\n  - {{key: orders, catalog: '{uri}', engine: pyarrow}}\n")
    house.dataset("orders").compact()
    (found,) = shell("datasets", "check", file, "--open", "--json").json["datasets"]
    assert (found["path"], found["files"]) == (f"{uri}#orders", 2)
    file.write_text(f"datasets:\n  - {{key: returns, catalog: '{uri}', engine: pyarrow}}\n")
    ran = shell("datasets", "check", file, "--open")
    assert ran.code == 2
    assert "dataset 'returns', field 'catalog': There is no dataset 'returns'" in ran.error


def test_status_of_the_newest_version(of_catalog: Any, house: Lakehouse) -> None:
    house.dataset("orders").compact()
    house.dataset("orders").append({"id": [20], "day": ["a"], "price": [1.0]})
    found = of_catalog("status", "orders", "--min-gain", 1, "--json").json
    assert (found["file_count"], found["rows"], found["gain"], found["in_need"]) == (3, 9, 1, 1)
    assert found["worst"][0]["partition"] == "day=a"
    assert found["worst"][0]["reason"] == "2 small files of 2, 1 could be saved"
    assert found["health"]["score"] == 66.7
    shown = of_catalog("status", "orders", "--partition", "day=b").out
    assert "orders in " in shown
    assert "health 100 of 100" in shown


def test_compact_makes_a_version_and_a_dry_run_makes_none(
    of_catalog: Any, house: Lakehouse
) -> None:
    planned = of_catalog("compact", "orders", "--dry-run", "--json").json
    assert (planned["dataset"], planned["version"], planned["dry_run"]) == ("orders", None, True)
    assert house.dataset("orders").version == 4
    ran = of_catalog("compact", "orders", "--json")
    assert (ran.code, ran.json["version"]) == (0, 5)
    assert (ran.json["before_file_count"], ran.json["after_file_count"]) == (8, 2)
    assert "nothing to do: 2 files stay as they are" in of_catalog("compact", "orders").out
    assert ids(house) == ids(house, version=4) == ALL


def test_optimize_clusters_a_partition(of_catalog: Any, house: Lakehouse) -> None:
    ran = of_catalog("optimize", "orders", "--zorder", "id", "--partition", "day=a")
    assert ran.code == 0, ran.err
    assert "version 5" in ran.out
    assert [len(house.dataset("orders").files()), ids(house)] == [5, ALL]


def test_rows_are_changed_as_versions(of_catalog: Any, house: Lakehouse, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,day,price\n1,a,50\n99,b,\n")
    tried = of_catalog("delete", "orders", "--where", "id > 11", "--dry-run", "--json").json
    assert (tried["rows_deleted"], tried["version"]) == (2, None)
    assert "rows deleted: 2" in of_catalog("delete", "orders", "--where", "id > 11").out
    changed = of_catalog("update", "orders", "--where", "id=0", "--set", "price=price+1", "--json")
    assert (changed.json["rows_updated"], changed.json["version"]) == (1, 6)
    merged = of_catalog("upsert", "orders", tmp_path / "new.csv", "--key", "id", "--json").json
    assert (merged["rows_updated"], merged["rows_inserted"]) == (1, 1)
    assert house.dataset("orders").read(where="id < 2 OR id = 99").sort_by("id").to_pylist() == [
        {"id": 0, "day": "a", "price": 1.0},
        {"id": 1, "day": "a", "price": 50.0},
        {"id": 99, "day": "b", "price": None},
    ]


def test_history_lists_versions_and_restore_brings_one_back(
    of_catalog: Any, house: Lakehouse
) -> None:
    house.dataset("orders").tag("good", 4)
    of_catalog("delete", "orders", "--where", "day = 'a'")
    found = of_catalog("history", "orders", "--json").json["versions"]
    assert [one["version"] for one in found] == [5, 4, 3, 2, 1, 0]
    assert (found[0]["operation"], found[0]["rows_removed"], found[0]["total_rows"]) == (
        "delete",
        4,
        4,
    )
    assert found[1]["tags"] == ["good"]
    assert "tag good" in of_catalog("history", "orders").out
    assert "8 files with 8 rows would come" in of_catalog("restore", "orders", 4, "--dry-run").out
    assert house.dataset("orders").version == 5
    assert of_catalog("restore", "orders", 4, "--json").json["version"] == 6
    assert ids(house) == ALL


def test_vacuum_says_what_it_would_delete_until_it_is_told_to(
    of_catalog: Any, house: Lakehouse
) -> None:
    root = Path(house.dataset("orders").path)
    of_catalog("compact", "orders")
    assert "5 versions would expire: 0, 1, 2, 3, 4" in (
        of_catalog("expire", "--older-than-days", 0, "--dry-run").out
    )
    assert of_catalog("expire", "orders", "--older-than-days", 0, "--json").json == {
        "dry_run": False,
        "expired": {"orders": [0, 1, 2, 3, 4]},
    }
    assert "orders: 0 files" in of_catalog("vacuum").out
    planned = of_catalog("vacuum", "orders", "--retention-days", 0)
    assert "orders: 8 files" in planned.out
    assert "--delete does it" in planned.out
    assert len(list(root.rglob("*.parquet"))) == 10
    refused = of_catalog("vacuum", "--retention-days", 0, "--delete")
    assert refused.code == 2
    assert "--force" in refused.error
    done = of_catalog("vacuum", "--retention-days", 0, "--delete", "--force", "--json").json
    assert (done["dry_run"], done["datasets"][0]["files"]) == (False, 8)
    assert len(list(root.rglob("*.parquet"))) == 2
    assert ids(house) == ALL


def test_fsck_ends_with_1_where_something_is_wrong(of_catalog: Any, house: Lakehouse) -> None:
    assert "orders: nothing wrong" in of_catalog("fsck").out
    lost = house.dataset("orders").files()[0].path
    (Path(house.dataset("orders").path) / lost).unlink()
    ran = of_catalog("fsck", "orders")
    assert ran.code == 1
    assert f"orders: '{lost}' is missing" in ran.out
    assert of_catalog("fsck", "--json").json["datasets"][0]["missing"] == [lost]


def test_recover_gives_up_what_died(of_catalog: Any) -> None:
    assert "nothing to recover" in of_catalog("recover", "orders").out
    assert of_catalog("recover", "orders", "--json").json["actions"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compact", "nothing"), "There is no dataset 'nothing' in the catalog. Datasets: orders"),
        (("vacuum", "nothing"), "There is no dataset 'nothing'"),
        (("restore", "orders", "77"), "Version 77 of 'orders' does not exist; see `history`"),
        (("restore", "orders", "x"), "a version is a number, got 'x'"),
        (("recover", "orders", "--dry-run"), "--dry-run has no meaning for `recover`"),
        (("history", "orders", "--backup-path", "b"), "--backup-path has no meaning"),
        (("delete", "orders", "--where", "id=1", "--engine", "spark"), "--engine has no meaning"),
        (("delete", "orders", "--where", "id=1", "--partition", "day=a"), "--partition has no"),
        (("delete", "orders", "--where", "prise=1"), "Unknown column 'prise'"),
        (("vacuum", "--retention-days", "-1"), "--retention-days must be a number of days >= 0"),
        (("vacuum", "--retention-days", "nan"), "--retention-days must be a number of days >= 0"),
        (("expire", "--older-than-days", "1e99"), "--older-than-days must be a number of days"),
        (("expire", "--older-than-days", "1", "--retain-last", "0"), "retain_last must be a whole"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_2_and_changes_nothing(
    of_catalog: Any, house: Lakehouse, words: tuple[str, ...], message: str
) -> None:
    ran = of_catalog(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.error
    assert house.dataset("orders").version == 4


def test_a_catalog_in_duckdb(shell: Shell, tmp_path: Path) -> None:
    uri = f"duckdb:///{tmp_path}/catalog.db"
    with Lakehouse(uri) as house:
        raw = house.create_dataset("raw", {"id": "int64"})
        for n in range(3):
            raw.append({"id": [n]})
    catalog = ("--catalog", uri)
    assert shell("compact", "raw", *catalog, "--json").json["after_file_count"] == 1
    assert shell("history", "raw", *catalog, "--json").json["versions"][0]["version"] == 4
    assert "raw: nothing wrong" in shell("fsck", *catalog).out


def test_a_catalog_that_is_not_there_is_not_made(shell: Shell, tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb"):
        ran = shell("fsck", "--catalog", f"{kind}:///{tmp_path}/typo/{kind}.db")
        assert ran.code == 2
        assert f"/typo/{kind}.db' does not exist" in ran.error
    (tmp_path / "other.db").touch()
    ran = shell("fsck", "--catalog", f"sqlite:///{tmp_path}/other.db")
    assert (ran.code, "There is no catalog in" in ran.error) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]


def test_a_directory_and_a_catalog_are_not_taken_for_each_other(
    shell: Shell, house: Lakehouse, monkeypatch: pytest.MonkeyPatch, uri: str, local: Lake
) -> None:
    ran = shell("compact", house.dataset("orders").path)
    assert ran.code == 2
    assert "--catalog" in ran.error
    assert "needs --backup-path" in shell("history", "orders").error
    monkeypatch.setenv("MAINTENANCE_CATALOG", uri)
    assert "orders: nothing wrong" in shell("fsck").out
    one_row_files(local, 3)
    assert shell("compact", local.url, "--json").json["after_file_count"] == 1


def test_commands_that_need_a_catalog_say_so(shell: Shell) -> None:
    for command in ("vacuum", "fsck", "datasets list"):
        assert "are required: --catalog" in shell(*command.split()).error


PASSWORD = "p4ss/w0rd@x"
QUOTED = "p4ss%2Fw0rd%40x"


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://bob:{QUOTED}@127.0.0.1:1/lake",
        f"postgresql://bob:{PASSWORD}@127.0.0.1:1/lake",
        f"postgresql://127.0.0.1:1/lake?user=bob&password={QUOTED}",
        f"postgresql//bob:{QUOTED}@127.0.0.1:1/lake",
        f"mysql://bob:{QUOTED}@127.0.0.1:1/lake?password={QUOTED}",
        f"postgresql://bob:{QUOTED}@127.0.0.1:1/lake?nonsense={QUOTED}",
    ],
)
@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["", "debug"])
def test_the_password_of_a_catalog_is_in_no_message(
    shell: Shell, uri: str, debug: tuple[str, ...]
) -> None:
    pytest.importorskip("psycopg")
    ran = shell("vacuum", "--catalog", uri, *debug)
    assert ran.code in (1, 2)
    assert "w0rd" not in ran.out + ran.err


@pytest.mark.parametrize(
    "uri", [f"mysql://u:{QUOTED}@h/d?password={QUOTED}", f"no url {PASSWORD}", f"x//u:{QUOTED}@h"]
)
def test_the_library_does_not_repeat_a_password_either(uri: str) -> None:
    with pytest.raises(ValueError, match="catalog_uri must be") as caught:
        Lakehouse(uri)
    assert "w0rd" not in str(caught.value)


def test_a_url_gives_its_passwords_away_to_be_hidden() -> None:
    secrets = Secrets()
    secrets.learn_url(f"postgresql://bob:{QUOTED}@host/lake?sslpassword=another%2Bone")
    assert secrets.hide(f"{QUOTED} {PASSWORD} another+one bob") == "*** *** *** bob"


def test_a_catalog_on_a_server_with_a_password_from_the_environment(
    postgres: str, tmp_path: Path
) -> None:
    uri = new_database(postgres)
    with Lakehouse(uri, tmp_path / "lake") as house:
        house.create_dataset("orders", data={"id": [1, 2]})
    url = sqlalchemy.make_url(uri).set(password="${LAKE_WORD}")
    given = url.render_as_string(hide_password=False).replace("%24%7B", "${").replace("%7D", "}")
    ran = run_process(
        *("datasets", "list", "--json", "--catalog", given),
        environment={"LAKE_WORD": "wordofthelake"},
    )
    assert ran.code == 0, ran.err
    assert ran.json["datasets"][0]["rows"] == 2
    assert "LAKE_WORD is not set" in run_process("fsck", "--catalog", given).error
