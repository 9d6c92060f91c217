"""Commands around the operations: datasets and completion."""

from pathlib import Path
from typing import Any

from maintenance_assets.cli.completion import script
from maintenance_assets.cli.exits import Exit
from maintenance_assets.cli.parser import build_parser
from maintenance_assets.cli.session import Session
from maintenance_assets.errors import DatasetConfigError
from maintenance_assets.storage.discovery import list_dataset
from maintenance_assets.storage.filesystems import open_store


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
    return record | {"files": _files(dataset)} if is_opened else record


def _files(dataset: Any) -> int:
    try:
        return _count(dataset)
    # A store's own errors are as many as there are stores; all of them mean this dataset.
    except Exception as error:
        field = "path" if dataset.catalog is None else "catalog"
        reason = str(error) or type(error).__name__
        raise DatasetConfigError(f"dataset '{dataset.key}', field '{field}': {reason}") from error


def _count(dataset: Any) -> int:
    if dataset.catalog is not None:
        from maintenance_assets.orchestration.planner import look_at

        return sum(len(files) for _, files in look_at(dataset).partitions())
    store = open_store(dataset.path, storage_options=dataset.storage_options or None)
    return len(list_dataset(store).data)


def completion(session: Session) -> Exit:
    """`completion`: a script for a shell."""
    print(script(build_parser(), session.arguments.shell), end="")
    return Exit.DONE
