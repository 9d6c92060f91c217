"""The new data of an upsert as the kernels use it: loaded once by each process."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from maintenance_assets.engines.protocol import FileAccess
from maintenance_assets.planning.changes import Merging
from maintenance_assets.planning.key_index import KeyIndex

Array = Any


@dataclass(frozen=True, slots=True)
class MergeSource:
    """Rows of new data, found by their keys."""

    index: KeyIndex
    updates: pa.Table

    def values(self, rows: Array) -> dict[str, Array]:
        """The new values of these rows, by column."""
        order = pa.array(rows)
        return {
            name: _taken(self.updates.column(name), order) for name in self.updates.column_names
        }


def stage_source(table: pa.Table, index: KeyIndex, rule: Merging, access: FileAccess) -> None:
    """Write new data to where every process finds it; this one has it already."""
    # One batch: rows are taken from it in any order.
    table = table.combine_chunks()
    with access.open_output(rule.source) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with _lock:
        _loaded.clear()
        _loaded[rule.source] = MergeSource(index, table.select(list(rule.updates)))


def load_source(rule: Merging, access: FileAccess) -> MergeSource:
    """The new data that a rule names."""
    with _lock:
        found = _loaded.get(rule.source)
        if found is None:
            _loaded.clear()
            found = _loaded[rule.source] = _load(rule, access)
        return found


def forget_sources() -> None:
    """Let go of what was loaded."""
    with _lock:
        _loaded.clear()


_lock = Lock()
_loaded: dict[str, MergeSource] = {}


def _load(rule: Merging, access: FileAccess) -> MergeSource:
    if access.is_local:
        table = pa.ipc.open_file(pa.memory_map(rule.source)).read_all()
    else:
        with access.open_input(rule.source) as handle:
            table = pa.ipc.open_file(handle).read_all()
    return MergeSource(KeyIndex(table.select(list(rule.keys))), table.select(list(rule.updates)))


def _taken(column: pa.ChunkedArray, order: Sequence[int] | Array) -> Array:
    taken = column.take(order)
    return pa.concat_arrays(taken.chunks) if taken.num_chunks != 1 else taken.chunk(0)
