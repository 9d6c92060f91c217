"""What a rule gets to see of rows: the columns it reads, in the types of the dataset."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from maintenance_assets.engines.conform import conform_batch


def view_rows(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, Any], path: str
) -> pa.RecordBatch:
    """The columns of a schema; those that the file does not hold have one value for all rows."""
    held = pa.schema([field for field in schema if field.name not in constants])
    found = conform_batch(batch, held, path)  # of no columns, it forgets how many rows there are
    return with_constants(found, schema, constants, batch.num_rows)


def with_constants(
    found: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, Any], rows: int
) -> pa.RecordBatch:
    """The columns that were read together with those that have one value."""
    if not len(schema):
        # `TRUE` reads no column: a batch without columns has to remember its length.
        buffers = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
        return pa.RecordBatch.from_struct_array(buffers)
    arrays = [
        repeated(constants[field.name], rows)
        if field.name in constants
        else found.column(found.schema.get_field_index(field.name))
        for field in schema
    ]
    if not arrays:  # a rule may read nothing, but a batch without columns forgets its rows
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
    return pa.RecordBatch.from_arrays(arrays, schema=schema.remove_metadata())


def repeated(value: Any, rows: int) -> Any:
    """One value for many rows."""
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)
