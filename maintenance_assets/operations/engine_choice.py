"""Which engine does the work: the one that was asked for, or one that fits the plan."""

from dataclasses import dataclass

from maintenance_assets.engines.protocol import Engine, Places, Resources
from maintenance_assets.engines.registry import get_engine
from maintenance_assets.engines.repartition_task import RepartitionTask
from maintenance_assets.engines.spark_session import active_session
from maintenance_assets.errors import EngineUnavailableError
from maintenance_assets.model.plans import RewriteGroup
from maintenance_assets.model.policy import MIB
from maintenance_assets.storage.filesystems import Store

AUTO = "auto"
_DISTRIBUTE_FACTOR = 8
"""Below this many memory budgets of decoded data, one process is done before Spark has begun."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and why it is this one."""

    engine: Engine
    reason: str


def requested_engine(engine: str | Engine) -> EngineChoice | None:
    """The engine of that name (or the given one); None when the plan is to decide."""
    if engine == AUTO:
        return None
    return EngineChoice(get_engine(engine), "asked for")


def fitting_engine(
    groups: tuple[RewriteGroup, ...], store: Store, resources: Resources
) -> EngineChoice:
    """Spark for much data where a session is there, DuckDB for what it can copy, else PyArrow."""
    if groups and all(group.mode == "stitch" for group in groups):
        return _choice("pyarrow", f"all row groups of {len(groups)} group(s) are copied")
    # What is copied takes no memory and gains nothing from an engine.
    groups = tuple(group for group in groups if group.mode != "stitch")
    decoded = sum(file.decoded_bytes for group in groups for file in group.files)
    size = f"{decoded / MIB:,.0f} MiB decoded in {len(groups)} group(s)"
    budget = f"{resources.memory_bytes / MIB:,.0f} MiB"
    if decoded <= resources.memory_bytes:
        return _choice("pyarrow", f"{size} fit the memory budget of {budget}")
    if decoded > _DISTRIBUTE_FACTOR * resources.memory_bytes and len(groups) > 1:
        spark = _choice(
            "spark",
            f"{size} are many times the memory budget of {budget}, and a Spark session is active",
        )
        if _has_session() and _writes_all(spark.engine, groups, store):
            return spark
    duckdb = _choice(
        "duckdb", f"{size} exceed the memory budget of {budget}, and DuckDB keeps every column"
    )
    if _writes_all(duckdb.engine, groups, store):
        return duckdb
    return _choice("pyarrow", f"{size} have columns that only PyArrow keeps")


def fitting_repartition(
    task: RepartitionTask, source: Store, target: Store, resources: Resources
) -> EngineChoice:
    """Spark for much data where a session is there, else PyArrow, which spills as well."""
    size = f"{task.decoded_bytes / MIB:,.0f} MiB decoded"
    budget = f"{resources.memory_bytes / MIB:,.0f} MiB"
    if task.decoded_bytes > _DISTRIBUTE_FACTOR * resources.memory_bytes and _has_session():
        spark = _choice(
            "spark",
            f"{size} are many times the memory budget of {budget}, and a Spark session is active",
        )
        seen = spark.engine.foresee_repartition(task, Places(source, target), False)
        if seen.engine == spark.engine.name:
            return spark
    return _choice("pyarrow", f"{size}, and what exceeds the memory budget of {budget} is spilled")


def _has_session() -> bool:
    try:
        return active_session() is not None
    except EngineUnavailableError:
        return False  # its Java has died: another engine can still do the work


def _choice(name: str, reason: str) -> EngineChoice:
    return EngineChoice(get_engine(name), reason)


def _writes_all(engine: Engine, groups: tuple[RewriteGroup, ...], store: Store) -> bool:
    return all(engine.foresee(group, store, False).engine == engine.name for group in groups)
