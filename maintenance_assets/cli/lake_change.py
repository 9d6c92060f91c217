"""Commands that make a new version of a dataset in a catalog."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maintenance_assets.cli.change import assignments
from maintenance_assets.cli.exits import Exit, exit_of_result
from maintenance_assets.cli.new_rows import read_rows
from maintenance_assets.cli.rewrite import report_rewrite
from maintenance_assets.cli.session import Session
from maintenance_assets.errors import IncompleteMaintenanceError
from maintenance_assets.planning.values import sql

if TYPE_CHECKING:
    from maintenance_assets.api.lakehouse import LakeDataset, LakeMaintenance
    from maintenance_assets.operations.lake_change import ChangeOutcome


def compact(session: Session) -> Exit:
    """`compact --catalog`."""
    return _maintain(
        session, lambda dataset, options: dataset.compact(**session.targets(), **options)
    )


def optimize(session: Session) -> Exit:
    """`optimize --catalog`."""
    given = session.arguments
    return _maintain(
        session,
        lambda dataset, options: dataset.optimize(
            given.zorder, curve=given.curve, **session.targets(), **options
        ),
    )


def _maintain(
    session: Session, work: Callable[["LakeDataset", dict[str, Any]], "LakeMaintenance"]
) -> Exit:
    given = session.arguments
    with session.house() as house, session.working() as options:
        dataset = house.dataset(given.path)
        # The catalog was opened with them.
        del options["storage_options"]
        options |= {"partition_filter": given.partition, "dry_run": given.dry_run}
        try:
            done = work(dataset, options)
        except IncompleteMaintenanceError as error:
            _report(session, error.result)
            raise
    _report(session, done)
    return exit_of_result(done.result)


def _report(session: Session, done: "LakeMaintenance") -> None:
    name, output = session.arguments.path, session.output
    known = {"dataset": name, "version": done.version}
    if done.result is None:
        output.json(known)
        output.line(f"nothing to do: dataset '{name}' has no files")
        return
    report_rewrite(output, done.result, known)
    if done.version is not None:
        output.line(f"version {done.version}")


def delete(session: Session) -> Exit:
    """`delete --catalog`."""
    given = session.arguments
    return _change(session, lambda dataset, options: dataset.delete(given.where, **options))


def update(session: Session) -> Exit:
    """`update --catalog`."""
    given = session.arguments
    assigned = assignments("--set", given.values)
    values = {column: sql(expression) for column, expression in assigned.items()}
    return _change(session, lambda dataset, options: dataset.update(given.where, values, **options))


def upsert(session: Session) -> Exit:
    """`upsert --catalog`."""
    session.refuse_in_catalog("partition_by")
    given = session.arguments

    def work(dataset: "LakeDataset", options: dict[str, Any]) -> "ChangeOutcome":
        types = {field.name: field.type for field in dataset.schema()}
        return dataset.upsert(
            read_rows(Path(given.new_data), types),
            given.key,
            given.update_columns,
            on_duplicates=given.on_duplicates,
            **options,
        )

    return _change(session, work)


def _change(
    session: Session, work: Callable[["LakeDataset", dict[str, Any]], "ChangeOutcome"]
) -> Exit:
    session.refuse_in_catalog("backup_path", "partition", "engine", "max_workers", "strict")
    given, output = session.arguments, session.output
    options = {
        "compression": given.compression,
        "memory_budget_mb": given.memory_budget_mb,
        "dry_run": given.dry_run,
    }
    with session.house() as house:
        outcome = work(house.dataset(given.path), options)
    record = {"dataset": given.path, **asdict(outcome)}
    output.json(record)
    if outcome.dry_run:
        output.line("a dry run: nothing was changed")
    for name, value in record.items():
        if isinstance(value, int) and name not in ("dry_run", "version"):
            output.line(f"{name.replace('_', ' ')}: {value:,}")
    if outcome.version is not None:
        output.line(f"version {outcome.version}")
    return Exit.DONE


def restore(session: Session) -> Exit:
    """`restore --catalog`: a new version that is like an earlier one."""
    session.refuse_in_catalog("backup_path", "moved")
    given, output = session.arguments, session.output
    if not given.backup_id.isdecimal():
        raise ValueError(f"a version is a number, got '{given.backup_id}'; `history` lists them")
    version = int(given.backup_id)
    with session.house() as house:
        dataset = house.dataset(given.path)
        commit = next((one for one in dataset.history() if one.version == version), None)
        if commit is None or commit.expired:
            why = "has expired" if commit else "does not exist"
            raise ValueError(f"Version {version} of '{dataset.name}' {why}; see `history`")
        made = None if given.dry_run else dataset.restore(version)
    record = {
        "dataset": dataset.name,
        "restored_version": version,
        "version": made,
        "dry_run": given.dry_run,
        "files": commit.total_files,
        "rows": commit.total_rows,
    }
    output.json(record)
    would = "would come" if given.dry_run else "came"
    output.line(
        f"{commit.total_files:,} files with {commit.total_rows:,} rows {would} back"
        + ("" if made is None else f" as version {made}")
    )
    return Exit.DONE
