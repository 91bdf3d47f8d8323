"""Shell: The state of a cluster for fault selection: leaders, followers, controllers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from client.addresses import Address
from client.admin import QUORUM_REQUEST, Admin
from client.cluster_client import ClusterClient
from kraftbox.chaos.first_look import complaint
from kraftbox.chaos.target import Target, TargetError, TargetNode
from protocol.errors import ApiError, ProtocolError
from protocol.messages.metadata import MetadataRequest, MetadataResponse

ASK_MS_MAX = 3_000.0
LOOK_AGAIN_S = 0.1
REASSIGN_MS_MAX = 15_000.0


class PartitionView(NamedTuple):
    """A partition of the topic under test, from a Metadata response; leader -1 means none."""

    number: int
    leader: int
    replicas: list[int]
    isr: list[int]


class Holding(NamedTuple):
    """A partition of any topic in one broker's view, with its min.insync.replicas."""

    name: str
    replicas: frozenset[int]
    isr: frozenset[int]
    min_isr: int

    def can_spare(self, nodes: Collection[int]) -> bool:
        """Return whether enough other in-sync replicas hold all committed records without
        `nodes`.
        """
        return self.replicas.isdisjoint(nodes) or len(self.isr.difference(nodes)) >= self.min_isr


class Scene:
    """The target cluster with the topic under test.

    `min_isr` is the topic's `min.insync.replicas`. Up to `min_isr - 1` brokers may lose unflushed
    data at once without losing acknowledged records (KIP-966).
    """

    def __init__(self, target: Target, topic: str, min_isr: int = 1) -> None:
        self.target = target
        self.topic = topic
        self.min_isr = min_isr
        self.doing = "the fault"
        """The current action, for messages about timeouts."""
        self.lacks = ""
        """The missing node or replica while `wait_until_whole` waits."""
        self._bootstrap: Sequence[Address] = target.bootstrap
        self._client: ClusterClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def members(self) -> list[TargetNode]:
        return await self.target.members()

    async def act(self, action: str, node_id: int) -> None:
        """Carry out the target's action. Raises TargetError."""
        self.doing = f"{action} {node_id}"
        await self.target.act(action, node_id)

    async def brokers(self) -> list[int]:
        """Return the IDs of running brokers."""
        return [one.node_id for one in await self.members() if one.is_broker and one.is_running]

    async def partitions(self) -> list[PartitionView]:
        """Return the partitions in the view of any broker.

        Raises ApiError, OSError, ProtocolError.
        """
        client = await self._connected()
        return _views(await client.metadata([self.topic], ASK_MS_MAX))

    async def _partitions_seen_by(self, node_id: int) -> list[PartitionView]:
        client = await self._connected()
        entry = MetadataRequest.MetadataRequestTopic(name=self.topic)
        request = MetadataRequest(topics=[entry], allow_auto_topic_creation=False)
        return _views(await client.request_broker(node_id, request, ASK_MS_MAX))

    async def holdings(self) -> list[Holding]:
        """Return the partitions of all topics, internal ones included, in each running broker's
        view.

        Raises TargetError.
        """
        client = await self._connected()
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        try:
            answers = await asyncio.gather(
                *(
                    client.request_broker(node_id, request, ASK_MS_MAX)
                    for node_id in await self.brokers()
                )
            )
            names = {topic.name or "" for answer in answers for topic in answer.topics}
            needed = await Admin(client, ASK_MS_MAX).topic_values("min.insync.replicas", names)
        except (ApiError, OSError, ProtocolError) as error:
            raise TargetError(f"no broker returned the ISR: {error}") from None
        return [
            Holding(
                f"{topic.name}-{one.partition_index}",
                frozenset(one.replica_nodes),
                frozenset(one.isr_nodes),
                int(needed[topic.name or ""]),
            )
            for answer in answers
            for topic in answer.topics
            for one in topic.partitions
        ]

    async def controller(self) -> int:
        """Return the active controller. Raises TargetError."""
        client = await self._connected()
        try:
            answer = await client.request_any(QUORUM_REQUEST, ASK_MS_MAX)
            leader: int = answer.topics[0].partitions[0].leader_id
        except (ApiError, OSError, ProtocolError, IndexError) as error:
            raise TargetError(f"no broker returned the active controller: {error}") from None
        return leader

    async def a_leader(self, rng: random.Random) -> PartitionView:
        """Return a random partition that has a leader. Raises TargetError."""
        try:
            found = [one for one in await self.partitions() if one.leader >= 0]
        except (ApiError, OSError, ProtocolError) as error:
            raise TargetError(f"no broker returned the leaders: {error}") from None
        if not found:
            raise TargetError("no partition has a leader")
        return rng.choice(found)

    async def reassign(self, partition: int, replicas: list[int] | None) -> None:
        """Move a partition to other replicas, or cancel the move (None). Raises TargetError."""
        admin = Admin(await self._connected(), REASSIGN_MS_MAX)
        try:
            await admin.reassign((self.topic, partition), replicas)
        except (ApiError, OSError, ProtocolError) as error:
            raise TargetError(f"reassignment: {error}") from None

    async def missing(self) -> str | None:
        """Return what the cluster lacks, None if it is whole.

        It is whole if every node runs and every replica is in sync in the view of all brokers. A
        broker that was cut off does not know yet what it missed, so one broker's view is not
        enough.
        """
        try:
            members = await self.members()
            if not all(one.is_running for one in members):
                return complaint(members) or "a node is starting"
            views = [await self.partitions()]
            brokers = [one.node_id for one in members if one.is_broker]
            views += await asyncio.gather(*map(self._partitions_seen_by, brokers))
        except (ApiError, OSError, ProtocolError, TargetError) as error:
            return f"no complete view of the cluster: {error}"
        for partitions in views:
            if not partitions:
                return f"a broker does not know {self.topic}"
            for one in partitions:
                if not _is_in_sync(one):
                    return (
                        f"{self.topic}-{one.number}: replicas {_ids(one.replicas)}, in sync "
                        f"{_ids(one.isr)}, leader {one.leader if one.leader >= 0 else 'none'}"
                    )
        return None

    async def revive(self) -> None:
        """Start or resume nodes that do not run; failures are ignored."""
        await self.target.heal()
        for member in await self.members():
            for action in () if member.is_running else ("resume", "start"):
                with contextlib.suppress(TargetError):
                    await self.target.act(action, member.node_id)

    async def wait_until_whole(self, wait_s: float) -> bool:
        """Wait until the cluster is whole; return False if it is not within `wait_s`.

        `lacks` has what it lacked when it was last observed.
        """
        self.doing = "the cluster to recover"
        deadline = time.monotonic() + wait_s
        while (lacks := await self.missing()) is not None:
            self.lacks = lacks
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        self.lacks = ""
        return True

    async def _connected(self) -> ClusterClient:
        if self._client is None:
            self._client = await ClusterClient.connect(self._bootstrap, "chaos-scene", ASK_MS_MAX)
        return self._client


def _views(answer: MetadataResponse) -> list[PartitionView]:
    return [
        PartitionView(
            one.partition_index, one.leader_id, list(one.replica_nodes), list(one.isr_nodes)
        )
        for one in answer.topics[0].partitions
    ]


def _ids(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(nodes))) or "none"


def _is_in_sync(one: PartitionView) -> bool:
    return one.leader >= 0 and len(one.isr) == len(one.replicas)
