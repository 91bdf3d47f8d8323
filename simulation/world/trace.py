"""The trace of a world: its events in order, with their virtual times.

Equal seeds must give equal traces. Everything that can distinguish two runs belongs into it: every
file operation, every message with its content, every boot, death and choice.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable

from storage.files.port import Buffer

Entry = tuple[float, str]
HASHED_BYTES = 1 << 16
"""Number of bytes hashed at once."""


class Trace:
    """Collects entries; `time` is the loop's."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, event: str) -> None:
        self.entries.append((self._time(), event))

    def message(self, source: str, target: str, data: bytes) -> None:
        """Record bytes as they are sent."""
        self.add(f"{source} > {target} {len(data)} {zlib.crc32(data):08x}")

    def delivered(self, source: str, target: str, data: bytes) -> None:
        """Do nothing: it suffices that the bytes were recorded when they were sent."""

    def written(self, life: object, path: str, offset: int, data: Buffer) -> None:
        """Do nothing: file operations are recorded without their bytes here."""

    def digest(self) -> str:
        """Return one line for the whole trace; times count to the last bit."""
        digest = hashlib.blake2b(digest_size=16)
        for time, event in self.entries:
            digest.update(f"{time!r} {event}\n".encode())
        return digest.hexdigest()

    def lines(self, count: int | None = None) -> list[str]:
        """Return the last `count` entries as text, or all."""
        entries = self.entries if count is None else self.entries[-count:]
        return [f"{time:12.6f} {event}" for time, event in entries]


class FullTrace(Trace):
    """The trace of a swarm: each delivered message, each file write with its bytes, each event.

    The hash is updated during the run. Entries are kept, too, or with `keep` the last ones only.
    """

    def __init__(self, time: Callable[[], float], keep: int | None = None) -> None:
        super().__init__(time)
        self._kept: deque[Entry] | None = None if keep == 0 else deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()
        """Data since the last update of the hash, which is faster in large chunks."""
        self.messages = 0
        self.writes = 0
        self.events = 0

    def __len__(self) -> int:
        return self.messages + self.writes + self.events

    def add(self, event: str) -> None:
        self.events += 1
        self._note(event)

    def message(self, source: str, target: str, data: bytes) -> None:
        """Do nothing: a message is recorded when it arrives."""

    def delivered(self, source: str, target: str, data: bytes) -> None:
        self.messages += 1
        self._unhashed += data
        self._note(f"{source} > {target} {len(data)}")

    def written(self, life: object, path: str, offset: int, data: Buffer) -> None:
        self.writes += 1
        self._unhashed += data
        self._note(f"{life} writes {path} {offset} {len(data)}")

    def _note(self, event: str) -> None:
        time, unhashed = self._time(), self._unhashed
        unhashed += f"{time!r} {event}\n".encode()
        if len(unhashed) > HASHED_BYTES:
            self._keep_hash()
        if self._kept is not None:
            self._kept.append((time, event))

    def _keep_hash(self) -> None:
        self._hash.update(self._unhashed)
        self._unhashed.clear()

    def digest(self) -> str:
        self._keep_hash()
        return self._hash.hexdigest()

    def lines(self, count: int | None = None) -> list[str]:
        kept = list(self._kept or ())
        return [f"{time:12.6f} {event}" for time, event in kept[-count if count else None :]]


def first_difference(one: Trace, other: Trace) -> str | None:
    """Return the first difference of two traces, for people; None if they are equal."""
    for at, (left, right) in enumerate(zip(one.entries, other.entries, strict=False)):
        if left != right:
            return f"entry {at}: {left} | {right}"
    if len(one) != len(other):
        at = min(len(one), len(other))
        longer = one if len(one) > len(other) else other
        return f"entry {at}: only one has {longer.entries[at]}"
    return None
