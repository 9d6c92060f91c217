"""What is printed on stdout: tables for people, one JSON object for machines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO, cast

from maintenance_assets.cli.secrets import SafeStream

_WIDTH = 160
"""Of a table that goes into a file or a pipe."""
_BAR = 30


class Output:
    """Prints a report in the form that was asked for."""

    def __init__(self, stream: SafeStream, as_json: bool) -> None:
        self._stream = stream
        self.as_json = as_json

    def json(self, content: Mapping[str, Any]) -> None:
        """The report for machines, if they are asked for."""
        if self.as_json:
            self._stream.write_json(content)

    def line(self, text: str = "") -> None:
        """A line for people."""
        if not self.as_json:
            print(text, file=self._stream)

    def lines(self, label: str, texts: Iterable[str], most: int = 20) -> None:
        """Lines with a label in front."""
        known = list(texts)
        for text in known[:most]:
            self.line(f"{label}: {text}")
        if len(known) > most:
            self.line(f"{label}: ... and {len(known) - most} more")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table for people; a column whose name begins with '>' is aligned to the right."""
        if self.as_json or not rows:
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in columns:
            right = name.startswith(">")
            table.add_column(name.lstrip(">"), justify="right" if right else "left")
        for row in rows:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
        width = None if self._stream.isatty() else _WIDTH
        # Paths may hold what looks like markup.
        stream = cast(TextIO, self._stream)
        console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
        console.print(table)


def bar(share: float) -> str:
    """A share of 1 as a bar."""
    filled = round(_BAR * share)
    return "█" * max(filled, 1 if share else 0)
