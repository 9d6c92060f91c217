"""Reading through a catalog, next to scanning the directory; planning with very many files."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.commits import iceberg_catalog
from benchmarks.harness import Case, Line, run_case

ROWS_PER_FILE = 2000
FILES = (1000, 10_000)
PLANNED_FILES = 100_000
SCANS, GLOB = "pyarrow.dataset over the directory", "DuckDB over the glob"
DELTA, ICEBERG = "delta-rs", "pyiceberg"
LEAST_TIMES = {SCANS: 2.0}
MOST_PLANNING_SECONDS = 1.0
ROUNDS = 3


# -- cases: each runs in a process of its own and returns figures ------------------------------


def write_events(folder: Path, files: int) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for number in range(files):
        ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        table = pa.table({"id": pa.array(ids), "value": [float(i % 97) for i in ids]})
        pq.write_table(table, folder / f"part-{number:06}.parquet")
    return {}


def register(folder: Path, catalog: str) -> dict[str, Any]:
    from maintenance_assets import Lakehouse

    started = time.perf_counter()
    with Lakehouse(catalog) as house:
        house.register("events", folder)
    return {"seconds": time.perf_counter() - started}


def read_catalog(catalog: str, value: int) -> dict[str, Any]:
    from maintenance_assets import Lakehouse

    with Lakehouse(catalog) as house:
        dataset = house.dataset("events")
        return _best(lambda: dataset.read(where=f"id = {value}").num_rows)


def read_directory(folder: Path, value: int) -> dict[str, Any]:
    import pyarrow.dataset as ds

    wanted = ds.field("id") == value
    return _best(lambda: ds.dataset(folder).to_table(filter=wanted).num_rows)


def read_glob(folder: Path, value: int) -> dict[str, Any]:
    import duckdb

    query = f"SELECT * FROM read_parquet('{folder}/*.parquet') WHERE id = {value}"
    return _best(lambda: duckdb.sql(query).to_arrow_table().num_rows)


def read_delta(folder: Path, value: int) -> dict[str, Any]:
    from deltalake import DeltaTable

    table = DeltaTable(str(folder))
    return _best(lambda: table.to_pyarrow_table(filters=[("id", "=", value)]).num_rows)


def add_to_iceberg(folder: Path, catalog: str) -> dict[str, Any]:
    """An Iceberg table of the very same files."""
    import pyarrow.parquet as pq

    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    found = iceberg_catalog(catalog, folder.with_name("warehouse"))
    found.create_namespace("bench")
    found.create_table("bench.events", schema=pq.read_schema(files[0])).add_files(files)
    return {}


def read_iceberg(folder: Path, catalog: str, value: int) -> dict[str, Any]:
    found = iceberg_catalog(catalog, folder.with_name("warehouse"))
    table = found.load_table("bench.events")
    return _best(lambda: table.scan(row_filter=f"id = {value}").to_arrow().num_rows)


def _best(read: Callable[[], int]) -> dict[str, Any]:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        rows = read()
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds), "rows": rows}


def plan_many(catalog: str, files: int) -> dict[str, Any]:
    """Plan reads of a dataset whose files exist in the catalog alone."""
    import pyarrow as pa

    from maintenance_assets import Lakehouse
    from maintenance_assets.catalog.statistics import encode_bound
    from maintenance_assets.model.lakehouse import (
        Change,
        ColumnStatistics,
        NewFile,
        PhysicalSchema,
    )
    from maintenance_assets.operations.lake_scan import plan_scan

    def bounds(number: int) -> ColumnStatistics:
        low, high = pa.scalar(number * 10), pa.scalar(number * 10 + 9)
        return ColumnStatistics(
            1, 0, encode_bound(low, upper=False), encode_bound(high, upper=True)
        )

    with Lakehouse(catalog) as house:
        house.create_dataset("many", {"id": "int64"})
        session = house._session
        state = session.reader.dataset("many")
        physical = PhysicalSchema(state.schema.with_ids, (("id", 1),))
        added = tuple(
            NewFile(f"part-{n:06}.parquet", 1, 10, physical, (), (10,), (bounds(n),))
            for n in range(files)
        )
        with session.transaction(state, "append") as transaction:
            transaction.commit(Change("append", added=added))
        state = session.reader.dataset("many")
        where = f"id = {files * 5}"
        return _best(lambda: len(plan_scan(session, state, state.head, where).files))


# -- measures ----------------------------------------------------------------------------------


def catalog_selective_reads(work: Path) -> list[Line]:
    lines = []
    for files in FILES:
        folder, catalog = work / f"events-{files}", f"sqlite:///{work}/catalog-{files}.db"
        run_case("catalog write", folder=folder, files=files)
        value = files * ROWS_PER_FILE // 2 + 7
        others = _read_by_others(folder, value)
        registered = run_case("catalog register", folder=folder, catalog=catalog)
        ours = run_case("catalog read", catalog=catalog, value=value)
        case = f"look up one of {files * ROWS_PER_FILE / 1e6:.0f} M rows in {files} files"
        lines.append(Line(case, "registering", f"{registered['seconds']:.2f} s"))
        lines.append(Line(case, "through the catalog", f"{ours['seconds'] * 1000:.1f} ms"))
        for name, found in others.items():
            times = found["seconds"] / ours["seconds"]
            shown = f"{found['seconds'] * 1000:.1f} ms ({times:.1f} x ours)"
            same, least = found["rows"] == ours["rows"] == 1, LEAST_TIMES.get(name, 0.0)
            bound = f">= {least:.0f} x" if least else ""
            lines.append(Line(case, name, shown, bound, same and times >= least))
        shutil.rmtree(folder)
    return lines


def _read_by_others(folder: Path, value: int) -> dict[str, dict[str, Any]]:
    """The same look-up of the same files; a table of each format is made of them beforehand."""
    found = {
        SCANS: run_case("catalog read directory", folder=folder, value=value),
        GLOB: run_case("catalog read glob", folder=folder, value=value),
    }
    iceberg = f"sqlite:///{folder}-iceberg.db"
    run_case("catalog add to iceberg", folder=folder, catalog=iceberg)
    found[ICEBERG] = run_case("catalog read iceberg", folder=folder, catalog=iceberg, value=value)
    delta = folder.with_name("delta")
    shutil.copytree(folder, delta)
    run_case("convert_to_delta", folder=delta)
    found[DELTA] = run_case("catalog read delta", folder=delta, value=value)
    shutil.rmtree(delta)
    shutil.rmtree(folder.with_name("warehouse"))
    return found


def catalog_planning(work: Path) -> list[Line]:
    found = run_case("catalog plan", catalog=f"sqlite:///{work}/many.db", files=PLANNED_FILES)
    holds = found["seconds"] < MOST_PLANNING_SECONDS and found["rows"] == 1
    shown = f"{found['seconds']:.2f} s"
    bound = f"< {MOST_PLANNING_SECONDS:.0f} s"
    return [Line(f"plan a look-up in {PLANNED_FILES} files", "SQLite", shown, bound, holds)]


MEASURES = (catalog_selective_reads, catalog_planning)
CASES: dict[str, Case] = {
    "catalog write": lambda a: write_events(Path(a["folder"]), a["files"]),
    "catalog register": lambda a: register(Path(a["folder"]), a["catalog"]),
    "catalog read": lambda a: read_catalog(a["catalog"], a["value"]),
    "catalog read directory": lambda a: read_directory(Path(a["folder"]), a["value"]),
    "catalog read glob": lambda a: read_glob(Path(a["folder"]), a["value"]),
    "catalog read delta": lambda a: read_delta(Path(a["folder"]), a["value"]),
    "catalog add to iceberg": lambda a: add_to_iceberg(Path(a["folder"]), a["catalog"]),
    "catalog read iceberg": lambda a: read_iceberg(Path(a["folder"]), a["catalog"], a["value"]),
    "catalog plan": lambda a: plan_many(a["catalog"], a["files"]),
}
