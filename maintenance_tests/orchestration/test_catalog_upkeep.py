"""Versions of a catalog are cleared away: vacuum, expire, fsck, and the weekly schedule."""

import shutil
from pathlib import Path

from sqlalchemy import update

from maintenance_assets.api.lakehouse import LakeDataset
from maintenance_assets.catalog import tables as t
from maintenance_tests.orchestration.catalog_location import (
    ALL_IDS,
    catalog_location,
    ids,
    parquet_files,
    run,
)
from maintenance_tests.orchestration.location import NAME, failure


def test_a_file_that_is_gone_fails_fsck_by_its_name(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        assert place.run("fsck").success
        gone = next(Path(trades.path).rglob("date=2025-11-05/*.parquet"))
        gone.unlink()
        shutil.copy(next(Path(trades.path).rglob("*.parquet")), Path(trades.path) / "new.parquet")
        result = place.run("fsck")
        assert not result.success
        problem = f"'date=2025-11-05/{gone.name}' is missing"
        assert failure(result) == f"2 problem(s), the first: {problem}"
        bad, good = place.observations()
    assert (good["missing_files"], good["stray_files"], good["problems"]) == (0, 0, "none")
    assert (bad["missing_files"], bad["stray_files"]) == (1, 1)
    assert problem in bad["problems"]


def of_the_last_days(trades: LakeDataset, days: float) -> None:
    """Let everything have happened this much earlier."""
    micros = int(days * 86400 * 1e6)
    back = [(t.commit, "committed_at"), (t.tombstone, "removed_at")]
    trades._session.database.write(
        lambda c: [c.execute(update(x).values({f: x.c[f] - micros})) for x, f in back]
    )


def test_vacuum_deletes_only_when_it_is_told_to(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        assert place.compact().success
        of_the_last_days(trades, 8)
        assert run(place, "vacuum").success
        assert place.observations()[0]["vacuumed_files"] == 0  # every version is still readable
        assert run(place, "expire", older_than_days=1).success
        expired = place.observations()[0]
        assert run(place, "vacuum").success
        shown = place.observations()[0]
        assert len(parquet_files(trades)) == 14
        assert run(place, "vacuum", dry_run=False).success
        done = place.observations()[0]
    assert (expired["expired_versions"], expired["version"]) == (3, 3)
    assert "| 2 (expired) |" in expired["history"]
    assert (shown["dry_run"], shown["vacuumed_files"]) == (True, 12)
    assert (done["dry_run"], done["vacuumed_files"]) == (False, 12)
    assert done["vacuumed_bytes"] == shown["vacuumed_bytes"] > 0
    assert len(parquet_files(trades)) == 2
    assert ids(trades) == ALL_IDS


def test_less_than_a_week_needs_force(uri: str, trades: LakeDataset) -> None:
    with catalog_location(uri) as place:
        assert place.compact().success
        assert run(place, "expire", older_than_days=0, retain_last=1).success
        result = run(place, "vacuum", dry_run=False, retention_days=0)
        assert "If there are none, say so: force=True" in failure(result)
        assert len(parquet_files(trades)) == 14
        forced = run(place, "vacuum", dry_run=False, retention_days=0, force=True)
        assert forced.success
    assert len(parquet_files(trades)) == 2


def test_expire_keeps_what_is_declared_and_what_is_tagged(uri: str, trades: LakeDataset) -> None:
    for number in range(3):
        trades.append({"id": [200 + number], "date": ["2025-11-04"]})
    trades.tag("audited", 1)
    catalog = {"uri": uri, "expire_after_days": 3, "retain_last": 2}
    with catalog_location(catalog) as place:
        assert run(place, "expire").success
        assert place.observations()[0]["expired_versions"] == 0
        of_the_last_days(trades, 4)
        assert run(place, "expire", dry_run=True).success
        assert run(place, "expire").success
        done, dry = place.observations()[:2]
        assert not run(place, "expire", retain_last=0).success
    assert (dry["dry_run"], dry["expired_versions"]) == (True, 3)
    assert (done["dry_run"], done["expired_versions"]) == (False, 3)
    assert {c.version for c in trades.history() if not c.expired} == {5, 4, 1}


def test_the_weekly_schedule_ships_stopped_and_clears_away(uri: str, trades: LakeDataset) -> None:
    with catalog_location({"uri": uri, "expire_after_days": 7}) as place:
        schedule = place.repository.get_schedule_def(f"{NAME}__scheduled_cleanup")
        assert (schedule.cron_schedule, schedule.job_name) == ("0 4 * * 0", f"{NAME}__cleanup")
        assert schedule.default_status.value == "STOPPED"
        assert place.compact().success
        of_the_last_days(trades, 20)
        assert place.run("cleanup").success
        found = place.observations()[0]
        assert place.run("fsck").success
    assert (found["expired_versions"], found["vacuumed_files"]) == (3, 12)
    assert len(parquet_files(trades)) == 2
    assert ids(trades) == ALL_IDS
