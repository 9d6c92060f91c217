"""Sizes and columns of many files, summed up for a reader. Pure: no I/O, no clock."""

from collections import Counter
from collections.abc import Iterable, Sequence

from maintenance_assets.model.files import DataFile
from maintenance_assets.model.policy import MIB
from maintenance_assets.model.status import DriftedColumn, SizeBucket

_BOUNDS = (4 * 1024, 64 * 1024, MIB, 16 * MIB, 64 * MIB, 128 * MIB, 256 * MIB, 1024 * MIB)
MOST_COLUMNS = 50
_TYPE_CHARACTERS = 200


def size_histogram(sizes: Iterable[int]) -> tuple[SizeBucket, ...]:
    """How many files there are of which size."""
    files, total = [0] * (len(_BOUNDS) + 1), [0] * (len(_BOUNDS) + 1)
    for size in sizes:
        place = next((i for i, bound in enumerate(_BOUNDS) if size < bound), len(_BOUNDS))
        files[place] += 1
        total[place] += size
    bounds = (*_BOUNDS, None)
    return tuple(SizeBucket(b, f, t) for b, f, t in zip(bounds, files, total, strict=True))


def drifted_columns(files: Sequence[DataFile]) -> tuple[DriftedColumn, ...]:
    """Top-level columns that some files have in another type, or not at all."""
    schemas = {file.schema.fingerprint: file.schema.arrow for file in files}
    weights = Counter(file.schema.fingerprint for file in files)
    types: dict[str, Counter[str]] = {}
    for fingerprint, schema in schemas.items():
        # A name may be there twice: it counts once.
        for name, type_ in {field.name: str(field.type) for field in schema}.items():
            shown = type_[:_TYPE_CHARACTERS]
            types.setdefault(name, Counter())[shown] += weights[fingerprint]
    found = [
        DriftedColumn(name, dict(counted.most_common()), len(files) - counted.total())
        for name, counted in types.items()
        if len(counted) > 1 or counted.total() < len(files)
    ]
    return tuple(found[:MOST_COLUMNS])


def schema_count(files: Iterable[DataFile]) -> int:
    """How many schemas there are; what their metadata says makes no other one."""
    schemas = {file.schema.fingerprint: file.schema.arrow for file in files}
    return len({s.remove_metadata().serialize().to_pybytes() for s in schemas.values()})
