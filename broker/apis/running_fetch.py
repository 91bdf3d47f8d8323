"""One Fetch request from its arrival to its answer, as a consumer sends it.

It reads each partition of its plan, answers when that is enough, and waits otherwise.
`follower_fetch` overrides this for followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from broker.apis.fetch_plan import (
    ColdData,
    Place,
    Refused,
    Wish,
    fitted,
    place_of,
    plan_reads,
    still_holds,
)
from broker.apis.fetch_reads import Arrived, FetchReads
from broker.apis.leader_hints import LeaderHints
from broker.apis.recent_read import RecentRead
from broker.context import BrokerContext
from broker.quota.enforcer import quota_user
from broker.quota.quotas import QuotaKind
from broker.replication.partition.partition import Partition
from broker.replication.reading.replica_selector import nearest_replica
from broker.replication.sessions.fetch_session import FetchPlan, FetchSession, PartitionKey
from broker.replication.sessions.session_watch import LoneWatch
from broker.replication.waiting.waits import FetchWait
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.schema import Buffer
from protocol.transport.dispatch import Body, Reply, RequestContext
from runtime.marks import mark
from storage.log.errors import BelowLocalStart, OffsetOutOfRange

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteRead, RemoteReader
    from storage.log.indexes import AbortedTxn
    from storage.log.log import Log

RACKS_SINCE: Final = 11
DIVERGENCE_SINCE: Final = 12
LEADERS_SINCE: Final = 16

PARTITION_BYTES: Final = 64
"""Size of a partition in a response apart from its records; quotas count it."""

READ_COMMITTED: Final = 1

COLD_READS_MS: Final = 10_000.0
"""How long a fetch waits for a disk before it answers without the missing data. It is less than the
timeout of clients and followers, so that they receive the other partitions."""
CACHED_BYTES_MAX: Final = 4 << 20
"""Limit for older data read on the loop if the page cache has it: a millisecond."""
MOVED_HERE_MS: Final = 100.0
"""For this time after a consumer has requested the ends of leader epochs, its fetches wait
shortly."""
MOVED_WAIT_MS: Final = 10.0
"""How long they wait then. The consumer requests epochs when partitions have moved, and has one
fetch in flight per broker. The partitions would wait for its end, half a second by default."""

PartitionData = FetchResponse.PartitionData
Wanted = FetchRequest.FetchPartition
Read = tuple[PartitionKey, PartitionData]

# Shared by all answers, which never change them: an object per field and partition is expensive.
NO_DIVERGENCE: Final = FetchResponse.EpochEndOffset()
_NO_LEADER: Final = FetchResponse.LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchResponse.SnapshotId()

_news = attrgetter(*(f.name for f in PartitionData.FIELDS if f.name != "records"))
"""Fields that a session compares: every field of the schema but the record bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchShared:
    """Dependencies that all fetches of a broker share."""

    broker: BrokerContext
    hints: LeaderHints
    response_bytes_max: int
    rack_aware: bool
    local_log_aware: bool = False
    recent: RecentRead = field(default_factory=RecentRead)


