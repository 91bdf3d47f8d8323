"""The state that all parts of a quorum replica share: epoch, leader, vote, role, ends of the log.

Each part (following, leading, electing) gets this one value, changes it, and adds the effects of
what it did in their order.
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
"""A message with an epoch further ahead is refused. Each epoch takes an election, so no correct
replica is so far ahead, and one request with the highest epoch would leave none for an election."""


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

    `flushed_end` is how far the log is durable, `lost_elections` how many this replica lost in a
    row since there was a leader, `endpoints` are its own controller listeners, `effects` those of
    the event that is being taken.
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
        """Whether what this replica has counts only once it is durable: others count on a voter,
        and a controller may become one (KIP-853). Nobody counts on a broker: what it loses in a
        power cut is committed, and is fetched again."""
        return self.is_voter or bool(self.endpoints)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.state, LeaderState)

    @property
    def active_leader_id(self) -> int | None:
        """Who leads now: as `leader_id`, but None once this node itself leads no more: resigned, or
        asking for votes since."""
        leads_no_more = self.leader_id == self.node.id and not self.is_leader
        return None if leads_no_more else self.leader_id

    def leader_endpoints(self) -> Endpoints:
        """The controller listeners of the leader that there is, as far as they are known."""
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
            target is state.role, f"{cause.value} leads to {target.value}, not {state.role.value}"
        )
        self.state = state

    def raise_epoch(self, epoch: int) -> None:
        """A new epoch forgets the vote."""
        if epoch > self.epoch:
            self.epoch, self.voted = epoch, None

    def persist(self) -> None:
        """Have epoch, leader and vote persisted, then the leader told, wherever they are news."""
        self.persist_state()
        # A leader that resigned keeps its own id on disk, so that it never votes in that epoch
        # again, but to everybody else the epoch has no leader any more.
        told = LeaderChanged(self.active_leader_id, self.epoch)
        if told != self._announced and not isinstance(self.state, ElectionState):
            self._announced = told
            self.effects.append(told)

    def persist_state(self) -> None:
        state = QuorumState(self.epoch, self.leader_id, self.voted)
        if state != self._persisted:
            self._persisted = state
            self.effects.append(PersistState(state))

    def commit_below(self, offset: int) -> None:
        """The high watermark rises to `offset`; it never falls (M7)."""
        if offset > (self.high_watermark or 0):
            self.high_watermark = offset
            self.effects.append(HighWatermarkAdvanced(offset))

    def validate(self) -> None:
        """Raises `InvariantViolated` unless what is persisted is what is in memory (M2)."""
        current = QuorumState(self.epoch, self.leader_id, self.voted)
        # The text costs more than the comparison, and simulations ask after every event.
        if self._persisted != current:
            raise InvariantViolated(f"persisted {self._persisted}, in memory {current}")
