"""ISR proposals and the meaning of the controller's answers for the leader (AlterPartition).

The controller compares and sets on the partition epoch. Until its answer is known, the proposed set
may already be in force: for the high watermark, the leader counts committed and proposed members
together (the maximal ISR). A proposal ends when it is

- accepted: the state in the answer is the committed one;
- refused for good because of the proposal itself (`ROLLED_BACK`): the committed set counts alone
  again;
- refused because the leader is behind (any other error): an earlier attempt of the same proposal
  may have been accepted, so the proposal stands until the metadata shows the result;
- superseded by newer metadata. A proposal that reports its members' local logs (KIP-1303) outlasts
  one such report that was sent before it with the same ISR. The controller accepts the proposal
  before or after that report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.errors import ErrorCode

RECOVERED: Final = 0
UNKNOWN_BROKER_EPOCH: Final = -1

ROLLED_BACK: Final = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INVALID_REQUEST,
    }
)
SUPERSEDED: Final = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def asks_again(error: ErrorCode) -> bool:
    """Return whether a proposal that was refused with this error is sent again."""
    return error is not ErrorCode.NONE and error not in ROLLED_BACK and error not in SUPERSEDED


class IsrMember(NamedTuple):
    """A proposed member and the broker epoch it fetched with (KIP-903); -1 if it is not known."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """A proposed ISR, and the epochs in which it was proposed."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]
    recovery_state: int = RECOVERED

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(member.broker_id for member in self.members)


class PartitionStateNow(NamedTuple):
    """A partition's state according to the controller."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


def outlasting(
    proposal: IsrProposal | None,
    partition_epoch: int,
    isr: frozenset[int],
    replicas: Iterable[int],
) -> IsrProposal | None:
    """Return the proposal if the controller may still accept it, or None.

    The metadata has `partition_epoch` now and the same ISR as before: one report may lie between
    the proposal's epoch and this one. Behind one more epoch the controller refuses the proposal, so
    if the ISR is still the same then, the proposal was not accepted.
    """
    if (
        proposal is not None
        and partition_epoch == proposal.partition_epoch + 1
        and proposal.broker_ids != isr
        and proposal.broker_ids.issubset(replicas)
    ):
        return proposal
    return None
