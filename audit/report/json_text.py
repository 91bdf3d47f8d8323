"""The document as JSON text. Pure.

A line for each field of the document, and for each row of its lists: people look at it with `grep`
and `less`, and a long log has a hundred thousand rows, which an indented text takes seconds for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def as_json(document: Mapping[str, Any]) -> str:
    """With a line feed at its end."""
    fields = [f"{json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_rows(value)) + "\n]"
    return json.dumps(value)


def _rows(rows: list[Any]) -> Iterator[str]:
    encode = json.JSONEncoder().encode
    return (f" {encode(row)}" for row in rows)
