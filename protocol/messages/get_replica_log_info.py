"""GetReplicaLogInfo (API key 10001), version 0; version 0 is unstable.

Returns the log ends of replicas (KIP-966). No Kafka release has this message: only Kraftbox
controllers send it to Kraftbox brokers.
"""

from __future__ import annotations

from typing import Final

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    int64,
    string,
    uuid,
)

PARTITIONS_PER_REQUEST_MAX: Final = 1_000
"""Further partitions get REQUEST_LIMIT_REACHED."""


class GetReplicaLogInfoResponse(Response, api_key=10001, versions="0", flexible="0+"):
    broker_epoch: int = field(int64, "0+", default=0)
    topic_partition_log_info_list: list[TopicPartitionLogInfo] = field(
        array("TopicPartitionLogInfo"), "0+", default=FRESH
    )

    class TopicPartitionLogInfo(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partition_log_info: list[GetReplicaLogInfoResponse.PartitionLogInfo] = field(
            array("PartitionLogInfo"), "0+", default=FRESH
        )

    class PartitionLogInfo(Struct):
        partition: int = field(int32, "0+", default=0)
        last_written_leader_epoch: int = field(int32, "0+", default=0)
        current_leader_epoch: int = field(int32, "0+", default=0)
        log_end_offset: int = field(int64, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")


class GetReplicaLogInfoRequest(
    Request[GetReplicaLogInfoResponse],
    api_key=10001,
    versions="0",
    flexible="0+",
    unstable="0",
    listeners=("broker",),
):
    broker_id: int = field(int32, "0+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(
        array("TopicPartitions"), "0+", nullable="0+", default=FRESH
    )

    class TopicPartitions(Struct):
        topic_id: bytes = field(uuid, "0+", default=ZERO_UUID)
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
