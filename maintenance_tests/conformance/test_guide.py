"""Every example of the guide runs as it is written there, with a local path.

Names of polars that are gone have their successors: `pl.len` for `pl.count`, `group_by` for
`groupby`.
"""

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from maintenance_assets import ParquetCompactor, ParquetCRUD, Repartitioner

PRODUCTS = ("BTC-USD", "ETH-USD")
DATES = ("2025-11-25", "2025-11-26")


def quotes(product: str, date: str) -> pl.DataFrame:
    """A day of one product: two of its six rows are as the guide wants to correct them."""
    start = dt.datetime.fromisoformat(date)
    moments = [start + dt.timedelta(hours=4 * number, minutes=number) for number in range(6)]
    return pl.DataFrame(
        {
            "product_id": [product] * 6,
            "date": [date] * 6,
            "timestamp": moments,
            "year": [moment.year for moment in moments],
            "month": [moment.month for moment in moments],
            "day": [moment.day for moment in moments],
            "hour": [moment.hour for moment in moments],
            "trade_id": [f"{date}-{number}" for number in range(6)],
            "sequence_num": list(range(6)),
            "side": ["offer", "bid", "offer", "bid", "offer", None],
            "best_bid": [100.0, 100.0, 100.0, 100.0, 100.0, 100.0],
            "best_ask": [101.0, 102.0, 103.0, 104.0, 105.0, 106.0],
            "mid_price": [100.5, 101.0, 101.5, 102.0, 102.5, 103.0],
            "spread": [1.0, None, 3.0, 4.0, None, 6.0],
            "spread_bps": [99.5, None, 295.6, 392.2, None, 582.5],
            "price": [100.0] * 6,
            "size": [1.0] * 6,
            "volume": [10.0] * 6,
        }
    )


@pytest.fixture
def dataset_dir(tmp_path: Path) -> Path:
    """Two products on two days; the partition columns are in path and files."""
    root = tmp_path / "processed" / "level2"
    for product in PRODUCTS:
        for date in DATES:
            folder = root / f"product_id={product}" / f"date={date}"
            folder.mkdir(parents=True)
            for part, frame in enumerate(quotes(product, date).iter_slices(1)):
                frame.write_parquet(folder / f"segment-{part}.parquet")
    return root


