"""Cache of a cluster's brokers, topic IDs and leaders.

Each leader is stored with its epoch. A response is newer if its epoch is higher, not if it arrives
later: brokers learn of elections at different times, and an older response would send the client
back to a deposed leader (KIP-320). Only a new topic ID resets the epochs. A broker that lags behind
may report the previous ID, or no such topic, for a while. So the leaders of the last ID are kept.

The address in a leader hint (KIP-951) is kept if a Metadata response does not contain that node
yet.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from client.addresses import Address
from protocol.ids import ZERO_UUID
from protocol.messages.metadata import MetadataResponse

TopicPartition: TypeAlias = tuple[str, int]
"""The name of a topic and the index of one of its partitions."""


class Leader(NamedTuple):
    """The known leader of a partition; -1 means none."""

    node_id: int
    epoch: int


class LeaderCache:
    """Brokers, topic IDs and leaders, from Metadata and from hints in other responses."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.cluster_id: str | None = None
        self._before: dict[str, tuple[bytes, dict[TopicPartition, Leader]]] = {}
        """The previous ID of each topic, with the leaders of its partitions."""

    def is_led(self, partition: TopicPartition) -> bool:
        """Return whether a leader of this partition is known."""
        leader = self.leaders.get(partition)
        return leader is not None and leader.node_id >= 0

    def learn(self, answer: MetadataResponse) -> None:
        """Update the cache with a Metadata response."""
        self.cluster_id = answer.cluster_id
        known = self.brokers
        self.brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
        for topic in answer.topics:
            if topic.error_code or topic.name is None:
                continue
            if topic.topic_id != self.topic_ids.get(topic.name, ZERO_UUID):
                self._turn_to(topic.name, topic.topic_id)
            for one in topic.partitions:
                self.advance(
                    (topic.name, one.partition_index), Leader(one.leader_id, one.leader_epoch)
                )
        # The response may be older than a hint: keep the addresses of known leaders.
        for leader in self.leaders.values():
            if leader.node_id not in self.brokers and leader.node_id in known:
                self.brokers[leader.node_id] = known[leader.node_id]

    def advance(self, partition: TopicPartition, leader: Leader) -> bool:
        """Store a leader if its epoch is newer than the known one, or if there are no epochs."""
        known = self.leaders.get(partition)
        if known is not None and leader.epoch >= 0 and leader.epoch <= known.epoch:
            return False
        self.leaders[partition] = leader
        return True

    def hint(self, partition: TopicPartition, leader: Leader, address: Address | None) -> bool:
        """Store the leader that a response named (KIP-951).

        Returns True if it is newer than the known one and has a known address. `address` replaces
        the known address of that node.
        """
        if address is None:
            address = self.brokers.get(leader.node_id)
        if leader.epoch < 0 or address is None or not self.advance(partition, leader):
            return False
        self.brokers[leader.node_id] = address
        return True

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted or recreated."""
        topic_id = self.topic_ids.pop(topic, ZERO_UUID)
        leaders = {one: leader for one, leader in self.leaders.items() if one[0] == topic}
        for partition in leaders:
            del self.leaders[partition]
        if topic_id != ZERO_UUID:
            self._before[topic] = topic_id, leaders

    def _turn_to(self, topic: str, topic_id: bytes) -> None:
        before_id, leaders = self._before.pop(topic, (ZERO_UUID, {}))
        if topic in self.topic_ids:
            self.forget(topic)
        if topic_id != ZERO_UUID:
            self.topic_ids[topic] = topic_id
            if topic_id == before_id:
                self.leaders.update(leaders)
