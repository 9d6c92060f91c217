"""One small local Spark session for all tests of a process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from maintenance_assets.engines.spark_session import LOCAL_SETTINGS, launch_environment

FAST: Mapping[str, str] = {
    **LOCAL_SETTINGS,
    "spark.master": "local[2,4]",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Test jobs are tiny: no need to keep what they were.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "10",
}


@contextmanager
def local_session(**settings: str) -> Iterator[Any]:
    """A session with two slots, stopped at the end."""
    from pyspark.sql import SparkSession

    with launch_environment():
        session = SparkSession.builder.config(map={**FAST, **settings}).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
