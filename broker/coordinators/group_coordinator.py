"""Shell: Group coordinator of one broker: loads shards, appends decisions, runs timers.

A partition of `__consumer_offsets` that this broker leads has a slot. While its records are being
read, the slot has no shard and answers COORDINATOR_LOAD_IN_PROGRESS; a partition without a slot
answers NOT_COORDINATOR. Deciding, appending and applying happen in one synchronous call, so that
nothing comes between them. Only loading and the search for expired offsets are tasks.

The outcome of an append that fails determines the consequences:

- refused (nothing appended): the caller gets an error, and live state reverts its part;
- not committed within `offsets.commit.timeout.ms`: the caller gets an error, but the records are in
  the log, so hard state keeps them and makes them visible once they are committed;
- lost after it was appended: the content of the log is unknown. Every waiting caller gets an error.
  The shard is dropped, and loaded again if this broker still leads.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar, cast

from broker.coordinators.coordinator_log import CoordinatorLog, EndOfTransaction, LogEntry
from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.decision import Answer, Decision, Now
from broker.coordinators.group.deleted_topics import DeletedTopics, TopicLookup
from broker.coordinators.group.hard_state import HardState
from broker.coordinators.group.live_group import Caller
from broker.coordinators.group.records import encode_record
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.group.states import GroupState
from broker.coordinators.partitioner import partition_for
from protocol.errors import ApiError, EncodeError, ErrorCode, ProtocolError
from protocol.ids import random_uuid
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.schema import Response
from protocol.transport.dispatch import RequestContext
from runtime.clock import Clock
from runtime.errors import InvariantViolated, invariant
from runtime.log import get_logger
from runtime.metrics import Family, Kind
from runtime.tasks import Supervisor

R = TypeVar("R", bound=Response)

WORK_PER_SLICE: Final = 100
"""Records replayed, or members started, before other work gets its turn: below 5 ms."""
BYTES_PER_RECORD: Final = 50
"""A bigger record counts as several: the record of a group contains all of its members."""
LOAD_PAUSE_S: Final = 1.0
"""Backoff before records are read again after a disk error; doubled after each further one."""
LOAD_PAUSE_MAX_S: Final = 60.0
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

_log = get_logger("broker.coordinators.group")


class _InFlight:
    """A decision whose records are appended and not yet committed.

    - `state`: hard state after it.
    - `reply`: future of the caller's response.
    - `settled`: the outcome of the append is known, and everything before it is settled too.
    """

    __slots__ = (
        "appended",
        "deadline_ms",
        "decision",
        "reply",
        "settled",
        "state",
        "timed_out",
    )

    def __init__(
        self,
        decision: Decision,
        appended: asyncio.Future[None],
        state: HardState,
        deadline_ms: float,
    ) -> None:
        self.decision = decision
        self.appended = appended
        self.state = state
        self.deadline_ms = deadline_ms
        self.reply: asyncio.Future[Response] | None = None
        self.settled = False
        self.timed_out = False


class _Slot:
    """A partition this broker leads.

    - `shard`: the groups, None while they are being loaded.
    - `topics_deleted`: names of topics that were deleted in that time.
    - `deleted`: deletions that an earlier shard has seen.
    - `look_for_stale`: offsets of deleted topics may be here.
    - `forgetting`: a task deletes such offsets.
    - `patient`: entries of `in_flight` whose deadline is still to come, in its order; settled ones
      may be among them.
    """

    __slots__ = (
        "deleted",
        "epoch",
        "forgetting",
        "in_flight",
        "look_for_stale",
        "partition",
        "patient",
        "shard",
        "topics_deleted",
        "wake",
        "wake_ms",
    )

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard: GroupShard | None = None
        self.in_flight: deque[_InFlight] = deque()
        self.patient: deque[_InFlight] = deque()
        self.topics_deleted: set[str] = set()
        self.deleted: list[DeletedTopics] = []
        self.look_for_stale = False
        self.forgetting = False
        self.wake: asyncio.TimerHandle | None = None
        self.wake_ms = 0.0

    def next_timeout(self) -> _InFlight | None:
        """Return the append that times out next."""
        while self.patient and self.patient[0].settled:
            self.patient.popleft()
        return self.patient[0] if self.patient else None

    def loaded(self) -> GroupShard:
        """Return the shard. Raises InvariantViolated if it is not loaded."""
        if self.shard is None:
            raise InvariantViolated(f"partition {self.partition} is not loaded yet")
        return self.shard


class GroupCoordinator:
    """The coordinator of a broker's groups. Call `start` once the log exists; all other calls are
    synchronous, from the loop."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        clock: Clock,
        rng: random.Random,
        log: CoordinatorLog,
        supervisor: Supervisor,
        topics: TopicLookup,
    ) -> None:
        self.config = config
        self._topics = topics
        self._clock = clock
        self._rng = rng
        self._store = log
        self._supervisor = supervisor
        self._slots: dict[int, _Slot] = {}
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._last_ticket = 0
        self._closed = False

    def start(self) -> None:
        """Start to listen for leadership and to search for expired offsets."""
        self._store.add_listener(self)
        self._supervisor.spawn("expire offsets", self._expire_for_ever())

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and stop."""
        self._closed = True
        for slot in list(self._slots.values()):
            self._drop(slot, ErrorCode.NOT_COORDINATOR)
        self._slots.clear()

    # -- leadership

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Load the records of `partition`, which this broker now leads, unless they are loaded
        already."""
        slot = self._slots.get(partition)
        if self._closed or (slot is not None and slot.epoch >= leader_epoch):
            return
        if slot is not None and slot.shard is not None:
            # The same leader in a newer epoch: no other broker wrote in between.
            slot.epoch = leader_epoch
            return
        self._begin_loading(partition, leader_epoch, slot)

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Drop the groups of `partition`: another broker leads it since `leader_epoch`, or it was
        deleted."""
        slot = self._slots.get(partition)
        if slot is None or (leader_epoch is not None and leader_epoch < slot.epoch):
            return
        del self._slots[partition]
        self._drop(slot, ErrorCode.NOT_COORDINATOR)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Delete the offsets of topics with these names, which have been deleted and are missing in
        the metadata image."""
        for slot in list(self._slots.values()):
            if slot.shard is None:
                slot.topics_deleted.update(names)
            else:
                slot.shard.topics_deleted(names)
                self._forget_stale(slot, slot.shard)

    def _forget_stale(self, slot: _Slot, shard: GroupShard) -> None:
        """Start the task that deletes the offsets of deleted topics, or make the running one search
        again."""
        slot.look_for_stale = True
        if not slot.forgetting:
            slot.forgetting = True
            self._supervisor.spawn(
                f"forget offsets of partition {slot.partition}", self._forget(slot, shard)
            )

    async def _forget(self, slot: _Slot, shard: GroupShard) -> None:
        """Append all tombstones, with retries. Ends early if the shard is dropped: the next one
        searches again."""
        pause_s = LOAD_PAUSE_S
        while slot.shard is shard and slot.look_for_stale:
            slot.look_for_stale = False
            deleted, whole = list(shard.core.deleted), False
            try:
                whole = await self._in_slices(slot, shard, shard.decide_stale())
            except Exception as error:  # noqa: BLE001 - the log may contain any bytes of clients
                self._supervisor.survive("offsets of deleted topics", error)
            if whole:
                shard.forgotten(deleted)
                pause_s = LOAD_PAUSE_S
            elif slot.shard is shard:
                slot.look_for_stale = True
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOAD_PAUSE_MAX_S)
        slot.forgetting = False

    async def _in_slices(
        self, slot: _Slot, shard: GroupShard, decisions: Iterator[Decision]
    ) -> bool:
        """Carry out one decision after the other, as long as the shard is in use. Returns: True if
        it was in use to the end, and no append was refused."""
        whole = True
        while slot.shard is shard and (decision := next(decisions, None)) is not None:
            before = shard.appended
            self._carry_out(slot, decision)
            whole = whole and not (decision.records and shard.appended is before)
            await asyncio.sleep(0)
        return whole and slot.shard is shard

    def _begin_loading(self, partition: int, epoch: int, earlier: _Slot | None = None) -> None:
        """Start loading the groups of a partition; `earlier` is the slot that the new one
        replaces."""
        slot = self._slots[partition] = _Slot(partition, epoch)
        if earlier is not None:
            slot.topics_deleted, slot.deleted = earlier.topics_deleted, earlier.deleted
        self._supervisor.spawn(f"load groups of partition {partition}", self._load(slot))

    async def _load(self, slot: _Slot) -> None:
        """Load a shard with retries, until it is there, its records are invalid, or the slot is
        dropped."""
        pause_s = LOAD_PAUSE_S
        while not await self._load_once(slot):
            await asyncio.sleep(pause_s)
            if self._slots.get(slot.partition) is not slot:
                return
            pause_s = min(2 * pause_s, LOAD_PAUSE_MAX_S)

    async def _load_once(self, slot: _Slot) -> bool:
        """Try to load the shard once. Returns: False if the load must be repeated, because a disk
        error may be temporary. The slot then stays, and clients get COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = GroupShard(self.config, self._new_uuid, self._topics)
        began_ms = self._clock.monotonic_ms()
        count = work = 0
        try:
            async for entry in self._store.read_all(slot.partition):
                work += _replay(shard, entry)
                count += 1
                if work >= WORK_PER_SLICE:
                    work = 0
                    await asyncio.sleep(0)
            await self._revive(shard)
        except (ApiError, ProtocolError, InvariantViolated) as error:
            # Other programs wrote the log: only this partition's groups may suffer from its
            # content.
            if self._slots.get(slot.partition) is not slot:
                return True
            again = isinstance(error, ApiError)
            if not again:
                del self._slots[slot.partition]
            _log.error(
                "cannot load groups",
                partition=slot.partition,
                after_records=count,
                error=str(error),
                tries_again=again,
            )
            return not again
        except Exception as error:  # noqa: BLE001 - one partition's records must not stop the others
            self._supervisor.survive("group records", error, partition=slot.partition, after=count)
            if self._slots.get(slot.partition) is slot:
                del self._slots[slot.partition]
            return True
        if self._slots.get(slot.partition) is slot:
            self._take(slot, shard, count, began_ms)
        return True

    def _take(self, slot: _Slot, shard: GroupShard, count: int, began_ms: float) -> None:
        """Put a loaded shard into service."""
        slot.shard = shard
        self._set_wake(slot)
        shard.deleted_before(slot.deleted)
        if slot.topics_deleted:
            shard.topics_deleted(slot.topics_deleted)
        slot.topics_deleted, slot.deleted = set(), []
        self._forget_stale(slot, shard)
        _log.info(
            "loaded groups",
            partition=slot.partition,
            leader_epoch=slot.epoch,
            records=count,
            groups=len(shard.core.groups),
            took_ms=round(self._clock.monotonic_ms() - began_ms, 1),
        )

    async def _revive(self, shard: GroupShard) -> None:
        work = 0
        for group_id in shard.replayed():
            work += 1 + shard.revive(group_id, self._now())
            if work >= WORK_PER_SLICE:
                work = 0
                await asyncio.sleep(0)

    def _drop(self, slot: _Slot, code: ErrorCode) -> None:
        """Answer every request that waits for this slot. The caller has removed it from `_slots`,
        or does so."""
        if slot.wake is not None:
            slot.wake.cancel()
        if slot.shard is not None:
            slot.deleted = slot.shard.core.deleted
            self._send(slot.shard.abandon(code).answers)
        while slot.in_flight:
            self._fail_reply(slot.in_flight.popleft(), code)
        slot.patient.clear()
        slot.shard = None

    # -- carrying out decisions

    def _carry_out(
        self, slot: _Slot, decision: Decision
    ) -> Response | asyncio.Future[Response] | None:
        """Send the answers and append the records. Returns the reply, or a future for it."""
        shard = slot.loaded()
        self._send(decision.answers)
        now = self._now()
        if not decision.records:
            if decision.on_failure is None or not slot.in_flight:
                self._set_wake(slot)
                return decision.reply
            return self._enqueue(slot, decision, slot.in_flight[-1].appended, now)
        try:
            appended = self._store.append(
                slot.partition, [encode_record(each) for each in decision.records], now.wall_ms
            )
        except ApiError as error:
            return self._refused(slot, shard, decision, _client_code(error.code))
        except EncodeError as error:
            _log.error("a record cannot be written", partition=slot.partition, error=str(error))
            return self._refused(slot, shard, decision, ErrorCode.UNKNOWN_SERVER_ERROR)
        shard.apply(decision.records, now)
        return self._enqueue(slot, decision, appended, now)

    def _enqueue(
        self, slot: _Slot, decision: Decision, appended: asyncio.Future[None], now: Now
    ) -> Response | asyncio.Future[Response] | None:
        """Let the reply wait for `appended`, after everything that was appended before."""
        state = slot.loaded().appended
        deadline_ms = now.monotonic_ms + self.config.offsets_commit_timeout_ms
        entry = _InFlight(decision, appended, state, deadline_ms)
        slot.in_flight.append(entry)
        slot.patient.append(entry)
        if appended.done():
            self._collect(slot)
        if not entry.settled:
            appended.add_done_callback(partial(self._on_appended, slot))
        self._set_wake(slot)
        return self._reply_of(entry)

    def _reply_of(self, entry: _InFlight) -> Response | asyncio.Future[Response] | None:
        if entry.decision.reply is None or entry.settled:
            return entry.decision.reply
        entry.reply = asyncio.get_running_loop().create_future()
        return entry.reply

    def _refused(
        self, slot: _Slot, shard: GroupShard, decision: Decision, code: ErrorCode
    ) -> Response | None:
        follow = shard.failed(decision, code, self._now())
        self._carry_out(slot, follow)
        return None if decision.on_failure is None else decision.on_failure(code)

    def _on_appended(self, slot: _Slot, _appended: asyncio.Future[None]) -> None:
        if slot.shard is not None:
            self._collect(slot)
            self._set_wake(slot)
        elif not _appended.cancelled():
            _appended.exception()  # The waiting requests were answered when the slot was dropped.

    def _collect(self, slot: _Slot) -> None:
        """Process committed appends, in their order."""
        while slot.in_flight and slot.in_flight[0].appended.done():
            entry = slot.in_flight.popleft()
            entry.settled = True
            error = None if entry.appended.cancelled() else entry.appended.exception()
            if entry.appended.cancelled() or error is not None:
                self._lost(slot, entry, error)
                return
            self._committed(slot, entry)

    def _committed(self, slot: _Slot, entry: _InFlight) -> None:
        decision = Decision() if entry.timed_out else entry.decision
        follow = slot.loaded().committed(entry.state, decision, self._now())
        if entry.reply is not None and not entry.reply.done() and entry.decision.reply is not None:
            entry.reply.set_result(entry.decision.reply)
        self._carry_out(slot, follow)

    def _lost(self, slot: _Slot, entry: _InFlight, error: BaseException | None) -> None:
        code = ErrorCode.NOT_COORDINATOR
        if isinstance(error, ApiError):
            code = _client_code(error.code)
        _log.warning(
            "an append was lost, groups are loaded again",
            partition=slot.partition,
            leader_epoch=slot.epoch,
            error=str(error),
        )
        self._fail_reply(entry, code)
        del self._slots[slot.partition]
        self._drop(slot, code)
        epoch = self._store.leader_epoch(slot.partition)
        if epoch is not None and not self._closed:
            self._begin_loading(slot.partition, epoch, slot)

    @staticmethod
    def _fail_reply(entry: _InFlight, code: ErrorCode) -> None:
        entry.settled = True
        if entry.decision.on_failure is None:
            return
        if entry.reply is None:
            # The append failed while the request was being served: `_reply_of` returns this.
            entry.decision.reply = entry.decision.on_failure(code)
        elif not entry.reply.done():
            entry.reply.set_result(entry.decision.on_failure(code))

    def _send(self, answers: Iterable[Answer]) -> None:
        for ticket, response in answers:
            future = self._waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(response)

    # -- time

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.now_ms())

    def _set_wake(self, slot: _Slot) -> None:
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
        slot.wake = asyncio.get_running_loop().call_later(delay_s, self._on_wake, slot)

    def _on_wake(self, slot: _Slot) -> None:
        slot.wake = None
        shard = slot.shard
        if shard is None:
            return
        now = self._now()
        for _ in range(DUE_PER_WAKE):
            if slot.shard is not shard or not self._serve_due(slot, shard, now):
                break
        self._set_wake(slot)

    def _serve_due(self, slot: _Slot, shard: GroupShard, now: Now) -> bool:
        """Process one append that timed out and one timer; return False when nothing is due."""
        entry = slot.next_timeout()
        late = entry is not None and entry.deadline_ms <= now.monotonic_ms
        if late and entry is not None:
            self._time_out(slot, shard, entry, now)
        decision = shard.on_deadline(now) if slot.shard is shard else None
        if decision is not None:
            self._carry_out(slot, decision)
        return late or decision is not None

    def _time_out(self, slot: _Slot, shard: GroupShard, entry: _InFlight, now: Now) -> None:
        slot.patient.popleft()
        entry.timed_out = True
        code = _client_code(ErrorCode.REQUEST_TIMED_OUT)
        self._fail_reply(entry, code)
        self._carry_out(slot, shard.timed_out(entry.decision, code, now))

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000.0)
            try:
                await self.expire_offsets()
            except Exception as error:  # noqa: BLE001 - what expires is what clients committed
                self._supervisor.survive("expiry of offsets", error)

    async def expire_offsets(self) -> None:
        """Delete expired offsets and groups of all shards once, in slices."""
        for slot in list(self._slots.values()):
            shard = slot.shard
            if shard is not None:
                group_ids = shard.expirable_groups()
                decisions = shard.decide_expired(group_ids, self._now())
                await self._in_slices(slot, shard, decisions)

    # -- requests

    def ask(
        self,
        group_id: str,
        decide: Callable[[GroupShard, Now], Decision],
        refuse: Callable[[ErrorCode], R],
    ) -> R | asyncio.Future[R]:
        """Let the shard of `group_id` decide and carry it out. Not for decisions that wait."""
        slot, shard = self._find(group_id)
        if slot is None or isinstance(shard, ErrorCode):
            return refuse(shard if isinstance(shard, ErrorCode) else ErrorCode.NOT_COORDINATOR)
        reply = self._carry_out(slot, decide(shard, self._now()))
        invariant(reply is not None, f"a decision for group {group_id} has no response")
        return cast("R | asyncio.Future[R]", reply)

    def ask_and_wait(
        self,
        group_id: str,
        context: RequestContext,
        decide: Callable[[GroupShard, Caller, Now], Decision],
        refuse: Callable[[ErrorCode], R],
    ) -> R | asyncio.Future[R]:
        """Do the same as `ask`, for callers that may have to wait for other members."""
        slot, shard = self._find(group_id)
        if slot is None or isinstance(shard, ErrorCode):
            return refuse(shard if isinstance(shard, ErrorCode) else ErrorCode.NOT_COORDINATOR)
        self._last_ticket += 1
        ticket = self._last_ticket
        caller = caller_of(context, ticket)
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        decision = decide(shard, caller, self._now())
        if decision.reply is not None:
            del self._waiting[ticket]
        reply = self._carry_out(slot, decision)
        return cast("R | asyncio.Future[R]", future if reply is None else reply)

    def view(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the shard of `group_id` for reading, or the error code if there is no shard
        here."""
        return self._find(group_id)[1]

    def shards(self) -> tuple[list[GroupShard], bool]:
        """Return all loaded shards, and whether others are still loading."""
        shards = [slot.shard for slot in self._slots.values() if slot.shard is not None]
        return shards, len(shards) < len(self._slots)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer a heartbeat. It is by far the most frequent request, so it needs no decision and
        no future."""
        slot, shard = self._find(request.group_id)
        if slot is None or isinstance(shard, ErrorCode):
            code = shard if isinstance(shard, ErrorCode) else ErrorCode.NOT_COORDINATOR
            return HeartbeatResponse(error_code=code)
        response = shard.decide_heartbeat(request, self._now())
        self._set_wake(slot)
        return response

    def _find(self, group_id: str) -> tuple[_Slot | None, GroupShard | ErrorCode]:
        count = self._store.partition_count()
        if count is None:
            return None, ErrorCode.NOT_COORDINATOR
        slot = self._slots.get(partition_for(group_id, count))
        if slot is None:
            return None, ErrorCode.NOT_COORDINATOR
        return slot, slot.shard or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _new_uuid(self) -> str:
        text = random_uuid(self._rng).hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # -- metrics

    def collect(self) -> Iterator[Family | None]:
        """Yield counts over all loaded shards, under the names Kafka's MBeans get in Prometheus.
        Yields None between shards, so that other work can run."""
        states = dict.fromkeys(GroupState, 0)
        offsets = commits = expired = deleted = rebalances = 0
        shards, _ = self.shards()
        for shard in shards:
            for state, count in shard.count_by_state().items():
                states[state] += count
            counters = shard.core.counters
            offsets += shard.core.committed.offset_count()
            commits += counters.offset_commits
            expired += counters.offset_expirations
            deleted += counters.offset_deletions
            rebalances += counters.completed_rebalances
            yield None
        manager = "kafka_coordinator_group_groupmetadatamanager_num"
        group = "kafka_server_group_coordinator_metrics_"
        yield from (
            _family(manager + "groups", "Groups", "gauge", sum(states.values())),
            _family(manager + "offsets", "Committed offsets", "gauge", offsets),
            _family(group + "offset_commit_count", "Offsets committed", "counter", commits),
            _family(group + "offset_expiration_count", "Offsets expired", "counter", expired),
            _family(group + "offset_deletion_count", "Offsets deleted", "counter", deleted),
            _family(
                group + "group_completed_rebalance_count", "Join phases", "counter", rebalances
            ),
        )
        for state, count in states.items():
            name = f"{manager}groups{state.value.lower()}"
            yield _family(name, f"Groups in state {state.value}", "gauge", count)


def _replay(shard: GroupShard, entry: LogEntry) -> int:
    """Replay an entry; return the amount of work, in small records."""
    if isinstance(entry, EndOfTransaction):
        shard.replay_end_of_transaction(entry.producer_id, committed=entry.committed)
        return 1
    if entry.key is None:
        return 1
    shard.replay(entry.key, entry.value, producer_id=entry.producer_id, log_offset=entry.offset)
    return 1 + len(entry.value or b"") // BYTES_PER_RECORD


def _family(name: str, help: str, kind: Kind, value: float) -> Family:
    return Family(name, help, kind, [({}, value)])


def caller_of(context: RequestContext, ticket: int = 0) -> Caller:
    """Return the caller for the core. The host gets the leading slash that Java writes."""
    return Caller(ticket, context.api_version, context.client_id or "", "/" + context.client_host)


def _client_code(code: ErrorCode) -> ErrorCode:
    return _APPEND_ERRORS.get(code, code)
