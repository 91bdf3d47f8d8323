"""The document as JSON text. Pure.

It has a line for each field of the document, and for each row of its lists, for use with `grep` and
`less`. A long log has a hundred thousand rows, for which indented text takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def as_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON text with a line feed at its end."""
    fields = [f"{json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_rows(value)) + "\n]"
    return json.dumps(value)


def _rows(rows: list[Any]) -> Iterator[str]:
    encode = json.JSONEncoder().encode
    return (f" {encode(row)}" for row in rows)
