"""PyArrow: one process, a thread per group, memory bounded by decoded bytes."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import pyarrow as pa
import pyarrow.parquet as pq

from maintenance_assets.engines.protocol import (
    FileAccess,
    Resources,
    RewriteOutcome,
    RewriteTask,
)
from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES

logger = logging.getLogger(__name__)


class PyArrowEngine:
    """Streams each group through the read and write kernels."""

    name = "pyarrow"

    def rewrite(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Iterator[RewriteOutcome]:
        """Rewrite the largest groups first, so that no big one is left for the end."""
        ordered = sorted(tasks, key=lambda task: -task.group.total_bytes)
        workers = max(1, min(resources.workers, len(ordered)))
        share = resources.memory_bytes // workers
        with ThreadPoolExecutor(workers, thread_name_prefix="rewrite") as pool:
            futures = [pool.submit(rewrite_group, task, access, share) for task in ordered]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                # The caller stopped listening (an error, Ctrl-C): start nothing more.
                pool.shutdown(cancel_futures=True)


def rewrite_group(task: RewriteTask, access: FileAccess, memory_bytes: int) -> RewriteOutcome:
    """Rewrite one group; what goes wrong is reported for this group alone."""
    try:
        notes = _write_group(task, access, memory_bytes)
        return RewriteOutcome(task.index, task.staged, notes=notes)
    except (RewriteError, pa.ArrowException, OSError) as error:
        logger.warning("group %d was not rewritten: %s", task.index, error)
        return RewriteOutcome(task.index, error=f"{type(error).__name__}: {error}")


def _write_group(task: RewriteTask, access: FileAccess, memory_bytes: int) -> tuple[str, ...]:
    group = task.group
    batches = (
        batch
        for file in group.files
        for batch in read_file(file, group.schema, access, max(1, memory_bytes // 16))
    )
    write_files(
        batches,
        group.schema,
        list(zip(task.staged, group.output_rows, strict=True)),
        group.writer,
        access,
        row_group_bytes=min(ROW_GROUP_BYTES, max(1, memory_bytes // 4)),
    )
    _check_dictionaries(task, access)
    return ()


def _check_dictionaries(task: RewriteTask, access: FileAccess) -> None:
    """Merged dictionaries may outgrow a narrow index; such a file could not be read again."""
    narrow = [field.name for field in task.group.schema if _narrow_dictionary(field.type)]
    for path in task.staged if narrow else ():
        with access.open_input(path) as handle:
            parquet = pq.ParquetFile(handle)
            for index in range(parquet.metadata.num_row_groups):
                _read_dictionaries(parquet, index, narrow)


def _read_dictionaries(parquet: pq.ParquetFile, index: int, columns: list[str]) -> None:
    try:
        parquet.read_row_group(index, columns=columns)
    except pa.ArrowInvalid as error:
        raise RewriteError(
            f"together the files have more distinct values than the dictionary index of "
            f"{', '.join(columns)} can count ({error}). Write that column with a wider index."
        ) from error


def _narrow_dictionary(type_: pa.DataType) -> bool:
    return pa.types.is_dictionary(type_) and type_.index_type.bit_width < 32
