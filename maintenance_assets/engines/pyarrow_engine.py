"""PyArrow: one process, a thread per group, memory bounded by decoded bytes."""

import logging
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import pyarrow as pa

from maintenance_assets.engines.change_kernel import change_group
from maintenance_assets.engines.cluster_kernel import cluster_group
from maintenance_assets.engines.dictionaries import (
    check_dictionaries,
    check_ordered,
)
from maintenance_assets.engines.protocol import (
    FileAccess,
    Foresight,
    Places,
    Resources,
    RewriteOutcome,
    RewriteTask,
    ScanOutcome,
    ScanTask,
)
from maintenance_assets.engines.read_ahead import reading_ahead
from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.engines.repartition_kernel import repartition_rows
from maintenance_assets.engines.repartition_task import (
    RepartitionOutcome,
    RepartitionTask,
    Report,
)
from maintenance_assets.engines.scan_kernel import scan_in_threads
from maintenance_assets.engines.stitch_footer import StitchObstacleError
from maintenance_assets.engines.stitch_kernel import encode_group, stitch_group
from maintenance_assets.engines.write_kernel import write_files
from maintenance_assets.errors import RewriteError, in_words
from maintenance_assets.model.changes import MovedFile
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.planning.changes import Finder
from maintenance_assets.planning.compaction import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from maintenance_assets.planning.dictionaries import has_nested_dictionary
from maintenance_assets.planning.row_groups import group_obstacle

logger = logging.getLogger(__name__)


class PyArrowEngine:
    """Streams each group through the read and write kernels."""

    name = "pyarrow"

    def foresee(self, group: RewriteGroup, access: FileAccess, strict: bool) -> Foresight:
        """The kernels write every group; what they cannot keep is found in the result."""
        return Foresight(self.name)

    def rewrite(
        self, tasks: Sequence[RewriteTask], access: FileAccess, resources: Resources
    ) -> Generator[RewriteOutcome, None, None]:
        """Rewrite the largest groups first, so that no big one is left for the end."""
        ordered = sorted(tasks, key=lambda task: -task.group.total_bytes)
        at_once = max(1, min(resources.workers, len(ordered)))
        share = resources.memory_bytes // at_once
        if any(task.group.clustering and task.group.decoded_bytes > share for task in ordered):
            # What does not fit is spilled: rather one at a time, with all workers inside.
            at_once, share = 1, resources.memory_bytes
        inside = max(1, resources.workers // at_once)
        with ThreadPoolExecutor(at_once, thread_name_prefix="rewrite") as pool:
            futures = [pool.submit(rewrite_group, task, access, share, inside) for task in ordered]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                # The caller stopped listening (an error, Ctrl-C): start nothing more.
                pool.shutdown(cancel_futures=True)

    def scan(
        self, tasks: Sequence[ScanTask], finder: Finder, access: FileAccess, resources: Resources
    ) -> Generator[ScanOutcome, None, None]:
        """Look into files, a thread for each."""
        return scan_in_threads(tasks, finder, access, resources)

    def foresee_repartition(self, task: RepartitionTask, places: Places, strict: bool) -> Foresight:
        """The kernels write every type."""
        return Foresight(self.name)

    def repartition(
        self, task: RepartitionTask, places: Places, resources: Resources, report: Report
    ) -> RepartitionOutcome:
        """Read in threads, gather rows by directory and write them in threads."""
        return repartition_rows(task, places, resources.memory_bytes, resources.workers, report)


def rewrite_group(
    task: RewriteTask, access: FileAccess, memory_bytes: int, workers: int = 1
) -> RewriteOutcome:
    """Rewrite one group; what goes wrong is reported for this group alone."""
    try:
        notes: tuple[str, ...] = ()
        if task.group.mode != "encode":
            obstacle = try_stitching(task, access, memory_bytes, workers)
            if obstacle is None:
                return RewriteOutcome(task.index, "pyarrow", task.staged, mode=task.group.mode)
            notes = (encoded_note(obstacle),)
        moved = _write_group(task, access, memory_bytes, workers)
        return RewriteOutcome(task.index, "pyarrow", task.staged, notes=notes, moved=moved)
    except (RewriteError, pa.ArrowException, OSError, ValueError) as error:
        logger.info("a group in '%s' was not rewritten: %s", task.group.directory, error)
        return RewriteOutcome(task.index, "pyarrow", error=in_words(error))


def try_stitching(
    task: RewriteTask, access: FileAccess, memory_bytes: int, workers: int = 1
) -> str | None:
    """Write a group by copying; what stands against it, in words, if something does."""
    try:
        stitch_group(task, access, memory_bytes, workers)
    except StitchObstacleError as error:
        if task.group.must_stitch:
            raise RewriteError(f"{error}, so the files cannot be stitched") from error
        logger.info("a group in '%s' is encoded: %s", task.group.directory, error)
        return str(error)
    return None


def encoded_note(obstacle: str) -> str:
    """What is said of a group that could not be copied as planned."""
    return f"some groups were encoded anew: {obstacle}"


def _write_group(
    task: RewriteTask, access: FileAccess, memory_bytes: int, workers: int
) -> tuple[MovedFile, ...]:
    group = task.group
    moved: tuple[MovedFile, ...] = ()
    if group.change is not None:
        moved = change_group(task, access, memory_bytes)
    elif group.clustering is not None:
        cluster_group(task, access, memory_bytes, workers)
    elif workers > 1 and _has_several_row_groups(group):
        encode_group(task, access, memory_bytes, workers)
    else:
        _merge_group(task, access, memory_bytes)
    check_dictionaries(group, (*task.staged, *(file.path for file in moved)), access)
    return moved


def _has_several_row_groups(group: RewriteGroup) -> bool:
    """Whether there is enough for several workers, and no category that has to be watched."""
    if group_obstacle(group.files, group.schema) is not None:
        return False
    return group.decoded_bytes > ROW_GROUP_BYTES or group.total_rows > ROW_GROUP_ROWS


def _merge_group(task: RewriteTask, access: FileAccess, memory_bytes: int) -> None:
    group = task.group
    with reading_ahead(group.files, access) as sources:
        batches = (
            batch
            for file in group.files
            for batch in read_file(file, group.schema, sources, max(1, memory_bytes // 16))
        )
        write_files(
            check_ordered(batches, group.schema),
            group.schema,
            list(zip(task.staged, group.output_rows, strict=True)),
            group.writer,
            access,
            row_group_bytes=_row_group_bytes(group, memory_bytes),
        )


def _row_group_bytes(group: RewriteGroup, memory_bytes: int) -> int:
    # PyArrow cannot read a nested dictionary over several row groups: cut as late as possible.
    if has_nested_dictionary(group.schema):
        return ROW_GROUP_BYTES
    return min(ROW_GROUP_BYTES, max(1, memory_bytes // 4))
