"""Contacts of brokers with this controller: heartbeats, their connections, and ended processes.

A contact is soft state of the active controller. Between a node's election and the end of its
catching up it is kept, and applied when the node becomes active.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from controller.heartbeats import Heartbeats
from metalog.image.values import MetadataImage
from protocol.transport.dispatch import Connection
from runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class _HeartbeatConnection:
    """Callback for the close of a heartbeat connection.

    It is a value, so that a connection has one callback per broker, however often the broker's
    heartbeats alternate between two connections.
    """

    closed: Callable[[int, Connection], None]
    broker_id: int
    connection: Connection

    def __call__(self) -> None:
        self.closed(self.broker_id, self.connection)


class Contacts:
    """The contacts of a controller.

    Args:
        watches_connections: whether the loss of a connection may end a session.
        is_leading: returns whether this node leads the quorum, active already or not.
        committed_image: returns the committed image.
        log_end_offset: returns the quorum's log end offset.
        shortened: called when a session may end earlier than known so far.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        *,
        clock: Clock,
        watches_connections: bool,
        is_leading: Callable[[], bool],
        committed_image: Callable[[], MetadataImage],
        log_end_offset: Callable[[], int],
        shortened: Callable[[], None],
    ) -> None:
        self._heartbeats = heartbeats
        self._clock = clock
        self._watches_connections = watches_connections
        self._is_leading = is_leading
        self._committed_image = committed_image
        self._log_end_offset = log_end_offset
        self._shortened = shortened
        self._is_active = False
        self._early: dict[tuple[int, bool], Callable[[], None]] = {}
        """By broker id, and whether the heartbeat has the epoch of the committed registration."""
        self._gone: set[int] = set()

    @property
    def early_count(self) -> int:
        """Number of heartbeats that are kept until this node is active."""
        return len(self._early)

    def begin(self) -> None:
        """Start all sessions now, then apply the early heartbeats and ended processes."""
        self._is_active = True
        now_ms = self._clock.monotonic_ms()
        self._heartbeats.reset(self._committed_image().cluster.brokers.values(), now_ms)
        early, self._early = self._early, {}
        for touch in early.values():
            touch()
        gone, self._gone = self._gone, set()
        for node_id in sorted(gone):
            self._heartbeats.process_gone(node_id, now_ms)

    def end(self) -> None:
        """Drop all early contacts: this node is not or no longer the active controller."""
        self._is_active = False
        self._early.clear()
        self._gone.clear()

    def touch(
        self,
        broker_id: int,
        *,
        epoch: int,
        metadata_offset: int,
        connection: Connection | None = None,
    ) -> None:
        """Note a broker's heartbeat. It is soft state of the active controller, or of a node that
        is about to be active."""
        if not self._is_active:
            broker = self._committed_image().cluster.brokers.get(broker_id)
            if self._is_leading() and broker is not None:
                # An epoch that is not committed here may belong to a newer registration or to none:
                # it must not replace a heartbeat that is known to be the broker's.
                self._early[broker_id, broker.epoch == epoch] = partial(
                    self.touch,
                    broker_id,
                    epoch=epoch,
                    metadata_offset=metadata_offset,
                    connection=connection,
                )
            return
        is_new = self._heartbeats.touch(
            broker_id,
            epoch=epoch,
            # Controlled shutdowns wait for the broker that is furthest behind, so an offset beyond
            # the log end is capped.
            metadata_offset=min(metadata_offset, self._log_end_offset()),
            monotonic_ms=self._clock.monotonic_ms(),
            connection=connection,
        )
        if is_new and connection is not None and self._watches_connections:
            closed = _HeartbeatConnection(self._connection_closed, broker_id, connection)
            connection.add_close_callback(closed)

    def _connection_closed(self, broker_id: int, connection: Connection) -> None:
        if (
            self._is_active
            and connection.closed_by_peer
            and self._heartbeats.connection_lost(broker_id, connection, self._clock.monotonic_ms())
        ):
            self._shortened()

    def process_gone(self, node_id: int) -> None:
        """Note that a node's port refuses connections, so its process has ended with all its
        roles."""
        if not self._is_active:
            self._gone.add(node_id)
        elif self._heartbeats.process_gone(node_id, self._clock.monotonic_ms()):
            self._shortened()

    def begin_shutdown(self, broker_id: int, epoch: int) -> None:
        """Let the broker registered with `epoch` leave once the others have the log up to its
        current end."""
        self._heartbeats.begin_shutdown(broker_id, self._log_end_offset() - 1, epoch=epoch)
