"""AssignReplicasToDirs (key 73), version 0.

Behaviour: a broker with several log directories reports the directory of each replica (KIP-858).
The response has the request's order. A replica in a failed directory leaves its ISR.

Errors: STALE_BROKER_EPOCH, UNSUPPORTED_VERSION and NOT_CONTROLLER for all; per partition
UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the broker has no replica),
INELIGIBLE_REPLICA (the partition has no leader and relies on the replica's lost directory).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from controller.brokers.directories import Assigned, decide_assign_directories
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 0

Response = AssignReplicasToDirsResponse


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> Reply:
        return controller.submit(
            lambda view: decide_assign_directories(view, request),
            lambda assigned: Response(directories=_directories(assigned)),
        )

    table.register(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _directories(assigned: Iterable[Assigned]) -> list[AssignReplicasToDirsResponse.DirectoryData]:
    return [
        Response.DirectoryData(id=directory, topics=_topics(those))
        for directory, those in groupby(assigned, key=lambda one: one.directory)
    ]


def _topics(assigned: Iterable[Assigned]) -> list[AssignReplicasToDirsResponse.TopicData]:
    return [
        Response.TopicData(
            topic_id=topic_id,
            partitions=[
                Response.PartitionData(partition_index=one.partition_id, error_code=one.error)
                for one in those
            ],
        )
        for topic_id, those in groupby(assigned, key=lambda one: one.topic_id)
    ]
