"""ProducerSnapshot, version 1."""

from __future__ import annotations

from protocol.schema import FRESH, Message, Struct, array, field, int16, int32, int64, uint32


class ProducerSnapshot(Message, versions="1"):
    crc: int = field(uint32, "1", default=0)
    producer_entries: list[ProducerEntry] = field(array("ProducerEntry"), "1", default=FRESH)

    class ProducerEntry(Struct):
        producer_id: int = field(int64, "1", default=0)
        epoch: int = field(int16, "1", default=0)
        last_sequence: int = field(int32, "1", default=0)
        last_offset: int = field(int64, "1", default=0)
        offset_delta: int = field(int32, "1", default=0)
        timestamp: int = field(int64, "1", default=0)
        coordinator_epoch: int = field(int32, "1", default=0)
        current_txn_first_offset: int = field(int64, "1", default=0)
