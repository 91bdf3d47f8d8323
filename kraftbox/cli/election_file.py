"""The JSON files of kafka-leader-election: partitions to elect leaders of.

    {"partitions": [{"topic": "foo", "partition": 1, "desiredLeader": 0}]}

`desiredLeader` is used in a designation only (KIP-966).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from client.elections import ElectionType
from client.leaders import TopicPartition
from kraftbox.cli.output import CommandFailed

DesiredLeaders = dict[TopicPartition, int | None]
"""Broker IDs by partition, None if the entry has no desiredLeader."""

INT32_MAX = 2**31 - 1


def read_election_file(path: Path) -> DesiredLeaders:
    """Parse a file. Raises CommandFailed with the file, the entry and the error."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"{path}: invalid JSON: {error}") from None
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise CommandFailed(f'{path}: expected an object with an array "partitions"')
    found: DesiredLeaders = {}
    for number, entry in enumerate(entries, 1):
        try:
            partition, leader = _entry(entry)
        except ValueError as error:
            raise CommandFailed(f"{path}: entry {number}: {error}") from None
        if partition in found:
            raise CommandFailed(
                f"{path}: entry {number}: duplicate partition {partition[0]}-{partition[1]}"
            )
        found[partition] = leader
    return found


def leaders_of(election: ElectionType, wanted: DesiredLeaders | None) -> dict[TopicPartition, int]:
    """Return the designated brokers; empty for other election types. Raises CommandFailed."""
    if election is not ElectionType.DESIGNATION:
        return {}
    leaders = {}
    for (topic, index), leader in (wanted or {}).items():
        if leader is None:
            raise CommandFailed(f"{topic}-{index}: a designation needs desiredLeader")
        leaders[topic, index] = leader
    return leaders


def _entry(entry: Any) -> tuple[TopicPartition, int | None]:
    """Parse one entry. Raises ValueError if a field is missing or invalid."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected an object, got {entry!r}")
    topic = entry.get("topic")
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"topic: expected a name, got {topic!r}")
    leader = entry.get("desiredLeader")
    return (
        (topic, _number("partition", entry.get("partition"))),
        None if leader is None else _number("desiredLeader", leader),
    )


def _number(what: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= INT32_MAX:
        raise ValueError(f"{what}: expected an integer of at least 0, got {value!r}")
    return value
