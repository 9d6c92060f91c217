"""The table of engines: a new engine is one file and one line here."""

from importlib import import_module

from maintenance_assets.engines.protocol import Engine

_ENGINES = {
    "pyarrow": "maintenance_assets.engines.pyarrow_engine:PyArrowEngine",
    "duckdb": "maintenance_assets.engines.duckdb_engine:DuckDBEngine",
}


def engine_names() -> tuple[str, ...]:
    """Names that `engine=` takes."""
    return tuple(_ENGINES)


def get_engine(name: object) -> Engine:
    """The engine of that name; its library is imported only now."""
    if not isinstance(name, str) or name not in _ENGINES:
        known = ", ".join(_ENGINES)
        raise ValueError(f"Unknown engine {name!r}. Known engines: {known}")
    module, _, attribute = _ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)()
    return engine
