"""ConsumerProtocolAssignment, versions 0-3."""

from __future__ import annotations

from protocol.schema import FRESH, Message, Struct, array, bytes_, field, int32, string


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = field(array("TopicPartition"), "0+", default=FRESH)
    user_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)

    class TopicPartition(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
