"""What runs got done, as Dagster remembers it: nothing of it is kept anywhere else."""

import dagster

from maintenance_assets.planning.worth import Throughput, throughput_of

_RUNS = 20
"""Older ones hardly count: each new one moves the estimate by three tenths."""


def measured_throughput(
    instance: dagster.DagsterInstance, asset_key: dagster.AssetKey, engine: str
) -> Throughput:
    """The throughput of an engine on a dataset, learnt from its newest materializations."""
    records = instance.fetch_materializations(asset_key, limit=_RUNS).records
    known = throughput_of(engine)
    for record in reversed(records):
        event = record.asset_materialization
        if event is not None and _value(event, "engine") == engine:
            size, seconds = _value(event, "rewritten_bytes"), _value(event, "seconds")
            if isinstance(size, int) and isinstance(seconds, int | float):
                known = known.learned(size, float(seconds))
    return known


def _value(event: dagster.AssetMaterialization, name: str) -> object:
    found = event.metadata.get(name)
    return None if found is None else found.value
