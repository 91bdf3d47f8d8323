"""Escapes of text from untrusted sources."""

import pytest

from runtime.printable import escape, escape_bytes, escape_lines

EVIL = "g\x1b]0;OWNED\x1b\\\x1b]52;c;cm0gLXJmIH4=\x1b\\\x1b[2J\x1b[1;1Hall is well"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 漢 😀", "plain ä 漢 😀"),
        ("", ""),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x00\x07\x08\x7f", "\\x00\\x07\\x08\\x7f"),
        ("\x85\x9b2J\xa0", "\\x85\\x9b2J\\xa0"),
        ("\u202eevil\u2066\u200f", "\\u202eevil\\u2066\\u200f"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("\ud800\U000e0001", "\\ud800\\U000e0001"),
    ],
)
def test_escape_shows_what_is_not_printable(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_escape_leaves_nothing_unprintable() -> None:
    every = "".join(
        map(chr, [*range(0x3000), *range(0xD700, 0xE100), 0xFEFF, 0x1F600, 0xE0001, 0x10FFFF])
    )
    assert escape(every).isprintable()
    assert set(escape_lines(every)) - set(escape(every)) == {"\n", "\t"}
    escape_lines(every).encode()


def test_escape_bytes_shows_what_is_not_utf_8() -> None:
    assert escape_bytes(b"a\tb\n\xff\xc2\x9b\x1b[2J\xe4\n") == b"a\tb\n\\xff\\x9b\\x1b[2J\\xe4\n"
