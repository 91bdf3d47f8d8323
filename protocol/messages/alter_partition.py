"""AlterPartition (API key 56), versions 2-4; version 4 is unstable.

A partition's leader proposes another in-sync set; the active controller decides.

Behaviour
- An in-sync set equal to the present one is accepted, too: it increases the partition epoch, and
  reports the members' local-log stats.
- A partition epoch makes every change a compare-and-set: the request contains the epoch that the
  leader knows, the response the present state, changed or not.
- Brokers that are fenced, in controlled shutdown, or registered under another epoch may not join
  the set.
- One request per broker is in flight, for many partitions.
- Authorisation: CLUSTER_ACTION on the cluster.

Versions
- 2 topic ids, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED (KIP-841). 3 broker epochs of the members
  (KIP-903).
- 4 local-log stats of the members (KIP-1303). No Kafka release has it: only Kraftbox nodes use it,
  and a sender uses it only by explicit number.
"""

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


class AlterPartitionResponse(Response, api_key=56, versions="2-4", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    # STALE_BROKER_EPOCH: the sender must register first. NOT_CONTROLLER: find the active one.
    # CLUSTER_AUTHORIZATION_FAILED.
    error_code: int = field(int16, "0+", default=0)
    topics: list[TopicData] = field(array("TopicData"), "0+", default=FRESH)

    class TopicData(Struct):
        topic_id: bytes = field(uuid, "2+", ignorable=True, default=ZERO_UUID)
        partitions: list[AlterPartitionResponse.PartitionData] = field(
            array("PartitionData"), "0+", default=FRESH
        )

    class PartitionData(Struct):
        partition_index: int = field(int32, "0+", default=0)
        # INVALID_UPDATE_VERSION: the partition epoch is behind, wait for the metadata.
        # FENCED_LEADER_EPOCH: so is the leader epoch. NOT_CONTROLLER: the controller is not active,
        # or itself behind. INELIGIBLE_REPLICA: a member may not be in the set, remove it.
        # NEW_LEADER_ELECTED: accepted, but the sender no longer leads. INVALID_REQUEST: members
        # that are not replicas, or the leader is missing. UNKNOWN_TOPIC_ID,
        # UNKNOWN_TOPIC_OR_PARTITION: deleted; retry until the metadata confirms it.
        # OPERATION_NOT_ATTEMPTED: retry.
        error_code: int = field(int16, "0+", default=0)
        leader_id: int = field(int32, "0+", default=0)
        leader_epoch: int = field(int32, "0+", default=0)
        isr: list[int] = field(array(int32), "0+", default=FRESH)
        leader_recovery_state: int = field(int8, "1+", ignorable=True, default=0)
        partition_epoch: int = field(int32, "0+", default=0)


class AlterPartitionRequest(
    Request[AlterPartitionResponse],
    api_key=56,
    versions="2-4",
    flexible="0+",
    unstable="4",
    on_request="4",
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
        # Version 2; from 3 on new_isr_with_epochs.
        new_isr: list[int] = field(array(int32), "0-2", default=FRESH)
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = field(
            array("BrokerState"), "3+", default=FRESH
        )
        # 0 recovered, 1 recovering after an unclean election; then the set contains the leader
        # only.
        leader_recovery_state: int = field(int8, "1+", default=0)
        # The last partition epoch that the leader knows.
        partition_epoch: int = field(int32, "0+", default=0)

    class BrokerState(Struct):
        broker_id: int = field(int32, "3+", default=0)
        # -1 if the leader does not know it: not checked.
        broker_epoch: int = field(int64, "3+", default=-1)
        # As in Fetch; -1 if the leader has no stats from this broker epoch.
        local_log_start_timestamp: int = field(int64, "4+", ignorable=True, default=-1)
        local_log_size_bytes: int = field(int64, "4+", ignorable=True, default=-1)
