"""Compaction without decoding: column chunks are copied, and only what is small is encoded."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from maintenance_assets.engines.protocol import FileAccess, RewriteTask
from maintenance_assets.engines.read_ahead import reading_ahead
from maintenance_assets.engines.stitch_check import Expected, check_stitched
from maintenance_assets.engines.stitch_footer import Footer, RowGroup, parse_footer
from maintenance_assets.engines.stitch_runs import RunEncoder, empty_footer, memory_footer
from maintenance_assets.engines.stitch_schema import require_can_hold_encoded, require_same_meaning
from maintenance_assets.engines.stitch_source import (
    MemorySource,
    Source,
    block_bytes,
    open_source,
)
from maintenance_assets.engines.stitch_writer import StitchedFile, copy_ranges
from maintenance_assets.errors import RewriteError
from maintenance_assets.model.files import DataFile
from maintenance_assets.planning.file_metadata import with_row_count
from maintenance_assets.planning.stitching import (
    Copied,
    Encoded,
    Recipe,
    Span,
    all_encoded,
    recipe,
)

_FILES_AHEAD = 4
_READERS = 8
"""Threads for reads from a store that answers slowly."""


def stitch_group(
    task: RewriteTask, access: FileAccess, memory_bytes: int, workers: int = 1
) -> None:
    """Write the outputs of a group; StitchObstacleError when bytes cannot be copied after all."""
    _write(task, recipe(task.group), access, memory_bytes, workers)


def encode_group(
    task: RewriteTask, access: FileAccess, memory_bytes: int, workers: int = 1
) -> None:
    """The same without copying: row groups are encoded by several workers and put together."""
    _write(task, all_encoded(task.group), access, memory_bytes, workers)


def _write(
    task: RewriteTask, found: Recipe, access: FileAccess, memory_bytes: int, workers: int
) -> None:
    threads = workers if access.is_local else max(workers, _READERS)
    with (
        ThreadPoolExecutor(workers, thread_name_prefix="encode") as encoders,
        ThreadPoolExecutor(threads, thread_name_prefix="fetch") as readers,
        reading_ahead(_decoded(task.group.files, found), access) as sources,
    ):
        runs = RunEncoder(task.group, found.runs, sources, memory_bytes, workers, encoders)
        block = block_bytes(memory_bytes, 1 + _FILES_AHEAD)
        with closing(_Files(task.group.files, found, access, readers, block)) as files:
            _Stitching(task, access, found, files, runs).write()


def _decoded(files: Sequence[DataFile], found: Recipe) -> list[DataFile]:
    """Files that are decoded, in order."""
    return [files[at] for at in dict.fromkeys(span.file for run in found.runs for span in run)]


@dataclass(slots=True)
class _Opened:
    """A file that is copied from."""

    number: int
    source: Source
    footer: Footer

    def groups(self, span: Span) -> list[RowGroup]:
        """The row groups of a span."""
        return self.footer.row_groups[span.first : span.stop]


class _Files:
    """Opens the files that are copied from, each once, in the order of the recipe."""

    def __init__(
        self,
        files: Sequence[DataFile],
        found: Recipe,
        access: FileAccess,
        readers: ThreadPoolExecutor,
        block: int,
    ) -> None:
        self._files = files
        self._access = access
        self._readers = readers
        self._block = block
        self._spans: dict[int, list[Span]] = {}
        for parts in found.outputs:
            for part in parts:
                if isinstance(part, Copied):
                    self._spans.setdefault(part.span.file, []).append(part.span)
        self._next = iter(self._spans)
        self._opening: deque[Future[_Opened]] = deque()
        self._stack = ExitStack()
        self._current: _Opened | None = None

    def first(self) -> _Opened | None:
        """The first file of all, whose schema is that of the outputs."""
        return self.get(next(iter(self._spans))) if self._spans else None

    def get(self, number: int) -> _Opened:
        """A file of the group; the one before it is closed."""
        while self._current is None or self._current.number != number:
            self._stack.close()
            self._open_ahead()
            self._current = self._opening.popleft().result()
            self._stack.enter_context(self._current.source)
        return self._current

    def open_written(self, path: str) -> Source:
        """An output, to look at it."""
        return open_source(path, self._access, self._readers)

    def close(self) -> None:
        """Close what is open, and what was opened ahead."""
        self._stack.close()
        for future in self._opening:
            if not future.cancel() and future.exception() is None:
                future.result().source.__exit__(None, None, None)

    def _open_ahead(self) -> None:
        ahead = 1 if self._access.is_local else _FILES_AHEAD
        while len(self._opening) < ahead:
            number = next(self._next, None)
            if number is None:
                return
            self._opening.append(self._readers.submit(self._open, number))

    def _open(self, number: int) -> _Opened:
        file = self._files[number]
        source = open_source(file.path, self._access, self._readers, self._block)
        try:
            size = file.footer_bytes
            tail = source.read(file.size_bytes - size, size)
            footer = parse_footer(tail, file.path, file.size_bytes)
            _require_planned(file, footer)
            opened = _Opened(number, source, footer)
            groups = [group for span in self._spans[number] for group in opened.groups(span)]
            source.expect([(part.start, part.stop) for part in copy_ranges(groups)])
        except BaseException:
            source.__exit__(None, None, None)
            raise
        return opened


def _require_planned(file: DataFile, footer: Footer) -> None:
    """Row groups are chosen by number: they have to be those that were looked at."""
    if tuple(group.rows for group in footer.row_groups) != tuple(n for n, _ in file.row_groups):
        raise RewriteError(f"the row groups of '{file.path}' are not those that were planned")


class _Stitching:
    """Puts the outputs of a group together."""

    def __init__(
        self,
        task: RewriteTask,
        access: FileAccess,
        found: Recipe,
        files: _Files,
        runs: RunEncoder,
    ) -> None:
        self._task = task
        self._access = access
        self._recipe = found
        self._files = files
        self._runs = runs

    def write(self) -> None:
        """Write one output after the other."""
        group = self._task.group
        keep_sorting = group.keeps_copied_sorting or bool(group.writer.sorting)
        own, first = empty_footer(group.schema, group), self._files.first()
        base = own if first is None else first.footer
        if self._recipe.runs:
            require_can_hold_encoded(base, own)
        for path, rows, parts in zip(
            self._task.staged, group.output_rows, self._recipe.outputs, strict=True
        ):
            own = empty_footer(with_row_count(group.schema, rows), group)
            with self._access.open_output(path) as target:
                output = StitchedFile(target, base, own, keep_sorting=keep_sorting)
                for part in parts:
                    self._append(output, part, base)
                output.finish()
            self._check(Expected(path, output.size, output.sources, rows, keep_sorting))
        self._runs.require_end()

    def _check(self, expected: Expected) -> None:
        """Where reading is cheap, page by page."""
        local = self._access.is_local
        with self._files.open_written(expected.path) as source:
            check_stitched(source, expected, look_at_pages=local)

    def _append(self, output: StitchedFile, part: Copied | Encoded, base: Footer) -> None:
        if isinstance(part, Copied):
            opened = self._files.get(part.span.file)
            require_same_meaning(opened.footer, base)
            output.append(opened.source, opened.footer, opened.groups(part.span))
            return
        for source, footer in self._encoded(part):
            with source:
                output.append(source, footer, footer.row_groups)

    def _encoded(self, part: Encoded) -> Iterator[tuple[MemorySource, Footer]]:
        for content in self._runs.encode(part.run, part.rows):
            yield MemorySource(content), memory_footer(content)
