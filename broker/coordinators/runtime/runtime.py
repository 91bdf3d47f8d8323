"""Shell: Slots of one coordinator: leadership, loading, and requests to shards.

A partition of the coordinator's topic that this broker leads has a slot. While its records are
being read, the slot has no shard and answers COORDINATOR_LOAD_IN_PROGRESS; a partition without a
slot answers NOT_COORDINATOR. Only loading and long walks over a shard are tasks.

A slot keeps its shard when its leader epoch rises, as only its own appends have changed the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.log_entries import LogBatch
from broker.coordinators.partitioner import partition_for
from broker.coordinators.runtime.decision import AnyDecision, Now
from broker.coordinators.runtime.execution import Executor
from broker.coordinators.runtime.loading import LOAD_PAUSE_MAX_S, LOAD_PAUSE_S, Loading
from broker.coordinators.runtime.shard import S, ShardOwner
from broker.coordinators.runtime.slot import Slot
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.schema import Response
from runtime.clock import Clock
from runtime.errors import InvariantViolated, invariant
from runtime.log import get_logger
from runtime.tasks import Supervisor

R = TypeVar("R", bound=Response)

_log = get_logger("broker.coordinators.runtime")


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator on this broker. Call `start` once the log exists; all other
    calls are synchronous, from the loop.

    Args:
        name: kind of the coordinator, for logs and metrics: "group".
        owner: makes the shards, and is notified when they enter or leave service.
        encode, commit_timeout_ms: see `Executor`.
    """

    def __init__(
        self,
        name: str,
        owner: ShardOwner[S],
        *,
        log: CoordinatorLog,
        encode: Callable[[Sequence[Any]], LogBatch],
        clock: Clock,
        commit_timeout_ms: int,
        supervisor: Supervisor,
    ) -> None:
        self.slots: dict[int, Slot[S]] = {}
        self.executor: Executor[S] = Executor(
            name,
            log=log,
            encode=encode,
            clock=clock,
            commit_timeout_ms=commit_timeout_ms,
            perform=owner.perform,
            on_lost=self._lost,
        )
        self._name = name
        self._owner = owner
        self._store = log
        self._clock = clock
        self._supervisor = supervisor
        self._closed = False

    def start(self) -> None:
        """Start to listen for leadership."""
        self._store.add_listener(self)

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and stop."""
        self._closed = True
        for slot in list(self.slots.values()):
            self._close_slot(slot)

    # -- leadership

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Load the records of `partition`, which this broker now leads, unless they are loaded
        already."""
        slot = self.slots.get(partition)
        if self._closed or (slot is not None and slot.epoch >= leader_epoch):
            return
        if slot is not None and slot.shard is not None:
            # The same leader in a newer epoch: no other broker wrote in between.
            slot.epoch = leader_epoch
            raised = slot.shard.epoch_raised(leader_epoch, self.executor.now())
            self.executor.carry_out(slot, raised)
            return
        self._begin_loading(partition, leader_epoch)

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Drop the shard of `partition`: another broker leads it since `leader_epoch`, or it was
        deleted."""
        slot = self.slots.get(partition)
        if slot is not None and (leader_epoch is None or leader_epoch >= slot.epoch):
            self._close_slot(slot)

    def _close_slot(self, slot: Slot[S]) -> None:
        del self.slots[slot.partition]
        self._drop(slot, ErrorCode.NOT_COORDINATOR)
        self._owner.closed(slot.partition)

    def _drop(self, slot: Slot[S], code: ErrorCode) -> None:
        shard = slot.shard
        self.executor.drop(slot, code)
        if shard is not None:
            self._owner.dropped(slot.partition, shard)

    def _lost(self, slot: Slot[S], code: ErrorCode) -> None:
        """Drop a slot after it lost an append, and load it again if this broker still leads."""
        del self.slots[slot.partition]
        self._drop(slot, code)
        epoch = self._store.leader_epoch(slot.partition)
        if epoch is not None and not self._closed:
            self._begin_loading(slot.partition, epoch)
        else:
            self._owner.closed(slot.partition)

    # -- loading

    def _begin_loading(self, partition: int, epoch: int) -> None:
        slot = self.slots[partition] = Slot(partition, epoch)
        self._supervisor.spawn(f"load {self._name} partition {partition}", self._load(slot))

    async def _load(self, slot: Slot[S]) -> None:
        """Load a shard with retries, until it is there, its records are invalid, or the slot is
        dropped."""
        pause_s = LOAD_PAUSE_S
        while not await self._load_once(slot):
            await asyncio.sleep(pause_s)
            if self.slots.get(slot.partition) is not slot:
                return
            pause_s = min(2 * pause_s, LOAD_PAUSE_MAX_S)

    async def _load_once(self, slot: Slot[S]) -> bool:
        """Try to load the shard once. Returns: False if the load must be repeated, because a disk
        error may be temporary. The slot then stays, and clients get COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self._owner.new_shard(slot.partition, slot.epoch)
        loading = Loading(self._store, slot.partition, shard, self.executor.now)
        began_ms = self._clock.monotonic_ms()
        try:
            await loading.run()
        except (ApiError, ProtocolError, InvariantViolated) as error:
            # Other programs wrote the log: only this partition may suffer from its content.
            if self.slots.get(slot.partition) is not slot:
                return True
            again = isinstance(error, ApiError)
            if not again:
                self._close_slot(slot)
            _log.error(
                "cannot load the coordinator's partition",
                coordinator=self._name,
                partition=slot.partition,
                after_records=loading.records,
                error=str(error),
                tries_again=again,
            )
            return not again
        except Exception as error:  # noqa: BLE001 - one partition's records must not stop the others
            self._supervisor.survive(
                f"{self._name} records", error, partition=slot.partition, after=loading.records
            )
            if self.slots.get(slot.partition) is slot:
                self._close_slot(slot)
            return True
        if self.slots.get(slot.partition) is slot:
            self._take(slot, loading, began_ms)
        return True

    def _take(self, slot: Slot[S], loading: Loading[S], began_ms: float) -> None:
        """Put a loaded shard into service."""
        slot.shard = loading.shard
        self.executor.set_wake(slot)
        self._owner.loaded(slot.partition, loading.shard)
        _log.info(
            "loaded the coordinator's partition",
            coordinator=self._name,
            partition=slot.partition,
            leader_epoch=slot.epoch,
            records=loading.records,
            keys=loading.keys,
            took_ms=round(self._clock.monotonic_ms() - began_ms, 1),
        )

    # -- requests

    def ask(
        self,
        key: str,
        decide: Callable[[S, Now], AnyDecision],
        refuse: Callable[[ErrorCode], R],
    ) -> R | asyncio.Future[R]:
        """Let the shard of `key` decide and carry it out. Not for decisions that wait."""
        slot = self.find(key)
        if isinstance(slot, ErrorCode):
            return refuse(slot)
        reply = self.executor.carry_out(slot, decide(slot.loaded(), self.executor.now()))
        invariant(reply is not None, f"a decision for {self._name} {key} has no response")
        return cast("R | asyncio.Future[R]", reply)

    def ask_and_wait(
        self,
        key: str,
        decide: Callable[[S, int, Now], AnyDecision],
        refuse: Callable[[ErrorCode], R],
    ) -> R | asyncio.Future[R]:
        """Do the same as `ask`, for callers that may have to wait for an Answer. `decide` gets the
        caller's ticket."""
        slot = self.find(key)
        if isinstance(slot, ErrorCode):
            return refuse(slot)
        ticket, future = self.executor.callers.add()
        decision = decide(slot.loaded(), ticket, self.executor.now())
        if decision.reply is not None:
            self.executor.callers.remove(ticket)
        reply = self.executor.carry_out(slot, decision)
        return cast("R | asyncio.Future[R]", future if reply is None else reply)

    def find(self, key: str) -> Slot[S] | ErrorCode:
        """Return the loaded slot of `key`, or the error code if there is no shard here."""
        count = self._store.partition_count()
        slot = None if count is None else self.slots.get(partition_for(key, count))
        if slot is None:
            return ErrorCode.NOT_COORDINATOR
        return slot if slot.shard is not None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def shards(self) -> tuple[list[S], bool]:
        """Return all loaded shards, and whether others are still loading."""
        shards = [slot.shard for slot in self.slots.values() if slot.shard is not None]
        return shards, len(shards) < len(self.slots)

    # -- long walks

    def partitions(self) -> list[tuple[int, S | None]]:
        """Return the partitions that this broker coordinates, with their shards; None for a shard
        that is loading."""
        return [(slot.partition, slot.shard) for slot in self.slots.values()]

    def serves(self, partition: int, shard: S) -> bool:
        """Return whether this shard of the partition is in service."""
        slot = self.slots.get(partition)
        return slot is not None and slot.shard is shard

    async def carry_out_in_slices(
        self, partition: int, shard: S, decisions: Iterator[AnyDecision]
    ) -> bool:
        """Carry out one decision after the other, as long as the shard is in service. Returns: True
        if it was in service to the end, and no append was refused."""
        whole = True
        while self.serves(partition, shard) and (decision := next(decisions, None)) is not None:
            before = shard.appended
            self.executor.carry_out(self.slots[partition], decision)
            whole = whole and not (decision.records and shard.appended is before)
            await asyncio.sleep(0)
        return whole and self.serves(partition, shard)
