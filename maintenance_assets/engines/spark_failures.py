"""What went wrong on Spark, in one sentence and without anyone's secrets."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_SECRET_NAME = re.compile(
    r"key|secret|token|passw|passphrase|credential|signature|connection_string|(^|_)(sas|auth)(_|$)",
    re.IGNORECASE,
)
_LEAST_SECRET = 4
"""Shorter values would blot out ordinary text."""

_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
_SAME_LIBRARIES = (
    "The executors need the same libraries as the driver: install maintenance-assets (with the "
    "extra of your store) into their Python, or point PYSPARK_PYTHON to one that has it"
)
_LOST = (
    "Spark cannot be reached any more. Check that its driver or Connect server is running and "
    "has enough memory, then start a new session and run the operation again"
)
_UNAVAILABLE: tuple[tuple[str, str], ...] = (
    (r"PyArrow >= [\d.]+ must be installed", f"Spark's executors lack pyarrow. {_SAME_LIBRARIES}"),
    (
        r"PYTHON_VERSION_MISMATCH|different (minor )?version than that in driver",
        "Spark's executors run another version of Python than the driver. Point PYSPARK_PYTHON "
        "to the same one on every machine",
    ),
    (
        r"Cannot run program",
        "Spark's executors cannot start Python. Point PYSPARK_PYTHON to one that exists there",
    ),
    (
        r"Answer from Java side is empty|error while sending or receiving|Connection refused|"
        r"Connection reset|StatusCode\.UNAVAILABLE|failed to connect to all addresses|"
        r"SparkContext was shut down|stopped SparkContext|Remote end closed connection|"
        r"SESSION_CLOSED|SESSION_NOT_FOUND|SESSION_CHANGED|NO_ACTIVE_SESSION",
        _LOST,
    ),
)


def unavailability(text: str) -> str | None:
    """What is missing and how to get it, if Spark itself and no file was at fault."""
    module = _MISSING_MODULE.search(text)
    if module is not None:
        return f"Spark's executors lack the Python module '{module[1]}'. {_SAME_LIBRARIES}"
    for pattern, remedy in _UNAVAILABLE:
        if re.search(pattern, text):
            return remedy
    return None


def whole_text(error: BaseException) -> str:
    """Everything an error and its causes say."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(texts) < 10:
        texts.append(f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


def summary(error: BaseException) -> str:
    """The line that says most: the Python error on the executor, else Spark's first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    thrown = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit): ", line)]
    text = thrown[-1] if thrown else next(iter(lines), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def secret_values(fs: Any, paths: Iterable[str]) -> tuple[str, ...]:
    """Values of storage options that must not be shown, the longest first."""
    shown = {*paths}
    found = {
        value
        for value in _secrets(fs, depth=8)
        # A key that also is the name of a bucket is no secret, and paths must stay readable.
        if not any(value in path for path in shown)
    }
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def redacted(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret blotted out."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _secrets(value: Any, depth: int, is_secret: bool = False) -> Iterator[str]:
    """Look through options, options inside options, and file systems inside file systems."""
    if depth == 0:
        return
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        if is_secret and len(value) >= _LEAST_SECRET:
            yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            hidden = is_secret or bool(_SECRET_NAME.search(str(name)))
            yield from _secrets(inner, depth - 1, hidden)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from _secrets(inner, depth - 1, is_secret)
    else:
        for name in ("storage_options", "fs"):
            inner = getattr(value, name, None)
            if inner is not None and inner is not value:
                yield from _secrets(inner, depth - 1, is_secret)
