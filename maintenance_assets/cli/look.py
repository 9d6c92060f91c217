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

_MOST_DRIFT = 10


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
            "backups": [
                {
                    "backup_id": one.backup_id,
                    "operation": one.operation,
                    "dataset": one.dataset,
                    "created_at": one.created_at,
                    "files_replaced": len(one.inputs),
                    "files_written": len(one.outputs),
                    "total_bytes": sum(file.size_bytes for file in one.inputs),
                }
                for one in found
            ]
        }
    )
    if not found:
        output.line("no backups")
    output.table(
        ("backup", "operation", "when", ">replaced", ">written", ">kept", "dataset"),
        [
            (
                one.backup_id,
                one.operation,
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.created_at)),
                len(one.inputs),
                len(one.outputs),
                size_words(sum(file.size_bytes for file in one.inputs)),
                one.dataset,
            )
            for one in found
        ],
    )
    return Exit.DONE
