"""The promises of consumer groups as a judge: what coordinators hold is what a leader has planned,
and the quiet phase must bring groups together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from broker.coordinators.group_coordinator import GroupCoordinator
from simulation.judges.groups import Holder, share_of
from simulation.judges.judge import Judge
from simulation.world.invariants import require

if TYPE_CHECKING:
    from broker.coordinators.group.live_group import LiveGroup
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

STABLE = "Stable"


class GroupJudge(Judge):
    """G4 after whatever a coordinator does: a group that it holds as Stable is compared with the
    plans that leaders have sent (`GroupTruth.held`). G7 when nothing is wrong any more. The rest
    is found by members."""

    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._wrong: list[str] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """A coordinator sets its timers last, when a decision is carried out or a log is loaded."""
        real = GroupCoordinator._set_wake
        with mock.patch.object(GroupCoordinator, "_set_wake", self._looking(real)):
            yield

    def _looking(self, real: Callable[..., None]) -> Callable[..., None]:
        def set_wake(coordinator: GroupCoordinator, slot: Any) -> None:
            real(coordinator, slot)
            load = self._world.load
            if load is None or slot.shard is None:
                return
            live = slot.shard.core.groups
            for name, truth in load.groups.items():
                group = live.get(name)
                if group is not None and group.state.value == STABLE:
                    wrong = truth.held(group.generation, group.leader, _holders(group))
                    self._wrong += [] if wrong is None else [wrong]

        return set_wake

    def after(self, life: NodeLife) -> None:
        """G4."""
        require(not self._wrong, self._wrong[0] if self._wrong else "")

    def unsettled(self) -> str | None:
        """G7."""
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
