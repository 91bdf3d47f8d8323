"""A follower's Fetch: reads up to the log end, and updates the replica's state.

In a session it checks only the partitions with news; see `FollowerWatch`.
"""

from __future__ import annotations

from typing import Final

from broker.fetch.reading import Arrived, Wish, divergence, read_records
from broker.fetch.request import DIVERGENCE_SINCE, Due, Wanted
from broker.fetch.requester import FetchShared, due_after_wait, subscribe_to_due
from broker.fetch.response import (
    NO_DIVERGENCE,
    PartitionData,
    Read,
    build,
    failure,
    partition_data,
)
from broker.replication.partition.followers import follower_fetched
from broker.replication.partition.local_log_reports import follower_stated
from broker.replication.partition.partition import Partition
from broker.replication.sessions.fetch_session import FetchPlan, PartitionKey
from broker.replication.sessions.follower_watch import FollowerWatch
from broker.replication.waiting.waits import FetchWait
from metalog.image.values import BrokerImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.dispatch import RequestContext
from storage.log.log import Log

RANGE_ERRORS: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE}
)
"""Errors after which the follower restarts its log elsewhere: it needs this log's start
(KIP-405)."""


class Follower:
    """The `Requester` of a follower's Fetch.

    The handler calls `begin` before the first read and `note_time` after it.
    """

    __slots__ = (
        "_arriving",
        "_broker",
        "_broker_epoch",
        "_brokers",
        "_context",
        "_plan",
        "_registered",
        "_replica_id",
        "_request",
        "_shared",
        "_watch",
        "more",
    )

    remote: Final = None
    """A follower reads the tier itself, as far as it needs it (KIP-405)."""

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
        watch = None if plan.session is None else plan.session.watch
        self._watch = watch if isinstance(watch, FollowerWatch) else None
        self.more = False
        # A fetch proves the follower's progress when it arrives; a read after a wait adds nothing.
        self._arriving = True
        # The follower's registration in the metadata, and the map that it came from: a request
        # needs it several times.
        self._brokers: object = None
        self._registered: BrokerImage | None = None

    def begin(self) -> None:
        """End the wait of the session's previous fetch, and note the follower's broker epoch."""
        watch = self._watch
        if watch is None:
            return
        if watch.wait is not None:
            watch.wait.supersede()
        registered = self._broker_now()
        if registered is not None and 0 <= self._broker_epoch < registered.epoch:
            # A late request of a process that has restarted since: nothing would end its session.
            self._broker.sessions.forget(self._plan.session_id)
            return
        if not self._plan.incremental or self._broker_epoch > watch.broker_epoch:
            # A follower may fetch before its registration is answered: a later request of the
            # session has its epoch.
            watch.replica_id, watch.broker_epoch = self._replica_id, self._broker_epoch
            watch.is_current = False
        if not watch.is_current and self._is_current():
            # Not before the metadata has this epoch: any client can claim a replica id and an
            # epoch.
            watch.is_current = True
            self._broker.sessions.forget_earlier_lives(self._replica_id, self._broker_epoch)

    def note_time(self) -> None:
        """Note the time of the session's newest fetch, which applies to all partitions that the
        follower has read to the end."""
        if self._watch is not None and self._is_current():
            self._watch.fetch_ms = self._broker.clock.monotonic_ms()

    def bytes_max(self) -> int:
        return min(self._request.max_bytes, self._shared.response_bytes_max)

    def _is_current(self) -> bool:
        """Return whether the request has the follower's registered epoch. One from before a
        restart, or without an epoch, proves nothing."""
        registered = self._broker_now()
        return registered is not None and registered.epoch == self._broker_epoch

    def _broker_now(self) -> BrokerImage | None:
        """Return the present registration of the follower's broker, or None."""
        brokers = self._broker.metadata.image.cluster.brokers
        if brokers is not self._brokers:
            self._brokers, self._registered = brokers, brokers.get(self._replica_id)
        return self._registered

    # --- the partitions to read ---------------------------------------------------------------

    def first_due(self) -> Due:
        """Return the partitions to read first: those with news, up to the session's limit."""
        return self._counted(self._plan.partitions)

    def due_after_wait(self, due: Due) -> Due:
        return self._counted(due_after_wait(self._plan, due))

    def _counted(self, due: Due) -> Due:
        if self._watch is not None:
            self.more = self._watch.more(len(due))
        return due

    def wait_ms(self, now_ms: float) -> float:
        return float(self._request.max_wait_ms)

    def subscribe(self, wait: FetchWait, due: Due) -> None:
        self._arriving = False
        if self._watch is None or self._watch.over:
            subscribe_to_due(wait, due, self._plan, self._broker.replicas, replica=True)
        else:
            self._watch.add_fetch_wait(wait)  # it covers them since they were read

    # --- reading ------------------------------------------------------------------------------

    def rests(self, due: Due) -> bool:
        """Take the short path of most fetches, at the end of their logs: read nothing, and note the
        progress. Returns: False, without any effect, in all other cases."""
        resting: list[tuple[PartitionKey, Wanted, Partition]] = []
        known = self._broker.replicas.known
        for key, wanted in due:
            partition = known(*key)
            if partition is None:
                return False
            log, epoch = partition.log, wanted.last_fetched_epoch
            if wanted.fetch_offset != log.bounds.log_end_offset:
                return False
            if -1 != epoch != log.latest_epoch:
                return False
            try:
                self._log_for(partition, wanted)
            except ApiError:
                return False
            resting.append((key, wanted, partition))
        for key, wanted, partition in resting:
            partition.counters.fetches += 1
            self._fetched(key, partition, wanted)
        return True

    def wish(self, key: PartitionKey, partition: Partition, wanted: Wanted) -> Wish:
        self._log_for(partition, wanted)
        end = self._visible_end(partition)
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
        # A session may know the epoch from an earlier request in a newer version.
        if wanted.last_fetched_epoch >= 0 and self._context.api_version >= DIVERGENCE_SINCE:
            diverging = divergence(partition, wanted)
            if diverging is not None:
                return partition_data(partition, b"", diverging)
        end, offset = self._visible_end(partition), wanted.fetch_offset
        limit = max(0, min(budget, wanted.partition_max_bytes))
        records, _ = read_records(
            self._shared.recent, log, offset, end, limit, whole_first, key, arrived, None
        )
        if self._arriving:
            self._fetched(key, partition, wanted)
        return partition_data(partition, records, NO_DIVERGENCE)

    def refusal(
        self, partition: Partition | None, wanted: Wanted, code: ErrorCode
    ) -> PartitionData:
        """Return the error, with the bounds of the log if the follower needs them. Kafka sends them
        with OFFSET_MOVED_TO_TIERED_STORAGE alone; its followers ignore them otherwise."""
        data = failure(wanted.partition, code)
        if partition is not None and code in RANGE_ERRORS:
            data.high_watermark = partition.log.high_watermark
            data.log_start_offset = partition.log.log_start_offset
        return data

    def _log_for(self, partition: Partition, wanted: Wanted) -> Log:
        log = partition.require_leader(wanted.current_leader_epoch)
        if self._replica_id not in partition.remote or self._broker_now() is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        return log

    def _visible_end(self, partition: Partition) -> int:
        log = partition.log
        if self._is_throttled(partition) and self._broker.throttles.sending.pause_ms(
            self._broker.clock.monotonic_ms()
        ):
            return log.log_start_offset  # nothing for now
        return log.bounds.log_end_offset

    def _is_throttled(self, partition: Partition) -> bool:
        return partition.leader_throttled and self._replica_id not in partition.isr

    def _fetched(self, key: PartitionKey, partition: Partition, wanted: Wanted) -> None:
        """Note the follower's progress, and the local log that it reports (KIP-1303)."""
        if self._watch is not None:
            self._watch.cover(key, partition)
        if not self._is_current():
            return
        replicas, replica_id = self._broker.replicas, self._replica_id
        effects = follower_fetched(
            partition,
            replica_id,
            offset=wanted.fetch_offset,
            log_start=wanted.log_start_offset,
            broker_epoch=self._broker_epoch,
            now_ms=self._broker.clock.monotonic_ms(),
            may_join=replica_id not in partition.maximal_isr
            and replicas.may_join_isr(replica_id, self._broker_epoch),
            times=self._watch,
        )
        if partition.local_logs is not None:
            effects += follower_stated(
                partition,
                replica_id,
                broker_epoch=self._broker_epoch,
                local_start_ms=wanted.local_log_start_timestamp,
                local_bytes=wanted.local_log_size_bytes,
                own_epoch=replicas.broker_epoch,
            )
        if effects:
            replicas.carry_out(partition, effects)

    # --- answering ----------------------------------------------------------------------------

    def response(self, reads: list[Read], size_bytes: int) -> FetchResponse:
        response = build(self._plan, reads)
        session, watch = self._plan.session, self._watch
        is_current = watch is not None and self._is_current()
        for key, data in reads:
            if data.records:
                self._count(key, len(data.records))
                if session is not None:
                    session.watch.served(key)
            elif watch is not None and is_current:
                self._decide_next(watch, key, data)
        return response

    def _count(self, key: PartitionKey, size_bytes: int) -> None:
        partition = self._broker.replicas.known(*key)
        if partition is None:
            return
        partition.counters.replication_bytes_out += size_bytes
        if self._replica_id in partition.adding:
            partition.counters.reassignment_bytes_out += size_bytes
        if self._is_throttled(partition):
            now_ms = self._broker.clock.monotonic_ms()
            self._broker.throttles.sending.record(size_bytes, now_ms)

    def _decide_next(self, watch: FollowerWatch, key: PartitionKey, data: PartitionData) -> None:
        """Decide whether the next fetch must check a partition without records again."""
        session = self._plan.session
        if session is None:
            return
        cached, partition = session.partitions.get(key), self._broker.replicas.known(*key)
        if data.error_code:
            # The follower backs off and then names the partition again; a check before would only
            # refuse it again.
            watch.settled(key)
        elif data.diverging_epoch is not NO_DIVERGENCE:
            watch.told(key)
        elif (
            cached is not None
            and partition is not None
            and cached.request.fetch_offset >= partition.log.log_end_offset
            # While a proposal is open no other is made; its end notifies the session.
            and (partition.proposal is not None or self._replica_id in partition.maximal_isr)
        ):
            watch.settled(key)
        else:
            watch.told(key)
