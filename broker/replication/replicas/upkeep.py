"""Periodic checks of all replicas: laggards in an ISR, and due reports of local logs."""

from __future__ import annotations

from collections.abc import Iterator

from broker.replication.partition.isr_changes import expire_isr
from broker.replication.replicas.replica_manager import ReplicaManager
from runtime.clock import Clock


def report_steps(replicas: ReplicaManager) -> Iterator[int]:
    """Trigger the local-log reports that are due. Yields the number so far every 256
    partitions, so that the caller can run other work."""
    reported = 0
    report = replicas.collaborators.report
    for at, partition in enumerate(list(replicas)):
        if (
            report is not None
            and partition.local_logs is not None
            and replicas.is_report_due(partition, sweep=True)
        ):
            report(partition)
            reported += 1
        if at % 256 == 255:
            yield reported
    yield reported


def expire_isr_steps(replicas: ReplicaManager, clock: Clock, lag_max_ms: float) -> Iterator[int]:
    """Propose ISRs without laggards. Yields the number so far every 256 partitions, so that the
    caller can run other work."""
    proposed = 0
    for at, partition in enumerate(list(replicas)):
        if partition.is_leader:
            before = partition.proposal
            effects = expire_isr(partition, clock.monotonic_ms(), lag_max_ms)
            replicas.carry_out(partition, effects)
            proposed += partition.proposal is not before
        if at % 256 == 255:
            yield proposed
    yield proposed
