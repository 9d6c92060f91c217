"""How many rows each directory will have: from the partition columns alone."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from maintenance_assets.engines.in_order import in_order
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.repartition_kernel import coded_columns, portion_rows
from maintenance_assets.engines.repartition_task import RepartitionTask, Report
from maintenance_assets.engines.row_flow import Portion, RowFlow, portions
from maintenance_assets.planning.placement import partition_directories

_FIRST_BYTES = 16 * 1024 * 1024


def count_rows(
    task: RepartitionTask, access: FileAccess, memory_bytes: int, workers: int, report: Report
) -> Counter[str]:
    """Rows by directory, of all files."""
    narrow = partition_columns_only(task)
    flow = RowFlow(narrow, access, memory_bytes // (8 * workers), coded_columns(narrow, access))
    total: Counter[str] = Counter()

    def count(portion: Portion) -> Iterator[Counter[str]]:
        for batch in flow.batches(portion):
            yield rows_by_directory(flow.finished(batch), narrow.partition_by)

    for found in in_order(count, portions(task.files, portion_rows(task, workers)), workers):
        total.update(found)
        report(total.total())
    return total


def rows_by_directory(rows: pa.RecordBatch, partition_by: Sequence[str]) -> Counter[str]:
    """Rows by directory, of one batch."""
    codes, directories = partition_directories(rows, partition_by)
    counts = np.bincount(codes, minlength=len(directories)).tolist()
    return Counter(dict(zip(directories, counts, strict=True)))


def first_rows(task: RepartitionTask, access: FileAccess) -> pa.RecordBatch:
    """The first rows in their final form; none where the source has none."""
    flow = RowFlow(task, access, _FIRST_BYTES)
    for portion in portions(task.files, 1):
        for batch in flow.batches(portion):
            return flow.finished(batch)
    plain = pa.schema(list(task.plan.rows)[: len(task.plan.rows) - len(task.plan.derived)])
    return flow.finished(pa.RecordBatch.from_pylist([], plain))


def partition_columns_only(task: RepartitionTask) -> RepartitionTask:
    """The same task over no more columns than its directories depend on."""
    read = {name for name, value in task.plan.derived for name in value.columns}
    wanted = {*task.partition_by, *read}
    columns = task.plan.columns
    narrow = replace(
        columns, stored=pa.schema([field for field in columns.stored if field.name in wanted])
    )
    kept = pa.schema(
        [f for f in task.plan.rows if f.name in wanted or f.name not in columns.stored.names]
    )
    return replace(task, plan=replace(task.plan, columns=narrow, rows=kept), schema=kept)
