"""What every command works with: its arguments, the store's options, and where to print."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maintenance_assets.cli.output import Output
from maintenance_assets.cli.progress import progress_bars
from maintenance_assets.cli.secrets import SafeStream


class Session:
    """One call of a command."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        storage_options: dict[str, Any] | None,
        stdout: SafeStream,
    ) -> None:
        self.arguments = arguments
        self.storage_options = storage_options
        self.output = Output(stdout, arguments.json)

    @contextmanager
    def working(self) -> Iterator[dict[str, Any]]:
        """The options of long work, with bars while it lasts."""
        given = self.arguments
        with progress_bars(given.progress) as on_progress:
            yield {
                "engine": given.engine,
                "memory_budget_mb": given.memory_budget_mb,
                "max_workers": given.max_workers,
                "strict": given.strict,
                "storage_options": self.storage_options,
                "on_progress": on_progress,
            }

    def targets(self) -> dict[str, Any]:
        """The options that say what files are to be like."""
        given = self.arguments
        return {
            "target_mb_per_file": given.target_mb,
            "target_rows_per_file": given.target_rows,
            "compression": given.compression,
        }
