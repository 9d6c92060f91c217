"""What a declaration takes from elsewhere: the environment, and the directory of its file."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def filled_path(path: str) -> str:
    """A path with the values of the variables that it names."""
    bare = _BARE_VARIABLE.search(path)
    if bare:
        raise ValueError(f"'{bare[0]}' is not filled in, write ${{{bare[1]}}}")
    return filled_text(path)


def filled_text(text: str) -> str:
    """Text with the values of the variables that it names, none of which may be empty."""
    return _VARIABLE.sub(_variable_with_text, text)


def beside(path: str, folder: Path | None) -> str:
    """Relative paths start at the file that names them."""
    is_url = "://" in path or "::" in path
    if folder is None or is_url or not path.strip() or path.startswith(("/", "~")):
        return path
    return str(folder.resolve() / path)


def with_environment(value: Any) -> Any:
    """Options with the values of the variables that they name."""
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, Mapping):
        return {key: with_environment(one) for key, one in value.items()}
    if isinstance(value, list):
        return [with_environment(one) for one in value]
    return value


def _variable(match: "re.Match[str]") -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise ValueError(f"environment variable {match[1]} is not set")
    return value


def _variable_with_text(match: "re.Match[str]") -> str:
    """An empty one would silently name another directory."""
    value = _variable(match)
    if not value.strip():
        raise ValueError(f"environment variable {match[1]} is empty")
    return value
