"""Reads a dataset in a loop until told to stop: `reader ROOT pyarrow|duckdb`."""

import json
import select
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset

from maintenance_tests.crash.helpers import visible_files

MAX_READS = 100_000


def read_pyarrow(root: Path) -> list[int]:
    """List, then read what was listed."""
    files = [str(path) for path in visible_files(root)]
    dataset = pyarrow.dataset.dataset(files, format="parquet")
    found: list[int] = dataset.to_table(columns=["id"]).column("id").to_pylist()
    return found


def read_duckdb(root: Path) -> list[int]:
    """The glob that users write; it also looks into folders that start with `_`."""
    query = "SELECT id FROM read_parquet(?, hive_partitioning = false)"
    rows = duckdb.execute(query, [f"{root}/**/*.parquet"]).fetchall()
    return [row[0] for row in rows]


READERS: dict[str, Callable[[Path], list[int]]] = {"pyarrow": read_pyarrow, "duckdb": read_duckdb}


def main(root: Path, kind: str) -> None:
    """Ids are dense, so a complete read is exactly 0..n-1, and n never shrinks."""
    read = READERS[kind]
    complete = again = largest = 0
    problems: list[str] = []
    for _ in range(MAX_READS):
        try:
            found = sorted(read(root))
        except (FileNotFoundError, duckdb.IOException, pa.ArrowInvalid) as error:
            # A listed file was gone (or, for duckdb, swapped away) when it was opened: list again.
            again += 1
            if isinstance(error, pa.ArrowInvalid):
                problems.append(f"unreadable: {error}")
        else:
            complete += 1
            if found != list(range(len(found))) or len(found) < largest:
                distinct = len(set(found))
                problems.append(f"{len(found)} rows, {distinct} distinct, {largest} before")
            largest = max(largest, len(set(found)))
            if complete == 1:
                print("ready", flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    print(json.dumps({"complete": complete, "again": again, "rows": largest, "bad": problems}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
