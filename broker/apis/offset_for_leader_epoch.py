"""OffsetForLeaderEpoch (key 23), versions 2-4.

Behaviour: the end of a leader epoch in the leader's log, with which a reader determines where its
own history diverges from the leader's (KIP-101, KIP-279). The answer is the leader's largest epoch
that is not above the requested one, and its end; -1 and -1 without one. Fenced by the reader's
current leader epoch (KIP-320).
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 2
MAX_VERSION: Final = 4

_Result = OffsetForLeaderEpochResponse.EpochEndOffset


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Reply:
        if request.replica_id < 0:
            context.connection.asked_epochs_ms = broker.clock.monotonic_ms()
        return end_offsets(broker, request)

    table.register(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def end_offsets(
    broker: BrokerContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return the end of the requested epoch for every partition separately."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = _Result(partition=wanted.partition)
            try:
                partition = broker.replicas.find(topic.topic, wanted.partition)
                log = partition.require_leader(wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = log.history.end_offset_for(
                    wanted.leader_epoch
                )
            except ApiError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=results
            )
        )
    return response
