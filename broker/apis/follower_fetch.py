"""A follower's Fetch: reads up to the log end, and updates the replica's state.

In a session it checks only the partitions with news; see `FollowerWatch`.
"""

from __future__ import annotations

from typing import Final

from broker.apis.running_fetch import (
    NO_DIVERGENCE,
    FetchShared,
    PartitionData,
    RunningFetch,
    Wanted,
    failure,
)
from broker.replication.partition.followers import follower_fetched
from broker.replication.partition.local_log_reports import follower_stated
from broker.replication.partition.partition import Partition
from broker.replication.sessions.fetch_session import FetchPlan, FetchSession, PartitionKey
from broker.replication.sessions.follower_watch import FollowerWatch
from broker.replication.waiting.waits import FetchWait
from metalog.image.values import BrokerImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.dispatch import Reply, RequestContext
from storage.log.log import Log

RANGE_ERRORS: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE}
)
"""Errors after which the follower restarts its log elsewhere: it needs this log's start
(KIP-405)."""


class FollowerFetch(RunningFetch):
    """One request of a follower."""

    __slots__ = ("_brokers", "_more", "_registered", "_watch")

    def __init__(
        self,
        shared: FetchShared,
        context: RequestContext,
        request: FetchRequest,
        plan: FetchPlan[Wanted],
        replica_id: int,
        broker_epoch: int,
    ) -> None:
        super().__init__(shared, context, request, plan, replica_id, broker_epoch)
        watch = None if plan.session is None else plan.session.watch
        self._watch = watch if isinstance(watch, FollowerWatch) else None
        self._more = False
        # The follower's registration in the metadata, and the map that it came from: a request
        # needs it several times.
        self._brokers: object = None
        self._registered: BrokerImage | None = None

    def start(self) -> Reply:
        watch = self._watch
        if watch is None:
            return super().start()
        if watch.wait is not None:
            watch.wait.supersede()
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
        reply = super().start()
        if self._is_current():
            watch.fetch_ms = self._broker.clock.monotonic_ms()
        return reply

    def _log_for(self, partition: Partition, wanted: Wanted) -> Log:
        log = partition.require_leader(wanted.current_leader_epoch)
        if self._replica_id not in partition.remote or self._broker_now() is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        return log

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

    def _first_due(self) -> list[tuple[PartitionKey, Wanted]]:
        return self._counted(self._plan.partitions)

    def _with_news(self) -> list[tuple[PartitionKey, Wanted]]:
        return self._counted(super()._with_news())

    def _counted(self, due: list[tuple[PartitionKey, Wanted]]) -> list[tuple[PartitionKey, Wanted]]:
        if self._watch is not None:
            self._more = self._watch.more(len(due))
        return due

    @property
    def _enough(self) -> bool:
        return self._more or super()._enough

    def _register(self, wait: FetchWait) -> None:
        if self._watch is None or self._watch.over:
            super()._register(wait)
        else:
            self._watch.add_fetch_wait(wait)

    def _rests(self) -> bool:
        """Take the short path of most fetches at the end of their logs: no response is built before
        the wait. Returns: False, without any effect, in all other cases."""
        if self._is_answered():
            return False
        resting: list[tuple[PartitionKey, Wanted, Partition]] = []
        for key, wanted in self._due:
            partition = self._local(key)
            if partition is None:
                return False
            log, epoch = partition.log, wanted.last_fetched_epoch
            if wanted.fetch_offset != log.log_end_offset or -1 != epoch != log.latest_epoch:
                return False
            try:
                self._log_for(partition, wanted)
            except ApiError:
                return False
            resting.append((key, wanted, partition))
        for key, wanted, partition in resting:
            partition.counters.fetches += 1
            self._follower_fetched(key, partition, wanted)
        self._rested = True
        return True

    def _follower_fetched(self, key: PartitionKey, partition: Partition, wanted: Wanted) -> None:
        watch = self._watch
        if watch is not None:
            watch.cover(key, partition)
        if self._is_current():
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
                times=watch,
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

    def _reader(self) -> None:
        """Return None: a follower reads the tier itself, as far as it needs it (KIP-405)."""

    def _refusal(
        self, partition: Partition | None, wanted: Wanted, code: ErrorCode
    ) -> PartitionData:
        """Return the error, with the bounds of the log if the follower needs them. Kafka sends them
        with OFFSET_MOVED_TO_TIERED_STORAGE alone; its followers ignore them otherwise."""
        data = failure(wanted.partition, code)
        if partition is not None and code in RANGE_ERRORS:
            data.high_watermark = partition.log.high_watermark
            data.log_start_offset = partition.log.log_start_offset
        return data

    def _visible_end(self, partition: Partition) -> int:
        log = partition.log
        if self._is_throttled(partition) and self._broker.throttles.sending.pause_ms(
            self._broker.clock.monotonic_ms()
        ):
            return log.log_start_offset  # nothing for now
        return log.log_end_offset

    def _is_throttled(self, partition: Partition) -> bool:
        return partition.leader_throttled and self._replica_id not in partition.isr

    def _count(self, key: PartitionKey, size_bytes: int) -> None:
        partition = self._local(key)
        if partition is None:
            return
        partition.counters.replication_bytes_out += size_bytes
        if self._replica_id in partition.adding:
            partition.counters.reassignment_bytes_out += size_bytes
        if self._is_throttled(partition):
            now_ms = self._broker.clock.monotonic_ms()
            self._broker.throttles.sending.record(size_bytes, now_ms)

    def _response(self) -> FetchResponse:
        watch, reads = self._watch, self._reads
        response = super()._response()
        if watch is not None and self._is_current():
            for key, data in reads:
                self._told(watch, key, data)
        return response

    def _settle(self, session: FetchSession[Wanted], key: PartitionKey) -> None:
        """Do nothing: `_told` decides for followers."""

    def _told(self, watch: FollowerWatch, key: PartitionKey, data: PartitionData) -> None:
        """Decide whether the next fetch must check the partition again."""
        session = self._plan.session
        if data.records or session is None:
            watch.served(key)
            return
        cached, partition = session.partitions.get(key), self._local(key)
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
