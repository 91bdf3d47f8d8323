"""Topics in a consumer's subscription metadata."""

from __future__ import annotations

from typing import Final

from protocol.codec import decode
from protocol.errors import ProtocolError
from protocol.internal.consumer_protocol_subscription import ConsumerProtocolSubscription

_MAX_VERSION: Final = 3


def topics_of_subscription(metadata: bytes) -> frozenset[str] | None:
    """Topics of a ConsumerProtocolSubscription; None if the bytes are something else.

    Newer versions only append fields, so that an unknown one is read as the newest we know, and as
    the oldest if that fails: the topics stand first in every version.
    """
    if len(metadata) < 2:
        return None
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < 0:
        return None
    for attempt in (min(version, _MAX_VERSION), 0):
        try:
            message, _ = decode(ConsumerProtocolSubscription, metadata, attempt, 2)
        except ProtocolError:
            continue
        return frozenset(message.topics)
    return None
