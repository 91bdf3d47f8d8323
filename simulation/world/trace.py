"""The trace of a world: what happened, when in virtual time, in order.

Equal seeds must give equal traces. Whatever can tell two runs apart belongs into it: every file
operation, every message with its content, every boot, death and choice.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable

from storage.files.port import Buffer

Entry = tuple[float, str]
HASHED_BYTES = 1 << 16
"""At once."""


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
        """Bytes put on the wire."""
        self.add(f"{source} > {target} {len(data)} {zlib.crc32(data):08x}")

    def delivered(self, source: str, target: str, data: bytes) -> None:
        """Bytes that reached their target; here what was sent is enough."""

    def written(self, life: object, path: str, offset: int, data: Buffer) -> None:
        """Bytes written to a file; here it is enough that something was."""

    def digest(self) -> str:
        """One line for the whole trace; times count to the last bit."""
        digest = hashlib.blake2b(digest_size=16)
        for time, event in self.entries:
            digest.update(f"{time!r} {event}\n".encode())
        return digest.hexdigest()

    def lines(self, count: int | None = None) -> list[str]:
        """The last `count` entries as text, or all."""
        entries = self.entries if count is None else self.entries[-count:]
        return [f"{time:12.6f} {event}" for time, event in entries]


class FullTrace(Trace):
    """The trace of a swarm: each delivered message, each file write with its bytes, each event.

    The hash is kept as the run goes. Entries are kept, too, or with `keep` the last so many.
    """

    def __init__(self, time: Callable[[], float], keep: int | None = None) -> None:
        super().__init__(time)
        self._kept: deque[Entry] | None = None if keep == 0 else deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()
        """What came since the hash was kept: it takes much at once for less."""
        self.messages = 0
        self.writes = 0
        self.events = 0

    def __len__(self) -> int:
        return self.messages + self.writes + self.events

    def add(self, event: str) -> None:
        self.events += 1
        self._note(event)

    def message(self, source: str, target: str, data: bytes) -> None:
        """Counts where it arrives."""

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
    """Where two traces part, for people; None if they are equal."""
    for at, (left, right) in enumerate(zip(one.entries, other.entries, strict=False)):
        if left != right:
            return f"entry {at}: {left} | {right}"
    if len(one) != len(other):
        at = min(len(one), len(other))
        longer = one if len(one) > len(other) else other
        return f"entry {at}: only one has {longer.entries[at]}"
    return None
