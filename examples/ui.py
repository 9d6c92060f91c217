"""Starts Dagster's UI and daemon on the lake of the example: `make ui`."""

import argparse
import os
import signal
import sys
from pathlib import Path

from examples.workplace import HOME, ROOT, prepare


def main() -> None:
    """Become `dagster dev`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--home", type=Path, default=HOME, help="Dagster's home")
    args = parser.parse_args()
    no_java = prepare(args.home)
    if no_java:
        print(f"DuckDB takes the place of Spark: {no_java}")
    print(f"http://{args.host}:{args.port}  (home {args.home}; Ctrl-C ends it)", flush=True)
    os.chdir(ROOT)
    command = [sys.executable, "-m", "dagster", "dev", "--workspace", str(ROOT / "workspace.yaml")]
    # Started in the background of a script, it would inherit that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.executable, [*command, "--host", args.host, "--port", str(args.port)])


if __name__ == "__main__":
    main()
