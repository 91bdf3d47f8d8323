"""One AlterPartition request in flight per broker, for all partitions that want one.

Proposals gather while a request is on its way and go out together in the next; what waits may grow
until then. A proposal is sent again until the controller has answered it, and dropped as soon as
its partition wants another one or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.effects import Effects
from broker.replication.isr import IsrProposal, PartitionStateNow, asks_again
from broker.replication.local_logs import MemberLocalLog
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

PARTITIONS_MAX: Final = 250
"""In one request: the controller writes the records of one as one batch, and does nothing else for
that long; so does whoever takes over the answer."""
LOCAL_LOGS_SINCE: Final = 4
BACK_OFF_FIRST_MS: Final = 10.0
BACK_OFF_MAX_MS: Final = 1_000.0

PartitionId = tuple[bytes, int]


class Proposer(Protocol):
    """The partition behind a proposal."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def index(self) -> int: ...

    def sends(self, proposal: IsrProposal, /) -> bool:
        """Whether this is still what it wants; then it goes out, and is not changed before its
        answer."""

    def to_tell(
        self, proposal: IsrProposal, now_ms: float, own_epoch: int, /
    ) -> Sequence[MemberLocalLog]:
        """What the proposed members have locally, where it is told (KIP-1303): asked when the
        request is built, so that it is the newest. `own_epoch` is this broker's."""

    def isr_answered(
        self, proposal: IsrProposal, error: ErrorCode, state: PartitionStateNow, /
    ) -> Effects:
        """Takes the controller's word."""


P = TypeVar("P", bound=Proposer)


class AlterPartitionItem(NamedTuple, Generic[P]):
    """One partition's part of a request."""

    partition: P
    proposal: IsrProposal


class AlterPartitionManager(Generic[P]):
    """See the module."""

    def __init__(self, carry_out: Callable[[P, Effects], None]) -> None:
        """`carry_out` is given what partitions want done after an answer."""
        self._carry_out = carry_out
        self._waiting: dict[PartitionId, AlterPartitionItem[P]] = {}
        self._in_flight: dict[PartitionId, AlterPartitionItem[P]] | None = None
        self._failures = 0
        self._due_ms = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight or ())

    def propose(self, partition: P, proposal: IsrProposal) -> None:
        """The newest proposal of a partition replaces an older one that was not sent."""
        self._waiting[(partition.topic_id, partition.index)] = AlterPartitionItem(
            partition, proposal
        )

    def due_ms(self) -> float | None:
        """When `next_request` may have one; None until an answer or a proposal comes."""
        return None if self._in_flight is not None or not self._waiting else self._due_ms

    def next_request(
        self, broker_id: int, broker_epoch: int, now_ms: float
    ) -> AlterPartitionRequest | None:
        """The request to send now; `answered` or `failed` must follow."""
        if self._in_flight is not None or now_ms < self._due_ms:
            return None
        sent: dict[PartitionId, AlterPartitionItem[P]] = {}
        for key in list(self._waiting):
            item = self._waiting.pop(key)
            if not item.partition.sends(item.proposal):
                continue
            sent[key] = item
            if len(sent) >= PARTITIONS_MAX:
                break
        if not sent:
            return None
        self._in_flight = sent
        return request_for(sent.values(), broker_id, broker_epoch, now_ms)

    def failed(self, now_ms: float) -> None:
        """No answer, or one about the request as a whole: everything is asked again later."""
        sent, self._in_flight = self._in_flight or {}, None
        self._failures = min(self._failures + 1, 16)
        self._due_ms = now_ms + min(
            BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1), BACK_OFF_MAX_MS
        )
        for key, item in sent.items():
            self._waiting.setdefault(key, item)

    def answered(self, response: AlterPartitionResponse, now_ms: float) -> None:
        """Hands each partition its answer."""
        if response.error_code:
            self.failed(now_ms)
            return
        # Until all of it is taken over, `failed` finds everything as it was.
        sent = dict(self._in_flight or {})
        self._failures = 0
        for topic in response.topics:
            for data in topic.partitions:
                item = sent.pop((topic.topic_id, data.partition_index), None)
                if item is None:
                    continue
                error, partition = ErrorCode(data.error_code), item.partition
                self._carry_out(
                    partition, partition.isr_answered(item.proposal, error, state_of(data))
                )
                if asks_again(error):
                    self._again(item, now_ms)
        for item in sent.values():  # named and not answered: a controller that is not like ours
            self._again(item, now_ms)
        self._in_flight = None

    def _again(self, item: AlterPartitionItem[P], now_ms: float) -> None:
        self._due_ms = now_ms + BACK_OFF_FIRST_MS
        self._waiting.setdefault((item.partition.topic_id, item.partition.index), item)


def state_of(data: AlterPartitionResponse.PartitionData) -> PartitionStateNow:
    """What an answer says holds."""
    return PartitionStateNow(
        data.leader_id, data.leader_epoch, data.partition_epoch, tuple(data.isr)
    )


def request_for(
    items: Iterable[AlterPartitionItem[P]], broker_id: int, broker_epoch: int, now_ms: float
) -> AlterPartitionRequest:
    """The request that proposes all this."""
    topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
    for partition, proposal in items:
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = AlterPartitionRequest.TopicData(topic_id=partition.topic_id)
            topics[partition.topic_id] = topic
        states = {
            member.broker_id: AlterPartitionRequest.BrokerState(
                broker_id=member.broker_id,
                broker_epoch=broker_epoch if member.broker_id == broker_id else member.broker_epoch,
            )
            for member in proposal.members
        }
        for told in partition.to_tell(proposal, now_ms, broker_epoch):
            state = states[told.broker_id]
            state.local_log_start_timestamp, state.local_log_size_bytes = told.stats
        topic.partitions.append(
            AlterPartitionRequest.PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=list(states.values()),
                leader_recovery_state=proposal.recovery_state,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def version_for(request: AlterPartitionRequest) -> int | None:
    """The version to be asked for where the controller has it; None: any. Only the last carries
    local logs."""
    for topic in request.topics:
        for partition in topic.partitions:
            for member in partition.new_isr_with_epochs:
                if member.local_log_size_bytes >= 0 or member.local_log_start_timestamp >= 0:
                    return LOCAL_LOGS_SINCE
    return None
