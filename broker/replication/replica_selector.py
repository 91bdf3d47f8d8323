"""The replica that a consumer reads from (`replica.selector.class`, KIP-392).

Only members of the ISR whose broker is unfenced and stays are ever named (KAFKA-14372, 15390), and
only if they have the offset that is asked for; else the consumer reads from the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from metalog.image.values import BrokerImage

if TYPE_CHECKING:
    from broker.replication.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""As operators know it; the other that Kafka has is the leader, always."""


def nearest_replica(
    partition: Partition,
    rack: str,
    offset: int,
    brokers: Mapping[int, BrokerImage],
    wall_ms: int | None = None,
) -> int | None:
    """The replica in the reader's rack that has come furthest; None: the leader is the one.

    `partition` is led here. With the time, epoch milliseconds, followers that have too little of
    the log locally are left out (KIP-1303): they would read from the tier what is asked of them.
    """
    own = brokers.get(partition.node_id)
    if not rack or own is None or own.rack == rack:
        return None
    best: tuple[int, int] | None = None
    for replica_id, remote in partition.remote.items():
        broker = brokers.get(replica_id)
        if (
            broker is None
            or broker.rack != rack
            or broker.fenced
            or broker.in_controlled_shutdown
            or replica_id not in partition.isr
            or not remote.log_start <= offset <= remote.log_end
            or (wall_ms is not None and not partition.has_enough_locally(replica_id, wall_ms))
        ):
            continue
        if best is None or remote.log_end > best[0]:
            best = (remote.log_end, replica_id)
    return None if best is None else best[1]
