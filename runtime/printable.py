"""Escaping of untrusted text (names, errors, records) for terminals and logs.

A group ID may be any text: an ESC in it could write to the operator's clipboard, and a line end
could forge a line of a table. So all characters that are not printable are shown as Python escapes:
control characters, line separators, direction marks, lone surrogates.
"""

from __future__ import annotations

_LAYOUT = "\n\t"


def escape(text: str) -> str:
    """Return a text in which all unprintable characters are escaped, line ends included."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def escape_lines(text: str) -> str:
    """Escape a text of several lines; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char in _LAYOUT else escape(char) for char in text)


def escape_bytes(data: bytes) -> bytes:
    """Escape lines of UTF-8; invalid bytes are shown as escapes, too."""
    return escape_lines(data.decode("utf-8", "backslashreplace")).encode()
