"""Shell: Execution of a shard's decisions: appends, replies and deadlines.

Deciding, appending and applying happen in one synchronous call, so that nothing comes between them.
The outcome of an append that fails determines the consequences:

- refused (nothing appended): the caller gets an error, and live state reverts its part;
- not committed within the commit timeout: the caller gets an error, but the records are in the log,
  so hard state keeps them and makes them visible once they are committed;
- lost after it was appended: the content of the log is unknown. Every waiting caller gets an error.
  The shard is dropped, and loaded again if this broker still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Generic

from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.log_entries import LogBatch
from broker.coordinators.runtime.decision import Answer, AnyDecision, Now
from broker.coordinators.runtime.shard import S
from broker.coordinators.runtime.slot import InFlight, Slot
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.schema import Response
from runtime.clock import Clock
from runtime.log import get_logger

DUE_PER_WAKE: Final = 50
"""Timers and late appends that are processed before other work gets its turn."""

# Error codes for a coordinator's client after a failed append. The client does not deal with
# partitions and leaders: either it may retry here, or it has to find the coordinator.
_APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

_log = get_logger("broker.coordinators.runtime")


class WaitingCallers:
    """Futures of callers that wait for an Answer, by ticket."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[Response]] = {}
        self._last_ticket = 0

    def add(self) -> tuple[int, asyncio.Future[Response]]:
        """Return a new ticket and the future of its answer."""
        self._last_ticket += 1
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._futures[self._last_ticket] = future
        return self._last_ticket, future

    def remove(self, ticket: int) -> None:
        """Remove a caller that got its reply at once."""
        del self._futures[ticket]

    def send(self, answers: Iterable[Answer]) -> None:
        """Pass the answers to their callers; a caller may have gone."""
        for ticket, response in answers:
            future = self._futures.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(response)


