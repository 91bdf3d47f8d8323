"""Parsing of JSON files for Kafka's tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kraftbox.cli.output import CommandFailed

INT64_MAX = 2**63 - 1


def read_entries(path: str, key: str) -> list[dict[str, Any]]:
    """Return the objects of the array `key`. Raises CommandFailed."""
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"{path}: invalid JSON: {error}") from None
    entries = content.get(key) if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise CommandFailed(f'{path}: expected an object with an array "{key}" of objects')
    if not entries:
        raise CommandFailed(f'{path}: "{key}" is empty')
    return entries


def topic_of(path: str, entry: dict[str, Any]) -> str:
    name = entry.get("topic")
    if not isinstance(name, str) or not name:
        raise CommandFailed(f'{path}: {entry}: "topic" must be a name')
    return name


def number_of(path: str, entry: dict[str, Any], key: str, least: int = 0) -> int:
    number = entry.get(key)
    if type(number) is not int or not least <= number <= INT64_MAX:
        raise CommandFailed(f'{path}: {entry}: "{key}" must be an integer of at least {least}')
    return number
