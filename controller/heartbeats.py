"""Soft state of brokers: the last sign of life of each, and how far its metadata has come.

None of this is in the metadata log. A new active controller starts with every unfenced broker
counted as heard of just now, so that a change of controllers fences nobody; a broker that is gone
is fenced one session timeout later.

Where connection-loss fencing is on, a broker that died together with the controller before is not
given all of that. Nobody saw its connection close, but there are two other signs. A voter's port
that refuses the new leader shows that its process has ended, and the broker in it (a node with both
roles has one id): that counts as a closed connection (`process_gone`). And who has not spoken at
all within a first timeout counts as lost: a live broker looks for a new leader within the quorum's
fetch timeout, and speaks up as soon as it has found it.

Where `kraftbox.broker.connection.loss.fence.ms` is set, a broker's silence may end sooner: when its
peer closes the connection that carried its last heartbeat, and no other carries one within that
time. What counts is the heartbeat, not the connection: a port scanner keeps nobody alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from metalog.image.values import BrokerImage
from runtime.marks import mark


class SessionTimeouts(NamedTuple):
    """How long a broker may be silent; `connection_loss_ms` 0: a lost connection says nothing;
    `first_ms` is for who has not spoken since this controller took over, 0: the whole session."""

    session_timeout_ms: float
    connection_loss_ms: float = 0
    first_ms: float = 0


@dataclass(slots=True)
class Contact:
    """One broker's last sign of life. `metadata_offset` is how far its image had come, -1 if not
    known; `shutdown_offset` the log offset at which its controlled shutdown began, if it did.
    `connection` carried the last heartbeat; `lost_ms` is when its peer closed it. `spoken` is False
    until its first heartbeat to a controller that has taken over."""

    epoch: int
    last_contact_ms: float
    fenced: bool
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    connection: object | None = None
    lost_ms: float | None = None
    spoken: bool = True

    def expires_ms(self, timeouts: SessionTimeouts) -> float:
        """When the broker is to be fenced if it stays silent."""
        session_ends_ms = self.last_contact_ms + timeouts.session_timeout_ms
        if timeouts.first_ms and not self.spoken:
            session_ends_ms = min(session_ends_ms, self.last_contact_ms + timeouts.first_ms)
        if self.lost_ms is None or not timeouts.connection_loss_ms:
            return session_ends_ms
        return min(session_ends_ms, self.lost_ms + timeouts.connection_loss_ms)


class HeartbeatView(Protocol):
    """What decisions may read."""

    def expired(self, monotonic_ms: float, timeouts: SessionTimeouts) -> frozenset[int]:
        """Unfenced brokers whose time is over."""
        ...

    def has_session(self, broker_id: int, monotonic_ms: float, session_timeout_ms: float) -> bool:
        """Whether the broker was heard of within the timeout."""
        ...

    def shutdown_offset(self, broker_id: int) -> int | None:
        """Where the broker's controlled shutdown began in the log, None if it has not."""
        ...

    def lowest_active_metadata_offset(self, brokers: Iterable[BrokerImage]) -> int | None:
        """The least metadata offset among the unfenced ones of `brokers` that are not shutting
        down, None if there is none."""
        ...


class Heartbeats:
    """Contacts by broker id; the driver's to change, everyone's to read."""

    __slots__ = ("_contacts",)

    def __init__(self) -> None:
        self._contacts: dict[int, Contact] = {}

    # --- read ---

    def expired(self, monotonic_ms: float, timeouts: SessionTimeouts) -> frozenset[int]:
        return frozenset(
            broker_id
            for broker_id, contact in self._contacts.items()
            if not contact.fenced and monotonic_ms >= contact.expires_ms(timeouts)
        )

    def has_session(self, broker_id: int, monotonic_ms: float, session_timeout_ms: float) -> bool:
        contact = self._contacts.get(broker_id)
        # The sum, as in expires_ms: rounded otherwise, a session that has just ended would go on.
        return contact is not None and monotonic_ms < contact.last_contact_ms + session_timeout_ms

    def shutdown_offset(self, broker_id: int) -> int | None:
        contact = self._contacts.get(broker_id)
        return None if contact is None else contact.shutdown_offset

    def lowest_active_metadata_offset(self, brokers: Iterable[BrokerImage]) -> int | None:
        return min(
            (
                self._contacts[broker.id].metadata_offset if broker.id in self._contacts else -1
                for broker in brokers
                if not broker.fenced and not broker.in_controlled_shutdown
            ),
            default=None,
        )

    def next_expiry_ms(self, timeouts: SessionTimeouts) -> float | None:
        """Monotonic time at which the next unfenced broker expires, None if there is none."""
        return min(
            (c.expires_ms(timeouts) for c in self._contacts.values() if not c.fenced),
            default=None,
        )

    # --- change ---

    def reset(self, brokers: Iterable[BrokerImage], monotonic_ms: float) -> None:
        """Start over, as a controller that has just become active."""
        self._contacts.clear()
        self.follow(brokers, monotonic_ms)
        for contact in self._contacts.values():
            contact.spoken = False

    def follow(self, brokers: Iterable[BrokerImage], monotonic_ms: float) -> None:
        """Take over registrations and fenced flags from the image; forget who is gone.

        A new registration counts as a sign of life, an unchanged one does not.
        """
        registered: set[int] = set()
        for broker in brokers:
            registered.add(broker.id)
            contact = self._contacts.get(broker.id)
            if contact is None or contact.epoch != broker.epoch:
                contact = Contact(broker.epoch, monotonic_ms, broker.fenced)
                self._contacts[broker.id] = contact
            contact.fenced = broker.fenced
        for broker_id in self._contacts.keys() - registered:
            del self._contacts[broker_id]

    def touch(
        self,
        broker_id: int,
        *,
        epoch: int,
        metadata_offset: int,
        monotonic_ms: float,
        connection: object | None = None,
    ) -> bool:
        """A heartbeat came in. One of an older registration is not a sign of life.

        True when it came on another connection than the one before.
        """
        contact = self._contacts.get(broker_id)
        if contact is None or contact.epoch != epoch:
            return False
        is_new = contact.connection is not connection
        contact.connection = connection
        contact.lost_ms = None
        contact.spoken = True
        contact.last_contact_ms = max(contact.last_contact_ms, monotonic_ms)
        contact.metadata_offset = max(contact.metadata_offset, metadata_offset)
        return is_new

    def connection_lost(self, broker_id: int, connection: object, monotonic_ms: float) -> bool:
        """The peer closed a connection; True when it carried the broker's last heartbeat."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.connection is not connection:
            return False
        mark("controller.connection-lost")
        contact.connection = None
        contact.lost_ms = monotonic_ms
        return True

    def process_gone(self, broker_id: int, monotonic_ms: float) -> bool:
        """Nobody listens where the node's process did; True when its broker has not spoken since
        the takeover. One that has is judged by its own connection."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.spoken or contact.lost_ms is not None:
            return False
        mark("controller.process-gone")
        contact.lost_ms = monotonic_ms
        return True

    def begin_shutdown(self, broker_id: int, offset: int, *, epoch: int | None = None) -> None:
        """The broker's controlled shutdown begins at `offset`; a repeated call moves it on.

        Args:
            epoch: of the registration that shuts down; one that has come since is left alone.
        """
        contact = self._contacts.get(broker_id)
        if contact is not None and epoch in (None, contact.epoch):
            contact.shutdown_offset = max(offset, contact.shutdown_offset or offset)
