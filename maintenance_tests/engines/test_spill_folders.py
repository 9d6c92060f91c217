"""Spill folders go with their process, even where that is killed."""

import signal
import subprocess
import sys
from pathlib import Path

from maintenance_assets.engines.spill_folders import spill_folder

CHILD = """
import sys, time
from maintenance_assets.engines.spill_folders import spill_folder
with spill_folder("cluster", sys.argv[1]) as folder:
    open(f"{folder}/0.run", "w").close()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        left = Path(child.stdout.readline().strip())
        with spill_folder("duckdb", str(tmp_path)):
            assert (left / "0.run").exists()  # its owner is alive
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert left.exists()
    with spill_folder("duckdb", str(tmp_path)) as folder:
        assert [path.name for path in tmp_path.iterdir()] == [Path(folder).name]
    assert list(tmp_path.iterdir()) == []


def test_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    foreign = tmp_path / "maintenance-cluster-report"
    foreign.mkdir()
    with spill_folder("cluster", str(tmp_path)):
        pass
    assert foreign.exists()
