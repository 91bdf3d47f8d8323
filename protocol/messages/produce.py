"""Produce (API key 0), versions 3-13.

Appends record batches to partitions. Sent to each partition's leader; the client may have several
requests in flight on a connection and gets the responses in order.

Behaviour
- acks=0: the broker sends no response and can report an error only by closing the connection.
  acks=1: it responds when the leader's log has the batch. acks=-1: it responds when every in-sync
  replica has it, or after `timeout_ms` (the batch stays in the log even then).
- Each partition of a request has exactly one batch of magic 2. Partitions fail one by one; the
  request as a whole has no error code.
- A batch that repeats the producer's recent sequence numbers gets a successful response with its
  original offsets.
- Authorisation: WRITE on the topic, and on the transactional id if the request has one.

Versions
- 0-2 are advertised for old librdkafka (KAFKA-18659) and never served.
- 3 transactional id, batch v2. 4 KAFKA_STORAGE_ERROR. 5 log start offset in the response.
- 7 zstd is allowed (before: UNSUPPORTED_COMPRESSION_TYPE). 8 per-record errors (KIP-467).
- 9 flexible. 10 the error response contains the new leader (KIP-951).
- 11 TRANSACTION_ABORTABLE; 12 adds partitions to the transaction implicitly (KIP-890).
- 13 topic ids instead of names (KIP-516).
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Records,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ProduceResponse(Response, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(
        array("TopicProduceResponse"), "0+", default=FRESH
    )
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    # Addresses of the leaders in current_leader.
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "10+", tag=0, default=FRESH)

    class TopicProduceResponse(Struct):
        name: str = field(string, "0-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = field(
            array("PartitionProduceResponse"), "0+", default=FRESH
        )

    class PartitionProduceResponse(Struct):
        index: int = field(int32, "0+", default=0)
        # NOT_LEADER_OR_FOLLOWER: refresh the metadata (10+: see current_leader).
        # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: refresh the metadata. CORRUPT_MESSAGE:
        # checksum or structure. INVALID_RECORD: see record_errors. INVALID_TIMESTAMP: too far from
        # now. MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE: above max.message.bytes, above
        # segment.bytes. NOT_ENOUGH_REPLICAS: nothing written; _AFTER_APPEND: written.
        # OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH: the producer
        # must start over. INVALID_TXN_STATE: transactional batch without an open transaction.
        # KAFKA_STORAGE_ERROR: the log directory failed.
        error_code: int = field(int16, "0+", default=0)
        # Offset of the first record, -1 with an error.
        base_offset: int = field(int64, "0+", default=0)
        # -1 if the topic keeps the producer's timestamps.
        log_append_time_ms: int = field(int64, "2+", ignorable=True, default=-1)
        # With it, a producer distinguishes an UNKNOWN_PRODUCER_ID after retention from lost
        # records.
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        # The invalid records of the batch; the whole batch is refused.
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            array("BatchIndexAndErrorMessage"), "8+", ignorable=True, default=FRESH
        )
        error_message: str | None = field(string, "8+", nullable="8+", ignorable=True, default=None)
        # Set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, else -1.
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(
            struct("LeaderIdAndEpoch"), "10+", tag=0, default=FRESH
        )

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int = field(int32, "8+", default=0)
        batch_index_error_message: str | None = field(string, "8+", nullable="8+", default=None)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = field(int32, "10+", default=-1)
        leader_epoch: int = field(int32, "10+", default=-1)

    class NodeEndpoint(Struct):
        node_id: int = field(int32, "10+", default=0)
        host: str = field(string, "10+", default="")
        port: int = field(int32, "10+", default=0)
        rack: str | None = field(string, "10+", nullable="10+", default=None)


class ProduceRequest(
    Request[ProduceResponse], api_key=0, versions="3-13", flexible="9+", listeners=("broker",)
):
    # Null unless the batches are part of a transaction.
    transactional_id: str | None = field(string, "3+", nullable="3+", default=None)
    # -1, 0 or 1; other values: INVALID_REQUIRED_ACKS for every partition.
    acks: int = field(int16, "0+", default=0)
    # How long acks=-1 waits for the other replicas; then REQUEST_TIMED_OUT.
    timeout_ms: int = field(int32, "0+", default=0)
    topic_data: list[TopicProduceData] = field(array("TopicProduceData"), "0+", default=FRESH)

    class TopicProduceData(Struct):
        name: str = field(string, "0-12", ignorable=True, default="")
        # An unknown id: UNKNOWN_TOPIC_ID.
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partition_data: list[ProduceRequest.PartitionProduceData] = field(
            array("PartitionProduceData"), "0+", default=FRESH
        )

    class PartitionProduceData(Struct):
        index: int = field(int32, "0+", default=0)
        # When decoded, a slice of the received frame: copy or write it before the frame's buffer is
        # reused.
        records: Records | None = field(records, "0+", nullable="0+", default=b"")
