"""A Spark DataFrame is written by the executors that hold its rows, and placed by the driver."""

import os
import posixpath
from collections import Counter
from typing import Any

import pyarrow as pa

from maintenance_assets.engines.spark_engine import executor_obstacle
from maintenance_assets.engines.spark_frame import FrameTask, write_on_executors
from maintenance_assets.operations.incoming import is_spark_frame
from maintenance_assets.operations.lake_session import (
    LakeTransaction,
    remove_work_folder,
    work_folder,
)
from maintenance_assets.storage.filesystems import Store


def spark_frame(data: Any, store: Store) -> Any:
    """The data if executors can write it; None for all else, which passes through this process."""
    return data if is_spark_frame(data) and executor_obstacle(store) is None else None


def frame_schema(frame: Any) -> pa.Schema:
    """What the rows of a DataFrame are in Arrow; Spark's moments are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


def write_frame(
    transaction: LakeTransaction, frame: Any, task: FrameTask, memory_bytes: int
) -> list[str]:
    """Write a DataFrame into files of the transaction; their full paths.

    Executors choose names of their own, for Spark may try a task twice. Only what Spark took is
    given a name of the transaction.
    """
    store = transaction.store
    folder = store.path(work_folder(transaction.ticket.txn_id))
    written = write_on_executors(frame, task, store, folder, memory_bytes, os.cpu_count() or 1)
    transaction.reserve(Counter(file.directory for file in written))
    paths = []
    for file in written:
        path = transaction.stage(file.directory)
        store.make_directory(posixpath.dirname(path))
        store.move(file.path, path)
        paths.append(path)
    remove_work_folder(store, transaction.ticket.txn_id)
    return paths
