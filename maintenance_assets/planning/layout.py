"""The layout record in a file's metadata: written by optimize, dropped by whatever moves rows.

It is ordinary metadata, so others may copy it together with a schema. It counts only for a file
that has our name, the number of rows that we gave it, and the index that we always write.
"""

import hashlib
import json
import re
from typing import Any

import pyarrow as pa

from maintenance_assets.model.clustering import CURVES, Clustering, Layout
from maintenance_assets.model.files import DataFile
from maintenance_assets.planning.file_metadata import LAYOUT

_OPTIMIZED = re.compile(r"optimized-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")


def with_layout(schema: pa.Schema, layout: Layout) -> pa.Schema:
    """The schema whose files say how they are laid out."""
    record = {
        "curve": layout.curve,
        "columns": list(layout.columns),
        "bits": layout.bits,
        "grid": layout.grid,
        "run": layout.run,
        "files": layout.files,
        "target_bytes": layout.target_bytes,
        "target_rows": layout.target_rows,
        "rows": list(layout.rows),
        "depths": list(layout.depths),
    }
    return schema.with_metadata({**(schema.metadata or {}), LAYOUT: json.dumps(record).encode()})


def layout_of(file: DataFile) -> Layout | None:
    """The layout of a file; None when there is none that we understand, or it is not its own."""
    layout = _recorded(file.schema.arrow)
    if layout is None or file.num_rows not in layout.rows or not file.has_page_index:
        return None
    return layout if _OPTIMIZED.fullmatch(file.path.rpartition("/")[2]) else None


def _recorded(schema: pa.Schema) -> Layout | None:
    try:
        record: Any = json.loads((schema.metadata or {})[LAYOUT])
        lists = {name: tuple(record[name]) for name in ("columns", "rows", "depths")}
        layout = Layout(**{**record, **lists})
    except (KeyError, TypeError, ValueError):
        return None
    return layout if layout.curve in CURVES else None


def grid_hash(clustering: Clustering) -> str:
    """A short name of the boundaries: equal samples have equal ones."""
    digest = hashlib.sha256()
    for ranks in clustering.ranks:
        digest.update(repr((ranks.column, ranks.values.to_pylist())).encode())
        digest.update(ranks.at.tobytes() + ranks.below.tobytes())
    return digest.hexdigest()[:16]
