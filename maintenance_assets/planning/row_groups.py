"""Row groups of a group of files: which of them are good enough to be copied as they are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from maintenance_assets.model.files import DataFile
from maintenance_assets.model.plans import WriterOptions
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.dictionaries import has_nested_dictionary, has_ordered_dictionary

HEALTHY_ROWS = 100_000
HEALTHY_BYTES = 1_000_000
"""A row group with as many rows or compressed bytes is as good as one that is written anew."""
_HEALTHY_DECODED = 32 * MIB
# What a reader does about a file depends on who wrote it: of these all readers trust everything.
_TRUSTED = (
    (re.compile(r"parquet-cpp-arrow version (\d+)\.(\d+)"), (3, 0)),
    (re.compile(r"parquet-mr version (\d+)\.(\d+)"), (1, 11)),
    (re.compile(r"parquet-mr compatible Photon version (\d+)\.(\d+)"), (0, 0)),
    (re.compile(r"DuckDB version v(\d+)\.(\d+)"), (0, 10)),
    (re.compile(r"Polars(?: \(\w+\) version (\d+)\.(\d+))?"), (0, 0)),
    (re.compile(r"(?:parquet-rs|datafusion) version (\d+)\.(\d+)"), (10, 0)),
    (re.compile(r"delta-rs version (?:py-|rust-)?(\d+)\.(\d+)"), (0, 10)),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A row group, or all of a file whose row groups are not known."""

    file: int
    """Which file of the group."""
    first: int
    stop: int
    rows: int
    obstacle: str | None
    """Why it cannot be copied."""
    healthy: bool
    """Whether it is copied wherever that is possible: a small one becomes part of a larger one."""


def units_of(
    files: Sequence[DataFile], schema: pa.Schema, writer: WriterOptions, *, any_size: bool
) -> list[Unit]:
    """All row groups that have rows, in order; `any_size` takes small ones for healthy."""
    units: list[Unit] = []
    known: dict[tuple[str, tuple[str, ...], bool, str], str | None] = {}
    for number, file in enumerate(files):
        key = file.schema.fingerprint, file.codecs, file.mixes_codecs, file.created_by
        if key not in known:
            known[key] = _obstacle(file, schema, writer)
        groups, obstacle = file.row_groups, known[key]
        if not groups and file.num_rows:
            why = "the row groups of a file are not known"
            units.append(Unit(number, 0, file.row_group_count, file.num_rows, why, False))
        for at, (rows, size) in enumerate(groups):
            if rows:
                healthy = obstacle is None and (any_size or _is_healthy(file, rows, size))
                units.append(Unit(number, at, at + 1, rows, obstacle, healthy))
    return units


def group_obstacle(files: Sequence[DataFile], schema: pa.Schema) -> str | None:
    """Why nothing of a group can be copied."""
    if not any(file.num_rows for file in files):
        return "there are no rows"
    if not len(schema):
        return "there are no columns"
    if has_ordered_dictionary(schema):
        return "a column has ordered categories, which have to be compared"
    if has_nested_dictionary(schema):
        return "PyArrow reads categories inside a nested column from one row group only"
    return None


def _is_healthy(file: DataFile, rows: int, size: int) -> bool:
    decoded = file.decoded_bytes * rows // file.num_rows
    return rows >= HEALTHY_ROWS or size >= HEALTHY_BYTES or decoded >= _HEALTHY_DECODED


def _obstacle(file: DataFile, schema: pa.Schema, writer: WriterOptions) -> str | None:
    if not file.schema.arrow.equals(schema, check_metadata=False):
        return "the columns of some files are not those of the output"
    codecs = dict(writer.column_codecs)
    wanted = tuple(codecs.get(path, writer.codec) for path in file.schema.leaf_paths)
    if file.codecs != wanted or file.mixes_codecs:
        return "some files are compressed in another way than the output"
    if not _is_trusted(file.created_by):
        return f"the writer '{file.created_by}' is not known"
    return None


def _is_trusted(created_by: str) -> bool:
    for pattern, oldest in _TRUSTED:
        match = pattern.match(created_by)
        if match is not None:
            return tuple(int(part or 0) for part in match.groups()) >= oldest
    return False
