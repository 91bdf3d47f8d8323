"""AlterPartition (key 56), versions 2-4: the last is for our own brokers only.

Behaviour: a leader proposes ISRs. The controller compares each proposal with the partition's epochs
and accepts or refuses it independently. The response contains the resulting partition state.

Versions: 3 contains the broker epoch of each proposed member (KIP-903), 4 the local log of each
member (KIP-1303).

Errors: STALE_BROKER_EPOCH and NOT_CONTROLLER for all; per partition UNKNOWN_TOPIC_ID,
UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER (an epoch ahead of the controller's),
FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA,
NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from controller.topics.isr import IsrAnswer, TopicIsrAnswer, decide_alter_partition
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.private_numbers import PRIVATE_VERSIONS
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from protocol.transport.own_names import Own

MIN_VERSION = 2
MAX_VERSION = 3
OWN_MAX_VERSION = PRIVATE_VERSIONS[ApiKey.ALTER_PARTITION]


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: AlterPartitionRequest) -> Reply:
        return controller.submit(
            lambda view: decide_alter_partition(view, request),
            lambda outcomes: AlterPartitionResponse(topics=[_topic(o) for o in outcomes]),
        )

    table.register(
        ApiKey.ALTER_PARTITION,
        handle,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        own_max_version=OWN_MAX_VERSION,
        own=Own.BROKER,
    )


def _topic(outcome: TopicIsrAnswer) -> AlterPartitionResponse.TopicData:
    return AlterPartitionResponse.TopicData(
        topic_id=outcome.topic_id, partitions=[_partition(p) for p in outcome.partitions]
    )


def _partition(outcome: IsrAnswer) -> AlterPartitionResponse.PartitionData:
    state = outcome.state
    if state is None:
        return AlterPartitionResponse.PartitionData(
            partition_index=outcome.partition_id, error_code=outcome.error
        )
    return AlterPartitionResponse.PartitionData(
        partition_index=outcome.partition_id,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery_state,
        partition_epoch=state.partition_epoch,
    )
