"""Commands that change rows or their place: delete, update, upsert, repartition."""

from pathlib import Path
from typing import Any

import maintenance_assets
from maintenance_assets.cli.exits import Exit, exit_of_result
from maintenance_assets.cli.session import Session
from maintenance_assets.planning.values import sql


def delete(session: Session) -> Exit:
    """`delete`: the rows that a predicate means."""
    given = session.arguments
    with session.working() as options:
        result = maintenance_assets.delete(given.path, given.where, **_scope(session), **options)
    return _report(session, result)


def update(session: Session) -> Exit:
    """`update`: values of the rows that a predicate means."""
    given = session.arguments
    values = _assignments("--set", given.values)
    with session.working() as options:
        result = maintenance_assets.update(
            given.path, given.where, values, **_scope(session), **options
        )
    return _report(session, result)


def upsert(session: Session) -> Exit:
    """`upsert`: rows of a file by their key."""
    given = session.arguments
    new_data = read_rows(Path(given.new_data))
    with session.working() as options:
        result = maintenance_assets.upsert(
            given.path,
            new_data,
            given.key,
            partition_cols=given.partition_by,
            update_cols=given.update_columns,
            on_duplicates=given.on_duplicates,
            **_scope(session),
            **options,
        )
    return _report(session, result)


def repartition(session: Session) -> Exit:
    """`repartition`: files laid out by other columns."""
    given, output = session.arguments, session.output
    derived = {name: one.text for name, one in _assignments("--derive", given.derive).items()}
    with session.working() as options:
        result = maintenance_assets.repartition(
            given.path,
            given.target,
            given.by,
            derived=derived or None,
            keep_partition_columns=not given.drop_partition_columns,
            delete_source=given.delete_source,
            dry_run=given.dry_run,
            **{name: value for name, value in session.targets().items() if value is not None},
            **options,
        )
    output.json(result.to_dict())
    _figures(session, result.to_dict())
    return exit_of_result(result)


def read_rows(file: Path) -> Any:
    """A table from a Parquet, CSV or JSON file, by the end of its name."""
    if not file.exists():
        raise FileNotFoundError(f"New data '{file}' does not exist")
    match file.suffix.lower():
        case ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(file, partitioning=None)
        case ".csv":
            from pyarrow import csv

            return csv.read_csv(file)
        case ".json" | ".ndjson" | ".jsonl":
            from pyarrow import json

            return json.read_json(file)
    raise ValueError(f"new data must be a .parquet, .csv or .json file, got '{file}'")


def _scope(session: Session) -> dict[str, Any]:
    given = session.arguments
    return {
        "partition_filter": given.partition,
        "backup_path": given.backup_path,
        "compression": given.compression,
        "dry_run": given.dry_run,
    }


def _assignments(option: str, texts: list[str]) -> dict[str, Any]:
    """Columns and the expressions that they are set to."""
    found: dict[str, Any] = {}
    for text in texts:
        column, equals, expression = text.partition("=")
        if not equals or not column.strip() or not expression.strip():
            raise ValueError(f"{option} must be written COLUMN=SQL, got {text!r}")
        if column.strip() in found:
            raise ValueError(f"{option} names column '{column.strip()}' twice")
        found[column.strip()] = sql(expression.strip())
    return found


def _report(session: Session, result: Any) -> Exit:
    session.output.json(result.to_dict())
    _figures(session, result.to_dict())
    return exit_of_result(result)


def _figures(session: Session, figures: dict[str, Any]) -> None:
    output = session.output
    output.line(session.arguments.path)
    if figures.get("dry_run"):
        output.line("a dry run: nothing was changed")
    for name, value in figures.items():
        if isinstance(value, int) and not isinstance(value, bool):
            output.line(f"  {name.replace('_', ' ')}: {value:,}")
        elif isinstance(value, str):
            output.line(f"  {name.replace('_', ' ')}: {value}")
