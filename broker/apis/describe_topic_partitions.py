"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Behaviour: like Metadata without brokers, but in pages and with ELR. Topics are ordered by name; an
empty list requests all of them. A page ends after `response_partition_limit` partitions (at most
`max.request.partition.size.limit`), and `next_cursor` is the begin of the next one. If the cursor's
topic was deleted, the page continues with the next name. Unknown names are
UNKNOWN_TOPIC_OR_PARTITION, illegal ones INVALID_TOPIC_EXCEPTION; each counts as one partition of
the page.

A cursor with a negative partition, or on a topic that was not requested, is INVALID_REQUEST. The
response has no top-level error, so every requested topic has it; if all topics were requested the
answer is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Iterable, Iterator
from typing import Final

from broker.context import BrokerContext
from broker.metadata.topic_view import Reachable
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.topic_name import is_internal_topic, topic_name_problem
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.authorized_operations import TOPIC_OPERATIONS

VERSION: Final = 0
AT_ONCE_MAX: Final = 250
"""Limit for partitions, or names of topics, in one event-loop iteration."""
STEP_PARTITIONS: Final = 100

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Reply:
        page = _Page(broker, context.listener, request)
        if len(request.topics) > AT_ONCE_MAX:
            return page.of_many(request)
        names = {topic.name for topic in request.topics}
        return page.go_on(page.steps(sorted(names) if names else None))

    table.register(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle, min_version=VERSION, max_version=VERSION
    )


class _Page:
    """One page, built in steps."""

    def __init__(
        self, broker: BrokerContext, listener: str, request: DescribeTopicPartitionsRequest
    ) -> None:
        self._metadata = broker.metadata
        self._slices = broker.slices
        self._reachable = Reachable(broker.metadata, listener)
        self._cursor = request.cursor
        self._left = max(
            1, min(broker.static.described_partitions_max, request.response_partition_limit)
        )
        self._response = DescribeTopicPartitionsResponse()

    async def of_many(
        self, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """Return the page of a request that names more topics than a page has. It contains the
        first ones, which are found in slices."""
        await self._slices.turn()
        first = "" if self._cursor is None else self._cursor.topic_name
        seen = self._cursor is None
        names: list[str] = []
        topics = request.topics
        for begin in range(0, len(topics), AT_ONCE_MAX):
            fresh = {topic.name for topic in topics[begin : begin + AT_ONCE_MAX]}
            seen = seen or first in fresh
            fresh.update(names)
            names = sorted(name for name in fresh if name >= first)[: self._left + 1]
            await self._slices.breathe(AT_ONCE_MAX)
        if not seen:
            self._response.topics = self._bad_cursor(names)
            return self._response
        reply = self.go_on(self.steps(names))
        return await reply if isinstance(reply, Awaitable) else reply

    def go_on(
        self, steps: Iterator[int]
    ) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
        """Return the page: at once if it is short, otherwise as a coroutine."""
        taken = 0
        for weight in steps:
            taken += weight
            if taken > AT_ONCE_MAX:
                return self._in_slices(steps)
        return self._response

    async def _in_slices(self, steps: Iterator[int]) -> DescribeTopicPartitionsResponse:
        await self._slices.turn()
        for weight in steps:
            await self._slices.breathe(weight)
        return self._response

    def steps(self, named: list[str] | None) -> Iterator[int]:
        """Describe the topics of these names, which are ordered, or all of them. Yields the number
        of partitions of each step; an unknown name counts as a partition."""
        response = self._response
        first_topic, first_index = "", 0
        if self._cursor is not None:
            first_topic, first_index = self._cursor.topic_name, self._cursor.partition_index
            if first_index < 0 or (named and first_topic not in named):
                response.topics = self._bad_cursor(named or [])
                return
        names = self._metadata.topic_names() if named is None else named
        for name in names[bisect_left(names, first_topic) :]:
            topic = self._metadata.topic(name)
            begin = first_index if name == first_topic else 0
            if self._left <= 0:
                response.next_cursor = _cursor(name, begin)
                break
            if topic is None:
                response.topics.append(_unknown(name))
                self._left -= 1
                yield 1
                continue
            indexes = sorted(index for index in topic.partitions if index >= begin)
            described = _topic(topic)
            response.topics.append(described)
            for start in range(0, min(len(indexes), self._left), STEP_PARTITIONS):
                some = indexes[start : min(start + STEP_PARTITIONS, self._left)]
                described.partitions += [
                    _partition(index, topic.partitions[index], self._reachable) for index in some
                ]
                yield len(some)
            if len(indexes) > self._left:
                response.next_cursor = _cursor(name, indexes[self._left])
                break
            self._left -= len(indexes)

    def _bad_cursor(self, names: Iterable[str]) -> list[_Topic]:
        return [_Topic(error_code=ErrorCode.INVALID_REQUEST, name=name) for name in names]


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponse.Cursor:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=index)


def _unknown(name: str) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    legal = topic_name_problem(name) is None
    return _Topic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=is_internal_topic(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    topic: TopicImage,
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return _Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal_topic(topic.name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, partition: PartitionImage, reachable: Reachable
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    return _Partition(
        error_code=reachable.leader_error(partition.leader),
        partition_index=index,
        leader_id=partition.leader if partition.leader in reachable.ids else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=reachable.offline(partition.replicas),
    )
