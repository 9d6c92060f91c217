"""Commands around the operations: datasets and completion."""

from pathlib import Path
from typing import Any

from maintenance_assets.cli.completion import script
from maintenance_assets.cli.declared import look_into
from maintenance_assets.cli.exits import Exit
from maintenance_assets.cli.parser import build_parser
from maintenance_assets.cli.session import Session


def check_datasets(session: Session) -> Exit:
    """`datasets check`: whether Dagster would load the file, and what is at each path."""
    # Dagster's own rules are part of what is checked; no other command loads it.
    from maintenance_assets.orchestration.config import load_datasets

    given, output = session.arguments, session.output
    datasets = load_datasets(Path(given.file))
    for dataset in datasets:
        session.secrets.learn(dataset.storage_options)
        session.secrets.learn_url(dataset.path)
        session.secrets.learn_url("" if dataset.catalog is None else dataset.catalog.uri)
    records = [_record(dataset, is_opened=given.open) for dataset in datasets]
    output.json({"datasets": records})
    columns = ("dataset", "engine", "path", *(("files",) if given.open else ()))
    output.table(columns, [list(record.values()) for record in records])
    output.line(f"{len(records)} dataset(s), nothing wrong")
    return Exit.DONE


def _record(dataset: Any, *, is_opened: bool) -> dict[str, Any]:
    record = {"key": dataset.key, "engine": dataset.engine, "path": dataset.shown_path}
    return record | {"files": look_into(dataset)} if is_opened else record


def completion(session: Session) -> Exit:
    """`completion`: a script for a shell."""
    print(script(build_parser(), session.arguments.shell), end="")
    return Exit.DONE
