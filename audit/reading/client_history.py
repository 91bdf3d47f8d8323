"""Reader of acknowledged sends from history files (docs/chaos.md), by partition.

The audit has its own parser: the code that wrote a file must not read it for its own audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from audit.inputs.replicas import AcknowledgedSend
from audit.reading.logs import UnreadableInput
from protocol.checksum import crc32c

MAGIC = b"KBXH"
VERSION = 1
OK = 1
_HEADER_BYTES, _CRC_BYTES = 5, 4


def acknowledged(histories: Iterable[Path]) -> Mapping[tuple[str, int], list[AcknowledgedSend]]:
    """Return the acknowledged sends with an offset by (topic, partition).

    Raises UnreadableInput.
    """
    found: dict[tuple[str, int], list[AcknowledgedSend]] = {}
    for path in histories:
        body = _body(path)
        topics = [row[0] for row in body.get("topics", ())]
        for row in body.get("sends", ()):
            process, topic, partition, value, _, _, outcome, offset, order = row[:9]
            if outcome == OK and offset >= 0:
                key = (topics[topic], partition)
                found.setdefault(key, []).append(AcknowledgedSend(process, order, value, offset))
    return found


def faults_of(histories: Iterable[Path]) -> list[list[Any]]:
    """Return the faults, sorted by their begins. Raises UnreadableInput.

    Each has kind, nodes, begin and end in ms since 1970, and detail.
    """
    found = []
    for path in histories:
        for row in _body(path).get("faults", ()):
            kind, nodes, begin_us, end_us, detail = row[:5]  # newer histories have more columns
            found.append([kind, list(nodes), begin_us // 1000, end_us // 1000, detail])
    return sorted(found, key=lambda one: (one[2], one[3], one[0], one[1]))


def _body(path: Path) -> dict[str, Any]:
    import msgpack  # on the driver only: executors need not have it

    data = path.read_bytes()
    if data[:4] != MAGIC or len(data) < _HEADER_BYTES + _CRC_BYTES:
        raise UnreadableInput(f"{path} is no history file: it does not begin with {MAGIC!r}")
    if data[4] != VERSION:
        raise UnreadableInput(f"{path} is a history of version {data[4]}, not {VERSION}")
    if crc32c(data[:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise UnreadableInput(f"{path} is damaged: its CRC does not fit")
    body = msgpack.unpackb(data[_HEADER_BYTES:-_CRC_BYTES], strict_map_key=False)
    if not isinstance(body, dict):
        raise UnreadableInput(f"{path} holds no tables")
    return body
