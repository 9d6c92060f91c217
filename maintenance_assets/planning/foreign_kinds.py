"""Which library an expression comes from; the library is only loaded if it is already."""

import sys
from typing import Any

import pyarrow.compute as pc

from maintenance_assets.planning.foreign import ForeignExpression


def foreign_expression(value: Any) -> ForeignExpression | None:
    """An expression of polars or pyarrow, checked; None for any other value."""
    if isinstance(value, pc.Expression):
        from maintenance_assets.planning.foreign_arrow import from_arrow

        return from_arrow(value)
    # Who has a polars expression has imported polars.
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(value, polars.Expr):
        from maintenance_assets.planning.foreign_polars import from_polars

        return from_polars(value)
    return None
