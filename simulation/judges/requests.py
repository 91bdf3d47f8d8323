"""A judge of waiting requests (P26, G8): a broker responds within the time that the request allows,
or its connection ends.

This holds at every moment, also with a minority of the nodes down: purgatory, groups and
coordinators have a deadline for each wait, and keep it without other nodes. A node that an event
acts on is exempt, since its process or disk may stand still. Its requests get their full time again
afterwards. Requests without a deadline of their own are not judged: a broker that forwards one
waits for another node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api_keys import ApiKey
from simulation.judges.judge import Judge
from simulation.world.invariants import require

if TYPE_CHECKING:
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

LOOKS_S = 0.25
STILL_S = 1.0
"""Seconds without a check, after which all nodes count as having stood still."""
LATE_S = 1.0
"""Tolerance for a slow disk, and the work queued before it."""
WAITS_S = {
    ApiKey.PRODUCE: 1.5,
    ApiKey.FETCH: 1.5,
    ApiKey.JOIN_GROUP: 6.2,
    ApiKey.SYNC_GROUP: 8.0,
    ApiKey.HEARTBEAT: 0.0,
}
"""The longest time for which a client's or follower's request lets the broker wait; they disconnect
later. A JoinGroup may wait for one running rebalance and for the one that it causes. A SyncGroup
waits for its leader and up to `offsets.commit.timeout.ms` for the assignment. A Fetch may wait for
the tier."""
TIER_WRITER = "-tier-write"
TIER_WRITES_S = 8.0
"""The timeout of a broker's produce requests to `__remote_log_metadata`, over connections of that
name. It is longer than that of clients, since followers may be away for a while."""


class RequestJudge(Judge):
    """Judges the waiting requests of all running brokers."""

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._looked_s = 0.0
        self._busy_s: dict[int, float] = {}
        """When an event was last seen to act on a node."""
        self._were_busy: set[int] = set()
        """Nodes with an event at the previous check: an event that has ended since lasted longer
        than that."""

    def after(self, life: NodeLife) -> None:
        """Check the waiting requests of all brokers (P26), every `LOOKS_S`."""
        now_s = life.machine.cluster.loop.now_s
        if now_s - self._looked_s < LOOKS_S:
            return
        still, self._looked_s = now_s - self._looked_s > STILL_S, now_s
        self.due_s = now_s + LOOKS_S
        busy = {*self._world.busy, *self._were_busy}
        for node_id in [one.node_id for one in self._world.cluster.machines] if still else busy:
            self._busy_s[node_id] = now_s
        self._were_busy = {*self._world.busy}
        for machine in self._world.cluster.machines:
            other = machine.life
            if other is not None and other.alive:
                self._look(other, now_s, self._busy_s.get(machine.node_id, 0.0))

    def _look(self, life: NodeLife, now_s: float, free_s: float) -> None:
        server = None if life.node is None else life.node.broker
        servers = [] if server is None else server.servers
        for connection in (one for each in servers for one in each.connections):
            for waiting in connection.exchange.waiting:
                most_s = _most_s(waiting.entry.api, connection.client_id)
                if waiting.ready or most_s is None:
                    continue
                since_s = max(waiting.received_ms / 1000, free_s)
                require(
                    now_s - since_s <= most_s + LATE_S,
                    f"P26: {life}: {waiting.entry.api.name} {waiting.correlation_id} of "
                    f"{connection.client_id} waits for {now_s - since_s:.3f} s",
                )


def _most_s(api: ApiKey, client_id: str | None) -> float | None:
    if api is ApiKey.PRODUCE and client_id is not None and client_id.endswith(TIER_WRITER):
        return TIER_WRITES_S
    return WAITS_S.get(api)
