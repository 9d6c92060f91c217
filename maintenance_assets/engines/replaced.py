"""New values in some rows of a column."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.errors import RewriteError

Array = Any


def replaced(old: Array, rows: Array, new: Array, field: Any, path: str) -> Array:
    """The column with new values in these rows; RewriteError where it cannot hold them."""
    if not field.nullable and new.null_count:
        raise RewriteError(
            f"column '{field.name}' of '{path}' is required, but would become NULL in "
            f"{new.null_count} row(s)"
        )
    if pa.types.is_dictionary(old.type):
        return _replaced_category(old, rows, new, field, path)
    order = np.arange(len(old))
    order[rows] = len(old) + np.arange(len(rows))
    return pa.concat_arrays([old, new]).take(pa.array(order))


def _replaced_category(old: Array, rows: Array, new: Array, field: Any, path: str) -> Array:
    known = old.dictionary
    added = pc.drop_null(new.filter(pc.invert(pc.is_in(new, value_set=known))).unique())
    if len(added) and old.type.ordered:
        raise RewriteError(
            f"column '{field.name}' of '{path}' has categories with an order, in which "
            f"{added[0].as_py()!r} has no place"
        )
    dictionary = pa.concat_arrays([known, added]) if len(added) else known
    codes = pc.index_in(new, value_set=dictionary, skip_nulls=True)
    try:
        indices = replaced(
            old.indices, rows, codes.cast(old.type.index_type), field.with_nullable(True), path
        )
    except pa.ArrowInvalid as error:
        raise RewriteError(
            f"column '{field.name}' of '{path}' would have more categories than its index of type "
            f"{old.type.index_type} can count"
        ) from error
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=old.type.ordered)
