"""State that all roles of a quorum replica share: epoch, leader, vote, role.

The classes replica -> following -> leading -> electing -> quorum are one state machine, cut into
files by subject; each uses only what stands before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metalog.quorum.core.messages import Effect, LeaderChanged, LogView, PersistState, QuorumState
from metalog.quorum.core.roles import (
    Cause,
    Election,
    Following,
    Leading,
    Progress,
    Role,
    RoleState,
    Unattached,
    transition,
)
from metalog.quorum.core.voters import Endpoint, ReplicaKey, VoterSet
from runtime.errors import invariant

CHECK_QUORUM_FACTOR = 1.5
"""Of the fetch timeout: how long a leader waits for a majority to fetch before it resigns."""
DOUBT_MS = 250.0
"""How long a non-voter waits for a leader that had gone silent and that others still believe in;
twice as long each time, up to the fetch timeout. They may be about to find out."""
ELECTION_BACKOFF_FIRST_MS = 100
"""The bound of the pause after a lost election; it doubles with each one in a row."""
EPOCH_LEAP_MAX = 1 << 24
"""No honest replica is so many epochs ahead: each takes an election. Who says so is not believed,
or one request with the last epoch there is would leave none for an election."""
OBSERVER_FORGOTTEN_MS = 300_000.0
"""A non-voter that has not fetched for so long is not listed any more."""


class Timing(NamedTuple):
    """`controller.quorum.*` in milliseconds."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20


Jitter = Callable[[int], int]
"""`jitter(bound)` is a random int in [0, bound)."""


class Replica:
    """Epoch, leader, vote and role. `node.id` is the node's id; a broker is a replica too, never
    a voter."""

    def __init__(
        self,
        *,
        node: ReplicaKey,
        log: LogView,
        state: QuorumState,
        voters: VoterSet,
        voters_in_log: bool,
        timing: Timing,
        jitter: Jitter,
    ) -> None:
        self.node = node
        self.voters = voters
        self.high_watermark: int | None = None
        self._voters_in_log = voters_in_log
        self._log = log
        self._timing = timing
        self._jitter = jitter
        self._epoch = state.epoch
        self._leader_id = state.leader_id
        self._voted = state.voted
        self._persisted = state
        self._told: LeaderChanged | None = None
        self._flushed_end = log.end_offset
        self._leader_high_watermark = -1
        self._fetch_id: int | None = None
        self._fetches = 0
        self._fetch_after_flush = False
        self._fetch_retry_ms: float | None = None
        self._lost: tuple[int, int] | None = None  # the leader that went silent, and its epoch
        self._lost_times = 0
        self._refusals = 0  # leaders in a row whose port was closed before they answered a fetch
        self._defeats = 0  # elections lost since there was a leader
        self._state: RoleState = Unattached(None)
        self._effects: list[Effect] = []
        self._now_ms = 0.0

    def awaits(self, fetch_id: int) -> bool:
        """Whether what that fetch brings is still wanted."""
        return self._fetch_id == fetch_id

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def leader_id(self) -> int | None:
        return self._leader_id

    @property
    def active_leader_id(self) -> int | None:
        """Who leads now: as `leader_id`, but None once this node itself leads no more: resigned, or
        asking for votes since."""
        leads_no_more = self._leader_id == self.node.id and not self.is_leader
        return None if leads_no_more else self._leader_id

    @property
    def voted(self) -> ReplicaKey | None:
        return self._voted

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.node)

    @property
    def is_leader(self) -> bool:
        return isinstance(self._state, Leading)

    @property
    def shown_high_watermark(self) -> int | None:
        """What a leader may tell: its own, once its first record is committed (M9). What it knew
        as a follower may be behind what other followers know."""
        state, mark = self._state, self.high_watermark
        if isinstance(state, Leading) and mark is not None and mark > state.epoch_start_offset:
            return mark
        return None

    @property
    def replicas(self) -> dict[ReplicaKey, Progress]:
        """The leader's view of the others; empty when this node does not lead."""
        return self._state.replicas if isinstance(self._state, Leading) else {}

    def leader_endpoints(self) -> tuple[tuple[str, Endpoint], ...]:
        """The controller listeners of the leader, as far as they are known."""
        if self._leader_id is None:
            return ()
        if isinstance(self._state, Following) and self._state.endpoints:
            return self._state.endpoints
        voter = self.voters.get(self._leader_id)
        return () if voter is None else voter.endpoints

    def _is_leap(self, epoch: int) -> bool:
        return epoch - self._epoch > EPOCH_LEAP_MAX

    def _enter(self, cause: Cause, state: RoleState) -> None:
        target = transition(self._state.role, cause)
        invariant(
            target is state.role, f"{cause.value} leads to {target.value}, not {state.role.value}"
        )
        self._state = state
        # What was asked for the old role's sake is not waited for: a leader that hangs must not
        # keep this replica from the next one.
        self._fetch_id = self._fetch_retry_ms = None

    def _persist(self) -> None:
        state = QuorumState(self._epoch, self._leader_id, self._voted)
        if state != self._persisted:
            self._persisted = state
            self._effects.append(PersistState(state))
        # A leader that resigned keeps its own id on disk, so that it never votes in that epoch
        # again, but to everybody else the epoch has no leader any more.
        told = LeaderChanged(self.active_leader_id, self._epoch)
        if told != self._told and not isinstance(self._state, Election):
            self._told = told
            self._effects.append(told)

    def _election_deadline(self) -> float:
        timeout = self._timing.election_timeout_ms
        return self._now_ms + timeout + self._jitter(timeout)
