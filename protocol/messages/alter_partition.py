"""AlterPartition (API key 56), versions 2-4; version 4 is unstable.

A partition's leader proposes another in-sync set; the active controller decides.

Behaviour
- An in-sync set equal to the one that holds is accepted as well: it moves the partition epoch, and
  carries what the members have locally.
- A partition epoch makes every change a compare-and-set: the leader names the epoch it knows, the
  answer carries the state that holds now, changed or not.
- Brokers that are fenced, in controlled shutdown, or registered under another epoch may not enter.
- One request per broker is in flight, for many partitions.
- Authorisation: CLUSTER_ACTION on the cluster.

Versions
- 2 topic ids, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED (KIP-841). 3 broker epochs of the members
  (KIP-903).
- 4 what the members have of the log locally (KIP-1303). No Kafka has released it: it is between our
  own nodes, and a sender takes it by number only.
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
        # FENCED_LEADER_EPOCH: so is the leader epoch. NOT_CONTROLLER: the controller is not
        # active, or itself behind. INELIGIBLE_REPLICA: a member may not be in sync, drop it.
        # NEW_LEADER_ELECTED: accepted, but the sender no longer leads. INVALID_REQUEST: members
        # that are no replicas, or the leader left out. UNKNOWN_TOPIC_ID,
        # UNKNOWN_TOPIC_OR_PARTITION: deleted; keep trying until the metadata says so.
        # OPERATION_NOT_ATTEMPTED: ask again.
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
        # 0 recovered, 1 recovering after an unclean election; then the set holds the leader alone.
        leader_recovery_state: int = field(int8, "1+", default=0)
        # The last the leader knows.
        partition_epoch: int = field(int32, "0+", default=0)

    class BrokerState(Struct):
        broker_id: int = field(int32, "3+", default=0)
        # -1 if the leader does not know it: not checked.
        broker_epoch: int = field(int64, "3+", default=-1)
        # As in Fetch; -1 where the leader does not know it of this broker epoch.
        local_log_start_timestamp: int = field(int64, "4+", ignorable=True, default=-1)
        local_log_size_bytes: int = field(int64, "4+", ignorable=True, default=-1)
