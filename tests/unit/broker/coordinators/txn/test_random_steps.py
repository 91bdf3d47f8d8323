"""Random steps of a coordinator of transactions: requests, markers, time, lost appends, failovers.

No step may raise, neither to its caller nor in a task. After each step memory is the replay of the
log (G10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinators.txn.decision import MarkersDue
from broker.coordinators.txn.init_producer import InitProducer
from broker.coordinators.txn.shard import COMPLETION_BACKOFF_MS
from broker.coordinators.txn.states import PREPARING
from broker.coordinators.txn.transaction import TopicPartition
from protocol.errors import ApiError, ErrorCode
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import HOME
from tests.unit.broker.coordinators.txn.values import A0, B0
from tests.unit.broker.coordinators.txn.world import TID, TIMEOUT_MS, TxnWorld

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("init", "resume", "add", "add", "add", "commit", "commit", "abort", "abort"),
                *("time out", "expire", "marker", "marker", "marker", "part", "wake", "wake"),
                *("settle", "settle", "settle", "lose", "fail over", "new epoch", "level"),
            ]
        ),
        st.integers(0, 3),
        st.sampled_from(["", "", "hold", "refuse"]),
    ),
    min_size=5,
    max_size=40,
)


class Steps:
    """One coordinator, the identities that its clients got, and the outcomes that it requested."""

    def __init__(self, world: TxnWorld) -> None:
        self.world = world
        self.given: list[tuple[int, int]] = [(1, 0)]
        self.outcomes: dict[tuple[int, int], bool] = {}
        self.fresh: set[tuple[int, int]] = set()
        self.added: dict[tuple[int, int], set[TopicPartition]] = {}
        self.written: dict[MarkersDue, set[TopicPartition]] = {}
        self.seen = (-1, -1)

    async def do(self, what: str, number: int, fault: str) -> None:
        """Do one step; `fault` is that of the appends in it."""
        world = self.world
        world.log.hold = fault == "hold"
        world.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS if fault == "refuse" else None
        identity = self.given[-2 if number == 3 and len(self.given) > 1 else -1]
        if what in ("init", "resume"):
            asked = InitProducer(TIMEOUT_MS, *(identity if what == "resume" else ()))
            self.take(world.init(asked), self.initialised if what == "init" else None)
        elif what == "add":
            partitions = [A0, B0][number % 2 :]
            added = self.added.setdefault(identity, set())
            self.take(world.add(identity, *partitions), lambda _: added.update(partitions))
        elif what in ("commit", "abort"):
            self.take(world.end(identity, commit=what == "commit"))
        elif what in ("time out", "expire"):
            world.clock.advance(TIMEOUT_MS if number else 1)
            if self.is_loaded():
                await (world.time_out() if what == "time out" else self.expire())
        elif what in ("marker", "part"):
            self.mark(number, whole=what == "marker")
        else:
            await self.role(what, number)
        await settle()
        self.observe()

    async def expire(self) -> None:
        await self.world.walk(lambda shard, now: shard.decide_expired(now, 4 * TIMEOUT_MS))

    def initialised(self, identity: tuple[int, int]) -> None:
        assert identity not in self.fresh, "T3: two producers have the same epoch"
        self.fresh.add(identity)

    def mark(self, number: int, *, whole: bool) -> None:
        if self.world.due and self.is_loaded():
            due = self.world.due[-2 if number == 3 and len(self.world.due) > 1 else -1]
            self.write(due, due.partitions if whole else due.partitions & {A0})

    def is_loaded(self) -> bool:
        slot = self.world.runtime.slots.get(HOME)
        return slot is not None and slot.shard is not None

    def write(self, due: MarkersDue, partitions: Collection[TopicPartition]) -> None:
        """Report these markers of a request, but each of them once."""
        done = self.written.setdefault(due, set())
        news = set(partitions) - done
        if news:
            done |= news
            self.world.written(due, *news)

    async def role(self, what: str, number: int) -> None:
        world, log = self.world, self.world.log
        waiting = [one for one in log.pending if not one.done()]
        if what == "level":
            world.level = number % 3
        elif what == "settle":
            for one in waiting[: 1 + number]:
                one.set_result(None)
        elif what == "lose":
            _lose(waiting[:1])
        elif what == "fail over":
            await world.fail_over()
            _lose(waiting)
        elif what == "new epoch":
            world.epoch += 1
            log.epochs[HOME] = world.epoch
            world.runtime.elected(HOME, world.epoch)
        elif HOME in world.runtime.slots:
            world.wake(COMPLETION_BACKOFF_MS)

    def take(
        self, reply: Any, succeeded: Callable[[tuple[int, int]], object] | None = None
    ) -> None:
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda done: self.take(done.result(), succeeded))
        elif reply.error_code == ErrorCode.NONE:
            identity = reply.producer_id, reply.producer_epoch
            if succeeded is not None:
                succeeded(identity)
            self.given.append(identity)

    def observe(self) -> None:
        """T3: a committed epoch never decreases. T8: at level 2 each epoch has one outcome, which
        reaches all partitions that were added."""
        world = self.world
        assert world.supervisor.failure is None
        for due in world.due:
            if due.client_version == 2 and due.producer_epoch < 32_767:
                at = due.producer_id, due.producer_epoch
                assert self.outcomes.setdefault(at, due.committed) == due.committed
                added = self.added.get((due.producer_id, due.producer_epoch - 1), set())
                assert added <= due.partitions, "T4: a partition gets no marker"
        slot = world.runtime.slots.get(HOME)
        if slot is not None and slot.shard is not None:
            txn = slot.shard.committed_state.get(TID)
            if txn is not None:
                assert txn[:2] >= self.seen
                self.seen = txn[:2]

    async def finish(self, *, fails_over: bool) -> None:
        """T8: without further faults each prepared transaction is completed, by this coordinator or
        by the next one."""
        world = self.world
        world.log.hold, world.log.refuse = False, None
        world.commit_records()
        await settle()
        if fails_over or HOME not in world.runtime.slots:
            await world.fail_over()
        for _ in range(3):
            for due in list(world.due):
                self.write(due, due.partitions)
            world.wake(COMPLETION_BACKOFF_MS)
        assert all(txn.state not in PREPARING for txn in world.shard.committed_state.values()), (
            "a transaction stays in a Prepare state"
        )
        assert len(world.shard.markers) == 0


def _lose(appends: list[asyncio.Future[None]]) -> None:
    for one in appends:
        one.set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))


@pytest.mark.slow
@given(STEPS, st.sampled_from([0, 2]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_no_sequence_of_steps_leaves_a_prepared_transaction(
    steps: list[tuple[str, int, str]], level: int, fails_over: bool
) -> None:
    async def run() -> None:
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        world = await TxnWorld(level).start()
        story = Steps(world)
        try:
            for step in [("init", 0, ""), ("add", 1, ""), *steps]:
                await story.do(*step)
                assert raised == []
            await story.finish(fails_over=fails_over)
        finally:
            await world.stop()
            for one in world.log.pending:
                if one.done() and not one.cancelled():
                    one.exception()
        assert raised == []

    asyncio.run(run())
