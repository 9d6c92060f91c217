"""Storage options from the environment, from a file and from the command line, in this order."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OPTIONS_VARIABLE = "MAINTENANCE_STORAGE_OPTIONS"
CATALOG_VARIABLE = "MAINTENANCE_CATALOG"
FILE_VARIABLE = "MAINTENANCE_STORAGE_OPTIONS_FILE"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WORDS = {"true": True, "false": False, "null": None}


def storage_options(
    given: Sequence[str], file: str | None, environment: Mapping[str, str]
) -> dict[str, Any] | None:
    """All options together, the later ones over the earlier; None where there is none.

    No message repeats a value: it may be a secret in the wrong place.
    """
    found: dict[str, Any] = {}
    if environment.get(OPTIONS_VARIABLE):
        found |= _from_text(environment[OPTIONS_VARIABLE], f"the variable {OPTIONS_VARIABLE}")
    name = file or environment.get(FILE_VARIABLE)
    if name:
        found |= _from_file(Path(name))
    found = {key: _filled(value, environment) for key, value in found.items()}
    for number, text in enumerate(given, start=1):
        _set(found, text, number, environment)
    return found or None


def _from_text(text: str, source: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        raise ValueError(f"{source} must hold a JSON object with storage options") from None
    return _checked(content, source)


def _from_file(path: Path) -> dict[str, Any]:
    from maintenance_assets.planning.plain_yaml import load_yaml

    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"Storage options file '{path}' does not exist") from None
    except UnicodeDecodeError:
        raise ValueError(f"storage options file '{path}' is neither JSON nor YAML") from None
    except ValueError as error:
        raise ValueError(f"storage options file '{path}': {error}") from None
    return _checked(content, f"storage options file '{path}'")


def _checked(content: Any, source: str) -> dict[str, Any]:
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"{source} must hold one mapping of option names to values")
    return content


def _set(options: dict[str, Any], text: str, number: int, environment: Mapping[str, str]) -> None:
    """`key=value` sets text (true, false and null are what they say), `key:=value` takes JSON.

    Dots in a key lead into a nested option.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip(":"):
        raise ValueError(f"--storage-option number {number} must be written key=value")
    content: Any = _WORDS.get(value, value)
    if key.endswith(":"):
        try:
            content = json.loads(value)
        except ValueError:
            raise ValueError(f"--storage-option {key}= must be followed by JSON") from None
    *outer, last = key.rstrip(":").split(".")
    for name in outer:
        inner = options.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ValueError(f"--storage-option {key}: '{name}' is no group of options")
        options = inner
    options[last] = _filled(content, environment)


def _filled(value: Any, environment: Mapping[str, str]) -> Any:
    """`${NAME}` is taken from the environment, so that secrets need not be written down."""
    if isinstance(value, str):
        return filled(value, "storage options", environment)
    if isinstance(value, Mapping):
        return {key: _filled(inner, environment) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, environment) for inner in value]
    return value


def filled(text: str, user: str, environment: Mapping[str, str] | None = None) -> str:
    """The text with each `${NAME}` taken from the environment; `user` is who needs it."""
    known = os.environ if environment is None else environment

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise ValueError(f"environment variable {match[1]} is not set, and {user} needs it")
        return known[match[1]]

    return _VARIABLE.sub(value_of, text)


def from_process(given: Sequence[str], file: str | None) -> dict[str, Any] | None:
    """The same with the environment of this process."""
    return storage_options(given, file, os.environ)