@pytest.fixture
def backup_dir(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "level2"


def rows(root: Path) -> pl.DataFrame:
    """All rows, whatever columns each file has; paths add nothing."""
    frames = [pl.read_parquet(path, hive_partitioning=False) for path in root.rglob("*.parquet")]
    return pl.concat(frames, how="diagonal")


# -- repartitioning ----------------------------------------------------------------------------


def test_repartitioning_basic_usage(dataset_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = dataset_dir.with_name("level2_new")
    repartitioner = Repartitioner(
        source_dir=str(dataset_dir),
        target_dir=str(target),
        new_partition_cols=["product_id", "year", "month", "day", "hour"],
    )

    # Estimate before executing
    estimates = repartitioner.estimate_size()
    print(f"Will create {estimates['num_partitions']} partitions")

    # Execute
    stats = repartitioner.repartition(
        delete_source=False,  # Keep original (delete manually after verifying)
        validate=True,  # Verify row counts match
        dry_run=False,  # Set True to preview only
    )

    assert capsys.readouterr().out == "Will create 24 partitions\n"
    assert (stats["rows_read"], stats["rows_written"], stats["errors"]) == (24, 24, 0)
    assert (target / "product_id=BTC-USD/year=2025/month=11/day=26/hour=4").is_dir()
    assert rows(target).height == rows(dataset_dir).height == 24


def test_repartitioning_with_data_transformation(dataset_dir: Path) -> None:
    repartitioner = Repartitioner(
        str(dataset_dir), str(dataset_dir) + "_new", new_partition_cols=["product_id", "minute"]
    )

    def add_minute_field(df: pl.DataFrame) -> pl.DataFrame:
        """Add minute field during repartition."""
        return df.with_columns(pl.col("timestamp").dt.minute().alias("minute"))

    stats = repartitioner.repartition(
        transform_fn=add_minute_field,
        delete_source=False,
        validate=True,
    )
    assert stats["rows_written"] == 24
    found = rows(Path(f"{dataset_dir}_new"))
    assert sorted(found["minute"].unique()) == [0, 1, 2, 3, 4, 5]


def test_repartitioning_production_workflow(
    dataset_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = dataset_dir
    temp = Path(f"{dataset_dir}_temp")
    backup = Path(f"{dataset_dir}_backup")

    # Step 1: Repartition to temp
    repartitioner = Repartitioner(
        str(source), str(temp), new_partition_cols=["product_id", "year", "month", "day"]
    )
    stats = repartitioner.repartition(delete_source=False, validate=True)

    if stats["errors"] > 0:
        print("❌ Repartitioning failed!")
        shutil.rmtree(temp)
        exit(1)

    # Step 2: Backup original
    source.rename(backup)

    # Step 3: Move temp to production
    temp.rename(source)

    # Step 4: Verify queries work
    df = pl.scan_parquet(str(source / "**/*.parquet"))
    count = df.select(pl.len()).collect().item()
    print(f"✓ Query successful: {count:,} rows")

    assert capsys.readouterr().out == "✓ Query successful: 24 rows\n"
    # Step 5: Delete backup (after confirming everything works)
    shutil.rmtree(backup)  # Manual cleanup


# -- compaction --------------------------------------------------------------------------------


def test_compaction_basic_usage(dataset_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compactor = ParquetCompactor(
        dataset_dir=str(dataset_dir),
        target_file_size_mb=100,  # Target 100MB files
    )

    stats = compactor.compact(
        min_file_count=5,  # Only compact partitions with 5+ files
        max_file_size_mb=20,  # Only consolidate files < 20MB
        delete_source_files=True,  # Delete originals after compaction
        dry_run=False,
    )

    print(f"✓ Compacted {stats['files_before']} → {stats['files_after']} files")
    print(f"  Space saved: {(stats['bytes_before'] - stats['bytes_after']) / (1024**2):.1f} MB")
    assert capsys.readouterr().out.startswith("✓ Compacted 24 → 4 files\n  Space saved: 0.")
    assert (stats["partitions_compacted"], stats["errors"], stats["dry_run"]) == (4, 0, False)
    assert rows(dataset_dir).height == 24


# -- CRUD --------------------------------------------------------------------------------------


def test_delete(dataset_dir: Path, backup_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = rows(dataset_dir)
    crud = ParquetCRUD(
        dataset_dir=str(dataset_dir),
        backup_dir=str(backup_dir),  # Optional backup
    )

    # Delete specific rows
    stats = crud.delete(
        filter_expr=((pl.col("product_id") == "BTC-USD") & (pl.col("date") == "2025-11-26")),
        partition_filter={"product_id": "BTC-USD", "date": "2025-11-26"},
        dry_run=False,
        create_backup=True,
    )

    print(f"✓ Deleted {stats['rows_deleted']:,} rows")
    assert capsys.readouterr().out == "✓ Deleted 6 rows\n"
    assert rows(dataset_dir).height == 18
    crud.restore(stats["backup_id"])
    assert (
        rows(dataset_dir)
        .sort("product_id", "trade_id")
        .equals(before.sort("product_id", "trade_id"))
    )


def test_update(dataset_dir: Path, backup_dir: Path) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir), backup_dir=str(backup_dir))

    # Update literal value
    stats = crud.update(
        filter_expr=pl.col("side") == "offer",
        update_expr={"side_normalized": "ask"},
        partition_filter={"product_id": "BTC-USD"},
        dry_run=False,
        create_backup=True,
    )
    assert stats["rows_updated"] == 6

    # Update with expression
    stats = crud.update(
        filter_expr=pl.col("spread").is_null(),
        update_expr={
            "spread": pl.col("best_ask") - pl.col("best_bid"),
            "spread_bps": ((pl.col("best_ask") - pl.col("best_bid")) / pl.col("mid_price")) * 10000,
        },
        partition_filter={"date": "2025-11-26"},
    )
    assert stats["rows_updated"] == 4
    found = rows(dataset_dir).filter(date="2025-11-26", product_id="BTC-USD").sort("trade_id")
    assert found["spread"].to_list() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert found["spread_bps"][1] == 2.0 / 101.0 * 10000
    assert found["side_normalized"].to_list() == ["ask", None, "ask", None, "ask", None]
    others = rows(dataset_dir).filter(pl.col("product_id") == "ETH-USD")
    assert others["side_normalized"].null_count() == 12


def test_upsert(dataset_dir: Path, backup_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir), backup_dir=str(backup_dir))

    # New/corrected data
    new_trades = pl.DataFrame(
        {
            "product_id": ["BTC-USD", "BTC-USD"],
            "trade_id": ["2025-11-26-3", "99999"],  # the first exists, 99999 new
            "price": [50000.0, 50100.0],
            "size": [1.5, 2.0],
            "date": ["2025-11-26", "2025-11-26"],
        }
    )

    stats = crud.upsert(
        new_data=new_trades,
        key_cols=["product_id", "trade_id"],  # Unique identifier
        partition_cols=["product_id", "date"],
        update_cols=["price", "size"],  # Only update these columns
        dry_run=False,
        create_backup=True,
    )

    print(f"✓ Inserted: {stats['rows_inserted']}, Updated: {stats['rows_updated']}")
    assert capsys.readouterr().out == "✓ Inserted: 1, Updated: 1\n"
    found = rows(dataset_dir).filter(pl.col("price") > 40000).sort("price")
    assert found.select("trade_id", "size", "volume").rows() == [
        ("2025-11-26-3", 1.5, 10.0),
        ("99999", 2.0, None),
    ]


# -- best practices ----------------------------------------------------------------------------


def test_use_dry_run_first(dataset_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crud = ParquetCRUD(dataset_dir=dataset_dir)
    condition = pl.col("size") == 1.0
    # Preview changes without executing
    stats = crud.delete(filter_expr=condition, dry_run=True)
    print(f"Would delete {stats['rows_deleted']} rows")
    assert rows(dataset_dir).height == 24

    # Confirm, then execute
    stats = crud.delete(filter_expr=condition, dry_run=False)
    assert capsys.readouterr().out == "Would delete 24 rows\n"
    assert stats["rows_deleted"] == 24


def test_leverage_partition_filters(dataset_dir: Path) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir))
    products = ["ETH-USD", "SOL-USD"]
    # ❌ Slow - scans ALL partitions
    stats = crud.delete(
        filter_expr=pl.col("product_id") == "BTC-USD",
        dry_run=True,
    )
    assert stats["rows_deleted"] == 12

    # ✓ Fast - only scans BTC-USD partitions
    stats = crud.delete(
        filter_expr=pl.col("product_id") == "BTC-USD",
        partition_filter={"product_id": "BTC-USD"},  # ✓ Partition pruning
    )
    assert stats["rows_deleted"] == 12
    stats = crud.delete(filter_expr=pl.col("product_id").is_in(products))
    assert stats["rows_deleted"] == 12


def test_validate_row_counts(dataset_dir: Path) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir))
    # Before operation
    df_before = pl.scan_parquet(dataset_dir / "**/*.parquet")
    count_before = df_before.select(pl.len()).collect().item()

    # Perform operation
    stats = crud.delete(pl.col("spread") > 3)

    # After operation
    df_after = pl.scan_parquet(dataset_dir / "**/*.parquet")
    count_after = df_after.select(pl.len()).collect().item()

    assert count_after == count_before - stats["rows_deleted"]
    assert stats["rows_deleted"] == 8


