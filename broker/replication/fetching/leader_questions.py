"""Shell: Requests to a leader for log bounds and epoch ends, many partitions in one request.

A broker that receives two hundred replicas needs the same three values for each. Requests that
arrive while one of their kind is in flight are sent together in the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from broker.replication.partition.partition import Partition
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from broker.replication.fetching.connections import LeaderLink

ASKED_TOGETHER_MAX: Final = 250
"""Maximum number of partitions that one request names: both sides spend only milliseconds on it."""

FoundOffset: TypeAlias = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochEnd: TypeAlias = OffsetForLeaderEpochResponse.EpochEndOffset
Place: TypeAlias = tuple[str, int]

A = TypeVar("A", FoundOffset, EpochEnd)


class _Question(Generic[A]):
    """A request for one partition. `value` is a timestamp or an epoch. `outcome` is set after a
    request that named the partition."""

    __slots__ = ("index", "leader_epoch", "outcome", "topic", "value")

    def __init__(self, partition: Partition, value: int) -> None:
        self.topic, self.index = partition.topic, partition.index
        self.leader_epoch = partition.leader_epoch
        self.value = value
        self.outcome: A | Exception | None = None


class _Together(Generic[A]):
    """Queue of requests of one kind, with one in flight at a time."""

    def __init__(self) -> None:
        self._waiting: dict[_Question[A], None] = {}  # as an ordered set
        self._turn = asyncio.Lock()

    async def ask(
        self,
        question: _Question[A],
        send: Callable[[Sequence[_Question[A]]], Awaitable[Iterable[tuple[Place, A]]]],
    ) -> A:
        """Queue `question`, send the queue if it is not yet answered, and return the answer.

        Raises:
            OSError, ProtocolError: `send` failed.
            ApiError: `send` failed, or the leader's answer has an error code.
        """
        self._waiting[question] = None
        try:
            async with self._turn:
                if question.outcome is None:
                    await self._send(send)
        finally:
            self._waiting.pop(question, None)
        outcome, question.outcome = question.outcome, None
        assert outcome is not None, "whoever has the turn is the first of those that wait"
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                del outcome  # break the reference cycle: the exception references this frame
        if outcome.error_code:
            raise ApiError(ErrorCode(outcome.error_code), None)
        return outcome

    async def _send(
        self, send: Callable[[Sequence[_Question[A]]], Awaitable[Iterable[tuple[Place, A]]]]
    ) -> None:
        """Send the queued requests, as many as one request may name. It names no partition twice,
        because a leader refuses that."""
        asked: dict[Place, _Question[A]] = {}
        for one in self._waiting:
            asked.setdefault((one.topic, one.index), one)
            if len(asked) == ASKED_TOGETHER_MAX:
                break
        left_out: Exception = ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "the leader's answer leaves it out"
        )
        try:
            answers = dict(await send(list(asked.values())))
        except (OSError, ProtocolError, ApiError) as error:
            answers, left_out = {}, error.with_traceback(None)
        for place, one in asked.items():
            one.outcome = answers.get(place, left_out)
            self._waiting.pop(one, None)


class LeaderQuestions:
    """Queues of the requests to one leader."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._offsets: dict[int, _Together[FoundOffset]] = {}
        self._epochs: _Together[EpochEnd] = _Together()

    async def offset(self, link: LeaderLink, partition: Partition, timestamp: int) -> FoundOffset:
        """Return the offset that the leader finds for a timestamp (ListOffsets), in the partition's
        leader epoch.

        Raises:
            OSError, ProtocolError, ApiError: as `LeaderLink.ask`.
            ApiError: the leader's answer has an error code.
        """

        async def send(
            asked: Sequence[_Question[FoundOffset]],
        ) -> Iterable[tuple[Place, FoundOffset]]:
            answer = await link.ask(self._list_offsets(asked))
            return [
                ((topic.name, one.partition_index), one)
                for topic in answer.topics
                for one in topic.partitions
            ]

        together = self._offsets.setdefault(timestamp, _Together())
        return await together.ask(_Question(partition, timestamp), send)

    async def end_of_epoch(self, link: LeaderLink, partition: Partition, epoch: int) -> EpochEnd:
        """Return the end of an epoch in the leader's log (OffsetForLeaderEpoch). Raises as
        `offset`."""

        async def send(asked: Sequence[_Question[EpochEnd]]) -> Iterable[tuple[Place, EpochEnd]]:
            answer = await link.ask(self._epoch_ends(asked))
            return [
                ((topic.topic, one.partition), one)
                for topic in answer.topics
                for one in topic.partitions
            ]

        return await self._epochs.ask(_Question(partition, epoch), send)

    def _list_offsets(self, asked: Sequence[_Question[FoundOffset]]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for one in asked:
            topic = topics.get(one.topic)
            if topic is None:
                topic = topics[one.topic] = ListOffsetsRequest.ListOffsetsTopic(name=one.topic)
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=one.index,
                    current_leader_epoch=one.leader_epoch,
                    timestamp=one.value,
                )
            )
        return ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))

    def _epoch_ends(self, asked: Sequence[_Question[EpochEnd]]) -> OffsetForLeaderEpochRequest:
        topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
        for one in asked:
            topic = topics.get(one.topic)
            if topic is None:
                topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=one.topic)
                topics[one.topic] = topic
            topic.partitions.append(
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=one.index,
                    current_leader_epoch=one.leader_epoch,
                    leader_epoch=one.value,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=list(topics.values()))
