"""A Kafka client over asyncio, for commands, chaos runs, tests and studies.

    async with await ClusterClient.connect("localhost:9092") as client:
        await Admin(client).create_topic("orders", partitions=3)
        async with IdempotentProducer(client) as producer:
            placed = await producer.send("orders", 0, [Record(value=b"a"), Record(value=b"b")])
        consumer = Consumer(client)
        consumer.assign({("orders", 0): placed.base_offset})
        records = await consumer.poll()

It imports `protocol` and `runtime` only, and no node imports it. docs/client.md describes all of
it. The names below are imported at their first use, so that a command loads only the modules it
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client.admin import Admin as Admin
    from client.admin import ConfigChange as ConfigChange
    from client.admin import ConfigOperation as ConfigOperation
    from client.admin import NewTopic as NewTopic
    from client.admin import ResourceType as ResourceType
    from client.cluster_client import EARLIEST as EARLIEST
    from client.cluster_client import LATEST as LATEST
    from client.cluster_client import ClusterClient as ClusterClient
    from client.consumer import Consumer as Consumer
    from client.errors import ClientError as ClientError
    from client.errors import Refused as Refused
    from client.group_member import GroupMember as GroupMember
    from client.offsets import commit as commit
    from client.offsets import committed as committed
    from client.offsets import offsets_at as offsets_at
    from client.offsets import partitions_of as partitions_of
    from client.partitioner import partition_of as partition_of
    from client.producer import IdempotentProducer as IdempotentProducer
    from client.producer import NotProduced as NotProduced
    from client.visible_records import Received as Received
    from protocol.batch.records import Record as Record
    from protocol.compression import Codec as Codec
    from protocol.errors import ApiError as ApiError
    from protocol.errors import ErrorCode as ErrorCode

_MODULES = {
    "client.admin": ("Admin", "ConfigChange", "ConfigOperation", "NewTopic", "ResourceType"),
    "client.cluster_client": ("EARLIEST", "LATEST", "ClusterClient"),
    "client.consumer": ("Consumer",),
    "client.errors": ("ClientError", "Refused"),
    "client.group_member": ("GroupMember",),
    "client.offsets": ("commit", "committed", "offsets_at", "partitions_of"),
    "client.partitioner": ("partition_of",),
    "client.producer": ("IdempotentProducer", "NotProduced"),
    "client.visible_records": ("Received",),
    "protocol.batch.records": ("Record",),
    "protocol.compression": ("Codec",),
    "protocol.errors": ("ApiError", "ErrorCode"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
