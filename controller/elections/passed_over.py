"""Elections that passed over a replica because of its local log (KIP-1303), for the metrics.

An election counts if its leader has enough of the log locally and an earlier replica in the
assignment has too little. That replica must have been able to lead just as cleanly.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.decision import ControllerView
from controller.elections.context import ElectionContext
from controller.elections.eligibility import is_eligible
from metalog.image.values import ElectedAs, MetadataImage, PartitionImage
from protocol.metadata import PartitionChangeRecord
from protocol.schema import MetadataRecord
from runtime.marks import mark


def elections_by_local_logs(
    image: MetadataImage, records: Iterable[MetadataRecord]
) -> list[PartitionChangeRecord]:
    """Return the elections in partitions with local-log stats: mostly none. `image` is after
    them."""
    return [
        record
        for record in records
        if type(record) is PartitionChangeRecord
        and record.election_kind != ElectedAs.NONE
        and (topic := image.topics.by_id.get(record.topic_id)) is not None
        and topic.partitions[record.partition_id].local_logs
    ]


def passed_over(view: ControllerView, records: Iterable[PartitionChangeRecord]) -> int:
    """Return how many of these elections passed over a replica. `view` is after them."""
    elections = ElectionContext(view)
    count = sum(_passed_over(elections, record) for record in records)
    if count:
        mark("controller.local-log-passed-over")
    return count


def _passed_over(elections: ElectionContext, record: PartitionChangeRecord) -> bool:
    topic = elections.view.image.topics.by_id[record.topic_id]
    index, order = record.partition_id, elections.rules(topic).local_logs
    partition = topic.partitions[index]
    if order is None or partition.leader not in partition.replicas:
        return False
    short = order.at(elections.view.now_ms)(partition.local_logs)
    if not short or partition.leader in short:
        return False
    eligibility_of = elections.eligibility_in(topic, index, partition)
    rivals = _rivals(partition, ElectedAs(record.election_kind))
    before = partition.replicas[: partition.replicas.index(partition.leader)]
    return any(r in short and r in rivals and is_eligible(eligibility_of(r)) for r in before)


def _rivals(partition: PartitionImage, kind: ElectedAs) -> tuple[int, ...]:
    """Return the replicas that competed in an election of this kind."""
    if kind in (ElectedAs.ISR, ElectedAs.PREFERRED):
        return partition.isr
    if kind is ElectedAs.ELR:
        return partition.elr
    return partition.replicas if kind is ElectedAs.UNCLEAN else ()
