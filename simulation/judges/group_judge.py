"""The promises of consumer groups as a judge: coordinators hold a leader's assignment, offsets last
as long as they should, and groups converge in the quiet phase."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from broker.coordinators.group.shard import GroupShard
from broker.coordinators.runtime.execution import Executor
from simulation.judges.expiry import At, OffsetLives
from simulation.judges.groups import Holder, share_of
from simulation.judges.judge import Judge
from simulation.judges.partitions import OFFSETS_TOPIC
from simulation.world.invariants import require

if TYPE_CHECKING:
    from broker.coordinators.group.live_group import LiveGroup
    from simulation.judges.committed import PartitionTruth
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

STABLE = "Stable"
RETENTION = "offsets.retention.minutes"
WEEK_MINUTES = 10_080


class GroupJudge(Judge):
    """Judges G4, G9 and G7; members judge the other promises themselves.

    G4: whenever a coordinator has acted, a group that it holds as Stable is compared with the plans
    that leaders have sent (`GroupTruth.held`). G9: each offset that ends is judged, and at the end
    of the run the overdue ones (`OffsetLives`). G7: members converge in the quiet phase.
    """

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._wrong: list[str] = []
        minutes = int(world.shape.settings.get(RETENTION, WEEK_MINUTES))
        self._lives = OffsetLives(minutes * 60_000)
        self._log: PartitionTruth | None = None
        self._read = 0
        """The offset up to which the log of groups has been read."""

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the timer that a coordinator sets last, after a decision or the loading of a
        log."""
        real = Executor.set_wake
        with mock.patch.object(Executor, "set_wake", self._looking(real)):
            yield

    def _looking(self, real: Callable[..., None]) -> Callable[..., None]:
        def set_wake(executor: Executor[Any], slot: Any) -> None:
            real(executor, slot)
            load = self._world.load
            if load is None or not isinstance(slot.shard, GroupShard):
                return
            live = slot.shard.core.groups
            for name, truth in load.groups.items():
                group = live.get(name)
                if group is not None and group.state.value == STABLE:
                    wrong = truth.held(group.generation, group.leader, _holders(group))
                    self._wrong += [] if wrong is None else [wrong]

        return set_wake

    def after(self, life: NodeLife) -> None:
        """Raise a violation of G4, or of G9 by newly committed records."""
        require(not self._wrong, self._wrong[0] if self._wrong else "")
        promises = self._world.promises
        if self._log is None:
            logs = promises.partitions.values()
            self._log = next((one for one in logs if one.name == f"{OFFSETS_TOPIC}-0"), None)
        log = self._log
        if log is None or self._read == log.end or OFFSETS_TOPIC in promises.given_up:
            return
        for offset in range(self._read, log.end):
            record = log.keys.records.get(offset)
            if record is not None:
                gone = self._lives.add(record, log.times[offset], promises.may_vanish)
                self._tell(gone, life.machine.cluster.loop.time())
        self._read = log.end

    def _tell(self, gone: At | str | None, at_s: float) -> None:
        """Notify the group's register that an offset or the group has ended."""
        load = self._world.load
        if gone is None or load is None:
            return
        truth = load.groups.get(gone.group if isinstance(gone, At) else gone)
        if truth is not None and isinstance(gone, At):
            topic = self._world.promises.metadata.image.topics.by_name.get(gone.topic)
            if topic is not None:
                truth.expired((topic.id, gone.partition), at_s)
        elif truth is not None:
            truth.ended(at_s)

    def missing(self) -> str | None:
        """Return an offset that should have ended, or is about to end (G9)."""
        topics = self._world.promises.metadata.image.topics.by_name
        old = self._lives.old_namesake({name: one.id for name, one in topics.items()})
        if old is not None:
            return f"G9: {old} still exists, its topic does not"
        topic = topics.get(OFFSETS_TOPIC)
        leader = None if topic is None else topic.partitions[0].leader
        for machine in self._world.cluster.machines:
            now_ms = machine.clock.now_ms()
            at = self._lives.going(now_ms) if machine.node_id == leader else None
            if at is not None:
                return (
                    f"G9: {at} is still there at {now_ms}, it lasts until {self._lives.end_ms(at)}"
                )
        return None

    def unsettled(self) -> str | None:
        """Return a group whose members are not in one generation (G7)."""
        load = self._world.load
        groups = [] if load is None else list(load.groups.values())
        return next((what for one in groups if (what := one.unsettled()) is not None), None)


def _holders(group: LiveGroup) -> Iterator[Holder]:
    for one in group.members.values():
        yield Holder(
            one.member_id,
            one.group_instance_id is not None,
            share_of(one.assignment),
            one.joining is not None or one.syncing is not None,
        )
