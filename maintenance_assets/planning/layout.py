"""The layout record in a file's metadata: written by optimize, dropped by whatever moves rows."""

import hashlib
import json
from typing import Any

import pyarrow as pa

from maintenance_assets.model.clustering import CURVES, Clustering, Layout
from maintenance_assets.planning.file_metadata import LAYOUT


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
    }
    return schema.with_metadata({**(schema.metadata or {}), LAYOUT: json.dumps(record).encode()})


def layout_of(schema: pa.Schema) -> Layout | None:
    """The recorded layout; None when there is none, or none that we understand."""
    try:
        record: Any = json.loads((schema.metadata or {})[LAYOUT])
        layout = Layout(**{**record, "columns": tuple(record["columns"])})
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
