"""Times and memory, next to other tools: run it with `make bench`.

Every case runs in a fresh process; inputs are written by another one. Writes RESULTS.md beside this
file and ends with 1 if a bound is broken.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import (
    catalog,
    commits,
    crud,
    discovery,
    engines,
    foundation,
    growth,
    objects,
    optimize,
    repartition,
    stitch,
)
from benchmarks.harness import Line, bound_text, machine, report

PARTS = (
    foundation,
    engines,
    stitch,
    objects,
    optimize,
    repartition,
    crud,
    catalog,
    commits,
    discovery,
    growth,
)
Measure = Callable[[Path], list[Line]]
MEASURES: tuple[Measure, ...] = tuple(measure for part in PARTS for measure in part.MEASURES)
CASES = {name: case for part in PARTS for name, case in part.CASES.items()}


def measured(measure: Measure) -> list[Line]:
    """What was found; a measure that fails is a broken line, and the others still run."""
    with tempfile.TemporaryDirectory(prefix="maintenance-bench-") as folder:
        # A dataset one level down: its parent is writable, as in a lake.
        work = Path(folder) / "data"
        work.mkdir()
        try:
            return measure(work)
        except subprocess.SubprocessError as error:
            logging.exception("%s failed", measure.__name__)
            why = f"failed: {type(error).__name__}"
            return [Line(measure.__name__.replace("_", " "), "run", why, "to the end", False)]


def main() -> int:
    """Run one case (`--case`, used by the benchmark itself) or the whole benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    parser.add_argument("--only", help="run the measures whose name contains this; write no report")
    arguments = parser.parse_args()
    if arguments.case:
        name, text = arguments.case
        print(json.dumps(CASES[name](json.loads(text))))
        return 0
    console, facts = Console(), machine()
    lines: list[Line] = []
    for measure in MEASURES:
        if arguments.only and arguments.only not in measure.__name__:
            continue
        console.print(f"[dim]{measure.__name__.replace('_', ' ')} ...[/dim]")
        found = measured(measure)
        for line in found:
            console.print(
                f"  {line.case} | {line.figure} | {line.value} | {bound_text(line)}", markup=False
            )
        lines += found
    report(lines, facts, console, save=not arguments.only)
    return 0 if all(line.holds for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
