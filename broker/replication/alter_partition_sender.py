"""Proposals of ISRs and reports of local logs, sent to the controller over a channel of their own
(AlterPartition)."""

from __future__ import annotations

from collections.abc import Callable

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.queue_sender import QueueSender
from broker.replication.alter_partition import (
    LOCAL_LOGS_SINCE,
    AlterPartitionManager,
    version_for,
)
from broker.replication.effects import Effects
from broker.replication.isr import IsrProposal
from broker.replication.local_log_reports import LocalLogReports
from broker.replication.partition import Partition
from runtime.clock import Clock
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("broker.isr")


class IsrChanges:
    """The manager of a running broker, and beside it the reports."""

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
        self.manager = AlterPartitionManager(carry_out)
        self.reports = LocalLogReports(carry_out)

        def sender(
            name: str,
            queue: AlterPartitionManager[Partition] | LocalLogReports[Partition],
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
        """Sent in the next turn of the loop, with what else comes in this one."""
        self.manager.propose(partition, proposal)
        self._sender.wake()

    def report(self, partition: Partition) -> None:
        """What its replicas have locally is to be told, in the next turn of the loop."""
        self.reports.want(partition)
        self._report_sender.wake()

    def close(self) -> None:
        """Nothing more is proposed or reported. The channel is not closed."""
        self._sender.close()
        self._report_sender.close()