class Executor(Generic[S]):
    """The decisions of all slots of one coordinator.

    Args:
        name: kind of the coordinator, for logs.
        encode: returns the batch for the records of one decision; raises EncodeError.
        commit_timeout_ms: how long a caller waits for its records to be committed.
        perform: gets the partition and the effects of a decision.
        on_lost: gets the slot after an append was lost, and the error code for waiting callers. It
            drops the slot.
    """

    def __init__(
        self,
        name: str,
        *,
        log: CoordinatorLog,
        encode: Callable[[Sequence[Any]], LogBatch],
        clock: Clock,
        commit_timeout_ms: int,
        perform: Callable[[int, Sequence[Any]], None],
        on_lost: Callable[[Slot[S], ErrorCode], None],
    ) -> None:
        self.callers = WaitingCallers()
        self._name = name
        self._store = log
        self._encode = encode
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._perform = perform
        self._on_lost = on_lost

    def now(self) -> Now:
        """Return the present time of both clocks."""
        return Now(self._clock.monotonic_ms(), self._clock.now_ms())

    # -- appends

    def carry_out(
        self, slot: Slot[S], decision: AnyDecision
    ) -> Response | asyncio.Future[Response] | None:
        """Send the answers and append the records. Returns the reply, or a future for it."""
        shard = slot.loaded()
        self.callers.send(decision.answers)
        if decision.effects:
            self._perform(slot.partition, decision.effects)
        now = self.now()
        if not decision.records:
            if decision.on_failure is None or not slot.in_flight:
                self.set_wake(slot)
                return decision.reply
            return self._enqueue(slot, decision, slot.in_flight[-1].appended, now)
        try:
            batch = self._encode(decision.records)
            appended = self._store.append(slot.partition, batch, now.wall_ms)
        except ApiError as error:
            return self._refused(slot, decision, _client_code(error.code))
        except EncodeError as error:
            _log.error(
                "a record cannot be written",
                coordinator=self._name,
                partition=slot.partition,
                error=str(error),
            )
            return self._refused(slot, decision, ErrorCode.UNKNOWN_SERVER_ERROR)
        shard.apply(decision.records, appended.base_offset, now)
        return self._enqueue(slot, decision, appended.committed, now)

    def _enqueue(
        self, slot: Slot[S], decision: AnyDecision, appended: asyncio.Future[None], now: Now
    ) -> Response | asyncio.Future[Response] | None:
        """Let the reply wait for `appended`, after everything that was appended before."""
        state = slot.loaded().appended
        entry = InFlight(decision, appended, state, now.monotonic_ms + self._commit_timeout_ms)
        slot.in_flight.append(entry)
        slot.patient.append(entry)
        if appended.done():
            self._collect(slot)
        if not entry.settled:
            appended.add_done_callback(partial(self._on_appended, slot))
        self.set_wake(slot)
        return self._reply_of(entry)

    def _reply_of(self, entry: InFlight) -> Response | asyncio.Future[Response] | None:
        if entry.decision.reply is None or entry.settled:
            return entry.decision.reply
        entry.reply = asyncio.get_running_loop().create_future()
        return entry.reply

    def _refused(self, slot: Slot[S], decision: AnyDecision, code: ErrorCode) -> Response | None:
        follow = slot.loaded().failed(decision, code, self.now())
        self.carry_out(slot, follow)
        return None if decision.on_failure is None else decision.on_failure(code)

    def _on_appended(self, slot: Slot[S], _appended: asyncio.Future[None]) -> None:
        if slot.shard is not None:
            self._collect(slot)
            self.set_wake(slot)
        elif not _appended.cancelled():
            _appended.exception()  # The waiting requests were answered when the slot was dropped.

    def _collect(self, slot: Slot[S]) -> None:
        """Process committed appends, in their order."""
        while slot.in_flight and slot.in_flight[0].appended.done():
            entry = slot.in_flight.popleft()
            entry.settled = True
            error = None if entry.appended.cancelled() else entry.appended.exception()
            if entry.appended.cancelled() or error is not None:
                self._lost(slot, entry, error)
                return
            self._committed(slot, entry)

    def _committed(self, slot: Slot[S], entry: InFlight) -> None:
        decision = None if entry.timed_out else entry.decision
        follow = slot.loaded().committed(entry.state, decision, self.now())
        if entry.reply is not None and not entry.reply.done() and entry.decision.reply is not None:
            entry.reply.set_result(entry.decision.reply)
        self.carry_out(slot, follow)

    def _lost(self, slot: Slot[S], entry: InFlight, error: BaseException | None) -> None:
        code = ErrorCode.NOT_COORDINATOR
        if isinstance(error, ApiError):
            code = _client_code(error.code)
        _log.warning(
            "an append was lost, the coordinator's partition is loaded again",
            coordinator=self._name,
            partition=slot.partition,
            leader_epoch=slot.epoch,
            error=str(error),
        )
        _fail_reply(entry, code)
        self._on_lost(slot, code)

    def drop(self, slot: Slot[S], code: ErrorCode) -> None:
        """Answer every request that waits for this slot, and take its shard out of service."""
        if slot.wake is not None:
            slot.wake.cancel()
        if slot.shard is not None:
            self.callers.send(slot.shard.abandon(code).answers)
        while slot.in_flight:
            _fail_reply(slot.in_flight.popleft(), code)
        slot.patient.clear()
        slot.shard = None

    # -- deadlines

    def set_wake(self, slot: Slot[S]) -> None:
        """Set the slot's timer for its next deadline. A timer that fires too early is set again, so
        deadlines that move back cost nothing."""
        if slot.shard is None:
            return
        due_ms = slot.shard.next_deadline_ms()
        entry = slot.next_timeout()
        if entry is not None:
            due_ms = entry.deadline_ms if due_ms is None else min(due_ms, entry.deadline_ms)
        if due_ms is None or (slot.wake is not None and slot.wake_ms <= due_ms):
            return
        if slot.wake is not None:
            slot.wake.cancel()
        delay_s = max(due_ms - self._clock.monotonic_ms(), 0.0) / 1000.0
        slot.wake_ms = due_ms
        slot.wake = asyncio.get_running_loop().call_later(delay_s, self.on_wake, slot)

    def on_wake(self, slot: Slot[S]) -> None:
        """Process a limited number of deadlines that are due, and set the timer again."""
        slot.wake = None
        shard = slot.shard
        if shard is None:
            return
        now = self.now()
        for _ in range(DUE_PER_WAKE):
            if slot.shard is not shard or not self._serve_due(slot, shard, now):
                break
        self.set_wake(slot)

    def _serve_due(self, slot: Slot[S], shard: S, now: Now) -> bool:
        """Process one append that timed out and one timer; return False when nothing is due."""
        entry = slot.next_timeout()
        late = entry is not None and entry.deadline_ms <= now.monotonic_ms
        if late and entry is not None:
            self._time_out(slot, shard, entry, now)
        decision = shard.on_deadline(now) if slot.shard is shard else None
        if decision is not None:
            self.carry_out(slot, decision)
        return late or decision is not None

    def _time_out(self, slot: Slot[S], shard: S, entry: InFlight, now: Now) -> None:
        slot.patient.popleft()
        entry.timed_out = True
        code = _client_code(ErrorCode.REQUEST_TIMED_OUT)
        _fail_reply(entry, code)
        self.carry_out(slot, shard.timed_out(entry.decision, code, now))


def _fail_reply(entry: InFlight, code: ErrorCode) -> None:
    entry.settled = True
    if entry.decision.on_failure is None:
        return
    if entry.reply is None:
        # The append failed while the request was being served: `_reply_of` returns this.
        entry.decision.reply = entry.decision.on_failure(code)
    elif not entry.reply.done():
        entry.reply.set_result(entry.decision.on_failure(code))


def _client_code(code: ErrorCode) -> ErrorCode:
    return _APPEND_ERRORS.get(code, code)
