"""Reuse of a decoded Produce request for the next one of the same connection.

If a producer sends one batch at a time, its requests differ only in their correlation id and their
records. Therefore the bytes before the records are compared instead of decoded, and the message of
the previous request is used again. The decoder reads every other request, and alone determines
which requests are valid.

A handler may keep such a message like any other one. It must not read `records` later, which are
always a view of the receive buffer.
"""

from __future__ import annotations

from protocol.messages.produce import ProduceRequest
from protocol.transport.dispatch import PEEK, Entry

LEARN_EVERY = 16
"""One of this many decoded requests becomes the one for comparison."""

_FLEXIBLE_SINCE = 9
_NO_TAGS = bytes(3)
"""The bytes after the records: no tagged fields of the partition, the topic and the request."""


class RepeatedProduce:
    """A decoded request with one batch, and the bytes that the next one must equal."""

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
        """`head` has the bytes between the correlation id and the length of the records."""
        self.entry = entry
        self.version = version
        self.client_id = client_id
        self.message = message
        self._data = message.topic_data[0].partition_data[0]
        self._flexible = version >= _FLEXIBLE_SINCE
        self._head = head
        self._length_at = PEEK.size + len(head)

    def take(self, frame: memoryview) -> bool:
        """Put the records of a frame into `message` if the rest equals the known request.

        The correlation id may differ. The caller has compared API key and version.

        Returns: False, without a change, if the frame must be decoded.
        """
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
        """Drop the view of the frame, so that its buffer can be freed."""
        self._data.records = None


def learn(
    entry: Entry, version: int, client_id: str | None, message: ProduceRequest, frame: memoryview
) -> RepeatedProduce | None:
    """Return the request for comparison; None if it does not have exactly one batch."""
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
    # It fails for bytes behind the message, or a length that has more bytes than it needs.
    return repeated if repeated.take(frame) else None
