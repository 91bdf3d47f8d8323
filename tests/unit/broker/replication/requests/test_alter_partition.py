"""AlterPartition: one request in flight, for all partitions that propose an ISR."""

from __future__ import annotations

from broker.replication.partition.effects import NOTHING, Effects, Propose
from broker.replication.partition.isr import IsrMember, IsrProposal, PartitionStateNow
from broker.replication.partition.local_logs import MemberLocalLog
from broker.replication.requests.alter_partition import (
    BACK_OFF_FIRST_MS,
    AlterPartitionManager,
    ProposalPort,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionResponse
from testkit.memory.replicas import TOPIC


class Waiting:
    """A partition with a proposal for the controller."""

    def __init__(self, index: int = 0) -> None:
        self.topic_id = TOPIC
        self.index = index
        self.proposal: IsrProposal | None = None
        self.told: list[tuple[ErrorCode, PartitionStateNow]] = []
        self.next: IsrProposal | None = None
        """Its next proposal, after the answer."""
        self.has: list[MemberLocalLog] = []

    def want(self, *members: int, epoch: int = 0) -> IsrProposal:
        self.proposal = IsrProposal(0, epoch, tuple(IsrMember(m, 100 + m) for m in members))
        return self.proposal

    def to_tell(
        self, proposal: IsrProposal, now_ms: float, own_epoch: int, /
    ) -> list[MemberLocalLog]:
        return self.has

    def sends(self, proposal: IsrProposal, /) -> bool:
        return self.proposal is proposal

    def isr_answered(
        self, proposal: IsrProposal, error: ErrorCode, state: PartitionStateNow, /
    ) -> Effects:
        self.told.append((error, state))
        return (Propose(self.next),) if self.next is not None else NOTHING


PORT = ProposalPort(Waiting.sends, Waiting.to_tell, Waiting.isr_answered)


def accepted(*indexes: int, error: ErrorCode = ErrorCode.NONE) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponse.TopicData(
                topic_id=TOPIC,
                partitions=[
                    AlterPartitionResponse.PartitionData(
                        partition_index=index, error_code=error, isr=[1, 2], partition_epoch=1
                    )
                    for index in indexes
                ],
            )
        ]
    )


def test_one_request_is_in_flight_and_the_next_takes_all_that_came() -> None:
    done: list[tuple[Waiting, Effects]] = []
    manager = AlterPartitionManager(lambda *wanted: done.append(wanted), PORT)
    first, second, third = (Waiting(index) for index in range(3))
    manager.propose(first, first.want(1, 2))
    request = manager.next_request(1, 999, 0.0)
    assert request is not None
    sent = request.topics[0].partitions[0].new_isr_with_epochs
    assert [(m.broker_id, m.broker_epoch) for m in sent] == [(1, 999), (2, 102)]
    manager.propose(second, second.want(1))
    manager.propose(third, third.want(1))
    assert manager.due_ms() is None
    assert manager.next_request(1, 999, 0.0) is None
    manager.answered(accepted(0), 0.0)
    assert [error for error, _ in first.told] == [ErrorCode.NONE]
    following = manager.next_request(1, 999, 0.0)
    assert following is not None
    assert [p.partition_index for p in following.topics[0].partitions] == [1, 2]


def test_alter_partition_manager_resends_only_current_proposals_after_a_failure() -> None:
    done: list[tuple[Waiting, Effects]] = []
    manager = AlterPartitionManager(lambda *wanted: done.append(wanted), PORT)
    kept, moved = Waiting(0), Waiting(1)
    manager.propose(kept, kept.want(1, 2))
    manager.propose(moved, moved.want(1, 2))
    assert manager.next_request(1, 9, 0.0) is not None
    moved.proposal = None
    manager.failed(1000.0)
    assert manager.due_ms() == 1010.0
    again = manager.next_request(1, 9, 1010.0)
    assert again is not None
    assert [p.partition_index for p in again.topics[0].partitions] == [0]
    manager.answered(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), 1010.0)
    assert kept.told == []
    assert manager.next_request(1, 10, 1030.0) is not None
    manager.answered(accepted(0, error=ErrorCode.NOT_CONTROLLER), 1030.0)
    assert manager.next_request(1, 10, 1040.0) is not None


def test_alter_partition_after_controller_moved_sends_without_backoff() -> None:
    """The backoff after failures of one controller does not delay a request to the next."""
    manager = AlterPartitionManager(lambda *_: None, PORT)
    partition = Waiting()
    manager.propose(partition, partition.want(1, 2))
    for _ in range(10):
        now_ms = manager.due_ms() or 0.0
        assert manager.next_request(1, 9, now_ms) is not None
        manager.failed(now_ms)
    assert (manager.due_ms() or 0.0) > now_ms + 900.0
    manager.controller_moved()
    assert manager.next_request(1, 9, now_ms) is not None
    manager.failed(now_ms)
    assert manager.due_ms() == now_ms + BACK_OFF_FIRST_MS
