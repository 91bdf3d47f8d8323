"""ExplainElection (API key 10000), version 0.

Returns the reason why a partition has its leader, or has no leader. Kafka has no such message:
Kraftbox's own tools send it to any broker, which forwards it to the active controller.
"""

from __future__ import annotations

from typing import Final

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
    int64,
    string,
    struct,
)

PARTITIONS_PER_REQUEST_MAX: Final = 100
"""Further partitions get REQUEST_LIMIT_REACHED."""


class ExplainElectionResponse(Response, api_key=10000, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    partitions: list[ExplainedPartition] = field(array("ExplainedPartition"), "0+", default=FRESH)

    class ExplainedPartition(Struct):
        topic: str = field(string, "0+", default="")
        partition: int = field(int32, "0+", default=0)
        # UNKNOWN_TOPIC_OR_PARTITION, REQUEST_LIMIT_REACHED.
        error_code: int = field(int16, "0+", default=0)
        leader: int = field(int32, "0+", default=-1)
        leader_epoch: int = field(int32, "0+", default=-1)
        isr: list[int] = field(array(int32), "0+", default=FRESH)
        elr: list[int] = field(array(int32), "0+", default=FRESH)
        last_known_elr: list[int] = field(array(int32), "0+", default=FRESH)
        # Aggressive, Balanced, None; the config key that sets it, and the level at which it is set.
        strategy: str = field(string, "0+", default="")
        strategy_key: str = field(string, "0+", default="")
        strategy_place: str = field(string, "0+", default="")
        # True if logs are compared (unclean.recovery.manager.enabled).
        manager: bool = field(boolean, "0+", default=False)
        # The event that the election waits for, null if it does not wait; the brokers concerned;
        # since when, in ms since 1970 or -1.
        waits: str | None = field(string, "0+", nullable="0+", default=None)
        waits_for: list[int] = field(array(int32), "0+", default=FRESH)
        since_ms: int = field(int64, "0+", default=-1)
        # In election order.
        candidates: list[ExplainElectionResponse.Candidate] = field(
            array("Candidate"), "0+", default=FRESH
        )
        # Required local-log stats of a replica (KIP-1303), ms and bytes; -1 if the threshold is
        # off.
        local_log_ms: int = field(int64, "0+", tag=0, default=-1)
        local_log_bytes: int = field(int64, "0+", tag=1, default=-1)

    class Candidate(Struct):
        broker: int = field(int32, "0+", default=0)
        sets: list[str] = field(array(string), "0+", default=FRESH)
        eligible: bool = field(boolean, "0+", default=False)
        # Completes "broker N ...".
        reason: str | None = field(string, "0+", nullable="0+", default=None)
        answer: ExplainElectionResponse.Answer | None = field(
            struct("Answer"), "0+", nullable="0+", default=None
        )
        # Null if no threshold is set.
        local_log: ExplainElectionResponse.LocalLog | None = field(
            struct("LocalLog"), "0+", nullable="0+", tag=0, default=None
        )

    class Answer(Struct):
        # The leader epoch of the log's last batch.
        last_epoch: int = field(int32, "0+", default=-1)
        end_offset: int = field(int64, "0+", default=-1)
        age_ms: int = field(int64, "0+", default=0)

    class LocalLog(Struct):
        enough: bool = field(boolean, "0+", default=False)
        # Completes "its local log ...".
        reason: str = field(string, "0+", default="")
        # Timestamp of its first batch, in ms since 1970; its size; age of the report. -1 if
        # unknown.
        start_ms: int = field(int64, "0+", default=-1)
        size_bytes: int = field(int64, "0+", default=-1)
        age_ms: int = field(int64, "0+", default=-1)


class ExplainElectionRequest(
    Request[ExplainElectionResponse],
    api_key=10000,
    versions="0",
    flexible="0+",
    listeners=("broker", "controller"),
):
    topics: list[Topic] = field(array("Topic"), "0+", default=FRESH)

    class Topic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
