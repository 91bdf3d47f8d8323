"""The runtime with a shard that remembers its calls: epochs, failover, and notices to the owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from broker.coordinators.log_entries import LogEntry, LogRecord, PlainBatch
from broker.coordinators.runtime.decision import Decision, Now
from broker.coordinators.runtime.runtime import CoordinatorRuntime
from protocol.errors import ApiError, ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse
from runtime.clock import ManualClock
from runtime.tasks import Supervisor
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import GROUP, HOME, FakeLog

Words = tuple[str, ...]
Spoken = Decision[str, str]
COMMIT_MS = 100


class WordShard:
    """A shard whose hard state is the sequence of its records."""

    def __init__(self, epoch: int) -> None:
        self.epochs = [epoch]
        self.appended: Words = ()
        self.visible: Words = ()
        self.events: list[str | None] = []

    def replay(self, entry: LogEntry) -> None:
        assert isinstance(entry, LogRecord) and entry.key is not None
        self.appended += (entry.key.decode(),)

    def replayed(self) -> Sequence[str]:
        self.visible = self.appended
        return self.appended

    def revive(self, key: str, now: Now) -> int:
        return 1

    def epoch_raised(self, leader_epoch: int, now: Now) -> Spoken:
        self.epochs.append(leader_epoch)
        return Decision(records=[f"epoch {leader_epoch}"])

    def apply(self, records: Sequence[str], base_offset: int, now: Now) -> Words:
        self.appended += tuple(records)
        return self.appended

    def committed(self, state: Words, decision: Spoken | None, now: Now) -> Spoken:
        self.visible = state
        self.events.append(None if decision is None else decision.event)
        return Decision()

    def failed(self, decision: Spoken, code: ErrorCode, now: Now) -> Spoken:
        self.events.append(code.name)
        return Decision()

    def timed_out(self, decision: Spoken, code: ErrorCode, now: Now) -> Spoken:
        self.events.append(code.name)
        return Decision()

    def abandon(self, code: ErrorCode) -> Spoken:
        return Decision()

    def next_deadline_ms(self) -> float | None:
        return None

    def on_deadline(self, now: Now) -> Spoken | None:
        return None


class Owner:
    """A coordinator of words over a fake log. `notices` are the owner's calls in order."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.clock = ManualClock()
        self.supervisor = Supervisor()
        self.notices: list[str] = []
        self.runtime: CoordinatorRuntime[WordShard] = CoordinatorRuntime(
            "word",
            self,
            log=self.log,
            encode=lambda words: PlainBatch([(word.encode(), b"") for word in words]),
            clock=self.clock,
            commit_timeout_ms=COMMIT_MS,
            supervisor=self.supervisor,
        )

    def new_shard(self, partition: int, leader_epoch: int) -> WordShard:
        return WordShard(leader_epoch)

    def perform(self, partition: int, effects: Sequence[str]) -> None:
        self.notices += effects

    def loaded(self, partition: int, shard: WordShard) -> None:
        self.notices.append("loaded")

    def dropped(self, partition: int, shard: WordShard) -> None:
        self.notices.append("dropped")

    def closed(self, partition: int) -> None:
        self.notices.append("closed")

    @property
    def shard(self) -> WordShard:
        return self.runtime.slots[HOME].loaded()

    def say(self, word: str) -> Any:
        return self.runtime.ask(
            GROUP,
            lambda shard, now: Decision(
                reply=HeartbeatResponse(),
                records=[word],
                event=f"said {word}",
                on_failure=lambda code: HeartbeatResponse(error_code=code),
            ),
            lambda code: HeartbeatResponse(error_code=code),
        )


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    owner = Owner()
    owner.log.epochs[HOME] = 1
    owner.runtime.start()
    await settle()
    yield owner
    owner.runtime.close()
    await owner.supervisor.close()


async def test_slot_whose_leader_epoch_rises_keeps_its_shard_and_notifies_it(owner: Owner) -> None:
    """G10: only this broker's own appends have changed the log. Markers carry the new epoch."""
    owner.say("a")
    shard = owner.shard
    owner.runtime.elected(HOME, 5)
    owner.runtime.elected(HOME, 5)
    assert owner.shard is shard
    assert shard.epochs == [1, 5]
    assert shard.visible == ("a", "epoch 5")
    assert owner.notices == ["loaded"]


async def test_shard_of_a_partition_elected_again_while_it_loads_has_the_newer_epoch(
    owner: Owner,
) -> None:
    owner.runtime.resigned(HOME, 2)
    owner.log.gate = asyncio.Event()
    owner.runtime.elected(HOME, 3)
    await settle()
    owner.runtime.elected(HOME, 4)
    owner.log.gate.set()
    await settle()
    assert owner.shard.epochs == [4]
    assert owner.notices == ["loaded", "dropped", "closed", "loaded"]


@pytest.mark.parametrize(
    ("leads", "notices"), [(True, ["dropped", "loaded"]), (False, ["dropped", "closed"])]
)
async def test_owner_of_a_shard_that_lost_an_append_is_notified(
    owner: Owner, leads: bool, notices: list[str]
) -> None:
    """The content of the log is unknown, so the shard is loaded again if this broker leads."""
    owner.log.hold = True
    reply = owner.say("a")
    if not leads:
        owner.log.epochs.clear()
    owner.log.pending[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    assert (await reply).error_code == ErrorCode.NOT_COORDINATOR
    await settle()
    assert owner.notices == ["loaded", *notices]
    assert (owner.runtime.find(GROUP) is ErrorCode.NOT_COORDINATOR) is not leads


async def test_event_of_an_append_that_timed_out_is_not_returned_at_its_commit(
    owner: Owner,
) -> None:
    owner.log.hold = True
    replies = [owner.say("a"), owner.say("b")]
    owner.clock.advance(COMMIT_MS)
    owner.runtime.executor.on_wake(owner.runtime.slots[HOME])
    later = owner.say("c")
    for pending in owner.log.pending:
        pending.set_result(None)
    codes = [(await reply).error_code for reply in (*replies, later)]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2 + [ErrorCode.NONE]
    assert owner.shard.visible == ("a", "b", "c")
    late = "COORDINATOR_NOT_AVAILABLE"
    assert owner.shard.events == [late, late, None, None, "said c"]


async def test_walk_ends_with_the_service_of_its_shard(owner: Owner) -> None:
    words = iter("abc")
    decisions = (Decision[str, str](records=[word]) for word in words)
    walk = asyncio.ensure_future(owner.runtime.carry_out_in_slices(HOME, owner.shard, decisions))
    await asyncio.sleep(0)
    owner.runtime.resigned(HOME, None)
    assert await walk is False
    assert list(words) == ["b", "c"]


async def test_effects_of_a_decision_are_performed_before_its_append(owner: Owner) -> None:
    slot = owner.runtime.slots[HOME]
    owner.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    owner.runtime.executor.carry_out(slot, Decision(records=["a"], effects=["sent"]))
    assert owner.notices == ["loaded", "sent"]
    assert owner.shard.events == ["COORDINATOR_NOT_AVAILABLE"]
