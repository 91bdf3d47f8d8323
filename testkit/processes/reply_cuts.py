"""Connections that are cut instead of a reply, for tests of a client's retries.

The reply at which a connection is cut is dropped: the broker has appended, but the client never
gets the response. In this case a producer without idempotence writes twice.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from testkit.processes.wire_proxy import Forward, WireConnection, WireRule


class ReplyCuts(WireRule):
    """Cuts each connection after a number of replies drawn from a seeded generator.

    `arm(n)` lets the next `n` connections that last long enough be cut; `made` counts the cuts so
    far. The bound lets a client's final read pass undisturbed.
    """

    def __init__(self, seed: int, replies_min: int = 10, replies_max: int = 20) -> None:
        self._rng = random.Random(seed)
        self._replies = (replies_min, replies_max)
        self._replies_left: dict[WireConnection, int] = {}
        self._cuts_left = 0
        self.made = 0

    def arm(self, cuts: int) -> None:
        """Cut that many connections from now on; 0 disarms."""
        self._cuts_left = cuts

    def opened(self, connection: WireConnection) -> None:
        self._replies_left[connection] = self._rng.randint(*self._replies)

    def closed(self, connection: WireConnection) -> None:
        self._replies_left.pop(connection, None)

    async def response(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        self._replies_left[connection] -= 1
        if self._replies_left[connection] <= 0 < self._cuts_left:
            self._cuts_left -= 1
            self.made += 1
            raise ConnectionResetError("cut by the test")
        await forward(frame)


class FlakyNode(NamedTuple):
    """A node behind a proxy that cuts connections."""

    address: str
    """HOST:PORT of the proxy, which the node advertises."""
    cuts: ReplyCuts
