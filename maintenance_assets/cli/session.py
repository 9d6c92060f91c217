"""What every command works with: its arguments, the store's options, and where to print."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maintenance_assets.cli.output import Output
from maintenance_assets.cli.progress import progress_bars
from maintenance_assets.cli.secrets import SafeStream, Secrets

if TYPE_CHECKING:
    from maintenance_assets.api.lakehouse import Lakehouse


class Session:
    """One call of a command."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        storage_options: dict[str, Any] | None,
        stdout: SafeStream,
        secrets: Secrets,
    ) -> None:
        self.arguments = arguments
        self.storage_options = storage_options
        self.output = Output(stdout, arguments.json)
        self.secrets = secrets

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

    @contextmanager
    def house(self) -> Iterator["Lakehouse"]:
        """The catalog that was named; it has to be there."""
        from maintenance_assets.api.lakehouse import Lakehouse

        options = self.storage_options
        with Lakehouse(self.arguments.catalog, storage_options=options, create=False) as house:
            yield house

    def refuse_in_catalog(self, *names: str) -> None:
        """Options that mean something for a directory alone are not passed over in silence."""
        usual = {"engine": "pyarrow"}
        for name in names:
            if getattr(self.arguments, name, None) not in (None, False, usual.get(name)):
                option = name.replace("_", "-")
                raise ValueError(
                    f"--{option} has no meaning for `{self.arguments.command}` with --catalog: "
                    "leave it out"
                )

    def targets(self) -> dict[str, Any]:
        """The options that say what files are to be like."""
        given = self.arguments
        return {
            "target_mb_per_file": given.target_mb,
            "target_rows_per_file": given.target_rows,
            "compression": given.compression,
        }
