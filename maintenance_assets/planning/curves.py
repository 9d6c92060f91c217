"""Space-filling curves over integer coordinates, vectorised."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from maintenance_assets.model.clustering import Curve

_TABLE_BITS = 20
"""Up to this many bits a whole curve fits a table of a few megabytes: one look-up per row."""
_SMALL_TABLE = 1 << 16
"""A table of this size is made in milliseconds; a larger one has to be worth it."""
Ids = Any  # numpy array of unsigned integers


def curve_keys(ids: Sequence[Ids], bits: int, curve: Curve) -> Ids:
    """The position of each point on the curve; every coordinate has `bits` bits."""
    if not 0 < bits * len(ids) <= 63:
        raise ValueError(f"{len(ids)} columns of {bits} bits do not fit a 63-bit key")
    if len(ids) == 1:
        return ids[0].astype(np.uint64)
    total = bits * len(ids)
    worth_it = 1 << total <= max(_SMALL_TABLE, 64 * len(ids[0]))
    if curve == "hilbert" and total <= _TABLE_BITS and worth_it:
        return _hilbert_table(len(ids), bits)[_joined(ids, bits)]
    return _keys(ids, bits, curve)


def _keys(ids: Sequence[Ids], bits: int, curve: Curve) -> Ids:
    match curve:
        case "hilbert":
            return _interleaved(_hilbert_axes(ids, bits), bits)
        case "morton":
            return _interleaved([axis.astype(np.uint64) for axis in ids], bits)
        case "linear":
            return _joined(ids, bits)


@lru_cache(maxsize=4)
def _hilbert_table(axes: int, bits: int) -> Ids:
    table = np.empty(1 << (axes * bits), np.uint64)
    mask = np.uint64((1 << bits) - 1)
    # A part at a time: what it takes to make a table is many times as large as the table.
    for start in range(0, len(table), _SMALL_TABLE):
        points = np.arange(start, min(start + _SMALL_TABLE, len(table)), dtype=np.uint64)
        ids = [(points >> np.uint64(bits * (axes - 1 - axis))) & mask for axis in range(axes)]
        table[start : start + len(points)] = _keys(ids, bits, "hilbert")
    return table


def _joined(ids: Sequence[Ids], bits: int) -> Ids:
    """Coordinates one after the other, the first most significant."""
    key = np.zeros(len(ids[0]), np.uint64)
    for axis in ids:
        key = (key << np.uint64(bits)) | axis.astype(np.uint64)
    return key


def _interleaved(axes: Sequence[Ids], bits: int) -> Ids:
    """Bits of the coordinates in turn, the highest first."""
    key = np.zeros(len(axes[0]), np.uint64)
    one = np.uint64(1)
    for bit in reversed(range(bits)):
        for axis in axes:
            key = (key << one) | ((axis >> np.uint64(bit)) & one)
    return key


def _hilbert_axes(ids: Sequence[Ids], bits: int) -> list[Ids]:
    """Skilling's transform: coordinates become the transposed bits of the Hilbert index."""
    axes = [axis.astype(np.uint64) for axis in ids]
    for level in reversed(range(1, bits)):
        _undo_rotation(axes, np.uint64(level))
    # Gray code.
    for index in range(1, len(axes)):
        axes[index] ^= axes[index - 1]
    flip = np.zeros_like(axes[0])
    for level in reversed(range(1, bits)):
        mask = np.uint64((1 << level) - 1)
        flip ^= np.where((axes[-1] >> np.uint64(level)) & np.uint64(1), mask, np.uint64(0))
    for axis in axes:
        axis ^= flip
    return axes


def _undo_rotation(axes: list[Ids], level: Any) -> None:
    """Below one level, invert the first axis or exchange it with another, as its bit says."""
    low = (np.uint64(1) << level) - np.uint64(1)
    first = axes[0]
    for axis in axes:
        is_set = ((axis >> level) & np.uint64(1)).astype(bool)
        swap = np.where(is_set, np.uint64(0), (first ^ axis) & low)
        inverted = np.where(is_set, low, np.uint64(0))
        if axis is first:
            first ^= inverted
        else:
            first ^= swap ^ inverted
            axis ^= swap
