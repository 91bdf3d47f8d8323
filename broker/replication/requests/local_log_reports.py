"""AlterPartition requests that report local logs and change nothing (KIP-1303).

They have a queue and an in-flight slot of their own, so that no ISR change waits behind them. Each
is short, because the controller does nothing else in that time. A refused or lost report is
dropped: the partition decides when to report again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.replication.partition.effects import Effects
from broker.replication.partition.isr import IsrProposal, PartitionStateNow
from broker.replication.partition.local_log_reports import (
    local_logs_to_send,
    report_answered,
    report_to_send,
)
from broker.replication.partition.partition import Partition
from broker.replication.requests.alter_partition import (
    AlterPartitionItem,
    PartitionId,
    request_for,
    state_of,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

PARTITIONS_MAX: Final = 50
"""Maximum number of partitions in one request: a millisecond or two of the controller's time."""
_NOTHING: Final = PartitionStateNow(-1, -1, -1, ())


class LocalLogReports:
    """Queue of partitions that have something to report, with one request in flight."""

    def __init__(self, carry_out: Callable[[Partition, Effects], None]) -> None:
        """Set up an empty queue. `carry_out` receives the effects that a partition returns after an
        answer."""
        self._carry_out = carry_out
        self.sent = 0
        """Number of reports sent: one for each partition of a request."""
        self._waiting: dict[PartitionId, Partition] = {}
        self._in_flight: dict[PartitionId, tuple[Partition, IsrProposal]] | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight or ())

    def want(self, partition: Partition) -> None:
        """Queue a report of this partition."""
        self._waiting[(partition.topic_id, partition.index)] = partition

    def due_ms(self) -> float | None:
        """Return 0.0 if a request can be sent now, or None while one is in flight or none is
        queued."""
        return None if self._in_flight is not None or not self._waiting else 0.0

    def next_request(
        self, broker_id: int, broker_epoch: int, now_ms: float
    ) -> AlterPartitionRequest | None:
        """Return the request to send now, if any; the caller must call `answered` or `failed`
        afterwards."""
        if self._in_flight is not None:
            return None
        sent: dict[PartitionId, tuple[Partition, IsrProposal]] = {}
        while self._waiting and len(sent) < PARTITIONS_MAX:
            key = next(iter(self._waiting))
            partition = self._waiting.pop(key)
            report = report_to_send(partition)
            if report is not None:
                sent[key] = (partition, report)
        if not sent:
            return None
        self._in_flight = sent
        self.sent += len(sent)
        items = (AlterPartitionItem(*one) for one in sent.values())
        return request_for(items, broker_id, broker_epoch, now_ms, local_logs_to_send)

    def failed(self, now_ms: float) -> None:
        """Handle a missing answer or an error for the whole request: drop all its reports."""
        sent, self._in_flight = self._in_flight or {}, None
        for partition, report in sent.values():
            effects = report_answered(partition, report, None, _NOTHING, now_ms)
            self._carry_out(partition, effects)

    def controller_moved(self) -> None:
        """Do nothing: a lost report is dropped, so the queue has no backoff."""

    def answered(self, response: AlterPartitionResponse, now_ms: float) -> None:
        """Pass each partition its part of the response."""
        if response.error_code:
            self.failed(now_ms)
            return
        sent = self._in_flight or {}
        for topic in response.topics:
            for data in topic.partitions:
                found = sent.pop((topic.topic_id, data.partition_index), None)
                if found is not None:
                    partition, report = found
                    error = ErrorCode(data.error_code)
                    effects = report_answered(partition, report, error, state_of(data), now_ms)
                    self._carry_out(partition, effects)
        self.failed(now_ms)  # sent, but missing in the response: a faulty controller
