"""Which columns of a file are worth a dictionary: where values repeat, and not where they do not.

PyArrow would make one for every column and find out when it is too large; a look at some rows tells
sooner, and files without useless dictionaries are smaller and written in half the time.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from maintenance_assets.model.plans import WriterOptions

_LEAST_ROWS = 2048
"""Smaller row groups are not worth the look."""
_SAMPLE = 1024
_MOST_DISTINCT = 0.5
_MOST_BYTES = 1024 * 1024
"""PyArrow gives a dictionary up when it is larger."""


def useless_dictionaries(group: pa.Table) -> tuple[str, ...]:
    """Columns of a row group whose values hardly repeat."""
    if group.num_rows < _LEAST_ROWS:
        return ()
    names = [field.name for field in group.schema if _is_asked(field)]
    rows = pa.array(np.linspace(0, group.num_rows - 1, _SAMPLE).astype(np.int64))
    sample = group.select(names).take(rows) if names else group
    return tuple(name for name in names if not _is_useful(sample.column(name), group.num_rows))


def with_useful_dictionaries(options: WriterOptions, group: pa.Table) -> WriterOptions:
    """The same options, but no dictionary where a row group would not gain by it.

    What is said of a column already stays.
    """
    plain = dict.fromkeys(useless_dictionaries(group), "PLAIN")
    encodings = {**plain, **dict(options.column_encodings)}
    return replace(options, column_encodings=tuple(encodings.items()))


def _is_asked(field: Any) -> bool:
    """Flat columns of values; names with dots could be fields of a struct."""
    type_ = field.type
    return not (
        "." in field.name
        or type_.num_fields
        or isinstance(type_, pa.BaseExtensionType)
        or pa.types.is_dictionary(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_null(type_)
        or pa.types.is_string_view(type_)
        or pa.types.is_binary_view(type_)
    )


def _is_useful(sample: Any, rows: int) -> bool:
    values = sample.drop_null()
    if not len(values):
        return True
    expected = _distinct(len(values.unique()), len(values), rows)
    width = max(1, values.nbytes // len(values))
    return expected <= _MOST_DISTINCT * rows and expected * width <= _MOST_BYTES


def _distinct(found: int, sample: int, rows: int) -> float:
    """How many different values so many rows have, if some of them have so many."""
    if found == sample:
        return float(rows)
    low, high = float(found), float(sample) * sample
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _seen(middle, sample) < found else (low, middle)
    return min(float(rows), _seen(high, rows))


def _seen(values: float, rows: int) -> float:
    """How many of equally likely values are met in so many rows."""
    return -values * math.expm1(-rows / values)
