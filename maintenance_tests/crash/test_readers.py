"""A reader that lists and reads all the time never sees a wrong set of rows."""

from pathlib import Path

import pytest

from maintenance_assets.operations.compact import compact
from maintenance_tests.crash.helpers import (
    DATA_DIRECTORIES,
    Layout,
    ids,
    leftovers,
    make,
    report,
    run_module,
    show,
    write,
)

ROUNDS = 12
APPENDED = 3


@pytest.mark.parametrize("kind", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("layout", ["hive", "flat"])
def test_reader_during_compactions(tmp_path: Path, layout: Layout, kind: str) -> None:
    root = tmp_path / "lake" / "data"
    total = make(root, layout)
    staging = tmp_path / "staging"
    staging.mkdir()
    reader = run_module("reader", str(root), kind)
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for number in range(ROUNDS):
            # Appended to one directory and in one step: a single listing cannot see half of it.
            staged = staging / f"append-{number}.parquet"
            write(staged, range(total, total + APPENDED))
            staged.rename(root / DATA_DIRECTORIES[layout][0] / staged.name)
            total += APPENDED
            result = compact(root, target_rows_per_file=10_000)
            assert result.publish == "exchange"
            assert not result.conflicts
        seen = report(reader)
    finally:
        reader.kill()
        reader.wait()
    assert not seen["bad"], show(seen["bad"])
    assert seen["complete"] >= ROUNDS
    assert ids(root) == list(range(total))
    assert not leftovers(root)
