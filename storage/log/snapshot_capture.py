"""A producer snapshot that is encoded step by step, while producers continue to write.

A log with 100,000 producers takes 100 ms to encode them, and a roll must not block the event loop
that long. A capture has the producers of one moment. A producer that changes before its step is
encoded just before the change.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from storage.log.producers import ProducerState, SnapshotContent, encode_entry

STEP: Final = 500
"""Producers per step: half a millisecond."""


class SnapshotCapture:
    """The producers at `offset`."""

    __slots__ = ("_kept", "_states", "offset")

    def __init__(self, offset: int, states: list[ProducerState]) -> None:
        self.offset = offset
        self._states = states
        # By the state's id, since another state may replace an expired one of the same producer.
        # `_states` keeps the ids valid.
        self._kept: dict[int, bytes] = {}

    def keep(self, state: ProducerState) -> None:
        """Encode a producer that is about to change, unless that was done."""
        key = id(state)
        if key not in self._kept:
            self._kept[key] = encode_entry(state)

    def steps(self) -> Generator[None, None, bytearray]:
        """Encode the producers. Returns: the content of the file."""
        states, kept = self._states, self._kept
        content = SnapshotContent(len(states))
        for at in range(0, len(states), STEP):
            content.add(
                [kept.get(id(state)) or encode_entry(state) for state in states[at : at + STEP]]
            )
            yield
        return content.finish()
