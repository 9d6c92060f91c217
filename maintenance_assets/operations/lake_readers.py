"""A version of a dataset in the hands of other libraries; each is imported only when asked for."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from maintenance_assets.operations.lake_scan import Scan, ScanFile, read_rows, scan_batches


def rows_as_dataset(scan: Scan) -> Any:
    """The rows that are asked for, in memory, as what other libraries take for a dataset."""
    from pyarrow.dataset import dataset  # loads pandas

    return dataset(read_rows(scan))


def to_duckdb(name: str, dataset: Any, connection: Any) -> Any:
    """A relation over the dataset, which is registered under its name."""
    import duckdb

    con = duckdb.connect() if connection is None else connection
    con.register(name, dataset)
    return con.table(f'"{name.replace(chr(34), chr(34) * 2)}"')


def to_polars(dataset: Any) -> Any:
    """A LazyFrame that reads what a query needs."""
    import polars as pl

    return pl.scan_pyarrow_dataset(dataset)


def to_datafusion(name: str, dataset: Any, context: Any) -> Any:
    """A DataFrame over the dataset, which is registered under its name."""
    import datafusion

    ctx = datafusion.SessionContext() if context is None else context
    ctx.register_dataset(name, dataset)
    return ctx.table(name)


def to_daft(scan: Scan) -> Any:
    """A Daft DataFrame: of the files themselves where their columns are called as now."""
    import daft

    paths = [scan.store.path(file.file.path) for file in scan.files]
    # Daft takes a path for a pattern, which may match other files.
    by_path = scan.store.is_local and not any(_PATTERN.intersection(path) for path in paths)
    if paths and by_path and scan.predicate is None and _is_plain(scan):
        columns = [daft.col(name) for name in scan.schema.names]
        return daft.read_parquet(paths).select(*columns)
    return daft.from_arrow(read_rows(scan))


_PATTERN = frozenset("*?[]{}\\")


def _is_plain(scan: Scan) -> bool:
    """Whether every file can be read by names alone."""
    arrow = scan.schema.arrow
    for file in scan.files:
        physical = scan.physical[file.file.physical_id]
        names = dict(physical.mapping)
        for column in scan.schema.columns:
            if names.get(column.name) != column.field_id:
                return False
            if physical.arrow.field(column.name).type != arrow.field(column.name).type:
                return False
    return True


def to_spark(scan: Scan, spark: Any) -> Any:
    """A Spark DataFrame whose files are read by the executors."""
    from maintenance_assets.engines.spark_session import active_session

    session = spark if spark is not None else active_session()
    if session is None:
        raise ValueError("no Spark session is active: give one")
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(scan.schema.arrow)
    rows = [(number,) for number in range(len(scan.files))]
    if not rows:
        return session.createDataFrame([], schema)
    tasks = session.createDataFrame(rows, "file long").repartition(len(rows), "file")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("file").to_pylist():
                yield from _rows_of(scan, scan.files[number])

    return tasks.mapInArrow(read, schema)


def _rows_of(scan: Scan, file: ScanFile) -> Iterator[pa.RecordBatch]:

    yield from scan_batches(replace(scan, files=(file,)))
