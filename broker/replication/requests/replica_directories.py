"""Reports of replicas that the controllers have recorded in another log directory (KIP-858).

A broker has one directory, so the controller knows where its replicas are when it places them. It
does not know this if the broker came back with another, empty directory, or if the partition is
older than the records that contain directories. A replica in a directory that its broker has not
registered is not elected, so the broker reports its directory (AssignReplicasToDirs).

It reports only partitions that have a leader. One without a leader may wait for the data on this
broker's former disk. Apache Kafka's controllers would mistake the new, empty replica for the old
one and elect it cleanly.

Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from metalog.image.values import NO_LEADER, PartitionImage
from protocol.errors import ErrorCode
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

PartitionId = tuple[bytes, int]

PARTITIONS_MAX: Final = 1000
"""Maximum number of replicas in one request: the controller writes its records as one batch."""
BACK_OFF_FIRST_MS: Final = 20.0
BACK_OFF_MAX_MS: Final = 10_000.0

# The metadata log contains the report soon, or already.
_SETTLED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class ReplicaDirectories:
    """Queue of replicas to report, with one request in flight."""

    def __init__(self, node_id: int, directory: bytes) -> None:
        self._node_id = node_id
        self._directory = directory
        self._waiting: dict[PartitionId, None] = {}
        self._in_flight: frozenset[PartitionId] | None = None
        self._failures = 0
        self._due_ms = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight or ())

    def look(self, key: PartitionId, partition: PartitionImage) -> bool:
        """Check a partition's newest state. Returns: whether its directory must be reported."""
        wanted = self._is_elsewhere(partition)
        if wanted:
            self._waiting[key] = None
        else:
            self._waiting.pop(key, None)
        return wanted

    def look_at_all(self, keys: Iterable[PartitionId]) -> None:
        """Queue partitions without checking them: the next requests leave out those that need no
        report."""
        self._waiting.update(dict.fromkeys(keys))

    def _is_elsewhere(self, partition: PartitionImage | None) -> bool:
        if partition is None or partition.leader == NO_LEADER:
            return False
        return partition.directory_of(self._node_id) not in (None, self._directory)

    def due_ms(self) -> float | None:
        """Return the earliest time of the next request, or None while one is in flight or none is
        queued."""
        return None if self._in_flight is not None or not self._waiting else self._due_ms

    def next_request(
        self,
        broker_epoch: int,
        partition_of: Callable[[bytes, int], PartitionImage | None],
        now_ms: float,
    ) -> AssignReplicasToDirsRequest | None:
        """Return the request to send now, if any; the caller must call `answered` or `failed`
        afterwards. `partition_of` returns the newest state, so that outdated reports are left out.
        """
        if self._in_flight is not None or now_ms < self._due_ms:
            return None
        sent: list[PartitionId] = []
        # The oldest first: refused reports are queued last, so that none waits behind them.
        for key in list(self._waiting):
            del self._waiting[key]
            if self._is_elsewhere(partition_of(*key)):
                sent.append(key)
                if len(sent) >= PARTITIONS_MAX:
                    break
        if not sent:
            return None
        self._in_flight = frozenset(sent)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=broker_epoch,
            directories=[
                AssignReplicasToDirsRequest.DirectoryData(id=self._directory, topics=_topics(sent))
            ],
        )

    def failed(self, now_ms: float) -> None:
        """Handle a missing answer or an error for the whole request: report all again later."""
        sent, self._in_flight = self._in_flight or frozenset(), None
        self._again(sent, now_ms)

    def controller_moved(self) -> None:
        """End the backoff after failures of an earlier controller."""
        self._failures, self._due_ms = 0, 0.0

    def answered(self, response: AssignReplicasToDirsResponse, now_ms: float) -> None:
        """Queue refused reports again for a later time; those that are no longer needed count as
        settled."""
        if response.error_code:
            self.failed(now_ms)
            return
        sent, self._in_flight = self._in_flight or frozenset(), None
        settled = {
            (topic.topic_id, told.partition_index)
            for directory in response.directories
            for topic in directory.topics
            for told in topic.partitions
            if told.error_code in _SETTLED
        }
        refused = sent - settled
        if refused:
            self._again(refused, now_ms)
        else:
            self._failures = 0

    def _again(self, keys: Iterable[PartitionId], now_ms: float) -> None:
        self._waiting.update(dict.fromkeys(keys))
        self._failures = min(self._failures + 1, 16)
        pause_ms = BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1)
        self._due_ms = now_ms + min(pause_ms, BACK_OFF_MAX_MS)


def _topics(keys: Iterable[PartitionId]) -> list[AssignReplicasToDirsRequest.TopicData]:
    topics: dict[bytes, AssignReplicasToDirsRequest.TopicData] = {}
    for topic_id, index in sorted(keys):
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = AssignReplicasToDirsRequest.TopicData(topic_id=topic_id)
        topic.partitions.append(AssignReplicasToDirsRequest.PartitionData(partition_index=index))
    return list(topics.values())
