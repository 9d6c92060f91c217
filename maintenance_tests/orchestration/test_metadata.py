"""Metadata stays small, whatever the plan."""

from dataclasses import replace

import dagster
import pyarrow as pa

from maintenance_assets.model.files import DataFile, FileSchema
from maintenance_assets.model.health import DatasetHealth
from maintenance_assets.model.plans import CompactionPlan, GroupFailure, RewriteGroup, WriterOptions
from maintenance_assets.model.policy import CompactionPolicy
from maintenance_assets.model.stats import MaintenanceStats
from maintenance_assets.operations.results import CompactionResult
from maintenance_assets.orchestration.metadata import health_metadata, result_metadata
from maintenance_tests.orchestration.location import plain

FILES, GROUPS = 200_000, 5000
HEALTH = DatasetHealth(GROUPS, FILES, FILES * 1000, FILES, FILES - GROUPS)
WIDE = pa.schema(
    [(f"column_{number}", pa.struct([("x" * 300, pa.int8())])) for number in range(3000)]
)
WRITER = WriterOptions("zstd", (), (), True, False, False, False, False)


def group(number: int) -> RewriteGroup:
    schema = FileSchema(WIDE, "wide", (), (), True)
    size = FILES // GROUPS
    directory = f"/lake/trades/date={number:05}"
    files = tuple(
        DataFile(f"{directory}/{n}.parquet", 1000 + number, 10, "v", schema, 900, 900, 1, ("zstd",))
        for n in range(size)
    )
    return RewriteGroup(directory, files, (10 * size,), WIDE, WRITER, (f"note {number} " * 50,))


def result(dry_run: bool) -> CompactionResult:
    groups = tuple(group(number) for number in range(GROUPS))
    paths = [one.file_paths() for one in groups] if dry_run else None
    figures = (FILES, GROUPS, FILES * 1000, FILES * 900, FILES, FILES * 1000, "zstd", dry_run)
    stats = MaintenanceStats(*figures, planned_groups=paths)
    failures = tuple(GroupFailure(("a",), f"{n} {'conflict ' * 500}") for n in range(3000))
    plan = CompactionPlan("/lake/trades", CompactionPolicy(), groups, (), failures, stats)
    notes = tuple(note for one in groups for note in one.notes)
    return CompactionResult(
        stats, plan, "spark", 10 * FILES, 1.0, schema=WIDE, failures=failures, notes=notes
    )


def test_two_hundred_thousand_files_keep_metadata_bounded() -> None:
    for dry_run in (False, True):
        metadata = result_metadata(result(dry_run), HEALTH)
        event = dagster.AssetMaterialization("a", metadata=metadata)
        assert sum(len(str(value)) for value in plain(event.metadata).values()) < 500_000
        assert all(
            len(str(value)) < 30_000
            for key, value in plain(event.metadata).items()
            if key != "dagster/column_schema"
        )
        table = plain(event.metadata)["planned_groups"].splitlines()
        assert len(table) == 2 + 20 + 1
        # The largest first.
        assert table[2].startswith(f"| date={GROUPS - 1:05} | 40 |")
        assert table[-1] == f"| ... and {GROUPS - 20} more groups | | | |"


def test_health_is_numbers_and_a_table() -> None:
    worst = [("date=1", 40, 39), ("", 5, 4)]
    seen = plain(dagster.AssetObservation("a", metadata=health_metadata(HEALTH, worst)).metadata)
    table = seen.pop("worst_partitions").splitlines()
    assert seen == {
        "health": 2.5,
        "file_count": FILES,
        "small_file_count": FILES,
        "total_bytes": FILES * 1000,
        "partition_count": GROUPS,
        "gain": FILES - GROUPS,
    }
    assert table[2:] == ["| date=1 | 40 | 39 |", "| (root) | 5 | 4 |"]


def test_conflicts_and_recoveries_are_told() -> None:
    conflict = GroupFailure(
        ("/lake/trades/a.parquet",), "'a.parquet' was changed by another writer"
    )
    found = replace(result(False), conflicts=(conflict,), recovered=("undid run 7",))
    metadata = plain(
        dagster.AssetMaterialization("a", metadata=result_metadata(found, HEALTH)).metadata
    )
    assert metadata["conflicts"] == "- 'a.parquet' was changed by another writer"
    assert metadata["recovered"] == "- undid run 7"
