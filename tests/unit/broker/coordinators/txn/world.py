"""Transactions in the coordinators' runtime: a log in memory, and markers that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from immutables import Map

from broker.coordinators.log_entries import LogBatch, LogRecord, PlainBatch
from broker.coordinators.runtime.decision import Now
from broker.coordinators.runtime.runtime import CoordinatorRuntime
from broker.coordinators.txn.decision import Decision, MarkersDue, ProducerFenced
from broker.coordinators.txn.init_producer import InitProducer
from broker.coordinators.txn.records import TransactionRecord, encode_record
from broker.coordinators.txn.shard import TransactionShard
from broker.coordinators.txn.transaction import TopicPartition, Transaction
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.schema import Response
from runtime.clock import ManualClock
from runtime.tasks import Supervisor
from testkit.memory.broker import settle
from testkit.memory.group_coordinator import HOME, FakeLog

TID = "g"
"""A transactional id whose partition is HOME."""
TIMEOUT_MS, COMMIT_MS = 30_000, 5_000


def answer(code: ErrorCode, producer_id: int, epoch: int) -> Response:
    return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


class TxnWorld:
    """A coordinator of transactions. `due` are the requests for markers, oldest first."""

    def __init__(self, level: int = 2) -> None:
        self.level = level
        self.log = FakeLog()
        self.clock = ManualClock()
        self.supervisor = Supervisor()
        self.due: list[MarkersDue] = []
        self.fenced: list[ProducerFenced] = []
        self.epoch = 1
        self.ids: Callable[[], int | None] = count(1_000).__next__
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            "transaction",
            self,
            log=self.log,
            encode=self.encoded,
            clock=self.clock,
            commit_timeout_ms=COMMIT_MS,
            supervisor=self.supervisor,
        )

    async def start(self) -> TxnWorld:
        self.log.epochs[HOME] = self.epoch
        self.runtime.start()
        await settle()
        return self

    async def stop(self) -> None:
        self.runtime.close()
        await self.supervisor.close()
        assert self.supervisor.failure is None

    def encoded(self, records: Sequence[TransactionRecord]) -> LogBatch:
        return PlainBatch([encode_record(each, self.level) for each in records])

    # -- the shards' owner

    def new_shard(self, partition: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(leader_epoch, lambda: self.level, lambda: self.ids())

    def perform(self, partition: int, effects: Sequence[Any]) -> None:
        self.due += [each for each in effects if isinstance(each, MarkersDue)]
        self.fenced += [each for each in effects if isinstance(each, ProducerFenced)]

    def loaded(self, partition: int, shard: TransactionShard) -> None: ...

    def dropped(self, partition: int, shard: TransactionShard) -> None: ...

    def closed(self, partition: int) -> None: ...

    # -- requests

    @property
    def shard(self) -> TransactionShard:
        return self.runtime.slots[HOME].loaded()

    @property
    def txn(self) -> Transaction:
        """The committed value of the transactional id."""
        return self.shard.committed_state[TID]

    def ask(self, decide: Callable[[TransactionShard, Now], Decision]) -> Any:
        reply = self.runtime.ask(TID, decide, lambda code: answer(code, -1, -1))
        self.check()
        return reply

    def init(self, asked: InitProducer | None = None) -> Any:
        wanted = asked or InitProducer(TIMEOUT_MS)
        return self.ask(lambda shard, now: shard.decide_init(TID, wanted, answer, now))

    def add(self, producer: tuple[int, int], *partitions: TopicPartition) -> Any:
        version = 2 if self.level == 2 else 0
        return self.ask(
            lambda shard, now: shard.decide_add(TID, producer, partitions, version, answer, now)
        )

    def end(self, producer: tuple[int, int], *, commit: bool = True) -> Any:
        version = 5 if self.level == 2 else 4
        return self.ask(
            lambda shard, now: shard.decide_end(
                TID, producer, commit=commit, version=version, respond=answer, now=now
            )
        )

    def written(self, due: MarkersDue, *partitions: TopicPartition) -> None:
        """Report markers as written; all of a request without `partitions`."""
        slot = self.runtime.slots[HOME]
        executor = self.runtime.executor
        decision = slot.loaded().markers_written(due, partitions or due.partitions, executor.now())
        executor.carry_out(slot, decision)
        self.check()

    async def walk(self, walk: Callable[[TransactionShard, Now], Any]) -> None:
        shard = self.shard
        decisions = walk(shard, self.runtime.executor.now())
        await self.runtime.carry_out_in_slices(HOME, shard, decisions)
        self.check()

    async def time_out(self) -> None:
        await self.walk(lambda shard, now: shard.decide_timeouts(now))

    def wake(self, by_ms: int = 0) -> None:
        """Move the clock and serve the deadlines that are due."""
        self.clock.advance(by_ms)
        self.runtime.executor.on_wake(self.runtime.slots[HOME])
        self.check()

    async def fail_over(self) -> None:
        """Move the coordinator to a broker that has the whole log."""
        self.epoch += 1
        self.runtime.resigned(HOME, self.epoch)
        self.epoch += 1
        self.due.clear()
        self.log.epochs[HOME] = self.epoch
        self.runtime.elected(HOME, self.epoch)
        await settle()
        if HOME in self.runtime.slots:
            self.wake()

    def commit_records(self) -> None:
        for one in self.log.pending:
            if not one.done():
                one.set_result(None)

    def check(self) -> None:
        """G10: memory is the replay of the log, but for `last_epoch`, which no record has."""
        slot = self.runtime.slots.get(HOME)
        if slot is None or slot.shard is None:
            return
        fresh = TransactionShard(0, lambda: 0, lambda: None)
        for offset, record in enumerate(self.log.records[HOME]):
            fresh.replay(LogRecord(offset, *record))
        assert _comparable(fresh.appended) == _comparable(slot.shard.appended)


def _comparable(state: Map[str, Transaction]) -> dict[str, Transaction]:
    """Return the values without the fields that the record of level 0 lacks."""
    return {
        name: txn._replace(last_epoch=-1, previous_producer_id=-1) for name, txn in state.items()
    }


def code(reply: Any) -> ErrorCode:
    return ErrorCode(reply.error_code)


def identity(reply: Any) -> tuple[int, int]:
    """Return the id and epoch of a successful reply."""
    assert not isinstance(reply, asyncio.Future), "the reply is not there yet"
    assert code(reply) is ErrorCode.NONE
    return reply.producer_id, reply.producer_epoch
