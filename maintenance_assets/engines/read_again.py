"""What was written is read again: what counts is what a reader will find."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.dictionaries import check_indices
from maintenance_assets.engines.partition_writer import (
    PartitionWriter,
    PlacedFile,
    closer_count,
)
from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.engines.repartition_task import RepartitionTask, WrittenPart
from maintenance_assets.errors import VerificationError
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.content_hash import Digest, row_hashes
from maintenance_assets.planning.placement import partition_directories

_PROBE_ROWS = 128
_PROBE_BUFFER = 64 * 1024


def written_parts(writer: PartitionWriter) -> list[WrittenPart]:
    """The files of a writer that was given an inspector, and what that found in them."""
    return [
        WrittenPart(file.directory, file.path, file.rows, found)
        for file, found in writer.close_and_inspect()
    ]


@dataclass(frozen=True, slots=True)
class Inspector:
    """Reads a file as soon as it is complete, while it still is in the memory of the system."""

    task: RepartitionTask
    access: FileAccess
    batch_bytes: int

    @classmethod
    def of(
        cls, task: RepartitionTask, access: FileAccess, memory_bytes: int, workers: int
    ) -> "Inspector":
        """One that keeps to a quarter of the memory, however many files are closed at once."""
        return cls(task, access, max(1, memory_bytes // (4 * closer_count(access, workers))))

    def __call__(self, file: PlacedFile) -> Digest | None:
        """The digest of its rows, where that is asked for."""
        try:
            check_indices(self.task.schema, [file.path], self.access)
            return self._digest(file) if self.task.validate else None
        except (pa.ArrowException, OSError) as error:
            raise VerificationError(
                f"a file for '{file.directory}' cannot be read again: {error}. "
                "Nothing was published"
            ) from error

    def _digest(self, file: PlacedFile) -> Digest:
        task = self.task
        keys = [name for name in task.partition_by if name in task.schema.names]
        total = Digest()
        with self.access.open_input(file.path) as handle:
            metadata = pq.read_metadata(handle)
            rows = _batch_rows(handle, metadata, task.schema, self.batch_bytes)
            at_once = rows >= metadata.num_rows
            parquet = pq.ParquetFile(
                handle,
                metadata=metadata,
                read_dictionary=flat_texts(task.schema, keys),
                # Loaded ahead, row groups stay in memory until all have been read.
                pre_buffer=at_once,
                buffer_size=0 if at_once else MIB,
            )
            for batch in parquet.iter_batches(rows, use_threads=False):
                total = total.plus(Digest.of(row_hashes(batch, task.hashed)))
                _require_place(batch, keys, task.partition_by, file.directory)
        return total


def _batch_rows(handle: Any, metadata: Any, schema: pa.Schema, batch_bytes: int) -> int:
    groups = range(metadata.num_row_groups)
    size = sum(metadata.row_group(index).total_byte_size for index in groups)
    row_bytes = max(1, size // max(1, metadata.num_rows))
    if not all(_has_fixed_width(field.type) for field in schema):
        # A footer cannot tell how often a long dictionary value repeats; a few rows can.
        row_bytes = max(row_bytes, _probed(handle, metadata))
    return max(1024, min(256 * 1024, batch_bytes // (4 * row_bytes)))


def _has_fixed_width(type_: Any) -> bool:
    return not pa.types.is_nested(type_) and _bit_width(type_) > 0


def _bit_width(type_: Any) -> int:
    try:
        return int(type_.bit_width)
    except ValueError:  # as for text
        return 0


def _probed(handle: Any, metadata: Any) -> int:
    parquet = pq.ParquetFile(handle, metadata=metadata, pre_buffer=False, buffer_size=_PROBE_BUFFER)
    first = next(parquet.iter_batches(_PROBE_ROWS, use_threads=False), None)
    return 0 if first is None or not first.num_rows else int(first.nbytes // first.num_rows)


def _require_place(
    batch: pa.RecordBatch, keys: Sequence[str], partition_by: Sequence[str], directory: str
) -> None:
    """Rows tell their directory only where they still have all the columns."""
    if len(keys) == len(partition_by) and batch.num_rows:
        _, found = partition_directories(batch, keys)
        if found != (directory,):
            other = next(each for each in found if each != directory)
            raise VerificationError(f"rows of '{other}' were written for '{directory}'")


def flat_texts(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Those of the columns that are plain text, and can be handed out as dictionaries."""
    kinds = (pa.types.is_string, pa.types.is_large_string)
    return [
        name
        for name in names
        if schema.names.count(name) == 1
        and "." not in name
        and any(belongs(schema.field(name).type) for belongs in kinds)
    ]
