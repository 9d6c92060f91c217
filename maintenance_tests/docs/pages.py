"""The pages of the documentation, cut into their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it is, what it is written in, and what it says."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first_line(self) -> str:
        """What names the block, for lists of exceptions."""
        return self.text.splitlines()[0].strip() if self.text.strip() else ""

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page}, line {self.line}"


def pages() -> tuple[str, ...]:
    """README, CONTRIBUTING and everything in docs/, by their names from the root."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return tuple(page.relative_to(ROOT).as_posix() for page in found)


def text_of(page: str) -> str:
    """A page as it is written."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> tuple[Block, ...]:
    """The code blocks of a page, in their order."""
    return tuple(_blocks(page, text_of(page)))


def prose_of(page: str) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", text_of(page))


def _blocks(page: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found[1], found[2])
