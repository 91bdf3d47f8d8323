"""Connections to other brokers over one listener, by broker and purpose.

Each use of the pool has its own purposes, because the responses of a connection come in the order
of its requests. A connection ends when its broker is fenced, is removed, or registers again: a
request must not wait for its timeout at a broker that is gone, and must not reach the next
incarnation by chance.
"""

from __future__ import annotations

from broker.metadata.cache import MetadataCache
from broker.peers.peer import Peer, Registration


class PeerPool:
    """The connections of one broker."""

    def __init__(self, metadata: MetadataCache, *, listener: str) -> None:
        """Set up without connections. `listener` is the name of the brokers' listener to use."""
        self._metadata = metadata
        self._listener = listener
        self._peers: dict[tuple[int, str], Peer] = {}
        self._closed = False

    def registration(self, broker_id: int) -> Registration | None:
        """Return the present registration of an unfenced broker with an address on the listener,
        or None."""
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        found = self._metadata.alive_endpoint(broker_id, self._listener)
        if broker is None or found is None:
            return None
        return Registration((found.host, found.port), broker.epoch)

    def peer(self, broker_id: int, purpose: str) -> Peer:
        """Return the connection for a purpose, which connects at its first request. The purpose is
        part of its client id."""
        peer = self._peers.get((broker_id, purpose))
        if peer is None:
            client_id = f"broker-{self._metadata.node_id}-{purpose}"
            peer = Peer(lambda: self.registration(broker_id), client_id)
            if self._closed:
                peer.close()
            self._peers[broker_id, purpose] = peer
        return peer

    def release(self, broker_id: int, purpose: str) -> None:
        """Close and forget a connection; `peer` makes a new one."""
        peer = self._peers.pop((broker_id, purpose), None)
        if peer is not None:
            peer.close()

    def published(self) -> None:
        """Drop the connections to brokers whose registration has changed, and forget those of
        removed brokers. Requests in flight fail."""
        for (broker_id, purpose), peer in list(self._peers.items()):
            peer.published()
            if broker_id not in self._metadata.image.cluster.brokers:
                self.release(broker_id, purpose)

    def close(self) -> None:
        """Close all connections for good: requests fail, now and later."""
        self._closed = True
        for peer in self._peers.values():
            peer.close()