def test_monitor_file_counts(dataset_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def count_files(dataset_dir: Path) -> dict[Path, int]:
        """Count parquet files per partition."""
        partitions: dict[Path, int] = {}
        for f in Path(dataset_dir).rglob("*.parquet"):
            partition = f.parent
            partitions[partition] = partitions.get(partition, 0) + 1
        return partitions

    ParquetCRUD(dataset_dir=str(dataset_dir)).delete(pl.col("sequence_num") == 0)
    # Check fragmentation
    file_counts = count_files(dataset_dir)
    fragmented = {k: v for k, v in file_counts.items() if v > 4}
    print(f"Partitions with 5+ files: {len(fragmented)}")
    assert capsys.readouterr().out == "Partitions with 5+ files: 4\n"
    assert set(file_counts.values()) == {5}


# -- common workflows --------------------------------------------------------------------------


def test_workflow_1_fix_data_quality_issues(dataset_dir: Path, backup_dir: Path) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir), backup_dir=str(backup_dir))

    # Step 1: Delete outliers
    crud.delete(
        filter_expr=pl.col("spread_bps") > 500,
        partition_filter={"product_id": "BTC-USD"},
        create_backup=True,
    )

    # Step 2: Fix categorical values
    crud.update(
        filter_expr=pl.col("side") == "offer",
        update_expr={"side_normalized": "ask"},
        partition_filter={"product_id": "BTC-USD"},
    )

    # Step 3: Recalculate derived fields
    crud.update(
        filter_expr=pl.col("spread").is_not_null(),
        update_expr={"spread": pl.col("best_ask") - pl.col("best_bid")},
    )

    found = rows(dataset_dir)
    assert found.height == 22  # rows without spread_bps stay
    assert found["side_normalized"].null_count() == 22 - 6
    assert found["spread"].null_count() == 8


