"""Random steps of a whole coordinator: requests, timers, lost appends, changes of roles and topics.

No step may raise, neither to its caller nor in a task: a failure of any of these tasks ends the
node. After each step memory is the replay of the log (G10), and no visible offset is older than its
topic (G9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinators.group.hard_state import EMPTY_STATE, HardState, replay
from broker.coordinators.group.records import parse_record
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import GROUP, HOME, Driver

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(
                    "join",
                    "join",
                    "rejoin",
                    "rejoin",
                    "sync",
                    "sync",
                    "leave",
                    "gives up",
                    "commit",
                ),
                *("delete offset", "delete group", "topic", "time", "time", "expire", "new epoch"),
                *("hold", "settle", "settle", "lose", "refuse", "resign", "elect", "elect"),
            ]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)
PAUSES_MS = (0, 1, 500, 3_000, 3_000, 10_000, 30_000, 60_000)


class Steps:
    """One coordinator and the state of its clients."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.epoch = 1
        self.oldest = 0
        self.offset = 0
        self.topics = 0
        self.ids: list[str] = ["", "", "nobody"]
        self.generation = 0
        self.answers: list[Any] = []

    async def do(self, what: str, number: int) -> None:
        driver = self.driver
        member = self.ids[-1 - number % len(self.ids)]
        requests: dict[str, Callable[[], Any]] = {
            "join": lambda: driver.join("", version=3 if number == 0 else 9),
            "rejoin": lambda: driver.join(member),
            "sync": lambda: driver.sync(member, self.generation - (number == 7)),
            "leave": lambda: self.leave(member),
            "commit": self.commit,
            "delete offset": driver.delete_offset,
            "delete group": driver.delete_group,
        }
        if what in requests:
            self.take(requests[what]())
        elif what == "gives up":
            self.give_up(tries_again=number > 1, another_comes=number > 3)
        elif what == "topic":
            self.topic()
        elif what == "time":
            driver.clock.advance(PAUSES_MS[number])
            runtime = driver.coordinator.runtime
            for slot in list(runtime.slots.values()):
                runtime.executor.on_wake(slot)
        elif what == "expire":
            await driver.coordinator.expire_offsets()
        else:
            self.role(what, number)
        await settle()

    def give_up(self, *, tries_again: bool, another_comes: bool) -> None:
        """The member leaves while its JoinGroup waits, and may join again with its old id."""
        self.take(self.driver.join())
        self.take(self.driver.join(self.ids[-1]))
        self.take(self.leave(self.ids[-1]))
        if tries_again:
            self.take(self.driver.join(self.ids[-1]))
        if another_comes:
            self.take(self.driver.join())

    def commit(self) -> Any:
        self.offset += 1
        return self.driver.commit(self.offset)

    def role(self, what: str, number: int) -> None:
        driver, log = self.driver, self.driver.log
        waiting = [one for one in log.pending if not one.done()]
        if what == "hold":
            log.hold = not log.hold
        elif what == "refuse":
            log.refuse = None if log.refuse else ErrorCode.NOT_ENOUGH_REPLICAS
        elif what == "settle":
            for one in waiting[: 1 + number]:
                one.set_result(None)
        elif what == "lose" and waiting:
            waiting[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
        elif what == "resign":
            self.epoch += 1
            log.epochs.clear()
            driver.coordinator.runtime.resigned(HOME, self.epoch)
            for one in waiting:
                one.set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
        elif what in ("elect", "new epoch"):
            self.epoch += 1
            log.epochs[HOME] = self.epoch
            driver.coordinator.runtime.elected(HOME, self.epoch)

    def topic(self) -> None:
        if self.driver.topics.topic_id("a") is not None:
            self.driver.delete_topics("a")
            self.oldest = self.offset + 1
        else:
            self.topics += 1
            self.driver.topics.topics["a"] = bytes([self.topics % 256]) * 16, 4

    def leave(self, member: str) -> Any:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        return self.driver.coordinator.ask_and_wait(
            GROUP,
            self.driver.context(5),
            lambda shard, caller, now: shard.decide_leave(caller, request, now),
            lambda code: code,
        )

    def take(self, answer: Any) -> None:
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: self.take(done.result()))
        elif getattr(answer, "generation_id", -1) > 0:
            self.generation = answer.generation_id
        if member_id := getattr(answer, "member_id", ""):
            self.ids.append(member_id)

    def check(self) -> None:
        assert self.driver.supervisor.failure is None
        for shard in self.driver.coordinator.shards()[0]:
            shard.validate()
            assert shard.appended == replayed(self.driver), "G10: memory is the replay of the log"
            (topic,) = shard.fetch_offsets(GROUP, [("a", bytes(16), [0])])
            offset = topic.partitions[0].offset
            assert offset == -1 or offset >= self.oldest, "G9: the offset is older than its topic"


def replayed(driver: Driver) -> HardState:
    state = EMPTY_STATE
    for key, value in driver.log.records[HOME]:
        record = parse_record(key, value)
        if record is not None:
            state = replay(state, record)
    return state


@given(STEPS, st.sampled_from([0, 3_000]))
@settings(max_examples=100, deadline=None)
def test_no_sequence_of_steps_stops_the_node(steps: list[tuple[str, int]], delay_ms: int) -> None:
    async def run() -> None:
        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        driver = await Driver(initial_rebalance_delay_ms=delay_ms).start()
        world = Steps(driver)
        try:
            for what, number in steps:
                await world.do(what, number)
                world.check()
                assert raised == []
        finally:
            await driver.stop()
            for one in driver.log.pending:
                if one.done():
                    one.exception()
        assert raised == []

    asyncio.run(run())
