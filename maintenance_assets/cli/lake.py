"""Commands that look after a catalog: its datasets, their versions, and files nobody needs."""

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from maintenance_assets.cli.exits import Exit
from maintenance_assets.cli.look import judged_by, report_status
from maintenance_assets.cli.output import Output
from maintenance_assets.cli.progress import progress_bars
from maintenance_assets.cli.session import Session
from maintenance_assets.model.words import size_words

if TYPE_CHECKING:
    from maintenance_assets.api.lakehouse import LakeDataset
    from maintenance_assets.model.lakehouse import Commit
    from maintenance_assets.operations.lake_admin import VacuumResult

_MOST_FILES = 20
_SHOWN = (
    *("operation", "author", "message", "data_change", "files_added", "files_removed"),
    *("rows_added", "rows_removed", "total_files", "total_rows", "total_bytes", "expired"),
)
"""What a version says of itself."""


def datasets(session: Session) -> Exit:
    """`datasets list`: what a catalog has."""
    with session.house() as house:
        records = [_dataset(house.dataset(name)) for name in house.datasets()]
    session.output.json({"datasets": records})
    shown = ("name", "version", "files", "rows", "size", "path")
    session.output.table(
        ("dataset", ">version", ">files", ">rows", ">bytes", "path"),
        [[(one | {"size": size_words(one["bytes"])})[name] for name in shown] for one in records],
    )
    session.output.line(f"{len(records)} dataset(s)")
    return Exit.DONE


def _dataset(dataset: "LakeDataset") -> dict[str, Any]:
    files = dataset.files()
    return {
        "name": dataset.name,
        "version": dataset.version,
        "files": len(files),
        "rows": sum(file.row_count for file in files),
        "bytes": sum(file.size_bytes for file in files),
        "partition_by": list(dataset.partition_by),
        "path": dataset.path,
    }


def status(session: Session) -> Exit:
    """`status --catalog`: how the newest version is."""
    with session.house() as house, progress_bars(session.arguments.progress) as on_progress:
        dataset = house.dataset(session.arguments.path)
        found = dataset.status(on_progress=on_progress, **judged_by(session))
    report_status(session.output, found)
    return Exit.DONE


def history(session: Session) -> Exit:
    """`history --catalog`: the versions of a dataset."""
    session.refuse_in_catalog("backup_path")
    output = session.output
    with session.house() as house:
        dataset = house.dataset(session.arguments.path)
        commits, tags = dataset.history(), dataset.tags()
    output.json(
        {
            "dataset": dataset.name,
            "versions": [_version(commit, tags) for commit in commits],
        }
    )
    columns = ("version", "when (UTC)", "operation", ">files", ">rows", ">rows then", "remark")
    output.table(columns, [_version_row(commit, tags) for commit in commits])
    return Exit.DONE


def _version(commit: "Commit", tags: dict[str, int]) -> dict[str, Any]:
    return {
        "version": commit.version,
        "committed_at": commit.committed_at.isoformat(),
        **{name: getattr(commit, name) for name in _SHOWN},
        "tags": [name for name, version in tags.items() if version == commit.version],
    }


def _version_row(commit: "Commit", tags: dict[str, int]) -> tuple[Any, ...]:
    remarks = [f"tag {name}" for name, version in tags.items() if version == commit.version]
    remarks += ["expired"] if commit.expired else []
    remarks += [commit.message] if commit.message else []
    return (
        str(commit.version),
        commit.committed_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        commit.operation,
        f"+{commit.files_added:,} -{commit.files_removed:,}",
        f"+{commit.rows_added:,} -{commit.rows_removed:,}",
        commit.total_rows,
        "; ".join(remarks),
    )


def vacuum(session: Session) -> Exit:
    """`vacuum`: files that were removed long ago and that no version needs."""
    given, output = session.arguments, session.output
    retention = _days("--retention-days", given.retention_days)
    with session.house() as house:
        found = house.vacuum(
            retention, dry_run=not given.delete, force=given.force, dataset=given.dataset
        )
    output.json({"dry_run": not given.delete, "datasets": [_vacuumed(one) for one in found]})
    for one in found:
        _report_vacuum(output, one)
    if not given.delete and any(one.files for one in found):
        output.line("a dry run: nothing was deleted; --delete does it")
    return Exit.DONE


def _vacuumed(result: "VacuumResult") -> dict[str, Any]:
    return {
        "dataset": result.dataset,
        "files": len(result.files),
        "bytes": result.total_bytes,
        "paths": [file.path for file in result.files],
        "recovered": [_given_up(one) for one in result.recovered],
    }


def _report_vacuum(output: Output, result: "VacuumResult") -> None:
    would = "would be" if result.dry_run else "were"
    output.line(
        f"{result.dataset}: {len(result.files):,} files, {size_words(result.total_bytes)}, "
        f"{would} deleted"
    )
    output.lines("  file", (f"{one.path} ({one.reason})" for one in result.files), _MOST_FILES)
    output.lines("  recovered", (_given_up(one) for one in result.recovered))


def expire(session: Session) -> Exit:
    """`expire`: versions that cannot be read from now on."""
    given, output = session.arguments, session.output
    with session.house() as house:
        found = house.expire_snapshots(
            _days("--older-than-days", given.older_than_days),
            given.retain_last,
            dataset=given.dataset,
            dry_run=given.dry_run,
        )
    output.json({"dry_run": given.dry_run, "expired": {k: list(v) for k, v in found.items()}})
    expired = "would expire" if given.dry_run else "expired"
    for name, versions in found.items():
        shown = f": {', '.join(map(str, versions))}" if versions else ""
        output.line(f"{name}: {len(versions):,} versions {expired}{shown}")
    return Exit.DONE


def fsck(session: Session) -> Exit:
    """`fsck`: whether directories are as the catalog says; code 1 if not."""
    output = session.output
    with session.house() as house:
        reports = house.fsck(dataset=session.arguments.dataset).reports
    names = ("missing", "stray", "wrong_size")
    output.json(
        {
            "datasets": [
                {
                    "dataset": one.dataset,
                    **{name: list(getattr(one, name)) for name in names},
                    "waiting": one.waiting,
                }
                for one in reports
            ]
        }
    )
    for one in reports:
        output.lines(one.dataset, one.problems)
        if not one.problems:
            waiting = f"; {one.waiting:,} files wait for vacuum" if one.waiting else ""
            output.line(f"{one.dataset}: nothing wrong{waiting}")
    return Exit.FAILED if any(one.problems for one in reports) else Exit.DONE


def recover(session: Session) -> Exit:
    """`recover --catalog`: transactions of processes that died are given up."""
    session.refuse_in_catalog("dry_run")
    given, output = session.arguments, session.output
    with session.house() as house:
        found = house.recover(dataset=given.path)[given.path]
    actions = [_given_up(one) for one in found]
    output.json({"dry_run": False, "actions": actions})
    output.lines("recovered", actions)
    if not actions:
        output.line("nothing to recover")
    return Exit.DONE


def _given_up(given: Any) -> str:
    return (
        f"{given.operation} of {given.owner} was given up: its lease ran out "
        f"(transaction {given.txn_id}, {given.paths:,} files)"
    )


def _days(option: str, days: float) -> timedelta:
    try:
        if days >= 0:
            return timedelta(days=days)
    except OverflowError:
        pass
    raise ValueError(f"{option} must be a number of days >= 0, got {days:g}")
