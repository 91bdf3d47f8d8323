"""Invariants of a simulated node, independent of the world that checks them.

`Violation` is the one exception that ends a world when the product is wrong. The checks here look
at the node from inside, between two events or at the end of a life; the promises to clients are in
the ledger (`judges.ledger`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.assembly import BrokerServer
from kraftbox.node import Node


class Violation(AssertionError):
    """A broken promise of the product."""


def require(holds: bool, message: str) -> None:
    """Raise Violation unless `holds` is true."""
    if not holds:
        raise Violation(message)


Key = tuple[bytes, int]
"""A partition: topic id, index."""


@dataclass(frozen=True)
class LogState:
    """One partition of a node at one moment. `began_at` is the end of the log when this life opened
    it."""

    where: str
    began_at: int
    start: int
    high_watermark: int
    end: int
    recovery_point: int
    leader_epoch: int


@dataclass(frozen=True)
class NodeState:
    """The state of a node in one life, when it was last checked."""

    logs: dict[Key, LogState] = field(default_factory=dict)
    broker_epoch: int = -1
    quorum_epoch: int = -1
    metadata_committed: int = -1
    metadata_end: int = -1


def note_logs(node: Node | None, began: dict[Key, int]) -> None:
    """Record the ends of logs that were opened since the last call. Called before each file
    operation, it sees every log before the first append."""
    if node is None or node.broker is None:
        return
    for log in node.broker.logs.logs.values():
        if log.topic_id is not None:
            began.setdefault((log.topic_id, log.partition), log.log_end_offset)


def state_of(node: Node | None, began: dict[Key, int]) -> NodeState:
    """Return the in-memory state of a node; empty if its quorum has not started."""
    if node is None or node.quorum is None or not node.quorum.is_started:
        return NodeState()
    quorum, broker = node.quorum, node.broker
    committed = quorum.high_watermark
    return NodeState(
        {} if broker is None else dict(_logs(broker, began)),
        -1 if broker is None else broker.lifecycle.broker_epoch,
        quorum.leader()[1],
        -1 if committed is None else committed,
        quorum.log_end_offset,
    )


def _logs(broker: BrokerServer, began: dict[Key, int]) -> Iterator[tuple[Key, LogState]]:
    epochs = {(one.topic_id, one.index): one.leader_epoch for one in broker.replicas}
    for log in broker.logs.logs.values():
        if log.topic_id is None:
            continue
        key = (log.topic_id, log.partition)
        yield (
            key,
            LogState(
                f"{log.topic}-{log.partition}",
                began[key],
                log.log_start_offset,
                log.high_watermark,
                log.log_end_offset,
                log.recovery_point,
                epochs.get(key, -1),
            ),
        )


def check_node(node: Node) -> None:
    """Check the invariants of a running node between any two events.

    Raises: Violation, or InvariantViolated from the node's own checks.
    """
    require(not node.failed.done(), f"the node failed: {node.failed}")
    if node.broker is None:
        return
    for partition in node.broker.replicas:
        partition.validate()
    for log in node.broker.logs.logs.values():
        where = f"{log.topic}-{log.partition}"
        require(log.log_start_offset <= log.log_end_offset, f"{where}: start beyond end")
        require(log.recovery_point <= log.log_end_offset, f"{where}: recovery point beyond end")
        require(log.high_watermark <= log.log_end_offset, f"{where}: high watermark beyond end")
        require(log.failure is None, f"{where} failed: {log.failure!r}")
        bases = [segment.base_offset for segment in log.segments]
        require(bases == sorted(set(bases)), f"{where}: segments {bases} are out of order")


def log_problems(old: LogState, new: LogState, *, power_cut: bool) -> Iterator[str]:
    """Yield losses of a partition between two lives: of durable records after a power cut, else of
    written ones."""
    where = old.where
    began_at = new.began_at
    least = old.recovery_point if power_cut else old.end
    if began_at < least:
        kind = "durable" if power_cut else "written"
        yield f"{where}: ends at {began_at} after the reboot, {kind} was {least}"
    if began_at > old.end:
        yield f"{where}: ends at {began_at} after the reboot, before it was {old.end}"
    if -1 < new.leader_epoch < old.leader_epoch:
        yield f"{where}: leader epoch went back from {old.leader_epoch} to {new.leader_epoch}"


def node_problems(old: NodeState, new: NodeState) -> Iterator[str]:
    """Yield losses that no end of a life may cause: of epochs, and of committed metadata."""
    if -1 < new.broker_epoch <= old.broker_epoch:
        yield f"broker epoch {new.broker_epoch} after {old.broker_epoch}"
    if -1 < new.quorum_epoch < old.quorum_epoch:
        yield f"quorum epoch went back from {old.quorum_epoch} to {new.quorum_epoch}"
    if -1 < new.metadata_end < old.metadata_committed:
        yield (
            f"metadata was committed up to {old.metadata_committed}, now its log ends at "
            f"{new.metadata_end}"
        )
