"""Where rows come to when values of their partition columns change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from maintenance_assets.planning.partitions import format_partition, parse_partition
from maintenance_assets.planning.path_values import canonical_of
from maintenance_assets.planning.placement import partition_directories

_Spellings = Mapping[tuple[str, str | None], str]


@dataclass(frozen=True, slots=True)
class Moves:
    """Turns new values of partition columns into directories, as the dataset spells them."""

    keys: tuple[str, ...]
    """Partition columns that get new values, outermost first."""
    spellings: _Spellings = field(default_factory=dict, compare=False, hash=False)
    """Segments that exist, by key and canonical text: `month=01` for ("month", "1")."""

    @classmethod
    def of(cls, keys: Sequence[str], schema: pa.Schema, directories: Iterable[str]) -> "Moves":
        """For these keys, whose types the schema knows, in a dataset with these directories."""
        segments = {
            (part.key, part.value, part.raw)
            for directory in directories
            for part in parse_partition(directory)
            if part.key in keys
        }
        found: dict[tuple[str, str | None], str] = {}
        for key, value, raw in sorted(segments, key=lambda segment: segment[2]):
            text = canonical_of(value, schema.field(key).type)
            # Of two spellings, the one we would choose ourselves.
            if (key, text) not in found or value == text:
                found[key, text] = raw
        return cls(tuple(keys), found)

    def targets(self, values: pa.RecordBatch, base: str) -> tuple[Any, tuple[str, ...]]:
        """For rows of the directory `base` with these new values: codes and directories."""
        own = [key for key in self.keys if key in _keys_of(base)]
        codes, found = partition_directories(values, own)
        types = {key: values.schema.field(key).type for key in own}
        return codes, tuple(self._spelled(base, target, types) for target in found)

    def _spelled(self, base: str, target: str, types: Mapping[str, Any]) -> str:
        """The base with other values in it: what stays as it is keeps its spelling."""
        new = {part.key: part for part in parse_partition(target)}
        segments = []
        for raw in base.split("/"):
            parts = parse_partition(raw)
            wanted = new.get(parts[0].key) if parts else None
            if wanted is None or wanted.value == canonical_of(parts[0].value, types[wanted.key]):
                segments.append(raw)
            else:
                segments.append(self.segment(wanted.key, wanted.value))
        return "/".join(segments)

    def segment(self, key: str, text: str | None) -> str:
        """One segment, as the dataset spells it."""
        return self.spellings.get((key, text)) or format_partition([(key, text)])

    def whole(self, values: pa.RecordBatch) -> tuple[Any, tuple[str, ...]]:
        """For new rows: codes and directories, made of all keys alone."""
        codes, found = partition_directories(values, self.keys)
        return codes, tuple(
            "/".join(self.segment(part.key, part.value) for part in parse_partition(target))
            for target in found
        )


def _keys_of(directory: str) -> frozenset[str]:
    return frozenset(part.key for part in parse_partition(directory))
