"""Discovery of the leader: addresses of other replicas, and the order in which they are queried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metalog.quorum.core.replica import Replica
from metalog.quorum.core.voters import Endpoints, VoterEndpoint

FIRST_WAIT_MS = 250.0
"""Timeout of the first queries for the leader."""


class Addresses(NamedTuple):
    """Configured addresses of a node.

    endpoints: its own listeners, empty for a broker. listener_names: of another node's listeners it
    uses the first of these that the other has.
    """

    endpoints: Endpoints = ()
    listener_names: tuple[str, ...] = ("CONTROLLER",)
    bootstrap_servers: tuple[VoterEndpoint, ...] = ()


class Discovery:
    """Leader discovery of a replica."""

    def __init__(self, replica: Replica, addresses: Addresses) -> None:
        self._replica = replica
        self._listener_names = addresses.listener_names
        self._bootstrap_servers = addresses.bootstrap_servers
        self._learned: dict[int, VoterEndpoint] = {}
        self._queried_last = 0
        self._unanswered = 0

    def learn(self, endpoints: Iterable[tuple[int, VoterEndpoint]]) -> None:
        """Store endpoints from a response; those from the voter set and from the leader take
        precedence."""
        self._learned.update(endpoints)

    def endpoint_of(self, node_id: int) -> VoterEndpoint | None:
        """Return a controller's endpoint on our controller listener, None if unknown."""
        replica = self._replica
        endpoints: Endpoints = ()
        voter = replica.voters.get(node_id)
        if node_id == replica.node.id and replica.endpoints:
            endpoints = replica.endpoints
        elif node_id == replica.leader_id:
            endpoints = replica.leader_endpoints()
        elif voter is not None:
            endpoints = voter.endpoints
        by_name = dict(endpoints)
        for name in self._listener_names:
            if name in by_name:
                return by_name[name]
        return self._learned.get(node_id)

    def next_to_query(self) -> tuple[VoterEndpoint, float] | None:
        """Return the node to query for the leader now, and the timeout in ms; None if none is
        known.

        Nodes are queried one after the other, because one that hangs must not delay discovery. The
        timeout doubles from round to round, for distant nodes.
        """
        known = self._known()
        if not known:
            return None
        self._queried_last = (self._queried_last + 1) % len(known)
        rounds = min(self._unanswered // len(known), 10)
        self._unanswered += 1
        wait_ms = min(self._replica.timing.request_timeout_ms, FIRST_WAIT_MS * 2**rounds)
        return known[self._queried_last], wait_ms

    def answered(self) -> None:
        self._unanswered = 0

    def _known(self) -> list[VoterEndpoint]:
        """Return the nodes that may know the leader: bootstrap servers and voters."""
        known = list(self._bootstrap_servers)
        for voter in self._replica.voters.others(self._replica.node):
            endpoint = self.endpoint_of(voter.id)
            if endpoint is not None and endpoint not in known:
                known.append(endpoint)
        return known
