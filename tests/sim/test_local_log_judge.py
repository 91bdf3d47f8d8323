"""The judge of elections by local logs: the replicas that may be passed over (L2)."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.judges.local_logs import FENCED_S, LocalLogJudge, PassedOver
from simulation.world.invariants import Violation

pytestmark = pytest.mark.sim


def with_broker(broker: Any) -> Any:
    image = SimpleNamespace(cluster=SimpleNamespace(brokers={6: broker}))
    return SimpleNamespace(
        loop=SimpleNamespace(now_s=1.0),
        shape=SimpleNamespace(settings={}),
        promises=SimpleNamespace(metadata=SimpleNamespace(image=image, heard=[])),
    )


@pytest.mark.parametrize("fenced", [True, False])
def test_replica_about_to_be_fenced_may_be_passed_over(fenced: bool) -> None:
    """Two brokers are found silent together, and the first is fenced.

    The other is no candidate for its partitions, and is fenced next (tiered seed 225). A broker
    that stays had to be elected.
    """
    broker = SimpleNamespace(epoch=6, fenced=False)
    world = with_broker(broker)
    judge = LocalLogJudge(world)
    life: Any = SimpleNamespace()
    judge._passed_over.append(PassedOver("L2: 5 is elected before 6", 6, 6, 1.0 + FENCED_S))
    judge.after(life)
    broker.fenced = fenced
    world.loop.now_s += FENCED_S + 0.1
    with nullcontext() if fenced else pytest.raises(Violation, match="^L2: 5 is elected before 6"):
        judge.after(life)


def test_replica_passed_over_at_the_end_is_reported() -> None:
    broker = SimpleNamespace(epoch=6, fenced=False)
    world = with_broker(broker)
    judge = LocalLogJudge(world)
    judge._passed_over += [
        PassedOver("another life", 6, 5, 9.0),
        PassedOver("L2: 5 is elected before 6", 6, 6, 9.0),
    ]
    with pytest.raises(Violation, match="^L2"):
        judge.at_end()
