"""TransactionLog, key and value (record type 0); value versions 0-1."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    CoordinatorRecord,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
)


class TransactionLogKey(CoordinatorRecord, record_type=0, versions="0"):
    transactional_id: str = field(string, "0", default="")


class TransactionLogValue(CoordinatorRecord, record_type=0, versions="0-1", flexible="1+"):
    producer_id: int = field(int64, "0+", default=0)
    previous_producer_id: int = field(int64, "1+", tag=0, default=-1)
    next_producer_id: int = field(int64, "1+", tag=1, default=-1)
    producer_epoch: int = field(int16, "0+", default=0)
    next_producer_epoch: int = field(int16, "1+", tag=3, default=-1)
    transaction_timeout_ms: int = field(int32, "0+", default=0)
    transaction_status: int = field(int8, "0+", default=0)
    transaction_partitions: list[PartitionsSchema] | None = field(
        array("PartitionsSchema"), "0+", nullable="0+", default=FRESH
    )
    transaction_last_update_timestamp_ms: int = field(int64, "0+", default=0)
    transaction_start_timestamp_ms: int = field(int64, "0+", default=0)
    client_transaction_version: int = field(int16, "1+", tag=2, default=0)

    class PartitionsSchema(Struct):
        topic: str = field(string, "0+", default="")
        partition_ids: list[int] = field(array(int32), "0+", default=FRESH)
