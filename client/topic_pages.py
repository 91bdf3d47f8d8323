"""Paging of topic descriptions: the next request, and the merged pages (KIP-966).

A broker responds with a limited number of partitions and the cursor of the next page. The pages are
not a consistent snapshot: a topic that is deleted in between is described as far as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ProtocolError
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.metadata import MetadataResponse

NAMES_MAX = 1_000
"""Maximum topics named in one request; longer lists are split."""

DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


class TopicPages:
    """The pages of these topics, or of every topic (None); `found` is sorted by name.

    Send `request` and pass the response to `take`, until `request` is None.
    """

    def __init__(self, names: Sequence[str] | None) -> None:
        self.found: list[DescribedTopic] = []
        ordered = sorted(set(names or ()))
        self._lists = [ordered[at : at + NAMES_MAX] for at in range(0, len(ordered), NAMES_MAX)]
        if names is None:
            self._lists = [[]]
        self._cursor: DescribeTopicPartitionsRequest.Cursor | None = None

    @property
    def request(self) -> DescribeTopicPartitionsRequest | None:
        """The next request; None once every page has arrived."""
        if not self._lists:
            return None
        # Names before the cursor have been described; a node would read each of them again.
        begin = "" if self._cursor is None else self._cursor.topic_name
        return DescribeTopicPartitionsRequest(
            topics=[
                DescribeTopicPartitionsRequest.TopicRequest(name=name)
                for name in self._lists[0]
                if name >= begin
            ],
            cursor=self._cursor,
        )

    def take(self, page: DescribeTopicPartitionsResponse) -> None:
        """Add a response to `request`. Raises ProtocolError if the next page is not a later one."""
        for topic in page.topics:
            if self.found and self.found[-1].name == topic.name:
                self.found[-1].partitions += topic.partitions
            else:
                self.found.append(topic)
        if page.next_cursor is None:
            self._lists.pop(0)
            self._cursor = None
            return
        following = DescribeTopicPartitionsRequest.Cursor(
            topic_name=page.next_cursor.topic_name,
            partition_index=page.next_cursor.partition_index,
        )
        if self._cursor is not None and _place(following) <= _place(self._cursor):
            raise ProtocolError(
                f"topic page after {_place(self._cursor)} begins at {_place(following)}"
            )
        self._cursor = following


def _place(cursor: DescribeTopicPartitionsRequest.Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def from_metadata(answer: MetadataResponse) -> list[DescribedTopic]:
    """Return descriptions from a Metadata response, for brokers without DescribeTopicPartitions.

    Eligible leader replicas and the last known ones are None, because Metadata lacks them.
    """
    return sorted(
        (
            DescribedTopic(
                error_code=topic.error_code,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[
                    DescribedPartition(
                        error_code=one.error_code,
                        partition_index=one.partition_index,
                        leader_id=one.leader_id,
                        leader_epoch=one.leader_epoch,
                        replica_nodes=one.replica_nodes,
                        isr_nodes=one.isr_nodes,
                        eligible_leader_replicas=None,
                        last_known_elr=None,
                        offline_replicas=one.offline_replicas,
                    )
                    for one in sorted(topic.partitions, key=lambda one: one.partition_index)
                ],
            )
            for topic in answer.topics
        ),
        key=lambda topic: topic.name or "",
    )
