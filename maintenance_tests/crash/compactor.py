"""One compact() in a process of its own: `compactor ROOT`; starts when a line arrives."""

import json
import os
import sys

from maintenance_assets.errors import LeaseHeldError
from maintenance_assets.operations.compact import compact
from maintenance_tests.crash.helpers import COMPACT


def main(root: str) -> None:
    """Say how it ended."""
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        result = compact(root, **COMPACT)
        end = "worked" if result.passes else "nothing"
        message = ""
    except LeaseHeldError as error:
        end, message = "held", str(error)
    except Exception as error:
        end, message = "error", f"{type(error).__name__}: {error}"
    # Stay alive until told: a process that has ended cannot be named as a holder.
    print(json.dumps({"end": end, "message": message, "pid": os.getpid()}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1])
