"""Commands that take something back: restore and recover."""

from maintenance_assets.cli.exits import Exit
from maintenance_assets.cli.look import require_backups
from maintenance_assets.cli.session import Session
from maintenance_assets.operations import recover as recovery
from maintenance_assets.operations import restore as restoring
from maintenance_assets.storage.discovery import require_directory
from maintenance_assets.storage.filesystems import open_store
from maintenance_assets.storage.recovery import leftover_runs


def restore(session: Session) -> Exit:
    """`restore`: the files that an operation replaced come back."""
    given, output = session.arguments, session.output
    require_backups(session)
    result = restoring.restore(
        given.path,
        given.backup_id,
        backup_path=given.backup_path,
        moved=given.moved,
        dry_run=given.dry_run,
        storage_options=session.storage_options,
    )
    output.json(result.to_dict())
    would = "would come" if result.dry_run else "came"
    output.line(
        f"{result.files_restored:,} files with {result.rows_restored:,} rows {would} back for "
        f"{result.files_removed:,} files with {result.rows_removed:,} rows, which the "
        f"{result.operation} had written"
    )
    output.lines("recovered", result.recovered)
    return Exit.DONE


def recover(session: Session) -> Exit:
    """`recover`: interrupted runs are completed or undone."""
    given, output = session.arguments, session.output
    if given.dry_run:
        store = open_store(given.path, storage_options=session.storage_options)
        require_directory(store)
        found = leftover_runs(store)
        output.json({"dry_run": True, "runs": list(found)})
        output.lines("interrupted or under way", found)
    else:
        found = recovery.recover(given.path, storage_options=session.storage_options).actions
        output.json({"dry_run": False, "actions": list(found)})
        output.lines("recovered", found)
    if not found:
        output.line("nothing to recover")
    return Exit.DONE
