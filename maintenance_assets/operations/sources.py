"""Rows that lie in Parquet files, as a stream: what a change takes its new data from."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from maintenance_assets.engines.read_kernel import read_file
from maintenance_assets.model.files import DataFile
from maintenance_assets.model.policy import MIB
from maintenance_assets.planning.schema_drift import SchemaSource, merge_schemas
from maintenance_assets.storage.discovery import list_dataset, select
from maintenance_assets.storage.filesystems import Listed, Store, open_store
from maintenance_assets.storage.footers import read_footers

_BATCH_BYTES = 16 * MIB


def read_rows(
    path: str | os.PathLike[str],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatchReader:
    """The rows of a Parquet file or of all that lie in a directory, in one schema for all.

    Columns come from the files alone; what only the path says is not read.
    """
    store = open_store(path, filesystem, storage_options)
    files = read_footers(store, _listed(store))
    schema = merge_schemas([SchemaSource(file.path, file.schema.arrow) for file in files]).schema
    return pa.RecordBatchReader.from_batches(schema, _batches(store, files, schema))


def _batches(
    store: Store, files: tuple[DataFile, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from read_file(file, schema, store, _BATCH_BYTES)


def _listed(store: Store) -> tuple[Listed, ...]:
    file = store.stat(store.root)
    if file is not None and not store.fs.isdir(store.root):
        return (file,)
    return select(store, list_dataset(store).data, None)
