"""Proposals for an in-sync set, and what the controller's answers mean for the leader that made
them (AlterPartition).

The controller compares and sets on the partition epoch. Until its answer is known, the set that was
proposed may already be in force: the leader counts committed and proposed members together (the
maximal ISR) for the high watermark. What ends a proposal:

- accepted: the state in the answer is the committed one;
- refused for good by this very proposal (`ROLLED_BACK`): the committed set counts alone again;
- refused because the leader is behind (any other error): an earlier try of the same proposal may
  have been accepted, so the proposal stands until the metadata says what holds;
- newer metadata; but a change that says what its members have (KIP-1303) outlasts one report that
  was sent before it, which is the same ISR: the controller takes it on either side of the report.
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
    """Whether a proposal that was refused so is sent again."""
    return error is not ErrorCode.NONE and error not in ROLLED_BACK and error not in SUPERSEDED


class IsrMember(NamedTuple):
    """A proposed member and the broker epoch it fetched with (KIP-903); -1 if it is not known."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """An in-sync set, and the state it was proposed in."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]
    recovery_state: int = RECOVERED

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(member.broker_id for member in self.members)


class PartitionStateNow(NamedTuple):
    """What the controller says holds."""

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
    """The proposal, if it may be decided yet though the metadata have that epoch now, and the same
    ISR as before: one report may lie between it and its proposal. Behind one more epoch the
    controller takes it no more; so where that shows no other ISR, it has not taken it."""
    if (
        proposal is not None
        and partition_epoch == proposal.partition_epoch + 1
        and proposal.broker_ids != isr
        and proposal.broker_ids.issubset(replicas)
    ):
        return proposal
    return None