def test_workflow_2_deduplication(
    dataset_dir: Path, backup_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repeated = dataset_dir / "product_id=BTC-USD/date=2025-11-26"
    for part in range(3):
        shutil.copy(repeated / f"segment-{part}.parquet", repeated / f"again-{part}.parquet")
    crud = ParquetCRUD(dataset_dir=str(dataset_dir), backup_dir=str(backup_dir))

    # Read and find duplicates
    df = pl.scan_parquet(dataset_dir / "**/*.parquet")
    grouped = df.group_by(["product_id", "trade_id"]).agg(pl.len().alias("count"))
    duplicates = grouped.filter(pl.col("count") > 1).collect()

    print(f"Found {len(duplicates)} duplicate trade IDs")

    # Deduplicate
    df_deduped = df.unique(subset=["product_id", "trade_id"], keep="first").collect()

    # Upsert deduplicated data (replaces duplicates)
    stats = crud.upsert(
        new_data=df_deduped,
        key_cols=["product_id", "trade_id"],
        partition_cols=["product_id", "date"],
        create_backup=True,
    )

    assert capsys.readouterr().out == "Found 3 duplicate trade IDs\n"
    assert (stats["rows_deleted"], stats["rows_updated"], stats["rows_inserted"]) == (3, 24, 0)
    left = rows(dataset_dir)
    assert left.height == left.select("product_id", "trade_id").n_unique() == 24


def test_workflow_3_incremental_data_loading(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir))
    monkeypatch.chdir(tmp_path)
    later = quotes("BTC-USD", "2025-11-27").with_columns(pl.col("sequence_num") + 4)
    columns = ["product_id", "date", "sequence_num", "price", "volume", "size"]
    later.with_columns(price=pl.lit(7.0)).select(columns).write_parquet("external_data.parquet")

    # Load new data from external source
    new_data = pl.read_parquet("external_data.parquet")

    # Upsert (insert new, update existing)
    stats = crud.upsert(
        new_data=new_data,
        key_cols=["product_id", "sequence_num"],
        partition_cols=["product_id", "date"],
        update_cols=["price", "volume"],  # Only update these fields
    )

    # Numbers 4 and 5 exist on both days, 6 to 9 are new.
    assert (stats["rows_updated"], stats["rows_inserted"]) == (4, 4)
    assert rows(dataset_dir).filter(pl.col("price") == 7.0)["date"].value_counts().sort(
        "date"
    ).rows() == [("2025-11-25", 2), ("2025-11-26", 2), ("2025-11-27", 4)]


