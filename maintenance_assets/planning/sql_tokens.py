"""The tokens of an SQL text, with nothing hidden between them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from maintenance_assets.planning.expressions import Span, pointing_at

MAX_LENGTH = 2_000_000
_WORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"\d[\d_]*(\.\d[\d_]*|\.)?([eE][+-]?\d+)?")
_LITERAL_PREFIXES = "XBENURxbenur"


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()
    """A quoted identifier."""
    STRING = auto()
    BLOB = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token: `value` is the content of what is quoted, and a word in capitals."""

    kind: Kind
    text: str
    value: str
    span: Span


def tokenize(text: str) -> list[Token]:
    """The tokens of an expression and an END; ValueError at what cannot be one."""
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"An SQL expression of {len(text)} characters is too long; "
            f"up to {MAX_LENGTH} are read. Put the values into a file and use upsert"
        )
    tokens: list[Token] = []
    end = 0
    for raw in _raw_tokens(text):
        _check_gap(text, end, raw.start)
        end = raw.end + 1
        tokens.extend(_tokens(text, raw, tokens))
    _check_gap(text, end, len(text))
    last = len(text.rstrip())
    tokens.append(Token(Kind.END, "the end", "", Span(last, last + 1)))
    return tokens


def _raw_tokens(text: str) -> list[Any]:
    # Loaded on first use: importing it takes longer than most plans.
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import TokenError

    try:
        return Dialect.get_or_raise("duckdb").tokenize(text)
    except TokenError:
        start = _open_quote(text)
        raise pointing_at(
            text, Span(start, start + 1), "This opens something that is never closed"
        ) from None


_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|/\*.*?\*/|--[^\n]*", re.DOTALL)


def _open_quote(text: str) -> int:
    """Where the quote or comment begins that has no end."""
    position = 0
    while position < len(text):
        if text[position] in "'\"" or text.startswith("/*", position):
            closed = _QUOTED.match(text, position)
            if closed is None:
                return position
            position = closed.end()
        else:
            position += 1
    return 0


def _check_gap(text: str, start: int, end: int) -> None:
    """Only white space may stand between tokens: a comment could hide what an expression does."""
    gap = text[start:end]
    if gap.strip():
        start += len(gap) - len(gap.lstrip())
        span = Span(start, end - len(gap) + len(gap.rstrip()))
        raise pointing_at(text, span, "Comments are not allowed in an SQL expression")


def _tokens(text: str, raw: Any, before: list[Token]) -> Iterator[Token]:
    span = Span(raw.start, raw.end + 1)
    written = text[span.start : span.end]
    if written.startswith("'"):
        prefix = before[-1] if before and before[-1].span.end == span.start else None
        if prefix is not None and prefix.kind is Kind.WORD and prefix.text in _LITERAL_PREFIXES:
            before.pop()
            yield _blob(text, prefix, raw.text, prefix.span | span)
        else:
            yield Token(Kind.STRING, written, raw.text, span)
    elif written.startswith('"'):
        if not raw.text:
            raise pointing_at(text, span, "An identifier must not be empty")
        yield Token(Kind.QUOTED, written, raw.text, span)
    elif _NUMBER.fullmatch(written):
        yield Token(Kind.NUMBER, written, written.replace("_", ""), span)
    elif _WORD.match(written):
        yield from _words(text, written, span)
    else:
        yield Token(Kind.SYMBOL, written, written, span)


def _words(text: str, written: str, span: Span) -> Iterator[Token]:
    """A keyword of several words is as many tokens."""
    if "'" in written or "$" in written:
        raise pointing_at(text, span, "Strings are written 'like this'")
    for found in re.finditer(r"\S+", written):
        word = found.group()
        place = Span(span.start + found.start(), span.start + found.end())
        if not _WORD.fullmatch(word):
            raise pointing_at(text, place, f"Cannot read {word!r} here")
        yield Token(Kind.WORD, word, word.upper(), place)


def _blob(text: str, prefix: Token, digits: str, span: Span) -> Token:
    if prefix.value != "X":
        raise pointing_at(text, span, "Strings are written 'like this', and bytes as X'0AFF'")
    if len(digits) % 2 or not re.fullmatch(r"[0-9a-fA-F]*", digits):
        raise pointing_at(text, span, "Bytes are written as pairs of hexadecimal digits: X'0AFF'")
    return Token(Kind.BLOB, text[span.start : span.end], digits, span)
