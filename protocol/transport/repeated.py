"""A produce request like the one before on its connection.

The requests of a producer that sends one batch at a time differ in their correlation id and their
records, and in nothing else. So what stands before the records is compared instead of decoded, and
the message of the request before is used again. Whatever is not exactly like that is left to the
decoder, which stays the only judge of what a request may be.

Who handles such a message may keep it as long as any other, but not read `records` later: they are
a view of the receive buffer in any case.
"""

from __future__ import annotations

from protocol.messages.produce import ProduceRequest
from protocol.transport.dispatch import PEEK, Entry

LEARN_EVERY = 16
"""Of the requests that are unlike the one that is known, how many are looked at."""

_FLEXIBLE_SINCE = 9
_NO_TAGS = bytes(3)
"""What follows the records: no tagged fields of the partition, the topic and the request."""


class RepeatedProduce:
    """A request with one batch, and how to recognise the next one."""

    __slots__ = (
        "_data", "_flexible", "_head", "_length_at", "client_id", "entry", "message", "version",
    )  # fmt: skip

    def __init__(
        self,
        entry: Entry,
        version: int,
        client_id: str | None,
        message: ProduceRequest,
        head: bytes,
    ) -> None:
        """`head` is what stands between the correlation id and the length of the records."""
        self.entry = entry
        self.version = version
        self.client_id = client_id
        self.message = message
        self._data = message.topic_data[0].partition_data[0]
        self._flexible = version >= _FLEXIBLE_SINCE
        self._head = head
        self._length_at = PEEK.size + len(head)

    def take(self, frame: memoryview) -> bool:
        """Whether this frame of the same API and version is the same request with other records;
        they are in `message` then. The correlation id is not looked at."""
        at = self._length_at
        if frame[PEEK.size : at].tobytes() != self._head:
            return False
        size = len(frame)
        if not self._flexible:
            start = at + 4
            if size < start or int.from_bytes(frame[at:start], "big") != size - start:
                return False
            self._data.records = frame[start:]
            return True
        end = size - 3
        length = shift = 0
        while at < end and shift < 28:
            byte = frame[at]
            at += 1
            length |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        else:
            return False
        if length != end - at + 1 or frame[end:].tobytes() != _NO_TAGS:
            return False
        self._data.records = frame[at:end]
        return True

    def let_go(self) -> None:
        """The frame's buffer may go."""
        self._data.records = None


def learn(
    entry: Entry, version: int, client_id: str | None, message: ProduceRequest, frame: memoryview
) -> RepeatedProduce | None:
    """What to compare the next frames with, None for a request that is not of that kind."""
    if len(message.topic_data) != 1 or len(message.topic_data[0].partition_data) != 1:
        return None
    records = message.topic_data[0].partition_data[0].records
    if type(records) is not memoryview:
        return None
    size = len(records)
    behind = 3 if version >= _FLEXIBLE_SINCE else 0
    width = max(1, (size + 1).bit_length() + 6) // 7 if behind else 4
    stop = len(frame) - behind - size - width
    if stop < PEEK.size:
        return None
    head = bytes(frame[PEEK.size : stop])
    repeated = RepeatedProduce(entry, version, client_id, message, head)
    # Bytes behind the message, or a length written in more bytes than it needs: not of that kind.
    return repeated if repeated.take(frame) else None
