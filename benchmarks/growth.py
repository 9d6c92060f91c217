"""Once, four and sixteen times the data: time and peak memory, as lines and as a picture."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks import optimize, stitch
from benchmarks.harness import MIB, Line, run_case

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "growth.png"
TIMES = (1, 4, 16)
ROUNDS = 2
OURS, DELTA_COMPACT = stitch.OURS, "delta-rs compact"
COMPACT = (OURS, "DuckDB COPY", "Polars sink", "PyArrow write_dataset", DELTA_COMPACT)
OPTIMIZE = (optimize.PYARROW, optimize.DELTA, optimize.SORT)
# Of each unit of the data: files, rows of a file, rows of a row group.
TICKS = (20, 40_000, 4_000)
EVENT_ROWS = 4_000
MOST_GROWTH = 1.5
"""Of our memory from four times the data to sixteen: the least of it fits into one row group."""
Figures = dict[str, list[dict[str, Any]]]


def growth(work: Path) -> list[Line]:
    """Compaction of tiny row groups, and clustering."""
    found = {"compact": _compaction(work), "optimize": _clustering(work)}
    draw(found, PICTURE)
    return [line for name, figures in found.items() for line in _lines(name, figures)]


def _compaction(work: Path) -> Figures:
    """What cannot be copied: all row groups are decoded and encoded."""
    figures: Figures = {tool: [] for tool in COMPACT}
    files, rows, group_rows = TICKS
    for times in TIMES:
        source = work / "source"
        source.mkdir()
        count = files * times
        written = run_case(
            "write_ticks", folder=source, files=count, rows=rows, group_rows=group_rows
        )
        found = []
        for tool in COMPACT * ROUNDS:
            folder, target = work / "input", work / "output"
            shutil.copytree(source, folder)
            target.mkdir()
            if tool == DELTA_COMPACT:
                run_case("convert_to_delta", folder=folder)
            found.append((tool, run_case("stitch", tool=tool, folder=folder, target=target)))
            shutil.rmtree(folder)
            shutil.rmtree(target)
        _add_best(figures, found, written["bytes"])
        shutil.rmtree(source)
    return figures


def _clustering(work: Path) -> Figures:
    figures: Figures = {tool: [] for tool in OPTIMIZE}
    for times in TIMES:
        source = work / "source"
        source.mkdir()
        rows = EVENT_ROWS * times
        size = run_case("write_events", folder=source, rows=rows)["bytes"]
        found = []
        for tool in OPTIMIZE * ROUNDS:
            folder = work / "input"
            shutil.copytree(source, folder)
            if tool == optimize.DELTA:
                run_case("convert_to_delta", folder=folder)
            done = run_case(
                "cluster",
                tool=tool,
                folder=folder,
                columns=["ts", "id"],
                rows=rows * optimize.SOURCES,
                target_size=int(1.3 * size / optimize.OUTPUTS),
            )
            found.append((tool, done))
            shutil.rmtree(folder)
        _add_best(figures, found, size)
        shutil.rmtree(source)
    return figures


def _add_best(figures: Figures, found: list[tuple[str, dict[str, Any]]], size: int) -> None:
    """A point for each tool: its best time, and the most memory that it took."""
    for tool, points in figures.items():
        runs = [run for name, run in found if name == tool]
        seconds, peak = min(run["seconds"] for run in runs), max(run["peak_mb"] for run in runs)
        points.append({"seconds": seconds, "peak_mb": peak, "mb": size / MIB})


def _lines(name: str, figures: Figures) -> list[Line]:
    sizes = ", ".join(f"{found['mb']:,.0f}" for found in next(iter(figures.values())))
    case = f"{name} {sizes} MiB"
    lines = []
    for tool, found in figures.items():
        seconds = ", ".join(f"{each['seconds']:.2f}" for each in found)
        peaks = ", ".join(f"{each['peak_mb']:,.0f}" for each in found)
        text = f"{seconds} s; peak {peaks} MB"
        if not tool.startswith(OURS):
            lines.append(Line(case, tool, text))
            continue
        holds = found[-1]["peak_mb"] / found[-2]["peak_mb"] <= MOST_GROWTH
        bound = f"peak at {TIMES[-1]} x <= {MOST_GROWTH} times that at {TIMES[-2]} x"
        lines.append(Line(case, tool, text, bound, holds))
    return lines


def draw(found: dict[str, Figures], path: Path) -> None:
    """Time above, memory below; a column for each operation, equal steps for equal factors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (("seconds", "seconds"), ("peak_mb", "peak memory, MB"))
    figure, axes = pyplot.subplots(2, len(found), figsize=(5 * len(found), 7), sharex="col")
    for column, (name, figures) in enumerate(found.items()):
        for row, (key, label) in enumerate(panels):
            axis = axes[row][column]
            for tool, points in figures.items():
                ours = tool.startswith(OURS)
                axis.plot(
                    [point["mb"] for point in points],
                    [point[key] for point in points],
                    marker="o",
                    label=tool,
                    color="black" if ours else None,
                    linewidth=3 if ours else 1.5,
                )
            axis.set_xscale("log", base=4)
            axis.set_xticks([point["mb"] for point in next(iter(figures.values()))])
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axis.minorticks_off()
            if key == "seconds":
                axis.set_yscale("log")
            else:
                axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
            axis.set_ylabel(label)
        axes[0][column].set_title(name)
        axes[0][column].legend(fontsize="small")
        axes[1][column].set_xlabel("MiB of data")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


MEASURES = (growth,)
CASES: dict[str, Any] = {}
