"""Writes into a dataset while it is maintained: `writer ROOT STAGING JSON`."""

import contextlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from maintenance_assets.storage.exchange import exchange_paths
from maintenance_tests.crash.helpers import table

_TRIES = 200


def append(root: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """New files, either under a temporary name first or written in place."""
    retries = 0
    start = plan["start"]
    for number in range(plan["files"]):
        directory = root / plan["directories"][number % len(plan["directories"])]
        name = f"{plan['kind']}-{number}.parquet"
        rows = table(range(start, start + plan["rows"]))
        start += plan["rows"]
        if plan["kind"] == "direct":
            pq.write_table(rows, directory / name)
        else:
            pq.write_table(rows, directory / f".{name}.tmp")
            retries += _rename(directory, name)
        time.sleep(random.uniform(0, 0.01))
    return {"retries": retries}


def _rename(directory: Path, name: str) -> int:
    """Between the swap and the carrying over, a temporary file is away for a moment."""
    for attempt in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            (directory / f".{name}.tmp").rename(directory / name)
            return attempt
        time.sleep(0.005)
    raise FileNotFoundError(name)


def change(root: Path, staging: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Replace or delete files at random moments, only those that still exist."""
    done = []
    for number, path in enumerate(plan["paths"]):
        time.sleep(random.uniform(0, plan["pause"]))
        if plan["kind"] == "delete":
            with contextlib.suppress(FileNotFoundError):
                (root / path).unlink()
                done.append(path)
            continue
        start = plan["start"] + number * plan["rows"]
        staged = staging / f"replacement-{number}.parquet"
        pq.write_table(table(range(start, start + plan["rows"])), staged)
        # Exchanging fails where the target is gone, in one step, unlike a plain rename.
        with contextlib.suppress(FileNotFoundError):
            assert exchange_paths(str(staged), str(root / path))
            done.append(path)
    return {"done": done}


def main(root: Path, staging: Path, plan: dict[str, Any]) -> None:
    """Say when it starts, work, and report."""
    print("ready", flush=True)
    appending = plan["kind"] in ("direct", "rename")
    result = append(root, plan) if appending else change(root, staging, plan)
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
