"""Queue of AlterPartition proposals: one request in flight per broker, for all its partitions.

Proposals that arrive while a request is in flight are sent together in the next one. A waiting
proposal may still grow. A proposal is sent again until the controller has answered it. It is
dropped when its partition replaces or withdraws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.partition.effects import Effects
from broker.replication.partition.isr import IsrProposal, PartitionStateNow, asks_again
from broker.replication.partition.isr_changes import isr_answered, sends
from broker.replication.partition.local_log_reports import local_logs_to_send
from broker.replication.partition.local_logs import MemberLocalLog
from broker.replication.partition.partition import Partition
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.private_numbers import PRIVATE_VERSIONS

PARTITIONS_MAX: Final = 250
"""Maximum number of partitions in one request. The controller writes the records of one request as
one batch and does nothing else in that time. The same applies to the broker when it processes the
response."""
LOCAL_LOGS_SINCE: Final = PRIVATE_VERSIONS[ApiKey.ALTER_PARTITION]
BACK_OFF_FIRST_MS: Final = 10.0
BACK_OFF_MAX_MS: Final = 1_000.0

PartitionId = tuple[bytes, int]


class Replica(Protocol):
    """The identity of a partition that makes proposals."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def index(self) -> int: ...


P = TypeVar("P", bound=Replica)


@dataclass(frozen=True, slots=True)
class ProposalPort(Generic[P]):
    """The decisions of a partition about its proposals."""

    sends: Callable[[P, IsrProposal], bool]
    """Return whether the partition still wants this proposal. If so, the proposal is sent and must
    not change before its answer."""
    local_logs: Callable[[P, IsrProposal, float, int], Sequence[MemberLocalLog]]
    """Return what the proposed members have locally, where it is to be reported (KIP-1303). Called
    with the time and this broker's epoch when the request is built, so that the values are the
    newest."""
    answered: Callable[[P, IsrProposal, ErrorCode, PartitionStateNow], Effects]
    """Apply the controller's answer to a proposal."""


PARTITIONS: Final[ProposalPort[Partition]] = ProposalPort(sends, local_logs_to_send, isr_answered)


class AlterPartitionItem(NamedTuple, Generic[P]):
    """One partition's entry in a request."""

    partition: P
    proposal: IsrProposal


class AlterPartitionManager(Generic[P]):
    """Proposals of all partitions that wait or are in flight."""

    def __init__(self, carry_out: Callable[[P, Effects], None], port: ProposalPort[P]) -> None:
        """Set up an empty queue. `carry_out` receives the effects that a partition returns after an
        answer."""
        self._carry_out = carry_out
        self._port = port
        self._waiting: dict[PartitionId, AlterPartitionItem[P]] = {}
        self._in_flight: dict[PartitionId, AlterPartitionItem[P]] | None = None
        self._failures = 0
        self._due_ms = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight or ())

    def propose(self, partition: P, proposal: IsrProposal) -> None:
        """Queue a proposal; it replaces an older one of the partition that was not sent yet."""
        self._waiting[(partition.topic_id, partition.index)] = AlterPartitionItem(
            partition, proposal
        )

    def due_ms(self) -> float | None:
        """Return the earliest time of the next request, or None while one is in flight or none is
        queued."""
        return None if self._in_flight is not None or not self._waiting else self._due_ms

    def next_request(
        self, broker_id: int, broker_epoch: int, now_ms: float
    ) -> AlterPartitionRequest | None:
        """Return the request to send now, if any; the caller must call `answered` or `failed`
        afterwards."""
        if self._in_flight is not None or now_ms < self._due_ms:
            return None
        sent: dict[PartitionId, AlterPartitionItem[P]] = {}
        for key in list(self._waiting):
            item = self._waiting.pop(key)
            if not self._port.sends(item.partition, item.proposal):
                continue
            sent[key] = item
            if len(sent) >= PARTITIONS_MAX:
                break
        if not sent:
            return None
        self._in_flight = sent
        local_logs = self._port.local_logs
        return request_for(sent.values(), broker_id, broker_epoch, now_ms, local_logs)

    def failed(self, now_ms: float) -> None:
        """Handle a missing answer or an error for the whole request: retry all its proposals
        later."""
        sent, self._in_flight = self._in_flight or {}, None
        self._failures = min(self._failures + 1, 16)
        self._due_ms = now_ms + min(
            BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1), BACK_OFF_MAX_MS
        )
        for key, item in sent.items():
            self._waiting.setdefault(key, item)

    def controller_moved(self) -> None:
        """End the backoff after failures of an earlier controller."""
        self._failures, self._due_ms = 0, 0.0

    def answered(self, response: AlterPartitionResponse, now_ms: float) -> None:
        """Pass each partition its part of the response."""
        if response.error_code:
            self.failed(now_ms)
            return
        # Keep `_in_flight` complete until the whole response is applied, so that `failed` can retry
        # all.
        sent = dict(self._in_flight or {})
        self._failures = 0
        for topic in response.topics:
            for data in topic.partitions:
                item = sent.pop((topic.topic_id, data.partition_index), None)
                if item is None:
                    continue
                error, partition = ErrorCode(data.error_code), item.partition
                effects = self._port.answered(partition, item.proposal, error, state_of(data))
                self._carry_out(partition, effects)
                if asks_again(error):
                    self._again(item, now_ms)
        for item in sent.values():  # sent, but missing in the response: a faulty controller
            self._again(item, now_ms)
        self._in_flight = None

    def _again(self, item: AlterPartitionItem[P], now_ms: float) -> None:
        self._due_ms = now_ms + BACK_OFF_FIRST_MS
        self._waiting.setdefault((item.partition.topic_id, item.partition.index), item)


def state_of(data: AlterPartitionResponse.PartitionData) -> PartitionStateNow:
    """Return the partition state that a response contains."""
    return PartitionStateNow(
        data.leader_id, data.leader_epoch, data.partition_epoch, tuple(data.isr)
    )


def request_for(
    items: Iterable[AlterPartitionItem[P]],
    broker_id: int,
    broker_epoch: int,
    now_ms: float,
    local_logs: Callable[[P, IsrProposal, float, int], Sequence[MemberLocalLog]],
) -> AlterPartitionRequest:
    """Build the request that makes all these proposals."""
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
        for told in local_logs(partition, proposal, now_ms, broker_epoch):
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
    """Return the version that the request needs if the controller offers it, or None for any
    version. Only the last version carries local logs."""
    for topic in request.topics:
        for partition in topic.partitions:
            for member in partition.new_isr_with_epochs:
                if member.local_log_size_bytes >= 0 or member.local_log_start_timestamp >= 0:
                    return LOCAL_LOGS_SINCE
    return None
