"""Several processes on one catalog; CATALOG_STRESS=1 runs as long as the issue asks for."""

import os
import sys
from pathlib import Path

import pytest

from maintenance_tests.catalog.stress import appends, kills

LONG = bool(os.environ.get("CATALOG_STRESS"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600 if LONG else 300),
    pytest.mark.skipif(sys.platform == "win32", reason="processes are forked"),
]


def test_appends_of_many_processes_and_a_compactor_lose_nothing(
    catalog_uri: str, tmp_path: Path
) -> None:
    processes, each = (8, 25) if LONG else (3, 4)
    rows, versions = appends(catalog_uri, str(tmp_path / "lake"), processes, each)
    assert rows == processes * each
    assert versions >= rows


def test_kills_at_any_moment_with_vacuum_running_leave_nothing_missing_or_stray(
    catalog_uri: str, tmp_path: Path
) -> None:
    found = kills(catalog_uri, str(tmp_path / "lake"), 3, 100 if LONG else 4)
    assert found["rows"] >= found["acknowledged"]
