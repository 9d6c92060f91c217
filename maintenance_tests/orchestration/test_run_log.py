"""Progress in the log of a run."""

import logging
import re
from types import SimpleNamespace
from typing import Any

import dagster
import pytest

from maintenance_assets.model.health import DatasetHealth
from maintenance_assets.model.progress import Progress
from maintenance_assets.orchestration.maintenance import RunLog
from maintenance_assets.orchestration.metadata import health_words
from maintenance_assets.orchestration.throughput import measured_throughput
from maintenance_tests.datasets import Lake
from maintenance_tests.orchestration.location import location, plain, two_days


def test_a_line_at_every_tenth_with_groups_and_bytes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "run")
    log = RunLog(SimpleNamespace(log=logging.getLogger("run")))
    log(Progress("discover", 300, 300))
    for done in range(1, 101):
        log(Progress("execute", done, 100, done * 1024**2, 100 * 1024**2))
    lines = caplog.messages
    assert lines[0] == "discover: 300 of 300 files"
    assert lines[1].startswith("execute: 1 of 100 groups, 1.0 MiB of 100 MiB, about ")
    assert lines[-1] == "execute: 100 of 100 groups, 100 MiB of 100 MiB"
    assert len(lines) == 1 + 11


def test_a_run_logs_how_far_it_is(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        run = place.compact()
        lines = [event.user_message for event in place.instance.all_logs(run.run_id)]
    # 12 files of two partitions, each of them one group.
    assert "discover: 12 of 12 files" in lines
    steps = [line for line in lines if line.startswith("execute: ")]
    assert [step.split(",")[0] for step in steps] == [
        "execute: 1 of 2 groups",
        "execute: 2 of 2 groups",
    ]
    assert re.fullmatch(
        r"execute: 1 of 2 groups, [\d.]+ KiB of [\d.]+ KiB, about \d+ s left", steps[0]
    )
    assert "publish: 2 of 2 groups" in lines


def test_the_cost_is_learnt_from_the_runs_before() -> None:
    key = dagster.AssetKey("a")
    figures = [
        ("duckdb", 10**9, 4.3),
        ("spark", 10**12, 9.0),
        ("duckdb", 10**9, 2.3),
        ("duckdb", 0, 1.0),
    ]
    with dagster.DagsterInstance.ephemeral() as instance:
        before = measured_throughput(instance, key, "duckdb")
        for engine, size, seconds in figures:
            metadata: dict[str, Any] = {
                "engine": engine,
                "rewritten_bytes": size,
                "seconds": seconds,
            }
            instance.report_runless_asset_event(
                dagster.AssetMaterialization(key, metadata=metadata)
            )
        after = measured_throughput(instance, key, "duckdb")
    # 0.3 s to begin; then a quarter and half of a billion bytes per second.
    first = 0.7 * before.bytes_per_second + 0.3 * 0.25e9
    assert after.bytes_per_second == pytest.approx(0.7 * first + 0.3 * 0.5e9)


def test_a_dry_run_tells_what_the_work_would_cost(local: Lake) -> None:
    two_days(local)
    with location(local) as place:
        place.compact(dry_run=True)
        (seen,) = place.observations()
    assert seen["cost"].startswith("about 1 s for ")


def test_health_is_explained_in_the_words_of_the_sensor() -> None:
    health = DatasetHealth(partitions=2, file_count=12, total_bytes=100, small_files=12, gain=10)
    words = "- small files: -83.3 (12 small files of 12, 10 could be saved)"
    assert plain(health_words(health)) == {"health_explained": words}
    assert plain(health_words(DatasetHealth(1, 1))) == {"health_explained": "nothing to better"}
