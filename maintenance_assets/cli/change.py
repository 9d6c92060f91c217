"""Commands that change rows or their place: delete, update, upsert, repartition."""

from pathlib import Path
from typing import Any

from maintenance_assets.cli.exits import Exit, exit_of_result
from maintenance_assets.cli.new_rows import read_rows, types_in
from maintenance_assets.cli.session import Session
from maintenance_assets.operations import delete as deletion
from maintenance_assets.operations import repartition as repartitioning
from maintenance_assets.operations import update as updating
from maintenance_assets.operations import upsert as upserting
from maintenance_assets.operations.results import ChangeResult, RepartitionResult
from maintenance_assets.planning.values import sql
from maintenance_assets.storage.filesystems import open_store


def delete(session: Session) -> Exit:
    """`delete`: the rows that a predicate means."""
    given = session.arguments
    with session.working() as options:
        result = deletion.delete(given.path, given.where, **_scope(session), **options)
    return _report(session, result)


def update(session: Session) -> Exit:
    """`update`: values of the rows that a predicate means."""
    given = session.arguments
    assigned = assignments("--set", given.values)
    values = {column: sql(expression) for column, expression in assigned.items()}
    with session.working() as options:
        result = updating.update(given.path, given.where, values, **_scope(session), **options)
    return _report(session, result)


def upsert(session: Session) -> Exit:
    """`upsert`: rows of a file by their key."""
    given = session.arguments
    store = open_store(given.path, storage_options=session.storage_options)
    new_data = read_rows(Path(given.new_data), types_in(store))
    with session.working() as options:
        result = upserting.upsert(
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
    given = session.arguments
    derived = assignments("--derive", given.derive)
    with session.working() as options:
        result = repartitioning.repartition(
            given.path,
            given.target,
            given.by,
            derived=derived or None,
            keep_partition_columns=not given.drop_partition_columns,
            delete_source=given.delete_source,
            dry_run=given.dry_run,
            **session.targets(),
            **options,
        )
    return _report(session, result)


def _scope(session: Session) -> dict[str, Any]:
    given = session.arguments
    return {
        "partition_filter": given.partition,
        "backup_path": given.backup_path,
        "compression": given.compression,
        "dry_run": given.dry_run,
    }


def assignments(option: str, texts: list[str]) -> dict[str, str]:
    """Columns and the expressions that they are set to."""
    found: dict[str, str] = {}
    for text in texts:
        column, equals, expression = text.partition("=")
        if not equals or not column.strip() or not expression.strip():
            raise ValueError(f"{option} must be written COLUMN=SQL, got {text!r}")
        if column.strip() in found:
            raise ValueError(f"{option} names column '{column.strip()}' twice")
        found[column.strip()] = expression.strip()
    return found


def _report(session: Session, result: ChangeResult | RepartitionResult) -> Exit:
    output, figures = session.output, result.to_dict()
    output.json(
        figures
        | {
            "engine": result.engine,
            "seconds": round(result.seconds, 3),
            "publish": result.publish,
            "notes": [*result.notes, *result.engine_notes],
            "recovered": list(result.recovered),
        }
    )
    if figures["dry_run"]:
        output.line("a dry run: nothing was changed")
    for name, value in figures.items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        if name != "dry_run":
            output.line(f"{name.replace('_', ' ')}: {shown}")
    output.lines("note", (*result.notes, *result.engine_notes))
    output.lines("recovered", result.recovered)
    return exit_of_result(result)
