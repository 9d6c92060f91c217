"""Rows from a file on this machine, in the types of the dataset that they are for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from maintenance_assets.cli.csv_rows import read_csv
from maintenance_assets.planning.partitions import known_partition_keys
from maintenance_assets.storage.discovery import list_dataset
from maintenance_assets.storage.filesystems import Store
from maintenance_assets.storage.footers import read_footer

Types = dict[str, Any]


def read_rows(file: Path, types: Types) -> pa.Table:
    """A table from a Parquet, CSV or JSON file, by the end of its name.

    Text has no types of its own: columns of CSV and JSON that the dataset has are read as there.
    """
    if not file.exists():
        raise FileNotFoundError(f"New data '{file}' does not exist")
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"new data must be a .parquet, .csv or .json file, got '{file}'")
    try:
        return reader(file, types)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"new data '{file}' cannot be read: {error}") from error


def _parquet(file: Path, types: Types) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(file, partitioning=None)


def _csv(file: Path, types: Types) -> pa.Table:
    return read_csv(file, _plain_of(types))


def _json(file: Path, types: Types) -> pa.Table:
    from pyarrow import json

    schema = pa.schema(list(_plain_of(types).items()))
    # Columns that the file does not have would otherwise come out as null, and be written so.
    found = set(json.read_json(file).column_names)
    wanted = pa.schema([field for field in schema if field.name in found])
    return json.read_json(file, parse_options=json.ParseOptions(explicit_schema=wanted))


_READERS: dict[str, Callable[[Path, Types], pa.Table]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
}


def types_in(store: Store) -> Types:
    """The columns of the newest file, by name, and those that are in its path alone."""
    if not store.exists(store.root):
        return {}
    listed = list_dataset(store).data
    if not listed:
        return {}
    file = read_footer(store, listed[-1])
    in_path: Types = dict.fromkeys(
        known_partition_keys([store.relative(file.directory)]), pa.string()
    )
    in_file = {field.name: field.type for field in file.schema.arrow}
    return in_path | in_file


def _plain_of(types: Types) -> Types:
    """No reader makes dictionaries of text by itself."""
    return {
        name: type_.value_type if pa.types.is_dictionary(type_) else type_
        for name, type_ in types.items()
    }
