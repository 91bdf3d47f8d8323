"""Discovery of the leader: addresses of the other replicas, and which of them is asked next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metalog.quorum.core.replica import Replica
from metalog.quorum.core.voters import Endpoints, VoterEndpoint

FIRST_WAIT_MS = 250.0
"""How long a replica that looks for the leader waits for the first ones it asks."""


class Addresses(NamedTuple):
    """What a node is told of addresses: `endpoints` are its own, empty for a broker; of another's
    listeners it uses the first of `listener_names` that the other has."""

    endpoints: Endpoints = ()
    listener_names: tuple[str, ...] = ("CONTROLLER",)
    bootstrap_servers: tuple[VoterEndpoint, ...] = ()


class Discovery:
    """The part of a replica that finds the leader."""

    def __init__(self, replica: Replica, addresses: Addresses) -> None:
        self._replica = replica
        self._listener_names = addresses.listener_names
        self._bootstrap_servers = addresses.bootstrap_servers
        self._learned: dict[int, VoterEndpoint] = {}
        self._asked_last = 0
        self._unanswered = 0

    def learn(self, endpoints: Iterable[tuple[int, VoterEndpoint]]) -> None:
        """Where nodes listen as an answer has it; voters and leader say so themselves, too, and
        count for more."""
        self._learned.update(endpoints)

    def endpoint_of(self, node_id: int) -> VoterEndpoint | None:
        """A controller's endpoint on our controller listener, as far as this node knows it."""
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

    def next_to_ask(self) -> tuple[VoterEndpoint, float] | None:
        """Whom to ask for the leader now, and how long to wait for the answer; None while nobody
        is known.

        One node is asked after the other, because one that hangs must not hold this up. The wait
        doubles from round to round, for those who are far away.
        """
        known = self._known()
        if not known:
            return None
        self._asked_last = (self._asked_last + 1) % len(known)
        rounds = min(self._unanswered // len(known), 10)
        self._unanswered += 1
        wait_ms = min(self._replica.timing.request_timeout_ms, FIRST_WAIT_MS * 2**rounds)
        return known[self._asked_last], wait_ms

    def answered(self) -> None:
        self._unanswered = 0

    def _known(self) -> list[VoterEndpoint]:
        """Those who may know the leader: bootstrap servers and voters."""
        known = list(self._bootstrap_servers)
        for voter in self._replica.voters.others(self._replica.node):
            endpoint = self.endpoint_of(voter.id)
            if endpoint is not None and endpoint not in known:
                known.append(endpoint)
        return known
