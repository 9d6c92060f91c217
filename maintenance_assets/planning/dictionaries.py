"""Columns of categories, and where they are."""

import pyarrow as pa


def has_ordered_dictionary(schema: pa.Schema) -> bool:
    """Whether a column has categories with an order."""
    return any(pa.types.is_dictionary(field.type) and field.type.ordered for field in schema)


def has_dictionary(schema: pa.Schema) -> bool:
    """Whether any column is a dictionary or holds one."""
    return any(_has_dictionary(field.type) for field in schema)


def has_nested_dictionary(schema: pa.Schema) -> bool:
    """Whether a dictionary is inside a list, map or struct."""
    return any(
        not pa.types.is_dictionary(field.type) and _has_dictionary(field.type) for field in schema
    )


def _has_dictionary(type_: pa.DataType) -> bool:
    return pa.types.is_dictionary(type_) or any(
        _has_dictionary(type_.field(i).type) for i in range(type_.num_fields)
    )
