"""Matching and changing text, by code points."""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Array = Any
Parts = tuple[str | int | None, ...]
"""A pattern: text as it stands, None for any text (%), a number for so many characters (_)."""


def like_parts(pattern: str, escape: str | None) -> Parts:
    """Take a LIKE pattern apart; what is escaped stands for itself."""
    parts: list[str | int | None] = []
    escaped = False
    for char in pattern:
        if char == escape and not escaped:
            escaped = True
            continue
        _append(parts, char, escaped)
        escaped = False
    return tuple(parts)


def _append(parts: list[str | int | None], char: str, escaped: bool) -> None:
    last = parts[-1] if parts else None
    if char == "%" and not escaped:
        if not parts or last is not None:
            parts.append(None)
    elif char == "_" and not escaped:
        if isinstance(last, int):
            parts[-1] = last + 1
        else:
            parts.append(1)
    elif isinstance(last, str):
        parts[-1] = last + char
    else:
        parts.append(char)


def like(values: Array, parts: Parts, ignore_case: bool) -> Array:
    """Whether text matches a pattern as a whole."""
    match parts:
        case _ if ignore_case:
            return _like_regex(values, parts, ignore_case)
        case ():
            return pc.equal(values, pa.scalar("", values.type))
        case (str(text),):
            return pc.equal(values, pa.scalar(text, values.type))
        case (str(text), None):
            return pc.starts_with(values, text)
        case (None, str(text)):
            return pc.ends_with(values, text)
        case (None, str(text), None):
            return pc.match_substring(values, text)
        case _:
            return _like_regex(values, parts, ignore_case)


def _like_regex(values: Array, parts: Parts, ignore_case: bool) -> Array:
    inner = "".join(_regex_of(part) for part in parts)
    return pc.match_substring_regex(values, rf"(?s)\A(?:{inner})\z", ignore_case=ignore_case)


def _regex_of(part: str | int | None) -> str:
    if part is None:
        return ".*"
    if isinstance(part, int):
        # RE2 counts up to 1000.
        return ".{1000}" * (part // 1000) + f".{{{part % 1000}}}"
    return "".join(_quoted(char) for char in part)


def _quoted(char: str) -> str:
    if char == "\0":
        return r"\x00"
    return f"\\{char}" if re.fullmatch(r"[!-/:-@\[-`{-~]", char) else char


def trimmed(values: Array, name: str, characters: str) -> Array:
    """Without these characters at one end or both."""
    kernel = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[name]
    return kernel(values, characters=characters) if characters else values


def substring(values: Array, start: int, length: int | None) -> Array:
    """So many characters from a position that counts from one."""
    stop = None if length is None else start - 1 + length
    return pc.utf8_slice_codeunits(values, start=start - 1, stop=stop)


def replaced(values: Array, old: str, new: str) -> Array:
    """Every occurrence of a text replaced; an empty one occurs nowhere."""
    return pc.replace_substring(values, pattern=old, replacement=new) if old else values


def joined(arguments: list[Array], skip_nulls: bool) -> Array:
    """Text after text; with a NULL among them NULL, or without it."""
    texts = [argument.cast(pa.large_string()) for argument in arguments]
    nothing = pa.scalar("", pa.large_string())
    handling = "skip" if skip_nulls else "emit_null"
    # Arrow leaves out a row of which all texts are null, so there is always one that is not.
    return pc.binary_join_element_wise(nothing, *texts, nothing, null_handling=handling)
