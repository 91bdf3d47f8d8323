"""Appends of batches by a leader: checks, the log, and the effects on the partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.replication.partition.effects import Effects
from broker.replication.partition.high_watermark import appended
from broker.replication.partition.partition import Partition
from protocol.batch.header import NO_TIMESTAMP, BatchHeader, Buffer
from protocol.batch.validate import ValidBatch, check_batch, finish, keeps_bytes
from protocol.errors import ApiError, ErrorCode
from storage.log.errors import LogFailed
from storage.log.producers import Origin
from storage.log.verification import NO_VERIFICATION

if TYPE_CHECKING:
    from storage.log.append import AppendInfo
    from storage.log.log import Log


ALL_REPLICAS: Final = -1
"""The value of acks that waits for the whole ISR."""


class Survive(Protocol):
    """Type of `Supervisor.survive`."""

    def __call__(
        self, work: str, error: BaseException, data: Buffer = b"", /, **about: Any
    ) -> None: ...


class Appender:
    """Appends to the partitions that a broker leads."""

    def __init__(
        self,
        *,
        carry_out: Callable[[Partition, Effects], None],
        storage_failed: Callable[[Partition, BaseException], None],
        on_unforeseen: Survive,
    ) -> None:
        self._carry_out = carry_out
        self._storage_failed = storage_failed
        self._on_unforeseen = on_unforeseen

    def check(
        self,
        partition: Partition,
        records: Buffer | None,
        *,
        api_version: int,
        required_acks: int,
        transactional: bool,
    ) -> BatchHeader:
        """Validate one client batch by its header; `append` or a wait follows.

        Raises:
            ApiError: of `check_batch`; NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
                KAFKA_STORAGE_ERROR.
        """
        self._require_writable(partition, required_acks)
        return check_batch(records, api_version, partition.rules, transactional=transactional)

    def append(
        self,
        partition: Partition,
        records: Buffer,
        header: BatchHeader,
        now_ms: int,
    ) -> AppendInfo:
        """Append a batch that `check` has passed in the same event-loop iteration; `records` is not
        used after the return.

        Raises:
            ApiError: of `finish`; otherwise as `append_valid`.
        """
        rules = partition.rules
        if keeps_bytes(header, rules, now_ms):
            return self._append(partition, records, header, now_ms, NO_TIMESTAMP)
        try:
            valid = finish(records, header, rules, now_ms)
        except ApiError:
            raise
        except Exception as error:
            raise self.batch_failed(partition, records, error) from error
        return self._append(partition, valid.data, valid.header, now_ms, valid.log_append_time_ms)

    def append_valid(
        self, partition: Partition, valid: ValidBatch, required_acks: int, now_ms: int
    ) -> AppendInfo:
        """Append the result of `finish`, perhaps some time after `check`.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR; of the
                producer's sequence (OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH ...).
        """
        self._require_writable(partition, required_acks)
        return self._append(partition, valid.data, valid.header, now_ms, valid.log_append_time_ms)

    def _append(
        self,
        partition: Partition,
        data: Buffer,
        header: BatchHeader,
        now_ms: int,
        log_append_time_ms: int,
    ) -> AppendInfo:
        try:
            info = partition.log.append_as_leader(
                data,
                partition.leader_epoch,
                now_ms,
                header=header,
                log_append_time_ms=log_append_time_ms,
                guard=NO_VERIFICATION,
            )
        except LogFailed as error:
            self._storage_failed(partition, error.cause)
            raise
        if not info.duplicate:
            size = len(data)
            counters = partition.counters
            counters.bytes_in += size
            counters.messages_in += header.record_count
            effects = appended(partition, info, size)
            if effects:
                self._carry_out(partition, effects)
        return info

    def batch_failed(self, partition: Partition, records: Buffer, error: Exception) -> ApiError:
        """Report an unexpected exception while a batch was validated or appended; return the error
        for its producer."""
        self._on_unforeseen(
            "produced batch", error, records, topic=partition.topic, partition=partition.index
        )
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)

    def _require_writable(self, partition: Partition, required_acks: int) -> Log:
        log = partition.require_leader()
        if required_acks == ALL_REPLICAS and partition.under_min_isr:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, None)
        return log

    def append_own(self, partition: Partition, batch: bytes, *, now_ms: int) -> AppendInfo:
        """Append a batch that this broker wrote itself, as with acks=all.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE,
                RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR.
        """
        log = self._require_writable(partition, ALL_REPLICAS)
        if len(batch) > partition.rules.max_message_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, None)
        try:
            info = log.append_as_leader(
                batch, partition.leader_epoch, now_ms, Origin.COORDINATOR, guard=NO_VERIFICATION
            )
        except LogFailed as error:
            self._storage_failed(partition, error.cause)
            raise
        self._carry_out(partition, appended(partition, info, len(batch)))
        return info
