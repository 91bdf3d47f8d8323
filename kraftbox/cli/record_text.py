"""Records as text: JSON lines in both directions, and formats for printing.

A format uses kcat's letters: %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %K
and %S their sizes in bytes (-1 for none), %h headers as name=value with commas, %% a percent sign;
\\n, \\r, \\t, \\0 and \\\\ have their meaning in C.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from client.visible_records import Received

BASE64 = "base64:"

Part = Callable[[Received], bytes]


class Line(NamedTuple):
    """A record to write.

    `value` None is a tombstone; None in the last two fields means the option's value.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def text_of(data: bytes | None) -> str | None:
    """Return bytes as a JSON string: UTF-8 unchanged, other bytes as `base64:...`."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = BASE64
    if not text.startswith(BASE64):
        return text
    return BASE64 + base64.b64encode(data).decode()


def bytes_of(text: Any) -> bytes | None:
    """Return the bytes of a string that `text_of` made. Raises ValueError."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"expected text, got {text!r}")
    if text.startswith(BASE64):
        return base64.b64decode(text.removeprefix(BASE64), validate=True)
    return text.encode()


def as_json(record: Received) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": [[name, text_of(value)] for name, value in record.headers],
    }


def from_json(line: bytes) -> Line:
    """Parse a line that `consume --json` prints; all fields but the value may be missing.

    The topic and the offset are ignored. Raises ValueError.
    """
    found = json.loads(line)
    if not isinstance(found, dict) or "value" not in found:
        raise ValueError('expected an object with "value"')
    headers = found.get("headers") or []
    for pair in headers:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ValueError(f"invalid header {pair!r}: expected [NAME, VALUE]")
    numbers = (found.get("timestamp"), found.get("partition"))
    for number in numbers:
        if number is not None and (type(number) is not int or number < 0):
            raise ValueError(f"expected an integer of at least 0, got {number!r}")
    return Line(
        bytes_of(found.get("key")),
        bytes_of(found["value"]),
        tuple((name, bytes_of(value)) for name, value in headers),
        *numbers,
    )


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(record: Received) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_LETTERS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: _size(record.key),
    "S": lambda record: _size(record.value),
    "h": _headers,
    "%": lambda _: b"%",
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.?)|\\(.?)|[^%\\]+", re.DOTALL)


def formatter(text: str) -> Part:
    """Compile a format into a function from record to bytes. Raises ValueError."""
    parts: list[Part] = []
    for token in _TOKEN.finditer(text):
        letter, escape = token.groups()
        if letter is not None:
            if letter not in _LETTERS:
                raise ValueError(
                    f"invalid field %{letter}; allowed: {' '.join('%' + one for one in _LETTERS)}"
                )
            parts.append(_LETTERS[letter])
            continue
        if escape is not None and escape not in _ESCAPES:
            raise ValueError(
                f"invalid escape \\{escape}; allowed: {' '.join(chr(92) + e for e in _ESCAPES)}"
            )
        fixed = token[0].encode() if escape is None else _ESCAPES[escape]
        parts.append(lambda _, fixed=fixed: fixed)  # type: ignore[misc]
    return lambda record: b"".join(part(record) for part in parts)
