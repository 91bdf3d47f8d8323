"""Selection of the replica that a consumer reads from (`replica.selector.class`, KIP-392).

Only members of the ISR are selected whose broker is unfenced and not shutting down (KAFKA-14372,
15390), and only if they have the requested offset. Otherwise the consumer reads from the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.replication.partition.local_log_reports import has_enough_locally
from metalog.image.values import BrokerImage

if TYPE_CHECKING:
    from broker.replication.partition.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The class name in Kafka's configuration. Kafka's other selector always selects the leader."""


def nearest_replica(
    partition: Partition,
    rack: str,
    offset: int,
    brokers: Mapping[int, BrokerImage],
    wall_ms: int | None = None,
) -> int | None:
    """Return the replica in the reader's rack with the highest log end, or None for the leader.

    `partition` is led here. If `wall_ms` (epoch milliseconds) is given, followers with too little
    of the log locally are left out (KIP-1303): they would read the requested records from the tier.
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
            or (wall_ms is not None and not has_enough_locally(partition, replica_id, wall_ms))
        ):
            continue
        if best is None or remote.log_end > best[0]:
            best = (remote.log_end, replica_id)
    return None if best is None else best[1]
