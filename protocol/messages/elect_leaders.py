"""ElectLeaders (API key 43), versions 0-3; version 3 is unstable.

No Kafka release has version 3 (KIP-966): it is for Kraftbox's own tools.
"""

from __future__ import annotations

from typing import Final

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
    string,
)

PARTITIONS_PER_REQUEST_MAX: Final = 1_000
"""Limit in version 3; further partitions get REQUEST_LIMIT_REACHED."""


class ElectLeadersResponse(Response, api_key=43, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(
        array("ReplicaElectionResult"), "0+", default=FRESH
    )

    class ReplicaElectionResult(Struct):
        topic: str = field(string, "0+", default="")
        partition_result: list[ElectLeadersResponse.PartitionResult] = field(
            array("PartitionResult"), "0+", default=FRESH
        )

    class PartitionResult(Struct):
        partition_id: int = field(int32, "0+", default=0)
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "0+", nullable="0+", default="")


class ElectLeadersRequest(
    Request[ElectLeadersResponse],
    api_key=43,
    versions="0-3",
    flexible="2+",
    unstable="3",
    listeners=("broker", "controller"),
):
    election_type: int = field(int8, "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(
        array("TopicPartitions"), "0+", nullable="0+", default=FRESH
    )
    timeout_ms: int = field(int32, "0+", default=60000)

    class TopicPartitions(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
        desired_leaders: list[int] | None = field(array(int32), "3+", nullable="3+", default=None)
