"""Produce (API key 0), versions 3-13.

Appends record batches to partitions. Sent to each partition's leader; the client may have several
requests in flight on a connection and gets the answers in order.

Behaviour
- acks=0: no answer is sent at all; an error can only be shown by closing the connection. acks=1:
  answered when the leader's log has the batch. acks=-1: answered when every replica in sync has
  it, or after `timeout_ms` (the batch stays in the log even then).
- Each partition holds exactly one batch of magic 2. Partitions fail one by one; the request as a
  whole has no error code.
- A batch that repeats the producer's recent sequence numbers is answered as written, with the
  offsets it got the first time.
- Authorisation: WRITE on the topic, and on the transactional id where there is one.

Versions
- 0-2 are advertised for old librdkafka (KAFKA-18659) and never served.
- 3 transactional id, batch v2. 4 KAFKA_STORAGE_ERROR. 5 log start offset in the answer.
- 7 zstd is allowed (before: UNSUPPORTED_COMPRESSION_TYPE). 8 per-record errors (KIP-467).
- 9 flexible. 10 the new leader comes with the error that asks for it (KIP-951).
- 11 TRANSACTION_ABORTABLE; 12 adds partitions to the transaction on the way (KIP-890).
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
    # Addresses of the leaders named in current_leader.
    node_endpoints: list[NodeEndpoint] = field(array("NodeEndpoint"), "10+", tag=0, default=FRESH)

    class TopicProduceResponse(Struct):
        name: str = field(string, "0-12", ignorable=True, default="")
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = field(
            array("PartitionProduceResponse"), "0+", default=FRESH
        )

    class PartitionProduceResponse(Struct):
        index: int = field(int32, "0+", default=0)
        # NOT_LEADER_OR_FOLLOWER: ask for metadata (10+: see current_leader).
        # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: likewise. CORRUPT_MESSAGE: checksum or
        # structure. INVALID_RECORD: see record_errors. INVALID_TIMESTAMP: too far from now.
        # MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE: above max.message.bytes, above segment.bytes.
        # NOT_ENOUGH_REPLICAS: nothing written; _AFTER_APPEND: written.
        # OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH: the producer
        # must start over. INVALID_TXN_STATE: transactional batch without an open transaction.
        # KAFKA_STORAGE_ERROR: the log directory failed.
        error_code: int = field(int16, "0+", default=0)
        # Offset of the first record, -1 with an error.
        base_offset: int = field(int64, "0+", default=0)
        # -1 when the topic keeps the producer's timestamps.
        log_append_time_ms: int = field(int64, "2+", ignorable=True, default=-1)
        # Lets a producer tell an UNKNOWN_PRODUCER_ID after retention from lost records.
        log_start_offset: int = field(int64, "5+", ignorable=True, default=-1)
        # Which records of the batch were refused; the whole batch is.
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            array("BatchIndexAndErrorMessage"), "8+", ignorable=True, default=FRESH
        )
        error_message: str | None = field(string, "8+", nullable="8+", ignorable=True, default=None)
        # Set with NOT_LEADER_OR_FOLLOWER, else -1.
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
    # -1, 0 or 1; anything else is INVALID_REQUIRED_ACKS for every partition.
    acks: int = field(int16, "0+", default=0)
    # How long acks=-1 may wait for the other replicas; then REQUEST_TIMED_OUT.
    timeout_ms: int = field(int32, "0+", default=0)
    topic_data: list[TopicProduceData] = field(array("TopicProduceData"), "0+", default=FRESH)

    class TopicProduceData(Struct):
        name: str = field(string, "0-12", ignorable=True, default="")
        # An id the broker does not know is UNKNOWN_TOPIC_ID.
        topic_id: bytes = field(uuid, "13+", ignorable=True, default=ZERO_UUID)
        partition_data: list[ProduceRequest.PartitionProduceData] = field(
            array("PartitionProduceData"), "0+", default=FRESH
        )

    class PartitionProduceData(Struct):
        index: int = field(int32, "0+", default=0)
        # A slice of the received frame when decoded: copy it or write it before the frame's buffer
        # is used again.
        records: Records | None = field(records, "0+", nullable="0+", default=b"")
