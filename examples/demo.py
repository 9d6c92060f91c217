"""Fills the lake, lets the sensors look once, runs what they ask for, and shows what changed.

Run it with `make demo`. Everything happens in this process, on the Dagster home that `make ui`
shows afterwards. A second run appends a second batch.
"""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.measure import Measure, measure
from examples.workplace import HOME, prepare
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_assets.orchestration.planner import MaintenancePlanner

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


@dataclass(slots=True)
class Story:
    """What happened to one dataset."""

    dataset: DatasetConfig
    before: Measure
    reasons: list[str] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0
    after: Measure | None = None


def main() -> int:
    """The demo; the exit code says whether the data is intact."""
    args = parse_arguments()
    console = Console()
    warnings.filterwarnings("ignore", module="pyspark|dagster")
    no_java = prepare(args.home)
    if no_java:
        console.print(f"[yellow]DuckDB takes the place of Spark.[/yellow] {escape(no_java)}")
    with dagster.DagsterInstance.get() as instance:
        feed(console, instance, rows=args.rows, files=args.files)
        stories = maintain(console, instance)
    return report(console, stories)


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=40, help="files per partition")
    parser.add_argument("--rows", type=int, default=150_000, help="trades in the batch")
    parser.add_argument("--home", type=Path, default=HOME, help="Dagster's home")
    args = parser.parse_args()
    if not 1 <= args.files <= args.rows:
        parser.error("needs at least one file, and one row per file")
    return args


def feed(console: Console, instance: dagster.DagsterInstance, *, rows: int, files: int) -> None:
    """Materialize the ingestion asset."""
    from examples import pipeline

    start = time.perf_counter()
    config = {"rows": rows, "files_per_partition": files}
    done = pipeline.defs.resolve_job_def(pipeline.feed_job.name).execute_in_process(
        instance=instance,
        run_config={**QUIET, "ops": {"raw__trades_feed": {"config": config}}},
    )
    event = done.asset_materializations_for_node("raw__trades_feed")[0]
    engine = event.metadata["engine"].value
    console.print(
        f"raw/trades_feed appended {rows:,} trades with {engine} "
        f"in {time.perf_counter() - start:.1f} s"
    )


def maintain(console: Console, instance: dagster.DagsterInstance) -> list[Story]:
    """One tick of each sensor, and the runs it asks for."""
    from maintenance_assets import definitions
    from maintenance_assets.orchestration.config import load_datasets

    file = definitions.datasets_file()
    assert file is not None
    repository = definitions.defs.get_repository_def()
    stories = []
    for dataset in load_datasets(file):
        story = Story(dataset, measure(dataset.key, dataset.path))
        requests = tick(console, instance, repository, story)
        start = time.perf_counter()
        for request in requests:
            run(instance, repository, story, request)
        story.seconds = time.perf_counter() - start
        story.after = measure(dataset.key, dataset.path)
        stories.append(story)
    return stories


def tick(
    console: Console,
    instance: dagster.DagsterInstance,
    repository: dagster.RepositoryDefinition,
    story: Story,
) -> list[dagster.RunRequest]:
    """What Dagster's daemon does at a tick of a sensor."""
    sensor = repository.get_sensor_def(f"{story.dataset.safe_name}__small_files")
    with dagster.build_sensor_context(
        instance=instance,
        repository_def=repository,
        resources={"maintenance_planner": MaintenancePlanner()},
    ) as context:
        found = sensor.evaluate_tick(context)
    for new in found.dynamic_partitions_requests or []:
        instance.add_dynamic_partitions(new.partitions_def_name, list(new.partition_keys))
    for event in found.asset_events:
        instance.report_runless_asset_event(event)
    requests = list(found.run_requests or [])
    said = found.skip_message or f"asks for {len(requests)} runs"
    console.print(f"[bold]{sensor.name}[/bold]: {said}")
    for request in requests:
        reason = f"{request.tags['maintenance/partition']}: {request.tags['maintenance/reason']}"
        story.reasons.append(reason)
        console.print(f"  {reason}")
    return requests


def run(
    instance: dagster.DagsterInstance,
    repository: dagster.RepositoryDefinition,
    story: Story,
    request: dagster.RunRequest,
) -> None:
    """One run, as the daemon would launch it, in this process."""
    job = repository.get_job(f"{story.dataset.safe_name}__compact")
    tags: Mapping[str, Any] = {**request.tags, "dagster/run_key": request.run_key}
    job.execute_in_process(
        instance=instance, run_config={**request.run_config, **QUIET}, tags=dict(tags)
    )
    story.runs += 1


def report(console: Console, stories: list[Story]) -> int:
    """The table, and whether all is well."""
    table = Table(title="the lake before and after")
    for number, name in enumerate(("dataset", "", "files", "bytes", "rows", "row groups", "query")):
        table.add_column(name, justify="right" if number > 1 else "left")
    for story in stories:
        assert story.after is not None
        table.add_row(story.dataset.key, *_cells("before", story.before))
        work = f"{story.dataset.engine}, {story.runs} runs in {story.seconds:.1f} s"
        table.add_row(work, *_cells("after", story.after), end_section=True)
    console.print(table)
    problems = [problem for story in stories for problem in differences(story)]
    for problem in problems:
        console.print(f"[red]FAILED:[/red] {escape(problem)}")
    if not problems:
        console.print("[green]Rows and column sums are unchanged.[/green] `make ui` shows it all.")
    return 1 if problems else 0


def _cells(moment: str, seen: Measure) -> list[str]:
    return [
        moment,
        f"{seen.files:,}",
        f"{seen.total_bytes:,}",
        f"{seen.rows:,}",
        f"{seen.row_groups:,}",
        f"{seen.query_seconds * 1000:.1f} ms",
    ]


def differences(story: Story) -> list[str]:
    """Everything that should hold after maintenance and does not."""
    before, after, key = story.before, story.after, story.dataset.key
    assert after is not None
    problems = []
    if after.content != before.content:
        problems.append(f"{key}: the data changed: {before.content} became {after.content}")
    if not story.runs:
        problems.append(f"{key}: the sensor asked for no run")
    elif after.files >= before.files:
        problems.append(f"{key}: {before.files} files became {after.files}")
    return problems


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    sys.exit(main())
