"""State shared by all parts of a quorum replica: epoch, leader, vote, role, ends of the log.

Each part (following, leading, electing) gets this one value and changes it. It appends the effects
of its actions in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metalog.quorum.core.messages import (
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    LogView,
    PersistState,
    QuorumState,
)
from metalog.quorum.core.roles import (
    Cause,
    ElectionState,
    FollowerState,
    LeaderState,
    RoleState,
    UnattachedState,
    transition,
)
from metalog.quorum.core.voters import Endpoints, ReplicaKey, VoterSet
from runtime.errors import InvariantViolated, invariant

EPOCH_JUMP_MAX = 1 << 24
"""Limit of an epoch's distance; a message with a higher epoch is refused.

Each epoch takes an election, so no correct replica is that far ahead. A single request with the
highest epoch would leave no epochs for elections.
"""


class Timing(NamedTuple):
    """`controller.quorum.*` in milliseconds."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20
    request_timeout_ms: int = 2000


Jitter = Callable[[int], int]
"""`jitter(bound)` is a random int in [0, bound)."""


class Replica:
    """Epoch, leader, vote and role of one node. A broker is a replica too, never a voter.

    flushed_end: end of the durable log. lost_elections: elections lost in a row since there was a
    leader. endpoints: own controller listeners. effects: those of the event in progress.
    """

    def __init__(
        self,
        *,
        node: ReplicaKey,
        log: LogView,
        state: QuorumState,
        voters: VoterSet,
        voters_in_log: bool,
        endpoints: Endpoints,
        timing: Timing,
        jitter: Jitter,
    ) -> None:
        self.node = node
        self.log = log
        self.voters = voters
        self.voters_in_log = voters_in_log
        self.endpoints = endpoints
        self.timing = timing
        self.jitter = jitter
        self.epoch = state.epoch
        self.leader_id = state.leader_id
        self.voted = state.voted
        self.state: RoleState = UnattachedState(None)
        self.flushed_end = log.end_offset
        self.high_watermark: int | None = None
        self.lost_elections = 0
        self.effects: list[Effect] = []
        self.now_ms = 0.0
        self._persisted = state
        self._announced: LeaderChanged | None = None

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.node)

    @property
    def must_flush(self) -> bool:
        """True if this replica's records count only once they are durable.

        Other replicas rely on a voter, and a controller may become one (KIP-853). None relies on a
        broker: what it loses in a power failure is committed, and is fetched again.
        """
        return self.is_voter or bool(self.endpoints)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.state, LeaderState)

    @property
    def active_leader_id(self) -> int | None:
        """The current leader: `leader_id`, or None once this node itself no longer leads, because
        it resigned or has started an election since."""
        leads_no_more = self.leader_id == self.node.id and not self.is_leader
        return None if leads_no_more else self.leader_id

    def leader_endpoints(self) -> Endpoints:
        """Return the controller listeners of the current leader, empty if unknown."""
        assert self.leader_id is not None
        if isinstance(self.state, FollowerState) and self.state.endpoints:
            return self.state.endpoints
        voter = self.voters.get(self.leader_id)
        return () if voter is None else voter.endpoints

    def is_too_far(self, epoch: int) -> bool:
        return epoch - self.epoch > EPOCH_JUMP_MAX

    def election_deadline(self) -> float:
        timeout = self.timing.election_timeout_ms
        return self.now_ms + timeout + self.jitter(timeout)

    # --- changes ------------------------------------------------------------------------------

    def enter(self, cause: Cause, state: RoleState) -> None:
        target = transition(self.state.role, cause)
        invariant(
            target is state.role,
            f"expected {state.role.value} after {cause.value}, got {target.value}",
        )
        self.state = state

    def raise_epoch(self, epoch: int) -> None:
        """Set a higher epoch, which clears the vote."""
        if epoch > self.epoch:
            self.epoch, self.voted = epoch, None

    def persist(self) -> None:
        """Add effects that persist epoch, leader and vote, then announce the leader, if they
        changed."""
        self.persist_state()
        # A resigned leader keeps its own id on disk, so that it never votes in that epoch again.
        # For all others the epoch has no leader any more.
        change = LeaderChanged(self.active_leader_id, self.epoch)
        if change != self._announced and not isinstance(self.state, ElectionState):
            self._announced = change
            self.effects.append(change)

    def persist_state(self) -> None:
        state = QuorumState(self.epoch, self.leader_id, self.voted)
        if state != self._persisted:
            self._persisted = state
            self.effects.append(PersistState(state))

    def commit_below(self, offset: int) -> None:
        """Raise the high watermark to `offset`; it never falls (M7)."""
        if offset > (self.high_watermark or 0):
            self.high_watermark = offset
            self.effects.append(HighWatermarkAdvanced(offset))

    def validate(self) -> None:
        """Raise InvariantViolated unless the persisted state is that in memory (M2)."""
        current = QuorumState(self.epoch, self.leader_id, self.voted)
        # The text costs more than the comparison, and simulations call this after every event.
        if self._persisted != current:
            raise InvariantViolated(f"persisted {self._persisted} differs from memory {current}")
