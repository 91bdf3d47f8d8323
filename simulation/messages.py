"""Messages of a run that a story's page draws between lanes: rare requests between nodes.

Fetches, heartbeats and requests of clients are most of the traffic, and are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from protocol.api_keys import ApiKey

NODE = "node-"
HEAD_BYTES = 8
"""Length, API key, version. A response has its length and correlation id there, which in a run is
too small to look like one of these keys."""
TOLD = {
    key.value: key.name
    for key in (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.GET_REPLICA_LOG_INFO,
        ApiKey.ENVELOPE,
    )
}


@dataclass
class Message:
    """One request between two nodes; `arrived_s` None: it did not arrive."""

    name: str
    source: str
    target: str
    sent_s: float
    arrived_s: float | None = None


@dataclass
class _Sent:
    data: bytes
    messages: list[Message] = field(default_factory=list)


class Messages:
    """Recorder of sent and arrived messages; `found` is in the order of sending."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.found: list[Message] = []
        self._now_s = now_s
        self._under_way: dict[tuple[str, str], deque[_Sent]] = {}

    def sent(self, source: str, target: str, data: bytes) -> None:
        """Record the requests in bytes that a host sends."""
        if not (source.startswith(NODE) and target.startswith(NODE)):
            return
        names = list(requests(data))
        if names:
            told = [Message(name, source, target, self._now_s()) for name in names]
            self.found += told
            under_way = self._under_way.setdefault((source, target), deque())
            under_way.append(_Sent(data, told))

    def arrived(self, source: str, target: str, data: bytes) -> None:
        """Record that the message, or its first piece, has arrived."""
        under_way = self._under_way.get((source, target), ())
        for one in under_way:
            if one.data.startswith(data):
                for message in one.messages:
                    message.arrived_s = self._now_s()
                self._under_way[source, target].remove(one)
                return


def requests(data: bytes) -> Iterator[str]:
    """Yield the names of the recorded requests in this chunk of a connection."""
    at = 0
    while at + HEAD_BYTES <= len(data):
        name = TOLD.get(int.from_bytes(data[at + 4 : at + 6], "big"))
        if name is not None:
            yield name
        at += 4 + int.from_bytes(data[at : at + 4], "big")
