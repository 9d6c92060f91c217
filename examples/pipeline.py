"""A code location that fills the lake: market trades from Spark, in far too many small files.

The trades, and the quotes and candles derived from them, are made by SQL that Spark and DuckDB
both understand: without Java, DuckDB writes the same tables.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster
import duckdb
from dagster_pyspark import LazyPySparkResource

from maintenance_assets.engines.java import find_java
from maintenance_assets.engines.spark_session import (
    LOCAL_MASTER,
    LOCAL_SETTINGS,
    launch_environment,
)
from maintenance_assets.errors import EngineUnavailableError
from maintenance_assets.orchestration.config import load_datasets

DATASETS = Path(__file__).resolve().parent.parent / "datasets.yaml"
FIRST_DAY_MICROS = 1_762_128_000_000_000
"""2025-11-03 00:00 UTC."""
DAYS = 3
DAY_MICROS = 86_400_000_000

SPARK = {
    **LOCAL_SETTINGS,
    "spark.master": LOCAL_MASTER,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# `n` counts trades; each figure is n scattered by a multiplication, the same on every engine.
TRADES = f"""
SELECT first_id + n AS trade_id,
       timestamp_micros({FIRST_DAY_MICROS} + n % {DAYS} * {DAY_MICROS}
           + n * 7919 % 86400 * 1000000 + n % 1000) AS traded_at,
       CASE WHEN n * 104729 % 100 < 60 THEN 'BTC-USD' ELSE 'ETH-USD' END AS symbol,
       round(100 + 5 * sin(n / 5000.0) + n * 31 % 100 / 100.0, 2) AS price,
       n * 6571 % 1000 + 1 AS quantity,
       CASE WHEN n * 15485863 % 2 = 0 THEN 'buy' ELSE 'sell' END AS side
FROM ticks
"""
TABLES: Mapping[str, str] = {
    "lake/trades": "SELECT *, CAST(traded_at AS DATE) AS date FROM trades",
    "lake/quotes": """
        SELECT trade_id AS quote_id, traded_at AS quoted_at, price - 0.01 AS best_bid,
               price + 0.01 AS best_ask, quantity, CAST(traded_at AS DATE) AS date, symbol
        FROM trades
    """,
    "lake/candles": """
        SELECT symbol, date_trunc('minute', traded_at) AS minute, min(price) AS low,
               max(price) AS high, CAST(sum(quantity) AS BIGINT) AS quantity,
               count(*) AS trades, CAST(traded_at AS DATE) AS date
        FROM trades GROUP BY ALL
    """,
}


class FeedConfig(dagster.Config):
    """How much one run of the feed appends."""

    rows: int = 150_000
    files_per_partition: int = 40


@dataclass(frozen=True, slots=True)
class Batch:
    """What one run appends, and where."""

    first_id: int
    rows: int
    files: int
    places: Mapping[str, tuple[str, list[str]]]
    """Path and partition columns of each dataset."""


@dagster.asset(
    key=["raw", "trades_feed"],
    kinds={"spark", "parquet"},
    group_name="raw",
    description="Appends a batch of market trades, quotes and candles to the lake.",
)
def trades_feed(
    context: dagster.AssetExecutionContext, config: FeedConfig, pyspark: LazyPySparkResource
) -> dagster.MaterializeResult[None]:
    """Each run leaves the small files that the datasets' sensors look for."""
    batch = Batch(int(time.time()) * 10**6, config.rows, config.files_per_partition, places())
    try:
        find_java(os.environ)
    except EngineUnavailableError as error:
        context.log.warning(f"DuckDB writes this batch instead of Spark: {error}")
        written, engine = append_with_duckdb(batch), "duckdb"
    else:
        with launch_environment():
            session = pyspark.spark_session
        written, engine = append_with_spark(session, batch), "spark"
    context.log.info(f"appended {written} rows with {engine}")
    return dagster.MaterializeResult(metadata={"engine": engine, **written})


def places() -> dict[str, tuple[str, list[str]]]:
    """Where datasets.yaml says that the tables of this pipeline are."""
    file = Path(os.environ.get("MAINTENANCE_DATASETS") or DATASETS)
    declared = {dataset.key: dataset for dataset in load_datasets(file)}
    return {
        key: (declared[key].path, declared[key].partition_columns or [])
        for key in TABLES
        if key in declared
    }


def append_with_spark(session: Any, batch: Batch) -> dict[str, int]:
    """Every task writes a file into every partition that it has rows for."""
    first_id = f"CAST({batch.first_id} AS BIGINT) AS first_id"
    ticks = session.range(batch.rows).selectExpr("id AS n", first_id)
    ticks.createOrReplaceTempView("ticks")
    session.sql(TRADES).createOrReplaceTempView("trades")
    written = {}
    for key, (path, partitions) in batch.places.items():
        table = session.sql(TABLES[key]).repartition(batch.files).cache()
        table.write.mode("append").partitionBy(*partitions).parquet(path)
        written[key] = int(table.count())
        table.unpersist()
    return written


def append_with_duckdb(batch: Batch) -> dict[str, int]:
    """The same tables, one write per file."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE MACRO timestamp_micros(x) AS make_timestamptz(CAST(x AS BIGINT))"
        )
        connection.execute(
            f"CREATE VIEW ticks AS SELECT range AS n, {batch.first_id} AS first_id "
            f"FROM range({batch.rows})"
        )
        connection.execute(f"CREATE TABLE trades AS {TRADES}")
        return {
            key: _append_table(connection, TABLES[key], batch.files, *place)
            for key, place in batch.places.items()
        }


def _append_table(
    connection: duckdb.DuckDBPyConnection, query: str, files: int, path: str, partitions: list[str]
) -> int:
    Path(path).mkdir(parents=True, exist_ok=True)
    connection.execute(f"CREATE OR REPLACE TABLE batch AS {query}")
    columns = ", ".join(partitions)
    target = path.replace("'", "''")
    for number in range(files):
        connection.execute(
            f"COPY (SELECT * FROM batch WHERE hash(rowid) % {files} = {number}) TO '{target}' "
            f"(FORMAT parquet, COMPRESSION snappy, PARTITION_BY ({columns}), APPEND)"
        )
    row = connection.execute("SELECT count(*) FROM batch").fetchone()
    assert row is not None
    return int(row[0])


feed_job = dagster.define_asset_job(
    "trades_feed", selection=[trades_feed], executor_def=dagster.in_process_executor
)
feed_schedule = dagster.ScheduleDefinition(job=feed_job, cron_schedule="*/15 * * * *")

defs = dagster.Definitions(
    assets=[trades_feed],
    jobs=[feed_job],
    schedules=[feed_schedule],
    resources={"pyspark": LazyPySparkResource(spark_config=SPARK)},
)
