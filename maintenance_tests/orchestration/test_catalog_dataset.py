"""Maintaining a dataset of a catalog: the same asset, jobs, sensor and checks, as versions."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster
import pyarrow.parquet as pq
import pytest

from maintenance_assets import Lakehouse
from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_tests.datasets import Lake, one_row_files
from maintenance_tests.orchestration.catalog_location import (
    ALL_IDS,
    catalog_location,
    ids,
    parquet_files,
    run,
    two_days,
)
from maintenance_tests.orchestration.location import DAYS, NAME, Location, check, failure, location


def partitions(found: Any) -> list[str]:
    return [request.tags["maintenance/partition"] for request in found.run_requests]


def test_every_dataset_of_a_catalog_has_its_jobs_in_its_pool(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri, zorder_columns=["id"]) as place:
        jobs = [n for n in place.repository.job_names if n.startswith(f"{NAME}__")]
        nodes = [node for name in jobs for node in place.repository.get_job(name).nodes]
    assert {name.removeprefix(f"{NAME}__") for name in jobs} == {
        *("compact", "optimize", "recover", "delete", "update", "upsert", "repartition"),
        *("restore", "vacuum", "expire", "cleanup", "fsck"),
    }
    pools = {node.definition.pool for node in nodes}  # type: ignore[attr-defined]
    assert pools == {"dataset:lake/trades"}


def test_materializing_a_partition_makes_a_version_and_shows_it(
    uri: str, trades: LakeDataset
) -> None:
    with catalog_location(uri) as place:
        place.know(*DAYS)
        result = place.materialize(partition_key=DAYS[0])
        assert result.success
        (found,) = place.materializations().values()
    assert (found["before_file_count"], found["after_file_count"]) == (6, 1)
    assert (found["rows"], found["dagster/partition_row_count"]) == (6, 6)
    assert (found["health_before"], found["health_after"]) == (pytest.approx(16.7), 100.0)
    newest = trades.history()[0]
    assert (found["version"], found["commit_id"]) == (3, newest.txn_id)
    lines = found["history"].splitlines()
    assert lines[2].startswith("| 3 | ")
    assert lines[2].endswith(f"| compact | 12 | 7 | dagster | run {result.run_id} |")
    assert [line.split(" | ")[2] for line in lines[3:]] == ["append", "append", "create"]
    assert ids(trades) == ids(trades, 2) == ALL_IDS
    assert len(parquet_files(trades)) == 13


def test_a_long_history_is_shown_in_part(uri: str, trades: LakeDataset) -> None:
    for number in range(10):
        trades.append({"id": [number], "date": ["2025-11-04"]}, message=f"a|b\n{number}" * 50)
    with catalog_location(uri) as place:
        assert place.compact().success
        lines = last(place)["history"].splitlines()
    assert (len(lines), lines[-1]) == (13, "| ... and 4 before | | | | | | |")
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| 13", "| 12"]
    assert all(len(line) < 250 and line.replace("\\|", "").count("|") == 8 for line in lines)


def test_a_dry_run_is_an_observation_and_no_version(uri: str, trades: LakeDataset) -> None:
    before = parquet_files(trades)
    with catalog_location(uri) as place:
        assert place.compact(dry_run=True).success
        assert place.materializations() == {}
        (found,) = place.observations()
        assert place.known() == list(DAYS)
    assert (found["before_file_count"], found["after_file_count"]) == (12, 2)
    assert (found["version"], found["dry_run"], found["mode"]) == (2, True, "encode")
    assert (trades.version, parquet_files(trades)) == (2, before)


def test_an_empty_dataset_is_nothing_to_do(uri: str, house: Lakehouse) -> None:
    house.create_dataset(NAME, {"id": "int64"})
    with catalog_location(uri) as place:
        assert place.materialize().success
        (found,) = place.materializations().values()
        assert check(place, "schema_drift").passed
        assert check(place, "small_files").passed
    assert (found["version"], found["health_after"]) == (0, 100.0)


def test_the_sensor_counts_only_files_of_the_newest_version(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        first = place.tick()
        assert partitions(first) == list(DAYS)
        assert place.known() == list(DAYS)
        reason = first.run_requests[0].tags["maintenance/reason"]
        assert reason == "6 small files of 6, 5 could be saved"
        assert all(place.pay(request).success for request in first.run_requests)
        # All twelve files of before are still there, for the versions that need them.
        assert len(parquet_files(trades)) == 14
        second = place.tick(first.cursor)
        assert not second.run_requests
        assert second.skip_message == "2 partition(s) looked at: 2 x fewer than min_gain 4"
        assert not place.evaluate_schedule().run_requests
        after, before = place.observations()
    assert (before["file_count"], before["small_file_count"], before["gain"]) == (12, 12, 10)
    assert (after["file_count"], after["gain"], after["partition_count"]) == (2, 0, 2)


def test_a_dataset_without_partitions_is_one(uri: str, house: Lakehouse) -> None:
    rows = {"id": list(range(6))}
    trades = house.create_dataset(NAME, {"id": "int64"})
    trades.append(rows, target_rows_per_file=1)
    with catalog_location(uri) as place:
        (request,) = place.tick().run_requests
        assert place.pay(request).success
        found = last(place)
    assert (found["after_file_count"], found["dagster/row_count"]) == (1, 6)
    assert ids(trades) == ids(trades, 1) == rows["id"]


def test_a_partition_without_live_files_is_not_shown(uri: str, trades: LakeDataset) -> None:
    trades.delete("id >= 100")
    with catalog_location(uri) as place:
        assert partitions(place.tick()) == [DAYS[0]]
        assert not place.compact([DAYS[1]]).success
    assert len(parquet_files(trades)) == 12


def test_a_cooldown_is_that_of_the_commit(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri, cooldown_minutes=60) as place:
        found = place.tick()
    assert found.skip_message == "2 partition(s) looked at: 2 x written lately (cooldown 3600 s)"


def test_a_large_dataset_is_seen_in_several_ticks(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri, max_runs_per_tick=1) as place:
        first = place.tick()
        assert partitions(first) == [DAYS[0]]
        assert place.pay(first.run_requests[0]).success
        assert partitions(place.tick(first.cursor)) == [DAYS[1]]


def test_a_rewrite_of_another_process_is_waited_for(
    uri: str, house: Lakehouse, trades: LakeDataset
) -> None:
    session = trades._session
    with catalog_location(uri) as place:
        with session.transaction(session.reader.dataset(NAME), "optimize") as other:
            found = place.tick("as it was")
            assert not found.run_requests
            assert f"optimize transaction {other.ticket.txn_id}" in found.skip_message
            other.give_up()
        with session.transaction(session.reader.dataset(NAME), "append") as writer:
            assert len(place.tick().run_requests) == 2
            writer.give_up()


def test_what_a_dead_process_left_is_a_warning_and_recovered(uri: str, trades: LakeDataset) -> None:
    with Lakehouse(uri, lease=timedelta(microseconds=1)) as dying:
        session = dying.dataset(NAME)._session
        ticket = session.writer.begin(
            session.reader.dataset(NAME).dataset_id, "append", "of-the-dead", "nobody"
        )
        session.writer.add_intents(ticket, ["date=2025-11-04/part-1.parquet"])
    with catalog_location(uri) as place:
        found = check(place, "leftovers")
        assert not found.passed
        assert "append transaction of-the-dead of nobody" in found.metadata["runs"].value
        assert place.run("recover").success
        assert place.observations()[0]["recovered_runs"] == 1
        assert check(place, "leftovers").passed


def test_optimize_clusters_as_a_version(uri: str, house: Lakehouse) -> None:
    trades = two_days(house)
    with catalog_location(uri, zorder_columns=["id"]) as place:
        assert run(place, "optimize", partitions=[DAYS[1]]).success
        (found,) = place.materializations().values()
    assert (found["curve"], found["version"]) == ("hilbert", 3)
    assert trades.history()[0].operation == "optimize"
    assert ids(trades) == ALL_IDS


def test_checks_look_at_the_newest_version(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        needy = check(place, "small_files")
        assert (needy.passed, needy.metadata["gain"].value) == (False, 10)
        assert place.compact().success
        assert check(place, "small_files").passed
        assert check(place, "schema_drift").passed
        rows = check(place, "rows_preserved")
        assert (rows.passed, rows.description) == (True, "12 rows before, 12 after")


def test_renamed_columns_are_planned_whole(uri: str, trades: LakeDataset) -> None:
    """A rename keeps files apart: the plan has those of both names."""
    trades.rename_column("id", "trade_id")
    new = {"trade_id": list(range(200, 206)), "date": ["2025-11-06"] * 6}
    trades.append(new, target_rows_per_file=1)
    with catalog_location(uri) as place:
        assert partitions(place.tick()) == [*DAYS, "date=2025-11-06"]
        assert check(place, "small_files").metadata["gain"].value == 15
        assert place.compact().success
        (found,) = place.materializations().values()
    assert (found["before_file_count"], found["after_file_count"]) == (18, 3)
    assert (found["mode"], found["publish"]) == ("encode", "exchange")
    assert trades.read(["trade_id"]).num_rows == 18


def test_an_adopted_directory_is_maintained(
    uri: str, house: Lakehouse, trades: LakeDataset
) -> None:
    path = trades.path
    house.unregister(NAME)
    assert not (Path(path) / "_lakehouse").exists()
    adopted = house.register(NAME, path)
    with catalog_location(uri, path=path) as place:
        assert partitions(place.tick()) == list(DAYS)
        assert place.compact([DAYS[0]]).success
    assert adopted.version == 2
    assert ids(adopted) == ids(adopted, 1) == ALL_IDS


def test_a_directory_that_a_catalog_adopted_is_no_plain_one_any_more(
    local: Lake, house: Lakehouse
) -> None:
    one_row_files(local, 6)
    with location(local) as place:
        house.register("raw", local.url)
        found = place.tick()
        assert not found.run_requests
        assert "a dataset of a lakehouse catalog" in found.skip_message
        assert "a dataset of a lakehouse catalog" in failure(place.compact())
    assert house.dataset("raw").read().num_rows == 6
    assert house.fsck().problems == ()


@pytest.mark.parametrize("engine", ["duckdb", "auto"])
def test_a_catalog_in_duckdb_is_maintained(tmp_path: Path, engine: str) -> None:
    uri = f"duckdb:///{tmp_path}/catalog.db"
    with Lakehouse(uri) as house:
        trades = two_days(house)
        with catalog_location(uri, engine=engine) as place:
            assert all(place.pay(request).success for request in place.tick().run_requests)
            assert place.run("cleanup").success
            assert place.run("fsck").success
        assert (trades.version, len(trades.files()), ids(trades)) == (4, 2, ALL_IDS)


def test_another_directory_than_that_of_the_catalog_is_refused(
    uri: str, trades: LakeDataset, tmp_path: Path
) -> None:
    with catalog_location(uri, path=str(tmp_path / "elsewhere")) as place:
        result = place.compact()
        assert not result.success
        assert "is not where the catalog has dataset 'lake__trades'" in failure(result)
    assert trades.version == 2


def test_a_dataset_that_the_catalog_does_not_have_is_named(uri: str, trades: LakeDataset) -> None:
    with catalog_location({"uri": uri, "dataset": "quotes"}) as place:
        result = place.materialize()
        assert not result.success
        message = "There is no dataset 'quotes' in the catalog. Datasets: lake__trades"
        assert failure(result) == message


def last(place: Location) -> dict[str, Any]:
    return place.materializations()[None]


def test_rows_are_changed_as_versions(uri: str, trades: LakeDataset, tmp_path: Path) -> None:
    pq.write_table(trades.read(where="id = 105").slice(0, 1), tmp_path / "new.parquet")
    with catalog_location(uri) as place:
        assert run(place, "delete", where="id < 4 OR id = 105").success
        deleted, rows = last(place), check(place, "rows_preserved")
        assert (deleted["rows"], deleted["rows_after"], deleted["rows_deleted"]) == (12, 7, 5)
        assert (rows.passed, rows.description) == (True, "12 rows before, 7 after (7 expected)")
        expressions = {"id": "id + 1000"}
        assert run(place, "update", where="id >= 100", expressions=expressions).success
        assert (last(place)["rows_updated"], last(place)["version"]) == (5, 4)
        source = str(tmp_path / "new.parquet")
        assert run(place, "upsert", source=source, key_cols=["id"]).success
        assert (last(place)["rows_inserted"], last(place)["dagster/row_count"]) == (1, 8)
        assert check(place, "rows_preserved").passed
    assert ids(trades) == [4, 5, 105, 1100, 1101, 1102, 1103, 1104]
    assert ids(trades, 2) == ALL_IDS
    assert [c.operation for c in trades.history()[:3]] == ["upsert", "update", "delete"]


def test_a_version_is_restored(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        assert run(place, "delete", where="id < 100").success
        assert run(place, "restore", version=2).success
        assert (last(place)["restored_version"], last(place)["dagster/row_count"]) == (2, 12)
        assert check(place, "rows_preserved").description == "12 rows before, 6 after (6 expected)"
        result = run(place, "restore", version=99)
        assert failure(result) == "There is no version 99"
    assert (ids(trades), trades.version) == (ALL_IDS, 4)


def test_repartition_makes_the_new_partitions_known(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        assert run(place, "repartition", partition_by=["id"]).success
        assert {"id=0", "id=105"} <= set(place.known())
    assert (trades.partition_by, ids(trades)) == (("id",), ALL_IDS)


def test_a_dry_change_is_an_observation(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        assert run(place, "delete", where="id < 4", dry_run=True).success
        assert place.materializations() == {}
        (found,) = place.observations()
    assert (found["rows_deleted"], found["dry_run"], trades.version) == (4, True, 2)


@pytest.mark.parametrize(
    ("operation", "config", "message"),
    [
        ("delete", {"where": "nonsense = 1"}, "nonsense"),
        ("update", {"where": "id = 1", "values": {"id": 2}, "expressions": {"id": "3"}}, "both"),
        ("upsert", {"source": "/nowhere/at/all", "key_cols": ["id"]}, "source: "),
        ("repartition", {"partition_by": ["nonsense"]}, "nonsense"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    uri: str, trades: LakeDataset, operation: str, config: Any, message: str
) -> None:
    with catalog_location(uri) as place:
        result = run(place, operation, **config)
        assert message in failure(result).splitlines()[0]
    assert trades.version == 2


def test_a_run_that_is_tried_again_changes_rows_once(
    uri: str, trades: LakeDataset, tmp_path: Path
) -> None:
    """Its process died after the commit: Dagster tries it again, and knows of none."""
    job = dagster.build_reconstructable_job(catalog_location.__module__, "update_job", (uri,))
    config = {"where": "id < 6", "expressions": {"id": "id * 10 + 1000"}}
    options: Any = {"run_config": {"ops": {f"update_{NAME}": {"config": config}}}}
    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        first = dagster.execute_job(job, instance, **options)
        for number in ("1", "2"):
            parent = dagster.ReexecutionOptions(parent_run_id=first.run_id)
            again = {"dagster/retry_number": number}
            with dagster.execute_job(
                job, instance, tags=again, reexecution_options=parent, **options
            ) as result:
                assert result.success
        assert trades.version == 3
        # A person who runs it again means it.
        assert dagster.execute_job(job, instance, **options, reexecution_options=parent).success
    assert ids(trades) == [*range(100, 106), *range(1000, 1060, 10)]
