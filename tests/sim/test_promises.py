"""The judge of replication, held against replicas that break a promise without saying so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from simulation.judges.partitions import Promises, replica_state
from simulation.world.invariants import Violation
from testkit.memory.replicas import Cluster

pytestmark = pytest.mark.sim


def life_of(node_id: int) -> Any:
    loop = SimpleNamespace(time=lambda: 0.0)
    machine = SimpleNamespace(node_id=node_id, cluster=SimpleNamespace(loop=loop))
    return SimpleNamespace(machine=machine)


class Watched:
    """A leader and a follower; `look` shows the judge what both are now."""

    def __init__(self, *values: bytes) -> None:
        self.cluster = Cluster(2)
        self.cluster.create(1, 2)
        self.promises = Promises()
        self._seen: dict[int, Any] = {}
        self.look()
        for value in values:
            self.append(value)
            self.fetch()
            self.fetch()

    def append(self, value: bytes) -> None:
        self.cluster[1].append(value)
        self.look()

    def fetch(self) -> None:
        """One request of the follower and its answer."""
        self.cluster.fetch(2)
        self.look()

    def look(self) -> None:
        for node_id in (1, 2):
            one = self.cluster[node_id].partition()
            state = replica_state(one)
            old = self._seen.get(node_id)
            if state != old:
                self._seen[node_id] = state
                self.promises._look(life_of(node_id), one, old, state)


async def test_a_follower_that_cuts_below_what_it_has_shown_is_found() -> None:
    """P17: it counts nothing, and its high watermark went down with its log."""
    w = Watched(b"a", b"b", b"c")
    follower = w.cluster[2].partition()
    assert follower.log.high_watermark == 3
    follower.log.truncate_to(1)
    assert not follower.counters.truncations_below_high_watermark
    with pytest.raises(Violation, match="P17: .* was cut to 1, it had shown 3"):
        w.look()


async def test_a_follower_may_cut_what_it_has_not_shown() -> None:
    w = Watched(b"a", b"b", b"c")
    w.append(b"d")
    w.fetch()
    follower = w.cluster[2].partition()
    assert (follower.log.high_watermark, follower.log.log_end_offset) == (3, 4)
    follower.log.truncate_to(3)
    w.look()


async def test_a_leader_that_forgets_the_end_of_what_was_committed_is_found() -> None:
    """P1, P17: a leader never cuts its log; what it has shown is what it holds."""
    w = Watched(b"a", b"b", b"c")
    w.cluster[1].partition().log.truncate_to(2)
    with pytest.raises(Violation, match="P1"):
        w.look()