def test_workflow_4_schema_migration(dataset_dir: Path) -> None:
    # Repartition with transformation
    def add_hour_minute(df: Any) -> Any:
        return df.with_columns(
            [
                pl.col("timestamp").dt.hour().alias("hour"),
                pl.col("timestamp").dt.minute().alias("minute"),
            ]
        )

    repartitioner = Repartitioner(
        source_dir=str(dataset_dir),
        target_dir=str(dataset_dir) + "_new",
        new_partition_cols=["product_id", "year", "month", "day", "hour"],
    )

    stats = repartitioner.repartition(
        transform_fn=add_hour_minute,
        delete_source=False,
        validate=True,
    )

    # Compact new dataset
    compactor = ParquetCompactor(
        dataset_dir=str(dataset_dir) + "_new",
        target_file_size_mb=100,
    )

    compacted = compactor.compact(min_file_count=5, delete_source_files=True)
    assert stats["rows_written"] == rows(Path(f"{dataset_dir}_new")).height == 24
    assert compacted["files_after"] == compacted["files_before"] == 24


# -- performance tips and troubleshooting ------------------------------------------------------


def test_process_in_batches(dataset_dir: Path) -> None:
    repartitioner = Repartitioner(
        source_dir=str(dataset_dir),
        target_dir=str(dataset_dir) + "_new",
        new_partition_cols=["product_id"],
        batch_size=1_000_000,  # Process 1M rows at a time
    )
    assert repartitioner.repartition()["rows_written"] == 24


def test_partition_columns_not_found_in_data(dataset_dir: Path) -> None:
    crud = ParquetCRUD(dataset_dir=str(dataset_dir))
    df = pl.DataFrame({"product_id": ["BTC-USD"], "trade_id": ["new"], "timestamp": [None]})
    with pytest.raises(ValueError, match="Partition columns not found in data: date"):
        crud.upsert(df, ["product_id", "trade_id"], ["product_id", "date"])
    with pytest.raises(ValueError, match="Partition columns not found in data: date"):
        crud.upsert(df.drop("timestamp"), ["product_id", "trade_id"])

    # Add missing columns
    df = df.with_columns(
        [
            pl.lit("2025-11-26").alias("date"),
            pl.col("timestamp").cast(pl.Datetime("us")),
        ]
    )
    stats = crud.upsert(df, ["product_id", "trade_id"], ["product_id", "date"])
    assert stats["rows_inserted"] == 1


# -- API reference -----------------------------------------------------------------------------


def test_originals_are_kept_beside_the_dataset(dataset_dir: Path) -> None:
    before = rows(dataset_dir).sort("product_id", "trade_id")
    stats = ParquetCompactor(dataset_dir).compact(delete_source_files=False)
    assert rows(dataset_dir).sort("product_id", "trade_id").equals(before)
    (originals,) = stats["originals"]
    assert not Path(originals).is_relative_to(dataset_dir)
    assert rows(Path(originals)).sort("product_id", "trade_id").equals(before)
    assert len(list(Path(originals).rglob("*.parquet"))) == stats["files_before"] == 24


def test_a_compaction_takes_partitions_with_enough_small_files(dataset_dir: Path) -> None:
    folder = dataset_dir / "product_id=BTC-USD/date=2025-11-25"
    for part in range(3):
        (folder / f"segment-{part}.parquet").unlink()
    compactor = ParquetCompactor(dataset_dir)
    preview = compactor.compact(min_file_count=4, dry_run=True)
    assert (preview["files_after"], preview["partitions_compacted"]) == (6, 3)
    assert compactor.compact(min_file_count=4)["files_after"] == 6
    assert compactor.compact(max_file_size_mb=0.0001)["partitions_compacted"] == 0
    with pytest.raises(ValueError, match="min_file_count"):
        compactor.compact(min_file_count=0)
