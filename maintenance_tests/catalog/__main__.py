"""The long stress runs.

python -m maintenance_tests.catalog appends sqlite:////tmp/catalog.db /tmp/lake 8 25
python -m maintenance_tests.catalog kills sqlite:////tmp/catalog.db /tmp/lake 4 100
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from maintenance_tests.catalog.stress import appends, kills

COMMANDS: dict[str, Callable[[str, str, int, int], Any]] = {"appends": appends, "kills": kills}

if __name__ == "__main__":
    command, catalog_uri, root, processes, count = sys.argv[1:]
    begun = time.monotonic()
    outcome = COMMANDS[command](catalog_uri, root, int(processes), int(count))
    sys.stdout.write(f"{outcome} in {time.monotonic() - begun:.1f} s\n")
