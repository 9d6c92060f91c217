"""The table of engines: a new engine is one file and one line here."""

from importlib import import_module

from maintenance_assets.engines.protocol import Engine

_ENGINES = {
    "pyarrow": "maintenance_assets.engines.pyarrow_engine:PyArrowEngine",
    "duckdb": "maintenance_assets.engines.duckdb_engine:DuckDBEngine",
    "spark": "maintenance_assets.engines.spark_engine:SparkEngine",
}


def engine_names() -> tuple[str, ...]:
    """Names that `engine=` takes."""
    return tuple(_ENGINES)


def get_engine(engine: str | Engine) -> Engine:
    """The engine of that name, or the given one; its library is imported only now."""
    if not isinstance(engine, str) and hasattr(engine, "rewrite"):
        return engine
    if not isinstance(engine, str) or engine not in _ENGINES:
        known = ", ".join(_ENGINES)
        raise ValueError(f"Unknown engine {engine!r}. Known engines: {known}, auto")
    module, _, attribute = _ENGINES[engine].partition(":")
    found: Engine = getattr(import_module(module), attribute)()
    return found
