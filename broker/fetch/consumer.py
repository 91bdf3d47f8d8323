"""A consumer's Fetch: reads up to the high watermark or the last stable offset, within a quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.fetch.reading import Arrived, Wish, divergence, read_records
from broker.fetch.request import (
    DIVERGENCE_SINCE,
    RACKS_SINCE,
    READ_COMMITTED,
    Due,
    Wanted,
)
from broker.fetch.requester import FetchShared, due_after_wait, subscribe_to_due
from broker.fetch.response import (
    NO_DIVERGENCE,
    PARTITION_BYTES,
    PartitionData,
    Read,
    build,
    failure,
    is_turned_away,
    partition_data,
)
from broker.quota.enforcer import quota_user
from broker.quota.quotas import QuotaKind
from broker.replication.partition.partition import Partition
from broker.replication.reading.replica_selector import nearest_replica
from broker.replication.sessions.fetch_session import FetchPlan, FetchSession, PartitionKey
from broker.replication.waiting.waits import FetchWait
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.dispatch import RequestContext

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteReader
    from storage.log.log import Log

MOVED_HERE_MS: Final = 100.0
"""For this time after a consumer has requested the ends of leader epochs, its fetches wait
shortly."""
MOVED_WAIT_MS: Final = 10.0
"""How long they wait then. The consumer requests epochs when partitions have moved, and has one
fetch in flight per broker. The partitions would wait for its end, half a second by default."""


class Consumer:
    """The `Requester` of a consumer's Fetch."""

    __slots__ = (
        "_broker",
        "_committed",
        "_context",
        "_plan",
        "_rack",
        "_request",
        "_shared",
        "remote",
    )

    more: Final = False
    """A consumer's fetch covers all partitions that are due."""

    def __init__(
        self,
        shared: FetchShared,
        context: RequestContext,
        request: FetchRequest,
        plan: FetchPlan[Wanted],
    ) -> None:
        broker = shared.broker
        self._shared = shared
        self._broker = broker
        self._context = context
        self._request = request
        self._plan = plan
        self._committed = request.isolation_level == READ_COMMITTED
        self._rack = request.rack_id if shared.rack_aware else ""
        self.remote: RemoteReader | None = None if broker.tier is None else broker.tier.reader

    def bytes_max(self) -> int:
        most = min(self._request.max_bytes, self._shared.response_bytes_max)
        quotas, context = self._broker.quotas, self._context
        if not quotas.active:
            return most
        of_quota = quotas.most_at_once(
            QuotaKind.FETCH, quota_user(context), context.client_id or ""
        )
        return most if of_quota is None else min(most, int(of_quota))

    # --- the partitions to read ---------------------------------------------------------------

    def first_due(self) -> Due:
        """Return the partitions to read first. A session leaves out those that the consumer has
        read to the end and whose state it knows: nearly all of a thousand, nearly always."""
        plan, session = self._plan, self._plan.session
        if session is None:
            return plan.partitions
        watch = session.watch
        if watch.wait is not None:
            watch.wait.supersede()
        watch.count_others()
        if watch.committed is self._committed:
            return plan.partitions
        watch.read_as(committed=self._committed)
        watch.requested(session.partitions, ())
        return session.to_look_at()

    def due_after_wait(self, due: Due) -> Due:
        return due_after_wait(self._plan, due)

    def wait_ms(self, now_ms: float) -> float:
        """Return the time that the request allows. It is shorter if the consumer is about to name
        partitions that have moved here, because it sends no other fetch next to this one."""
        wait_ms = float(self._request.max_wait_ms)
        if now_ms < self._context.connection.asked_epochs_ms + MOVED_HERE_MS:
            return min(wait_ms, MOVED_WAIT_MS)
        return wait_ms

    def subscribe(self, wait: FetchWait, due: Due) -> None:
        replicas = self._broker.replicas
        subscribe_to_due(wait, due, self._plan, replicas, committed=self._committed)
        # A consumer whose partitions have moved queries their new leaders for its position. These
        # requests queue behind its waiting fetches, for half a second each if there is nothing to
        # read.
        self._context.connection.add_behind_callback(wait.interrupt)

    # --- reading ------------------------------------------------------------------------------

    def wish(self, key: PartitionKey, partition: Partition, wanted: Wanted) -> Wish | None:
        self._log_for(partition, wanted)
        if self._rack and self._nearest(partition, wanted) is not None:
            return None
        end = self._visible_end(partition.log)
        return Wish(key, partition, wanted.fetch_offset, wanted.partition_max_bytes, end)

    def read(
        self,
        partition: Partition,
        key: PartitionKey,
        wanted: Wanted,
        budget: int,
        arrived: dict[PartitionKey, Arrived | None],
        whole_first: bool,
    ) -> PartitionData:
        log = self._log_for(partition, wanted)
        if self._rack and (nearer := self._nearest(partition, wanted)) is not None:
            data = partition_data(partition, b"", NO_DIVERGENCE)
            data.preferred_read_replica = nearer
            return data
        # A session may know the epoch from an earlier request in a newer version.
        if wanted.last_fetched_epoch >= 0 and self._context.api_version >= DIVERGENCE_SINCE:
            diverging = divergence(partition, wanted)
            if diverging is not None:
                return partition_data(partition, b"", diverging)
        end, offset = self._visible_end(log), wanted.fetch_offset
        limit = max(0, min(budget, wanted.partition_max_bytes))
        records, aborted = read_records(
            self._shared.recent, log, offset, end, limit, whole_first, key, arrived, self.remote
        )
        data = partition_data(partition, records, NO_DIVERGENCE)
        if self._committed:
            if aborted is None:
                aborted = log.reader.aborted_in(offset, len(records), end) if records else ()
            data.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=one[0], first_offset=one[1])
                for one in aborted
            ]
        return data

    def refusal(
        self, partition: Partition | None, wanted: Wanted, code: ErrorCode
    ) -> PartitionData:
        """Return an answer without data. Only followers handle data in the tier. For a consumer
        without access to it the offset is out of range, as in Kafka."""
        if code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        return failure(wanted.partition, code)

    def _log_for(self, partition: Partition, wanted: Wanted) -> Log:
        """Return the log to read; since version 11 a consumer may read from a follower."""
        if self._context.api_version >= RACKS_SINCE:
            return partition.require_readable(wanted.current_leader_epoch)
        return partition.require_leader(wanted.current_leader_epoch)

    def _visible_end(self, log: Log) -> int:
        if self._committed:
            return log.last_stable_offset
        return log.bounds.high_watermark

    def _nearest(self, partition: Partition, wanted: Wanted) -> int | None:
        """Return the replica in the consumer's rack, if it is another one (KIP-392)."""
        if not partition.is_leader:
            return None
        brokers = self._broker.metadata.image.cluster.brokers
        wall_ms = self._broker.clock.now_ms() if self._shared.local_log_aware else None
        return nearest_replica(partition, self._rack, wanted.fetch_offset, brokers, wall_ms)

    # --- answering ----------------------------------------------------------------------------

    def response(self, reads: list[Read], size_bytes: int) -> FetchResponse:
        throttled = self._throttled(size_bytes + PARTITION_BYTES * len(reads))
        if throttled is not None:
            return throttled
        response = build(self._plan, reads)
        session, known = self._plan.session, self._broker.replicas.known
        for key, data in reads:
            records = data.records
            if records:
                partition = known(*key)
                if partition is not None:
                    partition.counters.bytes_out += len(records)
                if session is not None:
                    session.watch.served(key)
            elif session is not None and not data.error_code and not is_turned_away(data):
                self._settle(session, key)
        return response

    def _throttled(self, size_bytes: int) -> FetchResponse | None:
        """Return an answer without data for a consumer that is over its quota (KIP-219), otherwise
        None. The consumer may have the data when its throttle time is over. A session that was
        about to be opened is dropped."""
        quotas, context = self._broker.quotas, self._context
        if not quotas.active:
            return None
        who = quota_user(context), context.client_id or ""
        now_ms = self._broker.clock.monotonic_ms()
        wait_ms = round(quotas.record(QuotaKind.FETCH, *who, size_bytes, now_ms))
        if wait_ms <= 0:
            return None
        quotas.take_back(QuotaKind.FETCH, *who, size_bytes, now_ms)
        context.connection.mute(wait_ms)
        plan = self._plan
        if not plan.incremental and plan.session is not None:
            self._broker.sessions.forget(plan.session_id)
            return FetchResponse(throttle_time_ms=wait_ms)
        return FetchResponse(throttle_time_ms=wait_ms, session_id=plan.session_id)

    def _settle(self, session: FetchSession[Wanted], key: PartitionKey) -> None:
        """Mark a partition as settled if this response leaves the next fetch nothing to check
        there."""
        cached, partition = session.partitions.get(key), self._broker.replicas.known(*key)
        if cached is None or partition is None or not partition.is_leader:
            return
        log = partition.log
        # With open transactions, their end is news without records.
        if cached.request.fetch_offset == log.high_watermark == log.last_stable_offset:
            session.watch.cover(key, partition)
            session.watch.settled(key)
