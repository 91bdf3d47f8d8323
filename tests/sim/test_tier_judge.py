"""The judge of tiered storage: since when what is below a leader's log start need not be there."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.judges.tiering import TierJudge
from simulation.shape import TIERED
from simulation.world.invariants import Violation
from storage.log.epochs import EpochEntry

pytestmark = pytest.mark.sim

TOPIC_ID = b"t" * 16


@dataclass(eq=False)
class Replica:
    """What the judge sees of one."""

    log: Any
    topic: str = "t"
    topic_id: bytes = TOPIC_ID
    index: int = 0
    is_leader: bool = False
    leader_epoch: int = 0


class Watched:
    """Two replicas of a tiered partition without copies, whose disks begin at 10."""

    def __init__(self, *log_starts: int) -> None:
        topics = SimpleNamespace(by_id={TOPIC_ID: SimpleNamespace(name="t")})
        promises = SimpleNamespace(
            given_up=(),
            let_go=("t",),
            partitions={},
            metadata=SimpleNamespace(image=SimpleNamespace(topics=topics)),
            configs=lambda _topic: {TIERED: "true"},
        )
        world: Any = SimpleNamespace(
            promises=promises,
            shape=SimpleNamespace(has_tier=False),
            loop=SimpleNamespace(time=lambda: 0.0),
        )
        self.judge = TierJudge(world)
        self.replicas = [_replica(start) for start in log_starts]

    def look(self, which: int, *, leads: bool = False) -> None:
        one = self.replicas[which]
        one.is_leader, one.leader_epoch = leads, int(leads)
        machine = SimpleNamespace(node_id=which)
        life: Any = SimpleNamespace(machine=machine)
        seen: Any = one
        self.judge._look_at_replica(life, seen)


def _replica(start: int) -> Replica:
    log = SimpleNamespace(
        log_start_offset=start,
        local_log_start_offset=10,
        last_stable_offset=20,
        high_watermark=20,
        log_end_offset=20,
        bootstrapping=False,
        lacks_remote_epochs=False,
        epochs=SimpleNamespace(entries=[EpochEntry(0, start)]),
    )
    return Replica(log)


def test_what_neither_disk_nor_tier_has_is_found() -> None:
    with pytest.raises(Violation, match=r"S2: .* no finished copy has 0"):
        Watched(0).look(0)


def test_a_follower_that_began_later_gives_nothing_up() -> None:
    watched = Watched(10, 0)
    watched.look(0)
    with pytest.raises(Violation, match="S2"):
        watched.look(1)


def test_a_follower_that_is_elected_gives_up_what_is_below_its_log_start() -> None:
    """Also where it is elected with the log start that it had."""
    watched = Watched(10, 0)
    watched.look(0)
    watched.look(0, leads=True)
    watched.look(1)
