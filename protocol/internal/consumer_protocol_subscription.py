"""ConsumerProtocolSubscription, versions 0-3."""

from __future__ import annotations

from protocol.schema import FRESH, Message, Struct, array, bytes_, field, int32, string


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = field(array(string), "0+", default=FRESH)
    user_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(
        array("TopicPartition"), "1+", ignorable=True, default=FRESH
    )
    generation_id: int = field(int32, "2+", ignorable=True, default=-1)
    rack_id: str | None = field(string, "3+", nullable="3+", ignorable=True, default=None)

    class TopicPartition(Struct):
        topic: str = field(string, "1+", default="")
        partitions: list[int] = field(array(int32), "1+", default=FRESH)
