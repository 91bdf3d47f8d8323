"""Metadata (API key 3), versions 0-13.

Returns the brokers, the partitions of topics, and their leaders. Any broker responds from its own
copy of the metadata, which may be slightly outdated.

Behaviour
- Topics by name or (12+) by id; null means all, an empty list none. A request for all omits topics
  that the client may not see, and never creates one.
- A topic that does not exist is created if the request and `auto.create.topics.enable` allow it;
  the error is UNKNOWN_TOPIC_OR_PARTITION until it exists.
- Broker addresses are those of the listener that received the request; a leader without that
  listener gets LISTENER_NOT_FOUND. Fenced brokers are not listed.
- `controller_id` is a random live broker: clients send it controller requests, which it forwards.
- Authorisation: DESCRIBE on each topic; CREATE if one is created.

Versions
- 0 an empty list means all. 1 racks, controller, internal flag. 2 cluster id. 4 auto creation can
  be refused. 5 offline replicas. 7 leader epoch. 8 authorised operations. 9 flexible.
- 10 topic ids in the response; requests by id work from 12 on. 11 without cluster operations
  (DescribeCluster has them). 13 a top-level error code (KIP-1102).
"""

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
    # One bit per operation; the smallest int32 if not requested.
    cluster_authorized_operations: int = field(int32, "8-10", default=-2147483648)
    # REBOOTSTRAP_REQUIRED: discard the metadata and start from bootstrap.servers.
    error_code: int = field(int16, "13+", ignorable=True, default=0)

    class MetadataResponseBroker(Struct):
        node_id: int = field(int32, "0+", default=0)
        host: str = field(string, "0+", default="")
        port: int = field(int32, "0+", default=0)
        rack: str | None = field(string, "1+", nullable="1+", ignorable=True, default=None)

    class MetadataResponseTopic(Struct):
        # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: does not exist (yet).
        # INVALID_TOPIC_EXCEPTION: illegal name. TOPIC_AUTHORIZATION_FAILED. LEADER_NOT_AVAILABLE:
        # being created.
        error_code: int = field(int16, "0+", default=0)
        name: str | None = field(string, "0+", nullable="12+", default="")
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        is_internal: bool = field(boolean, "1+", ignorable=True, default=False)
        partitions: list[MetadataResponse.MetadataResponsePartition] = field(
            array("MetadataResponsePartition"), "0+", default=FRESH
        )
        topic_authorized_operations: int = field(int32, "8+", default=-2147483648)

    class MetadataResponsePartition(Struct):
        # LEADER_NOT_AVAILABLE: no leader now. LISTENER_NOT_FOUND: the leader lacks this listener.
        # REPLICA_NOT_AVAILABLE, in version 0 only: a replica or in-sync replica is not alive.
        error_code: int = field(int16, "0+", default=0)
        partition_index: int = field(int32, "0+", default=0)
        # -1 without a leader.
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "7+", ignorable=True, default=-1)
        replica_nodes: list[int] = field(array(int32), "0+", default=FRESH)
        isr_nodes: list[int] = field(array(int32), "0+", default=FRESH)
        offline_replicas: list[int] = field(array(int32), "5+", ignorable=True, default=FRESH)


class MetadataRequest(
    Request[MetadataResponse], api_key=3, versions="0-13", flexible="9+", listeners=("broker",)
):
    # Null: all (version 0: empty means all).
    topics: list[MetadataRequestTopic] | None = field(
        array("MetadataRequestTopic"), "0+", nullable="1+", default=FRESH
    )
    allow_auto_topic_creation: bool = field(boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = field(boolean, "8-10", default=False)
    include_topic_authorized_operations: bool = field(boolean, "8+", default=False)

    class MetadataRequestTopic(Struct):
        # With an id, the name is null. Ids before version 12: INVALID_REQUEST.
        topic_id: bytes = field(uuid, "10+", ignorable=True, default=ZERO_UUID)
        name: str | None = field(string, "0+", nullable="10+", default="")
