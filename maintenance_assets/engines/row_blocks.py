"""Rows by directory, in memory or in one spill file, without a buffer per directory.

Batches are put together by directory and kept as they are; a directory only knows which stretches
of them are its own. What does not fit into memory goes to disk in one sequential write.
"""

import mmap
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, takewhile
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from maintenance_assets.engines.cluster_kernel import movable_schema
from maintenance_assets.engines.conform import conform_batch
from maintenance_assets.engines.dictionaries import has_dictionary
from maintenance_assets.engines.spill_folders import spill_folder
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.content_hash import Digest

_SPILL_BYTES = 32 * MIB


@dataclass(frozen=True, slots=True)
class Arranged:
    """Rows put together by directory."""

    batch: pa.RecordBatch
    stretches: tuple[tuple[str, int, int], ...]
    """Directory, first row, rows."""
    digests: tuple[Digest, ...] = ()
    """Of each stretch, where hashes of the rows were given."""


def arrange(
    batch: pa.RecordBatch, codes: Any, directories: Sequence[str], hashes: Any = None
) -> Arranged:
    """Put rows of a directory next to each other; among themselves they keep their order."""
    counts = np.bincount(codes, minlength=len(directories))
    present = np.flatnonzero(counts)
    if len(present) > 1 and (codes[1:] < codes[:-1]).any():
        # Sixteen bits are sorted by radix.
        narrow = codes.astype(np.uint16) if len(directories) <= 1 << 16 else codes
        order = np.argsort(narrow, kind="stable")
        batch = _taken(batch, pa.array(order))
        hashes = None if hashes is None else hashes[order]
    starts = (np.cumsum(counts) - counts)[present]
    rows = counts[present].tolist()
    digests: tuple[Digest, ...] = ()
    if hashes is not None and len(hashes):
        sums = np.add.reduceat(hashes, starts).tolist()
        digests = tuple(Digest(*each) for each in zip(rows, sums, strict=True))
    found = zip(present.tolist(), starts.tolist(), rows, strict=True)
    return Arranged(
        batch, tuple((directories[n], start, count) for n, start, count in found), digests
    )


def _taken(batch: pa.RecordBatch, order: Any) -> pa.RecordBatch:
    movable = movable_schema(batch.schema)
    if movable is batch.schema:
        return pc.take(batch, order, boundscheck=False)
    moved = conform_batch(batch, movable, "the batch")
    return conform_batch(pc.take(moved, order, boundscheck=False), batch.schema, "the batch")


