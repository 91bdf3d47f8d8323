"""Escaping of text that others chose (names, errors, records) for terminals and logs.

A group id may be any text: an ESC in it would write to the operator's clipboard, a line end would
forge a line of a table. So all that is not printable is shown as an escape, as Python writes it:
control characters, line separators, direction marks, lone surrogates.
"""

from __future__ import annotations

_LAYOUT = "\n\t"


def escape(text: str) -> str:
    """Return a text in which everything that is not printable is visible, line ends included."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def escape_lines(text: str) -> str:
    """Do the same to a text of several lines: line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char in _LAYOUT else escape(char) for char in text)


def escape_bytes(data: bytes) -> bytes:
    """Do the same to lines of UTF-8; what is none is shown as escapes as well."""
    return escape_lines(data.decode("utf-8", "backslashreplace")).encode()
