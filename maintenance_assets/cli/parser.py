"""The arguments of `parquet-maintenance`."""

import argparse
import os
from collections.abc import Callable
from typing import Any, NoReturn

from maintenance_assets import __version__
from maintenance_assets.cli.exits import EPILOG, Exit
from maintenance_assets.cli.storage_options import CATALOG_VARIABLE
from maintenance_assets.engines.registry import engine_names
from maintenance_assets.model.clustering import CURVES
from maintenance_assets.model.policy import CODECS, DEFAULT_MEMORY_BUDGET_MB

PROGRAM = "parquet-maintenance"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and never repeats a value that could be a secret."""

    def __init__(self, **options: Any) -> None:
        # The exit codes below the options are a table; half an option is none.
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"formatter_class": raw, "allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """One line on stderr, exit code 2."""
        if message.startswith("unrecognized arguments: "):
            # What follows a misspelt option may well be a secret.
            words = message.removeprefix("unrecognized arguments: ").split()
            options = [word for word in words if word.startswith("-")]
            names = [word.partition("=")[0] for word in options or words]
            message = f"unrecognized arguments: {' '.join(names)}"
        self.exit(Exit.USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    """All commands and their options."""
    parser = Parser(
        prog=PROGRAM,
        description="Keeps Parquet datasets healthy.",
        epilog=EPILOG,
    )
    parser.set_defaults(subcommand=None)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for add in (_look, _rewrite, _change, _undo, _catalog, _other):
        add(commands)
    return parser


def _command(
    commands: Any, name: str, text: str, *groups: Callable[[Parser], None], path: bool = True
) -> Parser:
    command: Parser = commands.add_parser(name, help=text, description=f"{text}.", epilog=EPILOG)
    if path:
        command.add_argument("path", metavar="PATH", help="the dataset: a directory or a URL")
    for group in groups:
        group(command)
    _output(command)
    return command


def _look(commands: Any) -> None:
    status = _command(
        commands,
        "status",
        "Files, health, drift and what is under way",
        *(_store, _scope, _targets, _in_catalog),
    )
    _engine(status)
    status.add_argument("--small-mb", type=float, metavar="MB", help="files below are small")
    status.add_argument("--min-gain", type=int, default=4, metavar="N", help="files worth a run")
    status.add_argument(
        "--cooldown-minutes", type=float, default=10.0, metavar="N", help="wait after a write"
    )
    status.add_argument("--worst", type=int, default=10, metavar="N", help="partitions to show")
    plan = _command(
        commands, "plan", "What compact or optimize would do", _store, _work, _scope, _targets
    )
    _clustering(plan, required=False)
    plan.add_argument("--save", metavar="FILE", help="keep the plan, to execute it later")
    history = _command(
        commands, "history", "Operations that can be taken back, or versions", _store, _in_catalog
    )
    _backups(history)


def _rewrite(commands: Any) -> None:
    _command(
        commands,
        "compact",
        "Merge small files and split oversized ones",
        *(_store, _work, _scope, _targets, _dry_run, _in_catalog),
    )
    optimize = _command(
        commands,
        "optimize",
        "Cluster rows so that look-ups open few files",
        *(_store, _work, _scope, _targets, _dry_run, _in_catalog),
    )
    _clustering(optimize, required=True)
    execute = _command(
        commands,
        "execute",
        "Carry out a saved plan, exactly so or not at all",
        *(_store, _work, _dry_run),
        path=False,
    )
    execute.add_argument("plan", metavar="PLAN", help="a file that `plan --save` wrote")
    execute.add_argument(
        "path", nargs="?", metavar="PATH", help="the dataset, where it is not at the plan's place"
    )
    execute.set_defaults(engine=None)
    _repartition(commands)


def _repartition(commands: Any) -> None:
    command = _command(
        commands, "repartition", "Lay files out by other columns", _store, _work, _targets, _dry_run
    )
    command.add_argument("target", metavar="TARGET", help="an empty directory, or PATH itself")
    command.add_argument(
        "--by", type=_names, required=True, metavar="COLUMNS", help="comma-separated; '' for none"
    )
    command.add_argument(
        "--derive",
        action="append",
        default=[],
        metavar="COLUMN=SQL",
        help="a column made from others, such as year=year(ts)",
    )
    command.add_argument(
        "--drop-partition-columns",
        action="store_true",
        help="keep partition columns in the path alone",
    )
    command.add_argument(
        "--delete-source", action="store_true", help="delete PATH once TARGET is complete"
    )


def _change(commands: Any) -> None:
    shared = (_store, _work, _scope, _codec, _dry_run, _backups, _in_catalog)
    delete = _command(commands, "delete", "Delete rows", *shared)
    delete.add_argument("--where", required=True, metavar="SQL", help="which rows")
    update = _command(commands, "update", "Change values of rows", *shared)
    update.add_argument("--where", required=True, metavar="SQL", help="which rows")
    update.add_argument(
        "--set",
        action="append",
        required=True,
        dest="values",
        metavar="COLUMN=SQL",
        help='such as "side=\'ask\'" or "spread=ask - bid"',
    )
    upsert = _command(commands, "upsert", "Update rows by key, and insert new ones", *shared)
    upsert.add_argument("new_data", metavar="NEW_DATA", help="a .parquet, .csv or .json file")
    upsert.add_argument("--key", type=_names, required=True, metavar="COLUMNS")
    upsert.add_argument("--partition-by", type=_names, metavar="COLUMNS", help="of new rows")
    upsert.add_argument("--update-columns", type=_names, metavar="COLUMNS", help="all others stay")
    upsert.add_argument("--on-duplicates", choices=("error", "last"), default="error")


def _undo(commands: Any) -> None:
    restore = _command(commands, "restore", "Take an operation back", _store, _dry_run, _in_catalog)
    restore.add_argument("backup_id", metavar="BACKUP_ID", help="or a version; see `history`")
    restore.add_argument(
        "--moved", action="store_true", help="the dataset lay elsewhere when the backup was made"
    )
    _backups(restore)
    _command(commands, "recover", "Finish or undo interrupted runs", _store, _dry_run, _in_catalog)


def _catalog(commands: Any) -> None:
    vacuum = _command(
        commands,
        "vacuum",
        "Delete files that no version of a catalog's datasets needs",
        *(_store, _of_catalog),
        path=False,
    )
    vacuum.add_argument(
        "--retention-days", type=float, default=7.0, metavar="N", help="removed so long ago (7)"
    )
    vacuum.add_argument(
        "--force", action="store_true", help="allow less than 7 days: nobody is reading"
    )
    either = vacuum.add_mutually_exclusive_group()
    either.add_argument("--delete", action="store_true", help="do it; else it is a dry run")
    either.add_argument("--dry-run", action="store_true", help="say what would be done (default)")
    expire = _command(
        commands,
        "expire",
        "Give up old versions, whose files vacuum may then delete",
        *(_store, _of_catalog, _dry_run),
        path=False,
    )
    expire.add_argument(
        "--older-than-days", type=float, required=True, metavar="N", help="replaced so long ago"
    )
    expire.add_argument(
        "--retain-last", type=int, default=1, metavar="N", help="keep so many at least (1)"
    )
    _command(
        commands,
        "fsck",
        "Compare directories with the catalog",
        *(_store, _of_catalog),
        path=False,
    )


def _other(commands: Any) -> None:
    datasets = commands.add_parser("datasets", help="Declared datasets", epilog=EPILOG)
    inner = datasets.add_subparsers(
        dest="subcommand", metavar="COMMAND", required=True, parser_class=Parser
    )
    check = _command(inner, "check", "Check a datasets.yaml", path=False)
    check.add_argument("file", metavar="FILE", help="the datasets.yaml")
    check.add_argument("--open", action="store_true", help="look at each dataset, too")
    listed = _command(inner, "list", "Datasets of a catalog", _store, path=False)
    _catalog_option(listed, required=True)
    completion = commands.add_parser(
        "completion", help="A script that completes commands and options in a shell"
    )
    completion.add_argument("shell", choices=("bash", "zsh"))
    completion.set_defaults(debug=False, json=False, progress=False)


def _store(command: Parser) -> None:
    group = command.add_argument_group("storage")
    group.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for the file system; KEY:=JSON for other values than text; ${NAME} is filled in",
    )
    group.add_argument(
        "--storage-options-file",
        metavar="FILE",
        help="the same as JSON or YAML (or MAINTENANCE_STORAGE_OPTIONS[_FILE] in the environment)",
    )


def _in_catalog(command: Parser) -> None:
    """PATH may be the name of a dataset."""
    _catalog_option(command.add_argument_group("catalog"), required=False)


def _of_catalog(command: Parser) -> None:
    command.add_argument("dataset", nargs="?", metavar="DATASET", help="all if not given")
    _catalog_option(command, required=True)


def _catalog_option(command: Any, *, required: bool) -> None:
    """Not required where the environment says it; PATH never changes its meaning by that."""
    known = os.environ.get(CATALOG_VARIABLE) if required else None
    command.add_argument(
        "--catalog",
        metavar="URI",
        required=required and not known,
        default=known,
        help=f"sqlite:///file, duckdb:///file or postgresql://...; ${{NAME}} is filled in (or "
        f"{CATALOG_VARIABLE} in the environment)"
        if required
        else "PATH is the name of a dataset in this catalog; ${NAME} is filled in",
    )


def _engine(command: Any) -> None:
    names = (*engine_names(), "auto")
    command.add_argument("--engine", choices=names, default="pyarrow", help="who does the work")


def _work(command: Parser) -> None:
    group = command.add_argument_group("work")
    _engine(group)
    group.add_argument(
        "--memory-budget-mb",
        type=float,
        default=DEFAULT_MEMORY_BUDGET_MB,
        metavar="MB",
        help="decoded data in memory at a time (%(default)s)",
    )
    group.add_argument("--max-workers", type=int, metavar="N", help="groups at a time")
    group.add_argument(
        "--strict", action="store_true", help="refuse what the engine cannot keep itself"
    )


def _scope(command: Parser) -> None:
    command.add_argument(
        "--partition",
        action="append",
        metavar="KEY=VALUE",
        help="only these partitions; may be given several times",
    )


def _targets(command: Parser) -> None:
    group = command.add_argument_group("targets")
    group.add_argument("--target-mb", type=float, metavar="MB", help="size of a file (128)")
    group.add_argument("--target-rows", type=int, metavar="N", help="most rows of a file")
    _codec(group)


def _codec(command: Any) -> None:
    command.add_argument("--compression", choices=CODECS, help="the sources' own if not given")


def _dry_run(command: Parser) -> None:
    command.add_argument("--dry-run", action="store_true", help="say what would be done")


def _clustering(command: Parser, *, required: bool) -> None:
    command.add_argument(
        "--zorder",
        type=_names,
        required=required,
        metavar="COLUMNS",
        help="columns to cluster by, comma-separated",
    )
    command.add_argument("--curve", choices=CURVES, default="hilbert")


def _backups(command: Parser, *, required: bool = False) -> None:
    command.add_argument(
        "--backup-path",
        required=required,
        metavar="DIR",
        help="where operations keep what they replace",
    )


def _output(command: Parser) -> None:
    group = command.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout")
    group.add_argument("--no-progress", action="store_false", dest="progress")
    group.add_argument("--debug", action="store_true", help="log, and the trace of an error")


def _names(text: str) -> list[str]:
    """Comma-separated names."""
    return [name.strip() for name in text.split(",")] if text.strip() else []
