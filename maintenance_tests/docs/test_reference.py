"""Reference pages name everything that there is, and nothing that there is not."""

import argparse
import re
import runpy
from typing import Any

import pytest

from maintenance_assets.cli.exits import Exit
from maintenance_assets.cli.parser import build_parser
from maintenance_assets.orchestration.catalog_config import CatalogConfig
from maintenance_assets.orchestration.config import DatasetConfig
from maintenance_tests.docs.pages import ROOT, pages, prose_of, text_of

DATASETS = "docs/datasets-yaml.md"
OF_OTHERS = {"--archives"}
"""Options of other programs that are named in sentences."""


def test_api_page_is_what_the_docstrings_say() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "generate_api.py"))
    stale = "docs/api.md is stale: run `make docs`"
    assert text_of("docs/api.md") == generator["page"](), stale


def test_every_field_of_a_dataset_is_in_the_reference_with_its_default() -> None:
    shown: dict[str, str] = {}
    for names, text in re.findall(r"^\| (`[^|]+`) \|([^|]*)\|", text_of(DATASETS), re.M):
        shown |= dict.fromkeys(re.findall(r"`(\w+)`", names), text.strip(" `"))
    fields = CatalogConfig.model_fields | DatasetConfig.model_fields
    assert set(shown) == set(fields)
    for name, field in fields.items():
        default: Any = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(default, str | int | float):
            told = f"{default:g}" if isinstance(default, float) else str(default)
            assert shown[name] == told, name


def commands() -> dict[str, argparse.ArgumentParser]:
    """The commands of the command line; those of `datasets` by both words."""
    return dict(_commands(build_parser(), ""))


def _commands(parser: argparse.ArgumentParser, prefix: str) -> Any:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                inner = list(_commands(command, f"{prefix}{name} "))
                yield from inner or [(f"{prefix}{name}", command)]


def options() -> set[str]:
    """All options of all commands."""
    found = [action for command in commands().values() for action in command._actions]
    return {name for action in found for name in action.option_strings}


def test_every_command_is_in_its_reference() -> None:
    text = text_of("docs/command-line.md")
    missing = [name for name in commands() if f"`{name}" not in text]
    assert not missing


def test_exit_codes_are_in_the_reference() -> None:
    rows = re.findall(r"^\| (\d+) \|", text_of("docs/command-line.md"), re.MULTILINE)
    assert [int(code) for code in rows] == [int(code) for code in Exit]


@pytest.mark.parametrize("page", pages())
def test_options_in_sentences_exist(page: str) -> None:
    quoted = "\n".join(re.findall(r"`[^`]+`", prose_of(page)))
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", quoted))
    assert named <= options() | OF_OTHERS
