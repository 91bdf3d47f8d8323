"""AlterPartition (API key 56), versions 2-3."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    int64,
    uuid,
)


class AlterPartitionResponse(Response, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

    class TopicData(Struct):
        topic_id: bytes = field(uuid, "2+", ignorable=True, default=ZERO_UUID)
        partitions: list[AlterPartitionResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        isr: list[int] = field(array(int32), "0+", default=FRESH)
        leader_recovery_state: int = field(int8, "1+", ignorable=True, default=0)
        partition_epoch: int = field(int32, "0+", default=0)


class AlterPartitionRequest(
    Request[AlterPartitionResponse],
    api_key=56,
    versions="2-3",
    flexible="0+",
    listeners=("controller",),
):
    broker_id: int = field(int32, "0+", default=0)
    broker_epoch: int = field(int64, "0+", default=-1)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

    class TopicData(Struct):
        topic_id: bytes = field(uuid, "2+", ignorable=True, default=ZERO_UUID)
        partitions: list[AlterPartitionRequest.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        new_isr: list[int] = field(array(int32), "0-2", default=FRESH)
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = field(
            array("BrokerState"), "3+", default=FRESH
        )
        leader_recovery_state: int = field(int8, "1+", default=0)
        partition_epoch: int = field(int32, "0+", default=0)

    class BrokerState(Struct):
        broker_id: int = field(int32, "3+", default=0)
        broker_epoch: int = field(int64, "3+", default=-1)
