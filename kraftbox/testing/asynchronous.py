"""The cluster for tests that are coroutines: blocking methods run in a thread.

A test whose own client runs on the event loop must not block it while a node starts. Properties
that do not block, such as `bootstrap_servers`, are those of the plain cluster.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Collection, Mapping
from typing import Any

from kraftbox.testing.cluster import KafkaCluster, KafkaNode, Partition
from kraftbox.testing.healing import Repair
from kraftbox.testing.links import KafkaLink
from kraftbox.testing.records import Headers, Record, Value
from kraftbox.testing.running import WAIT_S

__tracebackhide__ = True


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


class AsyncKafkaLink:
    """A link with awaitable methods; they are those of KafkaLink."""

    def __init__(self, plain: KafkaLink) -> None:
        self.plain = plain

    def __repr__(self) -> str:
        return repr(self.plain)

    async def slow(
        self,
        delay_ms: float = 100.0,
        *,
        jitter_ms: float = 0.0,
        rate_bytes_per_s: int = 0,
        one_way: bool = False,
    ) -> None:
        await to_thread(
            self.plain.slow,
            delay_ms,
            jitter_ms=jitter_ms,
            rate_bytes_per_s=rate_bytes_per_s,
            one_way=one_way,
        )

    async def lossy(self, loss: float = 0.1, *, one_way: bool = False) -> None:
        await to_thread(self.plain.lossy, loss, one_way=one_way)

    async def cut(self, *, one_way: bool = False) -> None:
        await to_thread(self.plain.cut, one_way=one_way)

    async def heal(self) -> None:
        await to_thread(self.plain.heal)


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

    def __repr__(self) -> str:
        return repr(self.plain)

    def node(self, node_id: int) -> AsyncKafkaNode:
        return self.nodes[self.plain.node(node_id).id]

    async def heal(self, *, but: Collection[int] = (), timeout_s: float = WAIT_S) -> list[Repair]:
        return await to_thread(self.plain.heal, but=but, timeout_s=timeout_s)

    def link(self, a: int | str, b: int | str) -> AsyncKafkaLink:
        return AsyncKafkaLink(self.plain.link(a, b))

    async def controller(self, *, timeout_s: float = WAIT_S) -> AsyncKafkaNode:
        found = await to_thread(self.plain.controller, timeout_s=timeout_s)
        return self.nodes[found.id]

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
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> AsyncKafkaNode:
        found = await to_thread(
            self.plain.leader, topic, partition, other_than=other_than, timeout_s=timeout_s
        )
        return self.nodes[found.id]

    async def wait_until_in_sync(self, timeout_s: float = WAIT_S) -> None:
        await to_thread(self.plain.wait_until_in_sync, timeout_s)

    async def alter_config(
        self,
        values: Mapping[str, object],
        *,
        topic: str | None = None,
        broker: int | None = None,
        group: str | None = None,
    ) -> None:
        await to_thread(self.plain.alter_config, values, topic=topic, broker=broker, group=group)

    async def group_lag(self, group: str) -> dict[tuple[str, int], int | None]:
        return await to_thread(self.plain.group_lag, group)

    async def elect(
        self,
        topic: str,
        partition: int = 0,
        *,
        kind: str = "preferred",
        leader: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> AsyncKafkaNode:
        found = await to_thread(
            self.plain.elect, topic, partition, kind=kind, leader=leader, timeout_s=timeout_s
        )
        return self.nodes[found.id]

    async def explain(self, topic: str, partition: int = 0) -> dict[str, Any]:
        return await to_thread(self.plain.explain, topic, partition)

    async def produce(
        self,
        topic: str,
        *values: Value,
        key: bytes | str | None = None,
        headers: Headers | Mapping[str, bytes | str | None] = (),
        partition: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> list[Record]:
        return await to_thread(
            self.plain.produce,
            topic,
            *values,
            key=key,
            headers=headers,
            partition=partition,
            timeout_s=timeout_s,
        )

    async def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> list[Record]:
        return await to_thread(
            self.plain.consume, topic, count, partition=partition, timeout_s=timeout_s
        )

    async def reset(self) -> None:
        await to_thread(self.plain.reset)
