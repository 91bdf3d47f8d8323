"""Soft state of brokers on the active controller: last heartbeats and metadata offsets.

None of this is in the metadata log. When a controller becomes active, it counts every registered
broker as alive at that moment, so that a change of controllers fences no broker. A dead broker is
fenced one session timeout later.

If `kraftbox.broker.connection.loss.fence.ms` is set, a session may end sooner: when the peer closes
the connection that carried the broker's last heartbeat, and no other connection carries one within
that time. Only heartbeats count, not connections: a port scanner keeps no broker alive.

With that setting, a broker that died together with the previous controller does not get the whole
session either. No controller saw its connection close, but there are two other signs:

- A voter's port refuses the new leader. Its process has ended, and with it its broker (a node with
  both roles has one id). That counts as a closed connection (`process_gone`).
- The broker has sent no heartbeat within a first timeout. A live broker starts to look for a new
  leader within the quorum's fetch timeout and sends a heartbeat as soon as it has found one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from metalog.image.values import BrokerImage
from runtime.marks import mark


class SessionTimeouts(NamedTuple):
    """Timeouts of a broker's session, in ms.

    connection_loss_ms: from the loss of its connection; 0: a lost connection does not end the
    session. first_ms: for a broker without a heartbeat since this controller took over; 0: the
    whole session.
    """

    session_timeout_ms: float
    connection_loss_ms: float = 0
    first_ms: float = 0


@dataclass(slots=True)
class Contact:
    """The last heartbeat of a broker.

    metadata_offset: offset of its image, -1 if unknown. shutdown_offset: log offset at which its
    controlled shutdown began, None without one. connection: carried the last heartbeat. lost_ms:
    when its peer closed it. spoken: False until the broker's first heartbeat to a new active
    controller.
    """

    epoch: int
    last_contact_ms: float
    fenced: bool
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    connection: object | None = None
    lost_ms: float | None = None
    spoken: bool = True

    def expires_ms(self, timeouts: SessionTimeouts) -> float:
        """Return the monotonic time at which the broker is fenced without another heartbeat."""
        session_ends_ms = self.last_contact_ms + timeouts.session_timeout_ms
        if timeouts.first_ms and not self.spoken:
            session_ends_ms = min(session_ends_ms, self.last_contact_ms + timeouts.first_ms)
        if self.lost_ms is None or not timeouts.connection_loss_ms:
            return session_ends_ms
        return min(session_ends_ms, self.lost_ms + timeouts.connection_loss_ms)


class HeartbeatView(Protocol):
    """Read access for decisions."""

    def expired(self, monotonic_ms: float, timeouts: SessionTimeouts) -> frozenset[int]:
        """Return the unfenced brokers whose session has expired."""
        ...

    def has_session(self, broker_id: int, monotonic_ms: float, session_timeout_ms: float) -> bool:
        """Return whether the broker's last heartbeat is within the timeout."""
        ...

    def shutdown_offset(self, broker_id: int) -> int | None:
        """Return the log offset at which the broker's controlled shutdown began, None without
        one."""
        ...

    def lowest_active_metadata_offset(self, brokers: Iterable[BrokerImage]) -> int | None:
        """Return the lowest metadata offset among `brokers` that are unfenced and not shutting
        down.

        It is -1 for a broker without a heartbeat, None if there is no such broker.
        """
        ...


class Heartbeats:
    """Contacts by broker id. Only the writer changes them; decisions read them."""

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
        # Add as in expires_ms: with another rounding, a session that has just ended would continue.
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
        """Return the monotonic time at which the next unfenced broker expires, None without any."""
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
        """Copy registrations and fenced flags from the image, and drop brokers that are not in it.

        A new registration counts as a heartbeat, an unchanged one does not.
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
        """Note a heartbeat, unless it has the epoch of another registration.

        Returns: True if it came on another connection than the previous heartbeat.
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
        """Note that the peer closed a connection.

        Returns: True if it carried the broker's last heartbeat.
        """
        contact = self._contacts.get(broker_id)
        if contact is None or contact.connection is not connection:
            return False
        mark("controller.connection-lost")
        contact.connection = None
        contact.lost_ms = monotonic_ms
        return True

    def process_gone(self, broker_id: int, monotonic_ms: float) -> bool:
        """Note that the node's port refuses connections, so its process has ended.

        Returns: True if its broker has sent no heartbeat since the takeover. A broker that has sent
        one is judged by its own connection.
        """
        contact = self._contacts.get(broker_id)
        if contact is None or contact.spoken or contact.lost_ms is not None:
            return False
        mark("controller.process-gone")
        contact.lost_ms = monotonic_ms
        return True

    def begin_shutdown(self, broker_id: int, offset: int, *, epoch: int | None = None) -> None:
        """Note that the broker's controlled shutdown begins at `offset`; a repeated call may raise
        it.

        Args:
            epoch: of the registration that shuts down; a newer registration is left alone.
        """
        contact = self._contacts.get(broker_id)
        if contact is not None and epoch in (None, contact.epoch):
            contact.shutdown_offset = max(offset, contact.shutdown_offset or offset)
