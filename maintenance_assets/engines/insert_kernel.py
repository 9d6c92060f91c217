"""New rows into files of the directories that they belong to."""

from typing import Any
from uuid import uuid4

import pyarrow as pa

from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.partition_writer import PartitionWriter
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.read_kernel import MAX_BATCH_ROWS
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.changes import MovedFile
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.planning.polars_marks import require_listed
from maintenance_assets.planning.upsert import BoundUpsert, one_batch


def insert_rows(
    bound: BoundUpsert,
    rows: Any,
    options: WriterOptions,
    staging: str,
    access: FileAccess,
    memory_bytes: int,
) -> tuple[MovedFile, ...]:
    """Write these rows of the new data; nothing is visible yet."""

    def stage(directory: str) -> str:
        return f"{staging}/inserted-{uuid4().hex}.staged"

    with PartitionWriter(bound.schema, options, stage, access, memory_bytes) as writer:
        for start in range(0, len(rows), MAX_BATCH_ROWS):
            part = rows[start : start + MAX_BATCH_ROWS]
            codes, directories = bound.directories(part)
            batch = conform_batch(one_batch(bound.table, part), bound.schema, "the new data")
            _require_listed(batch, bound.schema)
            writer.write(batch, codes, directories)
        placed = writer.close()
    return tuple(MovedFile(file.directory, file.path, file.rows) for file in placed)


def _require_listed(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            require_listed(array, field)
        except ValueError as error:
            raise RewriteError(
                f"the new data does not fit: {error}. Nothing was changed."
            ) from error
