"""A process with a Spark session of its own that compacts what it is told to.

It reads one JSON request per line and answers each with one line, so that a test can look at (or
kill) what runs in between. Run as `python -m maintenance_tests.spark.child <settings as JSON>`;
without settings the engine finds or makes its session by itself.
"""

import json
import sys
from typing import Any

ANSWER = "ANSWER "


def main() -> None:
    """Answer requests until there are no more."""
    settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else None
    session = start(settings) if settings else None
    answer({"ready": True})
    for line in sys.stdin:
        answer(handle(json.loads(line)))
    if session is not None:
        session.stop()


def start(settings: dict[str, str]) -> Any:
    """A classic session."""
    from pyspark.sql import SparkSession

    from maintenance_assets.engines.spark_session import launch_environment

    with launch_environment():
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Compact, or cluster by columns, and tell what came of it."""
    from maintenance_assets import CompactionResult, compact, optimize
    from maintenance_assets.engines.spark_engine import SparkEngine

    options = dict(request.get("options", {}))
    if "control" in request:
        from maintenance_tests.spark.pausing_files import PausingFileSystem

        options["filesystem"] = PausingFileSystem(control=request["control"])
    try:
        result: CompactionResult
        if "columns" in request:
            engine = SparkEngine(shuffle_bytes=0)
            result = optimize(request["url"], request["columns"], engine=engine, **options)
        else:
            result = compact(request["url"], engine="spark", **options)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {
        "stats": result.to_dict(),
        "written_by": result.written_by,
        "notes": result.engine_notes,
        "modules": [name for name in ("pyspark", "duckdb") if name in sys.modules],
        "session": describe_session(),
    }


def describe_session() -> dict[str, str] | None:
    """What session this process has now."""
    from maintenance_assets.engines.spark_session import active_session, is_connect

    session = active_session()
    if session is None:
        return None
    names = ("spark.master", "spark.ui.enabled", "spark.driver.host")
    return {name: session.conf.get(name, "") for name in names} | {
        "kind": "connect" if is_connect(session) else "classic"
    }


def answer(content: dict[str, Any]) -> None:
    """One line on the standard output, where Spark may write as well."""
    print(ANSWER + json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
