"""Names, numbers and partitions used in the requests of `answer_cases.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.batch.records import Record, build_batch

Cases = Mapping[str, Mapping[str, Any]]

MAX32: Final = (1 << 31) - 1
MIN32: Final = -(1 << 31)
MAX64: Final = (1 << 63) - 1
MIN64: Final = -(1 << 63)
BATCH: Final = build_batch([Record(timestamp=6000, key=b"k", value=b"v")])
LONG: Final = "x" * 250
"""Longer than a topic's name may be."""
UNKNOWN_ID: Final = bytes(range(16))
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NOT_THERE: Final = frozenset(
    {
        *("an unknown partition", "a negative partition", "the greatest partition"),
        *("an unknown topic", "an invalid topic", "an empty topic", "a long topic"),
        *("no partitions", "no topics"),
    }
)
"""Cases whose topics and partitions have no committed offset."""
EXTREMES: Final = (-1, -2, MAX32, MIN32)


def of_topics(per_partition: Mapping[str, Any], index: str, *, name: str = "name") -> Cases:
    """Return requests about the topics and partitions that every API about partitions gets."""

    def asked(topic: str, *numbers: int) -> Mapping[str, Any]:
        partitions = [{index: number, **per_partition} for number in numbers]
        return {"topics": [{name: topic, "partitions": partitions}]}

    return {
        "a partition": asked("plain", 0),
        "an empty partition": asked("plain", 1),
        "two partitions": asked("plain", 0, 1),
        "an unknown partition": asked("plain", 99),
        "a negative partition": asked("plain", -1),
        "the greatest partition": asked("plain", MAX32),
        "an unknown topic": asked("unknown", 0),
        "an invalid topic": asked("a b", 0),
        "an empty topic": asked("", 0),
        "a long topic": asked(LONG, 0),
        "no partitions": asked("plain"),
        "no topics": {"topics": []},
        "a partition twice": asked("plain", 0, 0),
        "a topic twice": {"topics": [*asked("plain", 0)["topics"], *asked("plain", 1)["topics"]]},
    }
