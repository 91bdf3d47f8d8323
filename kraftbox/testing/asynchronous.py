"""The cluster for tests that are coroutines: blocking methods run in a thread.

A test whose own client runs on the event loop must not block it while a node starts. Properties
that do not block, such as `bootstrap_servers`, are those of the plain cluster.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping

from kraftbox.testing.cluster import WAIT_S, KafkaCluster, KafkaNode, Partition
from kraftbox.testing.records import Record


class AsyncKafkaNode:
    """A node with awaitable methods; `plain` is the node with blocking methods."""

    def __init__(self, plain: KafkaNode) -> None:
        self.plain = plain
        self.id = plain.id

    def __repr__(self) -> str:
        return repr(self.plain)

    @property
    def address(self) -> str:
        """The node's address for clients; see KafkaNode."""
        return self.plain.address

    async def state(self) -> str:
        """Return the node's state; this and the following methods are those of KafkaNode."""
        return await to_thread(lambda: self.plain.state)

    async def kill(self) -> None:
        await to_thread(self.plain.kill)

    async def stop(self) -> None:
        await to_thread(self.plain.stop)

    async def start(self) -> None:
        await to_thread(self.plain.start)

    async def restart(self) -> None:
        await to_thread(self.plain.restart)

    async def pause(self) -> None:
        await to_thread(self.plain.pause)

    async def resume(self) -> None:
        await to_thread(self.plain.resume)

    async def cut_off(self) -> None:
        await to_thread(self.plain.cut_off)

    async def reconnect(self) -> None:
        await to_thread(self.plain.reconnect)


class AsyncKafkaCluster:
    """A cluster with awaitable methods; `plain` is the cluster with blocking methods."""

    def __init__(self, plain: KafkaCluster) -> None:
        self.plain = plain
        self.nodes = {node_id: AsyncKafkaNode(node) for node_id, node in plain.nodes.items()}

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses; this and the following members are those of KafkaCluster."""
        return self.plain.bootstrap_servers

    @property
    def brokers(self) -> list[AsyncKafkaNode]:
        return [self.nodes[node.id] for node in self.plain.brokers]

    @property
    def controllers(self) -> list[AsyncKafkaNode]:
        return [self.nodes[node.id] for node in self.plain.controllers]

    def node(self, node_id: int) -> AsyncKafkaNode:
        return self.nodes[node_id]

    async def controller(self) -> AsyncKafkaNode:
        return self.nodes[(await to_thread(self.plain.controller)).id]

    async def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        return await to_thread(
            self.plain.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )

    async def delete_topic(self, name: str) -> None:
        await to_thread(self.plain.delete_topic, name)

    async def topics(self, *, internal: bool = False) -> dict[str, list[Partition]]:
        return await to_thread(self.plain.topics, internal=internal)

    async def partitions(self, topic: str) -> list[Partition]:
        return await to_thread(self.plain.partitions, topic)

    async def leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None
    ) -> AsyncKafkaNode:
        found = await to_thread(self.plain.leader, topic, partition, other_than=other_than)
        return self.nodes[found.id]

    async def wait_until_in_sync(self, timeout_s: float = WAIT_S) -> None:
        await to_thread(self.plain.wait_until_in_sync, timeout_s)

    async def produce(
        self, topic: str, *values: bytes | str | Record | None, partition: int | None = None
    ) -> list[Record]:
        return await to_thread(self.plain.produce, topic, *values, partition=partition)

    async def consume(
        self, topic: str, count: int | None = None, *, timeout_s: float = WAIT_S
    ) -> list[Record]:
        return await to_thread(self.plain.consume, topic, count, timeout_s=timeout_s)

    async def reset(self) -> None:
        await to_thread(self.plain.reset)
