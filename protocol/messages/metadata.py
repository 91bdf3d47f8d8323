"""Metadata (API key 3), versions 0-13."""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    string,
    uuid,
)


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True, default=0)
    brokers: list[MetadataResponseBroker] = field(
        array("MetadataResponseBroker"), "0+", default=FRESH
    )
    cluster_id: str | None = field(string, "2+", nullable="2+", ignorable=True, default=None)
    controller_id: int = field(int32, "1+", ignorable=True, default=-1)
    topics: list[MetadataResponseTopic] = field(array("MetadataResponseTopic"), "0+", default=FRESH)
    cluster_authorized_operations: int = field(int32, "8-10", default=-2147483648)
    error_code: int = field(int16, "13+", ignorable=True, default=0)

    class MetadataResponseBroker(Struct):
        node_id: int = field(int32, "0+", default=0)
        host: str = field(string, "0+", default="")
        port: int = field(int32, "0+", default=0)
        rack: str | None = field(string, "1+", nullable="1+", ignorable=True, default=None)

    class MetadataResponseTopic(Struct):
        error_code: int = field(int16, "0+", default=0)
        name: str | None = field(string, "0+", nullable="12+", default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        is_internal: bool = field(boolean, "1+", ignorable=True, default=False)
        partitions: list[MetadataResponse.MetadataResponsePartition] = field(
            array("MetadataResponsePartition"), "0+", default=FRESH
        )
        topic_authorized_operations: int = field(int32, "8+", default=-2147483648)

    class MetadataResponsePartition(Struct):
        error_code: int = field(int16, "0+", default=0)
        partition_index: int = field(int32, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "7+", ignorable=True, default=-1)
        replica_nodes: list[int] = field(array(int32), "0+", default=FRESH)
        isr_nodes: list[int] = field(array(int32), "0+", default=FRESH)
        offline_replicas: list[int] = field(array(int32), "5+", ignorable=True, default=FRESH)


class MetadataRequest(
    Request[MetadataResponse], api_key=3, versions="0-13", flexible="9+", listeners=("broker",)
):
    topics: list[MetadataRequestTopic] | None = field(
        array("MetadataRequestTopic"), "0+", nullable="1+", default=FRESH
    )
    allow_auto_topic_creation: bool = field(boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = field(boolean, "8-10", default=False)
    include_topic_authorized_operations: bool = field(boolean, "8+", default=False)

    class MetadataRequestTopic(Struct):
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        name: str | None = field(string, "0+", nullable="10+", default="")
