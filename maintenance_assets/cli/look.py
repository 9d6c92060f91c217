"""Commands that look and change nothing: status and history."""

import time
from typing import Any

from maintenance_assets.cli.exits import Exit
from maintenance_assets.cli.output import Output, bar
from maintenance_assets.cli.progress import progress_bars
from maintenance_assets.cli.session import Session
from maintenance_assets.model.status import DatasetStatus
from maintenance_assets.model.words import size_words
from maintenance_assets.operations import history as backups
from maintenance_assets.operations import status as inspection
from maintenance_assets.operations.history import KeptBackup

_MOST_DRIFT = 10
_MOST_PLACES = 3


def status(session: Session) -> Exit:
    """`status`: how a dataset is."""
    with progress_bars(session.arguments.progress) as on_progress:
        found = inspection.status(
            session.arguments.path,
            storage_options=session.storage_options,
            on_progress=on_progress,
            **judged_by(session),
        )
    report_status(session.output, found)
    return Exit.DONE


def require_backups(session: Session) -> None:
    """A directory remembers nothing by itself."""
    if not session.arguments.backup_path:
        raise ValueError(
            f"`{session.arguments.command}` needs --backup-path DIR, where operations kept what "
            "they replaced (or --catalog URI, where PATH is a dataset of a catalog)"
        )


def judged_by(session: Session) -> dict[str, Any]:
    """The options of a status."""
    given = session.arguments
    return {
        "engine": given.engine,
        "target_mb_per_file": given.target_mb,
        "target_rows_per_file": given.target_rows,
        "small_file_mb": given.small_mb,
        "min_gain": given.min_gain,
        "cooldown_minutes": given.cooldown_minutes,
        "partition_filter": given.partition,
        "worst": given.worst,
    }


def report_status(output: Output, found: DatasetStatus) -> None:
    """All that is known of a dataset."""
    output.json(found.to_dict())
    _summary(output, found)
    _histogram(output, found)
    _worst(output, found)
    _drift(output, found)
    output.lines("unreadable", (f"'{path}': {why}" for path, why in found.unreadable))
    output.lines("busy", found.holders)
    output.lines("left behind", (f"run {run} (`recover` sees to it)" for run in found.leftovers))


def _summary(output: Output, found: DatasetStatus) -> None:
    output.line(found.dataset)
    output.line(
        f"{found.file_count:,} files, {size_words(found.total_bytes)}, {found.rows:,} rows in "
        f"{found.row_groups:,} row groups, {found.partitions:,} partition(s), "
        f"{'+'.join(found.codecs) or 'no codec'}"
    )
    if found.clustered_by:
        output.line(f"clustered by {', '.join(found.clustered_by)}")
    output.line(f"health {found.health.score:.0f} of 100")
    for text in found.health.explained():
        output.line(f"  {text}")
    if found.planned_rewrites:
        output.line(
            f"compact would make {found.planned_outputs:,} files of {found.planned_rewrites:,}; "
            f"worth a run now in {found.in_need:,} partition(s)"
        )
    else:
        output.line("compact would find nothing to do")


def _histogram(output: Output, found: DatasetStatus) -> None:
    most = max((bucket.files for bucket in found.histogram), default=0)
    rows, lower = [], ""
    for bucket in found.histogram:
        upper = "" if bucket.below_bytes is None else size_words(bucket.below_bytes)
        label = f"< {upper}" if upper else f">= {lower}"
        lower = upper
        if bucket.files:
            rows.append((label, bucket.files, size_words(bucket.total_bytes), bucket.files / most))
    output.line()
    output.table((">size", ">files", ">bytes", ""), [(*row[:3], bar(row[3])) for row in rows])


def _worst(output: Output, found: DatasetStatus) -> None:
    if not found.worst:
        return
    output.line()
    output.table(
        ("partition", ">health", ">files", ">small", ">to save", "compact now?", "cost"),
        [
            (
                part.health.partition or "(root)",
                f"{part.report.score:.0f}",
                part.health.file_count,
                part.health.small_files,
                part.health.gain,
                f"{'yes' if part.decision.run else 'no'}: {part.decision.reason}",
                part.cost if part.health.gain else "",
            )
            for part in found.worst
        ],
    )


def _drift(output: Output, found: DatasetStatus) -> None:
    if not found.drift:
        return
    output.line()
    output.line(f"{found.schemas} schemas; columns that differ:")
    rows = []
    for column in found.drift[:_MOST_DRIFT]:
        types = ", ".join(f"{name} in {files:,}" for name, files in column.types.items())
        missing = f"missing in {column.missing:,}" if column.missing else ""
        rows.append((f"  {column.column}", types, missing))
    output.table(("  column", "type and files", ""), rows)


def history(session: Session) -> Exit:
    """`history`: operations that a backup was made of."""
    given, output = session.arguments, session.output
    require_backups(session)
    found = backups.history(
        given.path, backup_path=given.backup_path, storage_options=session.storage_options
    )
    output.json(
        {
            "backups": [_backup_record(one) for one in found.backups],
            "of_other_datasets": len(found.others),
        }
    )
    if not found.backups:
        output.line(f"no backups of '{given.path}'")
    output.table(
        ("backup", "operation", "when", ">replaced", ">written", ">kept", "remark"),
        [_backup_row(one) for one in found.backups],
    )
    if found.others:
        places = sorted(set(found.others))
        named = ", ".join(f"'{place}'" for place in places[:_MOST_PLACES])
        more = ", ..." if len(places) > _MOST_PLACES else ""
        output.line(f"{len(found.others):,} backups of other datasets: {named}{more}")
    return Exit.DONE


def _backup_record(one: KeptBackup) -> dict[str, Any]:
    backup = one.backup
    return {
        "backup_id": backup.backup_id,
        "operation": backup.operation,
        "dataset": backup.dataset,
        "created_at": backup.created_at,
        "files_replaced": len(backup.inputs),
        "files_written": len(backup.outputs),
        "total_bytes": sum(file.size_bytes for file in backup.inputs),
        "is_restored": one.restored is not None,
        "restored_at": one.restored and one.restored.modified_at,
    }


def _backup_row(one: KeptBackup) -> tuple[Any, ...]:
    backup, mark = one.backup, one.restored
    restored = f"restored {_local(mark.modified_at)}".rstrip() if mark else ""
    return (
        backup.backup_id,
        backup.operation,
        _local(backup.created_at),
        len(backup.inputs),
        len(backup.outputs),
        size_words(sum(file.size_bytes for file in backup.inputs)),
        restored,
    )


def _local(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) if moment else ""