@dataclass(slots=True)
class Block:
    """A batch whose rows are together by directory: in memory or in a spill file."""

    batch: pa.RecordBatch | None
    nbytes: int
    rows: int
    spill: "Spill | None" = None
    place: int = 0
    """Where it lies in the spill file."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "Block":
        """A block in memory."""
        return cls(batch, batch.nbytes, batch.num_rows)

    @property
    def has_dictionary(self) -> bool:
        """Whether some of its values are indices into others."""
        return self.batch is not None and has_dictionary(self.batch.schema)

    def share(self, rows: int) -> int:
        """About how many bytes so many of its rows have."""
        return self.nbytes * rows // max(1, self.rows)

    def slice(self, start: int, rows: int) -> pa.RecordBatch:
        """Some of its rows."""
        if self.batch is not None:
            return self.batch.slice(start, rows)
        if self.spill is None:
            raise ValueError("the block is neither in memory nor on disk")
        return self.spill.read(self.place, self.share(rows)).slice(start, rows)

    def to_disk(self, spill: "Spill") -> None:
        """Let go of the memory."""
        if self.batch is not None:
            self.place, self.spill = spill.append(self.batch), spill
            self.batch = None


@dataclass(slots=True)
class _Piece:
    """A stretch of a block."""

    block: Block
    start: int
    rows: int
    order: int = 0


@dataclass(slots=True)
class Stretches:
    """The rows of one directory that are still to be written, in their order."""

    directory: str
    rows: int = 0
    nbytes: int = 0
    _pieces: deque[_Piece] = field(default_factory=deque)
    """Those that have rows left: what is taken must not keep its batch in memory."""
    _spilled: int = 0
    """How many of them, from the front, are on disk."""

    def add(self, block: Block, start: int, rows: int, order: int = 0) -> None:
        """Put rows at the end; `order` says where they belong if they do not come in order."""
        self._pieces.append(_Piece(block, start, rows, order))
        self.rows += rows
        self.nbytes += block.share(rows)

    def bring_into_order(self) -> None:
        """Once all have come, and before any was taken."""
        self._pieces = deque(sorted(self._pieces, key=lambda piece: piece.order))

    def take(self, most_rows: int) -> pa.RecordBatch:
        """Rows from the front; at least one."""
        piece = self._pieces[0]
        rows = min(most_rows, piece.rows)
        part = piece.block.slice(piece.start, rows)
        self.rows, self.nbytes = self.rows - rows, max(0, self.nbytes - piece.block.share(rows))
        piece.start, piece.rows = piece.start + rows, piece.rows - rows
        if not piece.rows:
            self._pieces.popleft()
            self._spilled = max(0, self._spilled - 1)
        return part

    def in_memory(self) -> Iterator[_Piece]:
        """Pieces that are not on disk, the oldest first."""
        return islice(self._pieces, self._spilled, None)

    def leaving(self, blocks: Collection[int]) -> list[_Piece]:
        """Pieces of these blocks, which are going to disk now."""
        found = list(takewhile(lambda piece: id(piece.block) in blocks, self.in_memory()))
        self._spilled += len(found)
        return found


@dataclass(slots=True)
class BlocksInMemory:
    """Batches that wait to be written, the oldest first."""

    spill: "Spill"
    size: int = 0
    _blocks: deque[Block] = field(default_factory=deque)

    def add(self, batch: pa.RecordBatch) -> Block:
        """A block of a batch, at the end."""
        block = Block.of(batch)
        self._blocks.append(block)
        self.size += block.nbytes
        return block

    def shrink(self, stretches: Sequence[Stretches], most_bytes: int) -> None:
        """Forget what is not needed any more, and move the oldest of the rest to disk."""
        needed = {id(piece.block) for each in stretches for piece in each.in_memory()}
        self._blocks = deque(block for block in self._blocks if id(block) in needed)
        self.size = sum(block.nbytes for block in self._blocks)
        leaving: dict[int, Block] = {}
        while self._blocks and self.size > most_bytes:
            block = self._blocks.popleft()
            leaving[id(block)] = block
            self.size -= block.nbytes
        if any(block.has_dictionary for block in leaving.values()):
            # Dictionaries of different batches need not go together: each batch stays as it is.
            for block in leaving.values():
                block.to_disk(self.spill)
            for each in stretches:
                each.leaving(leaving)
            return
        _spill_together(
            [piece for each in stretches for piece in each.leaving(leaving)], self.spill
        )


def _spill_together(pieces: Sequence[_Piece], spill: "Spill") -> None:
    """What a directory has comes to lie together."""
    for portion in _portions(pieces, spill.portion_bytes):
        whole = pa.concat_batches([piece.block.slice(piece.start, piece.rows) for piece in portion])
        block, start = Block.of(whole), 0
        block.to_disk(spill)
        for piece in portion:
            piece.block, piece.start = block, start
            start += piece.rows


def _portions(pieces: Sequence[_Piece], most_bytes: int) -> Iterator[list[_Piece]]:
    portion: list[_Piece] = []
    size = 0
    for piece in pieces:
        portion.append(piece)
        size += piece.block.share(piece.rows)
        if size >= most_bytes:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


class Spill:
    """Batches in one file of the temporary folder, read back by mapping it."""

    def __init__(self, parent: str | None, mapped_bytes: int) -> None:
        self._parent = parent
        self._most_mapped = mapped_bytes
        self._stack = ExitStack()
        self._path: str | None = None
        self._end = 0
        self._touched = 0
        self._map: Any = b""
        self._known: dict[int, pa.RecordBatch] = {}
        self._lock = Lock()

    @property
    def portion_bytes(self) -> int:
        """What is spilled as one batch."""
        return min(_SPILL_BYTES, self._most_mapped)

    def append(self, batch: pa.RecordBatch) -> int:
        """Write a batch; where it lies."""
        if self._path is None:
            folder = self._stack.enter_context(spill_folder("spill", self._parent))
            self._path = f"{folder}/rows"
        place = self._end
        with pa.OSFile(self._path, "ab") as handle:
            with pa.ipc.new_stream(handle, batch.schema) as writer:
                writer.write_batch(batch)
            self._end = handle.tell()
        return place

    def read(self, place: int, touched_bytes: int) -> pa.RecordBatch:
        """A batch whose bytes are loaded as they are touched."""
        with self._lock:
            if place >= len(self._map):
                self._known, self._map = {}, self._mapped()
            found = self._known.get(place)
            if found is None:
                found = self._known[place] = self._open(place)
            self._touched += touched_bytes
            if self._touched > self._most_mapped:
                self._let_go()
            return found

    def let_go(self) -> None:
        """What was touched counts as ours until we say that it is not needed; it can come again."""
        with self._lock:
            if self._touched:
                self._let_go()

    def _mapped(self) -> Any:
        if self._path is None:
            raise ValueError("nothing was spilled")
        with open(self._path, "rb") as handle:
            return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)

    def _open(self, place: int) -> pa.RecordBatch:
        with pa.ipc.open_stream(pa.py_buffer(self._map).slice(place)) as reader:
            return reader.read_next_batch()

    def _let_go(self) -> None:
        self._touched = 0
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give the disk back."""
        self._known, self._map = {}, b""
        self._stack.close()
