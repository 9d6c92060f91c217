"""Messages that the troubleshooting page quotes are messages that the package has."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache

import pytest

from maintenance_assets import errors
from maintenance_tests.docs.pages import ROOT, text_of

PAGE = "docs/troubleshooting.md"
PACKAGE = ROOT / "maintenance_assets"
GAP = "\0"
NOT_MESSAGES = {"schema_conflict"}
"""What is quoted at the beginning of a row and is no message: a reason, tested elsewhere."""


def quoted() -> list[str]:
    """What stands in the first cell of the tables, between backticks."""
    rows = [line for line in text_of(PAGE).splitlines() if line.startswith("| `")]
    cells = [row.split(" | ")[0] for row in rows]
    found = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    return [message for message in found if " " in message]


@cache
def templates() -> tuple[str, ...]:
    """Every text in the package, with a gap wherever a value is filled in."""
    files = sorted(PACKAGE.rglob("*.py"))
    return tuple(text for file in files for text in _texts(ast.parse(file.read_text("utf-8"))))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else GAP


def is_said(message: str) -> bool:
    """Whether some text of the package has the pieces between the gaps, in this order.

    A gap of the page may stand for more than one value: what it leaves out may hold gaps as well.
    """
    pieces = [re.escape(piece.strip()) for piece in message.split("...") if piece.strip(" .'")]
    pattern = re.compile(r"[\s\S]*".join(pieces).replace("'", "['\"\0]?"))
    return any(pattern.search(text) for text in templates())


@pytest.mark.parametrize("message", quoted())
def test_message_is_one_of_the_package(message: str) -> None:
    assert is_said(message)


def test_a_message_that_nobody_says_is_noticed() -> None:
    assert not is_said("Dataset path '...' does not exits")
    assert not is_said("does not exist ... Dataset path")


def test_there_are_many_messages() -> None:
    assert len(quoted()) > 90


def test_every_kind_of_error_is_on_the_page() -> None:
    kinds = [
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.MaintenanceError) and kind is not errors.MaintenanceError
    ]
    missing = [name for name in kinds if f"`{name}`" not in text_of(PAGE)]
    assert not missing
