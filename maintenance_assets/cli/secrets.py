"""Secrets stay secret: whatever is printed goes through here."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO
from urllib.parse import unquote

HIDDEN = "***"
_HARMLESS = frozenset(
    {
        "account_name",
        "addressing_style",
        "anon",
        "asynchronous",
        "auto_mkdir",
        "cache_regions",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "endpoint",
        "endpoint_override",
        "endpoint_url",
        "host",
        "port",
        "project",
        "protocol",
        "region",
        "region_name",
        "requester_pays",
        "scheme",
        "signature_version",
        "skip_instance_cache",
        "use_listings_cache",
        "use_ssl",
        "user",
        "username",
        "version_aware",
    }
)
_SECRET_VARIABLE = re.compile(
    r"SECRET|TOKEN|PASSWORD|PASSPHRASE|PRIVATE_KEY|ACCESS_KEY|ACCOUNT_KEY"
)
_SHORTEST = 4
"""What is shorter would take ordinary words apart."""
_SHORTEST_VARIABLE = 8
"""The same where only a name makes a secret of it: TOKEN_CACHE=false is none."""


class Secrets:
    """Values that must not be shown, and text without them."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: Any) -> None:
        """Remember all values of options, except where a name says that they are harmless."""
        if isinstance(value, Mapping):
            for name, inner in value.items():
                if name not in _HARMLESS:
                    self.learn(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                self.learn(inner)
        elif isinstance(value, str | bytes):
            self._add(value.decode(errors="replace") if isinstance(value, bytes) else value)

    def learn_url(self, url: str) -> None:
        """Remember the passwords in a URL, as they are spelled there and as they are."""
        found = re.findall(r"://[^/@:]*:([^/@]*)@", url)
        # What was written without the escapes that it needs is cut short by some readers.
        found += re.findall(r"://[^/@:]*:(.*)@", url)
        found += re.findall(r"[?&][^=&]*(?:pass|secret|token|key)[^=&]*=([^&]*)", url, re.I)
        for password in found:
            self._add(password)
            self._add(unquote(password))

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Remember what variables hold that are called a secret."""
        for name, value in environment.items():
            is_word = len(value) < _SHORTEST_VARIABLE or os.path.exists(value)
            if _SECRET_VARIABLE.search(name) and not is_word:
                self._add(value)

    def hide(self, text: str) -> str:
        """The text without any of them."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def hide_in(self, content: Any) -> Any:
        """The same for texts in lists and mappings; numbers and names stay what they are."""
        match content:
            case str():
                return self.hide(content)
            case Mapping():
                return {key: self.hide_in(one) for key, one in content.items()}
            case list() | tuple():
                return [self.hide_in(one) for one in content]
            case _:
                return content

    def _add(self, value: str) -> None:
        if len(value) < _SHORTEST or value in self._values:
            return
        # A JSON or a URL spells it another way.
        self._values |= {value, repr(value)[1:-1], value.replace("/", "%2F").replace("+", "%2B")}
        longest_first = sorted(self._values, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(known) for known in longest_first))


class SafeStream:
    """A text stream that lets no secret through, and goes silent once nobody reads it.

    Work goes on without a reader, and its exit code is that of the work.
    """

    def __init__(self, stream: TextIO, secrets: Secrets) -> None:
        self._stream = stream
        self._secrets = secrets

    def write(self, text: str) -> int:
        """Write the text without secrets."""
        with self._silent_without_reader():
            self._stream.write(self._secrets.hide(text))
        return len(text)

    def write_json(self, content: Mapping[str, Any]) -> None:
        """Write an object whose texts have no secrets; it stays JSON, whatever a secret is."""
        safe = json.dumps(self._secrets.hide_in(content), default=str, indent=2)
        with self._silent_without_reader():
            self._stream.write(f"{safe}\n")

    def flush(self) -> None:
        """Send what is written to its reader."""
        with self._silent_without_reader():
            self._stream.flush()

    @contextmanager
    def _silent_without_reader(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