class RunningFetch:
    """One request from its arrival to its answer."""

    __slots__ = (
        "_answered",
        "_arrived",
        "_arriving",
        "_broker",
        "_broker_epoch",
        "_bytes",
        "_bytes_max",
        "_bytes_min",
        "_context",
        "_deadline_ms",
        "_due",
        "_future",
        "_must_answer",
        "_nearby",
        "_plan",
        "_queued",
        "_reads",
        "_replica_id",
        "_request",
        "_rested",
        "_shared",
    )

    def __init__(
        self,
        shared: FetchShared,
        context: RequestContext,
        request: FetchRequest,
        plan: FetchPlan[Wanted],
        replica_id: int,
        broker_epoch: int,
    ) -> None:
        self._shared = shared
        self._broker = shared.broker
        self._context = context
        self._request = request
        self._plan = plan
        self._replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._bytes_max = self._most()
        # The response cannot exceed the limit, so do not wait for more.
        self._bytes_min = min(request.min_bytes, max(self._bytes_max, 0))
        self._deadline_ms = 0.0
        self._due: list[tuple[PartitionKey, Wanted]] = []
        self._future: asyncio.Future[Body] | None = None
        self._queued = False
        self._arriving = True
        self._arrived: dict[PartitionKey, Arrived | None] = {}
        self._reads: list[Read] = []
        self._bytes = 0
        self._must_answer = False
        self._rested = False
        """True if nothing was read before it waited."""
        self._nearby: Callable[[Partition, Wanted], int | None] | None = None
        if shared.rack_aware and replica_id < 0 and request.rack_id:
            self._nearby = self._nearest

    def _most(self) -> int:
        most = min(self._request.max_bytes, self._shared.response_bytes_max)
        quotas, context = self._broker.quotas, self._context
        if self._replica_id >= 0 or not quotas.active:
            return most
        of_quota = quotas.most_at_once(
            QuotaKind.FETCH, quota_user(context), context.client_id or ""
        )
        return most if of_quota is None else min(most, int(of_quota))

    def start(self) -> Reply:
        """Read once; return the answer, or a future for it."""
        self._due = self._first_due()
        if not self._rests():
            if self._is_elsewhere():
                return self._read_elsewhere()
            self._read_all()
            if self._is_answered():
                return self._response()
        self._future = self._broker.waits.new_future()
        self._hold_for_news()
        return self._future

    def _rests(self) -> bool:
        """Return whether nothing has to be read, refused or reported before it waits."""
        return False

    def _is_answered(self) -> bool:
        """Return whether the first read is enough for an answer at once."""
        return self._enough or self._request.max_wait_ms <= 0 or self._wants_nothing()

    def _wants_nothing(self) -> bool:
        return self._plan.session is None and not self._plan.partitions

    @property
    def _enough(self) -> bool:
        return self._must_answer or self._bytes >= self._bytes_min

    # --- data that is on the disk, probably not in the page cache, or in the tier -------------

    def _is_elsewhere(self) -> bool:
        """Return whether any data needs a worker or the tier. Data that was read before, or read
        ahead, is in the page cache, and costs less on the loop than a worker does."""
        left = CACHED_BYTES_MAX
        for key, wanted in self._due:
            partition = self._broker.replicas.known(*key)
            if partition is None or not partition.is_readable:
                continue
            log, offset = partition.log, wanted.fetch_offset
            place = place_of(log, offset)
            if place is Place.REMOTE:
                if self._reader() is not None:
                    return True
            elif place is Place.COLD:
                most = max(0, min(wanted.partition_max_bytes, self._bytes_max))
                try:
                    size = log.reader.cached_bytes(offset, most, left)
                except ApiError:
                    return True  # the read will find and report this error
                if size is None:
                    return True
                left -= size
        return False

    def _reader(self) -> RemoteReader | None:
        """Return the reader of the tier for this fetch, or None."""
        tier = self._broker.tier
        return None if tier is None else tier.reader

    def _read_elsewhere(self) -> asyncio.Future[Body]:
        """Start the reads in workers and from the tier; afterwards everything is read as usual.

        That later read decides what may be sent, not the state before.
        """
        waits = self._broker.waits
        future = self._future = waits.new_future()
        reader, now_ms = self._reader(), self._broker.clock.monotonic_ms()
        remote = reader is not None and reader.has_room
        planned = plan_reads(self._wishes(), self._bytes_max, remote=remote)
        reads = FetchReads(
            planned,
            self._broker.supervisor,
            reader,
            over=self._reads_over_soon,
            late=self._reads_late,
            cancel=future.cancel,
            committed=self._request.isolation_level == READ_COMMITTED,
        )
        deadline_ms = self._deadline_ms = now_ms + COLD_READS_MS
        if reader is not None and reads.has_remote:
            deadline_ms = now_ms + reader.fetch_wait_ms
        waits.hold(reads, deadline_ms, self._context.connection)
        if reads.finished:
            self._reads_over_soon(reads)
        return future

    def _reads_late(self, reads: FetchReads) -> None:
        """Stop waiting for the store; a disk may have more time."""
        if reads.waits_for_disk and self._broker.clock.monotonic_ms() < self._deadline_ms:
            self._broker.waits.hold(reads, self._deadline_ms, self._context.connection)
        else:
            self._reads_over_soon(reads)

    def _reads_over_soon(self, reads: FetchReads) -> None:
        if not self._queued:
            self._queued = True
            self._broker.waits.soon(lambda: self._reads_over(reads))

    def _wishes(self) -> Iterator[Wish]:
        """Yield the partitions that may be read, as far as that is known in advance."""
        for key, wanted in self._due:
            try:
                partition = self._find(key)
                self._log_for(partition, wanted)
            except ApiError:
                continue
            if self._nearby is None or self._nearby(partition, wanted) is None:
                end = self._visible_end(partition)
                most = wanted.partition_max_bytes
                yield Wish(key, partition, wanted.fetch_offset, most, end)

    def _reads_over(self, reads: FetchReads) -> None:
        """Read and answer after all data has arrived, or its time is up."""
        self._queued = False
        future = self._future
        reads.leave()
        self._broker.waits.purgatory.remove(reads)
        if future is None or future.done():
            return
        if reads.failure is not None:
            future.set_exception(reads.failure)
            return
        self._arrived = reads.results
        # A late disk is not read again on the loop, and data in the tier can only be sent by the
        # next fetch.
        over = reads.has_remote or None in reads.results.values()
        try:
            self._read_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not hang on it
            future.set_exception(error)
            return
        if over or self._is_answered():
            future.set_result(self._response())
        else:
            self._hold_for_news()

    # --- waiting ------------------------------------------------------------------------------

    def _hold_for_news(self) -> None:
        """Wait for as long as the request allows. The wait is shorter if the consumer is about to
        name partitions that have moved here, because it sends no other fetch next to this one."""
        now_ms, wait_ms = self._broker.clock.monotonic_ms(), float(self._request.max_wait_ms)
        if (
            self._replica_id < 0
            and now_ms < self._context.connection.asked_epochs_ms + MOVED_HERE_MS
        ):
            wait_ms = min(wait_ms, MOVED_WAIT_MS)
        self._deadline_ms = now_ms + wait_ms
        self._hold()

    def _hold(self) -> None:
        self._arriving = False
        if self._bytes:
            self._reads = []
        assert self._future is not None
        wait = FetchWait(self._bytes_min - self._bytes, self._ready, self._future.cancel)
        self._register(wait)
        if self._replica_id < 0:
            # A consumer whose partitions have moved queries their new leaders for its position.
            # These requests queue behind its waiting fetches, for half a second each if there is
            # nothing to read.
            self._context.connection.add_behind_callback(wait.interrupt)
        self._broker.waits.hold(wait, self._deadline_ms, self._context.connection)

    def _register(self, wait: FetchWait) -> None:
        """Subscribe `wait` to the partitions."""
        session = self._plan.session
        watch = None if session is None else session.watch
        if watch is None or watch.over:
            watch = LoneWatch(replica=self._replica_id >= 0)
        for key, _ in self._due:
            partition = self._local(key)
            if partition is not None:
                watch.cover(key, partition)
        watch.add_fetch_wait(wait)

    def _ready(self, wait: FetchWait) -> None:
        if not self._queued:
            self._queued = True
            self._broker.waits.soon(lambda: self._finish(wait))

    def _finish(self, wait: FetchWait) -> None:
        """Read again after a notification or at the deadline; answer, or wait on."""
        self._queued = False
        self._context.connection.remove_behind_callback(wait.interrupt)
        future = self._future
        if future is None or future.done() or wait.over:
            return
        self._broker.waits.purgatory.remove(wait)
        wait.leave()
        if wait.superseded:
            # The session's next fetch has read the partitions and reports their news.
            self._reads = []
            future.set_result(self._response())
            return
        if wait.timed_out and not (wait.touched or self._bytes or self._rested):
            # The results of the first read are still valid.
            future.set_result(self._response())
            return
        try:
            self._due = self._with_news()
            self._read_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not hang on it
            future.set_exception(error)
            return
        if self._enough or wait.timed_out or wait.interrupted:
            future.set_result(self._response())
        else:
            self._hold()

    def _local(self, key: PartitionKey) -> Partition | None:
        return self._broker.replicas.known(*key)

    # --- reading ------------------------------------------------------------------------------

    def _find(self, key: PartitionKey) -> Partition:
        topic, index = key
        replicas = self._broker.replicas
        if isinstance(topic, bytes):
            return replicas.find_by_id(topic, index)
        return replicas.find(topic, index)

    def _first_due(self) -> list[tuple[PartitionKey, Wanted]]:
        """Return the partitions to check for this request. A consumer's session leaves out those
        that it has read to the end and whose state it knows: nearly all of a thousand, nearly
        always."""
        plan, session = self._plan, self._plan.session
        if session is None:
            return plan.partitions
        watch = session.watch
        if watch.wait is not None:
            watch.wait.supersede()
        watch.count_others()
        committed = self._request.isolation_level == READ_COMMITTED
        if watch.committed is committed:
            return plan.partitions
        watch.committed = committed
        watch.requested(session.partitions, ())
        return session.to_look_at()

    def _with_news(self) -> list[tuple[PartitionKey, Wanted]]:
        """Return the partitions to check after a wait: all for a full answer. If the session, which
        would have been notified, has ended in the meantime, it returns the previous ones."""
        plan = self._plan
        if plan.session is None or not plan.incremental:
            return plan.partitions
        return self._due if plan.session.watch.over else plan.session.to_look_at()

    def _read_all(self) -> None:
        limit = self._bytes_max
        reads: list[Read] = []
        total = 0
        self._must_answer = False
        for key, wanted in self._due:
            partition: Partition | None = None
            try:
                partition = self._find(key)
                partition.counters.fetches += 1
                data = self._read(partition, key, wanted, limit - total, min_one_batch=total == 0)
            except ApiError as error:
                if partition is not None:
                    partition.counters.failed_fetches += 1
                data = self._refusal(partition, wanted, error.code)
                self._must_answer = True
            else:
                records = data.records
                if records:
                    total += len(records)
                elif _is_turned_away(data):
                    self._must_answer = True
            reads.append((key, data))
        self._reads = reads
        self._bytes = total

    def _read(
        self,
        partition: Partition,
        key: PartitionKey,
        wanted: Wanted,
        budget: int,
        *,
        min_one_batch: bool,
    ) -> PartitionData:
        follower = self._replica_id >= 0
        log = self._log_for(partition, wanted)
        if self._nearby is not None and (nearer := self._nearby(partition, wanted)) is not None:
            data = self._facts(partition, b"", NO_DIVERGENCE)
            data.preferred_read_replica = nearer
            return data
        # A session may know the epoch from an earlier request in a newer version.
        if wanted.last_fetched_epoch >= 0 and self._context.api_version >= DIVERGENCE_SINCE:
            diverging = _divergence(partition, wanted)
            if diverging is not None:
                return self._facts(partition, b"", diverging)
        end = self._visible_end(partition)
        offset = wanted.fetch_offset
        limit = max(0, min(budget, wanted.partition_max_bytes))
        aborted: Sequence[AbortedTxn] | None = None
        records: Buffer
        if self._arrived and key in self._arrived:
            records, aborted = self._take_arrived(key, log, offset, end, limit, min_one_batch)
        elif offset == log.log_end_offset:
            records = b""
        else:
            records = self._read_here(log, offset, end, limit, min_one_batch)
        if follower and self._arriving:
            # A fetch proves the follower's progress when it arrives; a read after a wait adds
            # nothing.
            self._follower_fetched(key, partition, wanted)
        data = self._facts(partition, records, NO_DIVERGENCE)
        if not follower and self._request.isolation_level == READ_COMMITTED:
            # Up to `end`, which may be more than was read: a reader ignores those that it does not
            # meet.
            if aborted is None:
                aborted = log.reader.aborted_transactions(offset, end) if records else ()
            data.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=one[0], first_offset=one[1])
                for one in aborted
            ]
        return data

    def _refusal(
        self, partition: Partition | None, wanted: Wanted, code: ErrorCode
    ) -> PartitionData:
        """Return an answer without data. Only followers handle data in the tier. For a consumer
        without access to it the offset is out of range, as in Kafka."""
        if code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        return failure(wanted.partition, code)

    def _read_here(self, log: Log, offset: int, end: int, limit: int, min_one_batch: bool) -> bytes:
        try:
            return self._shared.recent.read(
                log, offset, limit, max_offset=end, min_one_batch=min_one_batch
            )
        except BelowLocalStart:
            if self._reader() is None:
                raise
            return b""  # the data is in the tier, which is not read now

    def _take_arrived(
        self,
        key: PartitionKey,
        log: Log,
        offset: int,
        end: int,
        limit: int,
        min_one_batch: bool,
    ) -> tuple[Buffer, Sequence[AbortedTxn] | None]:
        """Return the data read in a worker or from the tier, if it is still the log's data there,
        and the aborted transactions that came with it."""
        arrived = self._arrived.pop(key)
        if arrived is None:
            return b"", None
        if isinstance(arrived, Refused):
            raise ApiError(arrived.code)
        if not isinstance(arrived, ColdData):
            return self._take_remote(arrived, log, offset, end, limit, min_one_batch)
        if not still_holds(arrived, log, offset) or isinstance(arrived.error, BelowLocalStart):
            return self._read_here(log, offset, end, limit, min_one_batch), None
        if arrived.error is not None:
            raise ApiError(
                arrived.error.code
            )  # a new exception: the stored one must not keep this fetch in memory
        records = arrived.records if offset < end else b""
        return fitted(records, limit, whole_first=min_one_batch), None

    def _take_remote(
        self,
        read: RemoteRead,
        log: Log,
        offset: int,
        end: int,
        limit: int,
        min_one_batch: bool,
    ) -> tuple[Buffer, Sequence[AbortedTxn]]:
        reader, window = self._reader(), read.window
        if read.error is not None:
            raise ApiError(read.error)
        if window is None or reader is None or not reader.holds(window, log, offset):
            if offset < log.log_start_offset:
                raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
            return b"", ()  # the next fetch reads it again
        cut = window.cut(offset, limit)
        if cut is None or cut.last_offset >= end:
            return b"", ()
        records = fitted(cut.records, limit, whole_first=min_one_batch)
        if records:
            reader.taken(read, cut.last_offset)
        return records, cut.aborted

    def _visible_end(self, partition: Partition) -> int:
        log = partition.log
        if self._request.isolation_level == READ_COMMITTED:
            return log.last_stable_offset
        return log.high_watermark

    def _facts(
        self, partition: Partition, records: Buffer, diverging: FetchResponse.EpochEndOffset
    ) -> PartitionData:
        log = partition.log
        return PartitionData(
            partition_index=partition.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=None,
            records=records,
        )

    def _log_for(self, partition: Partition, wanted: Wanted) -> Log:
        """Return the log to read; since version 11 a consumer may read from a follower."""
        if self._context.api_version >= RACKS_SINCE:
            return partition.require_readable(wanted.current_leader_epoch)
        return partition.require_leader(wanted.current_leader_epoch)

    def _nearest(self, partition: Partition, wanted: Wanted) -> int | None:
        """Return the replica in the reader's rack, if it is another one (KIP-392)."""
        if not partition.is_leader:
            return None
        brokers = self._broker.metadata.image.cluster.brokers
        wall_ms = self._broker.clock.now_ms() if self._shared.local_log_aware else None
        rack, offset = self._request.rack_id, wanted.fetch_offset
        return nearest_replica(partition, rack, offset, brokers, wall_ms)

    def _follower_fetched(self, key: PartitionKey, partition: Partition, wanted: Wanted) -> None:
        raise AssertionError("a consumer has no state here")

    # --- answering ----------------------------------------------------------------------------

    def _throttled(self) -> FetchResponse | None:
        """Return an answer without data for a consumer that is over its quota (KIP-219), otherwise
        None. The consumer may have the data when its throttle time is over. A session that was
        about to be opened is dropped."""
        quotas, context = self._broker.quotas, self._context
        if self._replica_id >= 0 or not quotas.active:
            return None
        who = quota_user(context), context.client_id or ""
        now_ms = self._broker.clock.monotonic_ms()
        size = self._bytes + PARTITION_BYTES * len(self._reads)
        wait_ms = round(quotas.record(QuotaKind.FETCH, *who, size, now_ms))
        if wait_ms <= 0:
            return None
        quotas.take_back(QuotaKind.FETCH, *who, size, now_ms)
        context.connection.mute(wait_ms)
        plan = self._plan
        if not plan.incremental and plan.session is not None:
            self._broker.sessions.forget(plan.session_id)
            return FetchResponse(throttle_time_ms=wait_ms)
        return FetchResponse(throttle_time_ms=wait_ms, session_id=plan.session_id)

    def _response(self) -> FetchResponse:
        throttled = self._throttled()
        if throttled is not None:
            self._reads = []
            return throttled
        session, incremental = self._plan.session, self._plan.incremental
        response = FetchResponse(session_id=self._plan.session_id)
        topics = response.responses
        last_topic: str | bytes | None = None
        for key, data in self._reads:
            records = data.records
            if session is not None:
                force = bool(records or data.error_code) or _is_turned_away(data)
                news = session.news(key, _news(data), force=force)
                if not force:
                    self._settle(session, key)
                if incremental and not news:
                    continue
            topic = key[0]
            if topic != last_topic:
                last_topic = topic
                topics.append(
                    FetchResponse.FetchableTopicResponse(topic_id=topic)
                    if isinstance(topic, bytes)
                    else FetchResponse.FetchableTopicResponse(topic=topic)
                )
            topics[-1].partitions.append(data)
            if records:
                self._count(key, len(records))
                if session is not None:
                    session.watch.served(key)
        self._reads = []
        if self._must_answer and self._context.api_version >= LEADERS_SINCE:
            epochs = {key: wanted.current_leader_epoch for key, wanted in self._due}
            self._shared.hints.add_to_fetch(self._context, response, epochs)
        return response

    def _settle(self, session: FetchSession[Wanted], key: PartitionKey) -> None:
        """Mark a partition as settled if this response leaves the next fetch nothing to check
        there."""
        cached, partition = session.partitions.get(key), self._local(key)
        if cached is None or partition is None or not partition.is_leader:
            return
        log = partition.log
        # With open transactions, their end is news without records.
        if cached.request.fetch_offset == log.high_watermark == log.last_stable_offset:
            session.watch.cover(key, partition)
            session.watch.settled(key)

    def _count(self, key: PartitionKey, size_bytes: int) -> None:
        partition = self._local(key)
        if partition is None:
            return
        partition.counters.bytes_out += size_bytes


def _is_turned_away(data: PartitionData) -> bool:
    """Return whether there are no records because the reader must truncate its log, or read
    elsewhere."""
    return data.diverging_epoch is not NO_DIVERGENCE or data.preferred_read_replica >= 0


def _divergence(partition: Partition, wanted: Wanted) -> FetchResponse.EpochEndOffset | None:
    """Return where the reader's log diverges from the leader's, None if it does not (KIP-595)."""
    log = partition.log
    if wanted.last_fetched_epoch == log.latest_epoch and wanted.fetch_offset <= log.log_end_offset:
        return None
    epoch, end_offset = log.history.end_offset_for(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, None)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        mark("replication.fetch-diverges")
        return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def failure(index: int, code: ErrorCode) -> PartitionData:
    """Return an answer that contains nothing but the error."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        diverging_epoch=NO_DIVERGENCE,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=None,
    )
