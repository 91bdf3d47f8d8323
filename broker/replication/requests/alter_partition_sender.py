"""Senders of ISR proposals and local-log reports to the controller (AlterPartition)."""

from __future__ import annotations

from collections.abc import Callable

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.queue_sender import QueueSender
from broker.replication.partition.effects import Effects
from broker.replication.partition.isr import IsrProposal
from broker.replication.partition.partition import Partition
from broker.replication.requests.alter_partition import (
    LOCAL_LOGS_SINCE,
    PARTITIONS,
    AlterPartitionManager,
    version_for,
)
from broker.replication.requests.local_log_reports import LocalLogReports
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("broker.isr")


class IsrChanges:
    """The queues of ISR proposals and of local-log reports of a running broker, with their senders.

    The channel is shared with AssignReplicasToDirs alone, so no other request delays them.
    """

    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        clock: Clock,
        supervisor: Supervisor,
        carry_out: Callable[[Partition, Effects], None],
    ) -> None:
        self.manager = AlterPartitionManager(carry_out, PARTITIONS)
        self.reports = LocalLogReports(carry_out)

        def sender(
            name: str,
            queue: AlterPartitionManager[Partition] | LocalLogReports,
            version: int | None = None,
        ) -> QueueSender:
            return QueueSender(
                name,
                queue,
                next_request=lambda now_ms: queue.next_request(node_id, broker_epoch(), now_ms),
                answered=queue.answered,
                channel=channel,
                clock=clock,
                supervisor=supervisor,
                log=_log,
                version=version,
                if_offered=version_for,
            )

        self._sender = sender("ISR changes", self.manager)
        self._report_sender = sender("local logs", self.reports, LOCAL_LOGS_SINCE)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Queue a proposal. It is sent in the next event-loop iteration, with all that are queued
        until then."""
        self.manager.propose(partition, proposal)
        self._sender.wake()

    def report(self, partition: Partition) -> None:
        """Queue a report of the local logs of a partition's replicas, to be sent in the next
        event-loop iteration."""
        self.reports.want(partition)
        self._report_sender.wake()

    def close(self) -> None:
        """Stop sending proposals and reports. The channel stays open."""
        self._sender.close()
        self._report_sender.close()
