"""Topics in a consumer's subscription metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.codec import decode_field
from protocol.errors import ProtocolError
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription

TOPICS_MAX: Final = 50_000
"""Names in the subscriptions of one group that are read together: 15 milliseconds."""
_COUNT_END: Final = 6


def topics_of_subscription(metadata: bytes) -> frozenset[str] | None:
    """Topics of a ConsumerProtocolSubscription; None if the bytes are something else.

    Version 0 is read whatever the version: newer ones only append fields, and the topics stand
    first.
    """
    if len(metadata) < 2 or metadata[0] > 127:
        return None
    try:
        message, _ = decode_field(ConsumerProtocolSubscription, metadata, 0, 2)
    except ProtocolError:
        return None
    return frozenset(message.topics)


def topics_of_group(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Topics of all members of a group; None if one is unreadable or there are too many to read."""
    topics: set[str] = set()
    names = 0
    for metadata in subscriptions:
        names += int.from_bytes(metadata[2:_COUNT_END], "big")
        own = topics_of_subscription(metadata) if names <= TOPICS_MAX else None
        if own is None:
            return None
        topics |= own
    return frozenset(topics)
