"""Compaction on an object store (SeaweedFS on this machine), next to other tools."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import MIB, Case, Line, PeakMemory, run_case
from benchmarks.stitch import MOST_TIMES_COPY, TARGET_MB

ROUNDS = 2
PYARROW, DUCKDB, COPY = "ours on pyarrow", "ours on duckdb", "raw byte copy"
PEERS = ("DuckDB COPY", "Polars sink", "PyArrow write_dataset", "delta-rs compact")
# Name, files, rows of a file, rows of a row group, whether all is copied.
KINDS = (
    ("S3, healthy row groups (2 MB)", 8, 900_000, 100_000, True),
    ("S3, tiny row groups (1,000 rows)", 200, 10_000, 1_000, False),
)
Options = dict[str, Any]


# -- cases: each runs in a process of its own and returns figures ------------------------------


def upload(folder: Path, place: str, options: Options) -> dict[str, Any]:
    """The files of a folder as objects."""
    import s3fs

    store = s3fs.S3FileSystem(**options)
    store.put([str(path) for path in sorted(folder.iterdir())], f"{place}/")
    return {}


def to_delta(place: str, options: Options) -> dict[str, Any]:
    """A Delta table of the very same objects."""
    from deltalake import convert_to_deltalake

    convert_to_deltalake(f"s3://{place}", storage_options=_native(options))
    return {}


def compact_objects(tool: str, place: str, target: str, options: Options) -> dict[str, Any]:
    """Make few objects of many with one tool."""
    import s3fs

    store = s3fs.S3FileSystem(**options)
    store.ls(place)  # what it takes to connect is no part of the work
    work = _TOOLS[tool](place, target, options, store)
    with PeakMemory() as peak:
        started = time.perf_counter()
        files = work()
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "files": files, "peak_mb": peak.megabytes}


Work = Callable[[], int]


def _ours(engine: str, place: str, options: Options) -> Work:
    from maintenance_assets import compact
    from maintenance_assets.engines.registry import get_engine

    chosen = get_engine(engine)
    return lambda: (
        compact(
            f"s3://{place}", engine=chosen, target_mb_per_file=TARGET_MB, storage_options=options
        ).stats.after_file_count
    )


def _copy(place: str, target: str, _: Options, store: Any) -> Work:
    """Down to this machine and up again, several at once, as a rewrite would."""

    def work() -> int:
        contents = store.cat(store.find(place))
        store.pipe({f"{target}/{n}.parquet": data for n, data in enumerate(contents.values())})
        return len(contents)

    return work


def _duckdb(place: str, target: str, _: Options, store: Any) -> Work:
    import duckdb

    def work() -> int:
        with duckdb.connect() as connection:
            connection.register_filesystem(store)
            connection.execute(
                f"COPY (FROM read_parquet('s3://{place}/*.parquet')) "
                f"TO 's3://{target}/out.parquet' "
                "(FORMAT parquet, COMPRESSION snappy)"
            )
        return 1

    return work


def _polars(place: str, target: str, options: Options, _: Any) -> Work:
    import polars as pl

    native = _native(options)

    def work() -> int:
        frame = pl.scan_parquet(f"s3://{place}/*.parquet", storage_options=native)
        frame.sink_parquet(
            f"s3://{target}/out.parquet", compression="snappy", storage_options=native
        )
        return 1

    return work


def _pyarrow(place: str, target: str, options: Options, _: Any) -> Work:
    import pyarrow.dataset as ds
    import pyarrow.fs

    store = pyarrow.fs.S3FileSystem(
        access_key=options["key"],
        secret_key=options["secret"],
        endpoint_override=options["endpoint_url"],
        region="us-east-1",
    )

    def work() -> int:
        written: list[str] = []
        ds.write_dataset(
            ds.dataset(place, format="parquet", filesystem=store),
            target,
            format="parquet",
            filesystem=store,
            file_options=ds.ParquetFileFormat().make_write_options(compression="snappy"),
            max_rows_per_group=1024 * 1024,
            file_visitor=lambda file: written.append(file.path),
        )
        return len(written)

    return work


def _delta(place: str, _target: str, options: Options, _: Any) -> Work:
    from deltalake import DeltaTable, WriterProperties

    def work() -> int:
        table = DeltaTable(f"s3://{place}", storage_options=_native(options))
        snappy = WriterProperties(compression="SNAPPY")
        table.optimize.compact(target_size=TARGET_MB * MIB, writer_properties=snappy)
        return len(table.file_uris())

    return work


def _native(options: Options) -> dict[str, str]:
    """The same for tools that bring their own client."""
    return {
        "aws_access_key_id": options["key"],
        "aws_secret_access_key": options["secret"],
        "aws_endpoint_url": options["endpoint_url"],
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        "aws_s3_allow_unsafe_rename": "true",
    }


_TOOLS: dict[str, Callable[[str, str, Options, Any], Work]] = {
    PYARROW: lambda place, _target, options, _store: _ours("pyarrow", place, options),
    DUCKDB: lambda place, _target, options, _store: _ours("duckdb", place, options),
    COPY: _copy,
    "DuckDB COPY": _duckdb,
    "Polars sink": _polars,
    "PyArrow write_dataset": _pyarrow,
    "delta-rs compact": _delta,
}
CASES: dict[str, Case] = {
    "upload": lambda a: upload(Path(a["folder"]), a["place"], a["options"]),
    "objects to delta": lambda a: to_delta(a["place"], a["options"]),
    "compact objects": lambda a: compact_objects(a["tool"], a["place"], a["target"], a["options"]),
}


# -- measures ----------------------------------------------------------------------------------


def compaction_of_objects(work: Path) -> list[Line]:
    from maintenance_tests.servers import s3_server, weed_path

    weed = weed_path()
    if weed is None:
        raise RuntimeError("no SeaweedFS: install the dev extra")
    lines = []
    for name, files, rows, group_rows, healthy in KINDS:
        source = work / "source"
        source.mkdir()
        written = run_case(
            "write_ticks", folder=source, files=files, rows=rows, group_rows=group_rows
        )
        best: dict[str, dict[str, Any]] = {}
        for _ in range(ROUNDS):
            # A new server for each round: it does not give the room of deleted objects back.
            folder = work / "server"
            folder.mkdir()
            with s3_server(weed, folder) as server:
                _round(best, source, server.bucket, server.storage_options)
            shutil.rmtree(folder)
        case = f"{name}: {files} files, {written['bytes'] / MIB:,.0f} MiB"
        lines += _lines(case, best, healthy=healthy)
        shutil.rmtree(source)
    return lines


def _round(best: dict[str, Any], source: Path, bucket: str, options: Options) -> None:
    """All take turns, so that a slow moment of the machine does not hit one of them only."""
    for number, tool in enumerate(_TOOLS):
        place, target = f"{bucket}/input-{number}", f"{bucket}/output-{number}"
        run_case("upload", folder=source, place=place, options=options)
        if tool == "delta-rs compact":
            run_case("objects to delta", place=place, options=options)
        found = run_case("compact objects", tool=tool, place=place, target=target, options=options)
        if tool not in best or found["seconds"] < best[tool]["seconds"]:
            best[tool] = found


def _lines(case: str, best: dict[str, dict[str, Any]], *, healthy: bool) -> list[Line]:
    fastest = min(PEERS, key=lambda tool: best[tool]["seconds"])
    ours = best[PYARROW]["seconds"]
    peer, copied = best[fastest]["seconds"] / ours, ours / best[COPY]["seconds"]
    return [
        *(Line(case, tool, _text(found)) for tool, found in best.items()),
        # No bound: of what is moved once down and once up, no tool can be five times faster.
        Line(case, f"fastest peer ({fastest}) / {PYARROW}", f"{peer:.2f} x"),
        Line(
            case,
            f"{PYARROW} / {COPY}",
            f"{copied:.2f} x",
            f"<= {MOST_TIMES_COPY:g} x" if healthy else "",
            not healthy or copied <= MOST_TIMES_COPY,
        ),
    ]


def _text(found: dict[str, Any]) -> str:
    return f"{found['seconds']:.2f} s, {found['files']} files, peak {found['peak_mb']:,.0f} MB"


MEASURES = (compaction_of_objects,)
