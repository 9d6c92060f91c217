"""The entry point: parse, run, and end with a code that scripts can use."""

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO, cast

from maintenance_assets.cli.exits import Exit, exit_of_error, one_line
from maintenance_assets.cli.parser import PROGRAM, build_parser
from maintenance_assets.cli.secrets import SafeStream, Secrets
from maintenance_assets.cli.session import Session
from maintenance_assets.cli.storage_options import filled, from_process

_COMMANDS = {
    "status": "look:status",
    "plan": "rewrite:plan",
    "history": "look:history",
    "vacuum": "lake:vacuum",
    "expire": "lake:expire",
    "fsck": "lake:fsck",
    "compact": "rewrite:compact",
    "optimize": "rewrite:optimize",
    "execute": "rewrite:execute",
    "repartition": "change:repartition",
    "delete": "change:delete",
    "update": "change:update",
    "upsert": "change:upsert",
    "restore": "undo:restore",
    "recover": "undo:recover",
    "datasets check": "other:check_datasets",
    "datasets list": "lake:datasets",
    "completion": "other:completion",
}
"""Where each command is; its room is imported when it is called."""
_OF_A_CATALOG = {
    "status": "lake:status",
    "history": "lake:history",
    "compact": "lake_change:compact",
    "optimize": "lake_change:optimize",
    "delete": "lake_change:delete",
    "update": "lake_change:update",
    "upsert": "lake_change:upsert",
    "restore": "lake_change:restore",
    "recover": "lake:recover",
}
"""The same commands for a dataset of a catalog."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    secrets = Secrets()
    secrets.learn_environment(os.environ)
    # Before they are parsed: what is wrong with them is printed, too.
    for word in sys.argv[1:] if argv is None else argv:
        secrets.learn_url(word)
    with _safe_streams(secrets) as stdout:
        try:
            arguments = build_parser().parse_args(argv)
        except SystemExit as end:  # --help, --version, or a message that was printed
            return int(end.code or 0)
        with _ended_by_signal(), _logging(arguments.debug):
            try:
                return _run(arguments, secrets, stdout)
            except KeyboardInterrupt:
                _say("interrupted; what was open is undone, now or by the next run or `recover`")
                return Exit.INTERRUPTED
            # The outermost place: whatever it is, a shell gets a line and a code.
            except Exception as error:
                if arguments.debug:
                    traceback.print_exc()
                _say(one_line(error, getattr(arguments, "path", None) or ""))
                return exit_of_error(error)


def _run(arguments: Any, secrets: Secrets, stdout: SafeStream) -> int:
    options = None
    if hasattr(arguments, "storage_option"):
        options = from_process(arguments.storage_option, arguments.storage_options_file)
        secrets.learn(options)
    command_name = " ".join(filter(None, (arguments.command, arguments.subcommand)))
    place = _COMMANDS[command_name]
    if getattr(arguments, "catalog", None):
        secrets.learn_url(arguments.catalog)  # it may come from the environment
        arguments.catalog = filled(arguments.catalog, "--catalog")
        secrets.learn_url(arguments.catalog)
        place = _OF_A_CATALOG.get(command_name, place)
    module, _, name = place.partition(":")
    command = getattr(import_module(f"maintenance_assets.cli.{module}"), name)
    code = int(command(Session(arguments, options, stdout, secrets)))
    stdout.flush()
    return code


def _say(text: str) -> None:
    print(f"{PROGRAM}: error: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _safe_streams(secrets: Secrets) -> Iterator[SafeStream]:
    """Nothing is printed that is a secret, and nothing fails because of an odd file name."""
    kept = sys.stdout, sys.stderr
    for stream in kept:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    stdout = SafeStream(kept[0], secrets)
    sys.stdout = cast(TextIO, stdout)
    sys.stderr = cast(TextIO, SafeStream(kept[1], secrets))
    try:
        yield stdout
    finally:
        sys.stdout, sys.stderr = kept


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _logging(debug: bool) -> Iterator[None]:
    """The package's log on stderr for --debug, else nowhere: reports tell what matters."""
    logger = logging.getLogger("maintenance_assets")
    handler: logging.Handler = logging.StreamHandler() if debug else logging.NullHandler()
    level = logger.level
    logger.addHandler(handler)
    if debug:
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
