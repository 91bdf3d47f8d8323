"""Parser and formatter of Java's `.properties` text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACES = " \t\f"


class PropertiesError(ValueError):
    """A malformed escape; the message has the line number."""


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values in order of appearance; of repeated keys the last one applies.

    Supports comments (`#`, `!`), the separators `=`, `:` and blank, continued lines, and backslash
    escapes. Raises PropertiesError for a malformed `\\u` escape.
    """
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            result[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise PropertiesError(f"line {number}: {error}") from None
    return result


def format_properties(values: Mapping[str, str], comment: str = "") -> str:
    """Return text that `parse_properties` and Java read back to the same mapping.

    Keys and values are ASCII: Java reads other bytes of such a file as Latin-1.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    for key, value in values.items():
        lines.append(f"{_escape(key, in_key=True)}={_escape(value, in_key=False)}")
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending = ""
    start = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = raw.lstrip(_SPACES)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _SPACES:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_SPACES)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACES)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at >= len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ValueError("\\u needs four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java writes characters beyond the basic plane as two \u escapes.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, in_key: bool) -> str:
    out: list[str] = []
    for index, char in enumerate(text):
        if char in "\\\t\n\r\f":
            out.append({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif (char in "=:#!" and (in_key or index == 0)) or (
            char == " " and (in_key or index == 0)
        ):
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex()
            out += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(out)
