"""One replica of the metadata quorum as a pure state machine (KIP-595, KIP-853, KIP-996).

`step(event, now_ms)` is the only input; its return value is the only output. The core has no log
and no socket. It reads the log's ends through `LogView` and returns what to append, truncate,
persist and send. Time and the jitter of timeouts are arguments.

`QuorumCore` routes events to its parts: `Discovery`, `Following`, `Leading`, `Electing` and
`VoterUpdates`. They share one `Replica`, their common state, and each uses only the parts that it
is given.

Rules of the parts (numbers: reliability notes)
- A vote or a new epoch is persisted by an effect that precedes the effect that sends it (M3).
- The leader counts its own log only as far as it is flushed, and only if it is a voter (M8). The
  high watermark never falls (M7) and is first exposed with the leader's own record (M9).
- A replica never truncates below its high watermark; a request to do so means a broken quorum
  (M10).
- A leader that restarts does not lead the same epoch again: it starts resigned (KAFKA-10527).
- A sole voter sends no requests: pre-vote, vote and leadership follow in one step, and check-quorum
  does not apply to it (KAFKA-16144).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metalog.quorum.core.discovery import Addresses, Discovery
from metalog.quorum.core.electing import Electing
from metalog.quorum.core.following import Following
from metalog.quorum.core.leading import Leading
from metalog.quorum.core.messages import (
    BeginEpochRequested,
    Effect,
    EndEpochRequested,
    EndpointsBound,
    EpochAnswered,
    Event,
    FetchAnswered,
    FetchRequested,
    Flushed,
    LogTruncated,
    LogView,
    QuorumState,
    RequestFailed,
    RequestKind,
    Resign,
    SnapshotInstalled,
    SnapshotPieceFetched,
    SnapshotRequested,
    Start,
    Tick,
    VoteAnswered,
    VoteRequested,
    VotersChanged,
    VoterUpdateAnswered,
    VoterUpdateRequested,
)
from metalog.quorum.core.replica import Jitter, Replica, Timing
from metalog.quorum.core.roles import (
    Cause,
    ElectionState,
    FollowerState,
    LeaderState,
    Progress,
    ResignedState,
    Role,
    UnattachedState,
)
from metalog.quorum.core.voter_updates import VoterUpdates
from metalog.quorum.core.voters import Endpoints, ReplicaKey, VoterEndpoint, VoterSet
from runtime.errors import invariant


class QuorumCore:
    """State machine of one replica; its rules are in the module docstring."""

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
        addresses: Addresses,
    ) -> None:
        replica = self._replica = Replica(
            node=node,
            log=log,
            state=state,
            voters=voters,
            voters_in_log=voters_in_log,
            endpoints=addresses.endpoints,
            timing=timing,
            jitter=jitter,
        )
        self._discovery = Discovery(replica, addresses)
        self._following = following = Following(replica, self._discovery)
        self._leading = leading = Leading(replica)
        self._electing = electing = Electing(replica, following, leading)
        self._voter_updates = updates = VoterUpdates(replica, addresses.listener_names[0])
        self._handlers: Mapping[type[Any], Callable[[Any], None]] = {
            Start: self._on_start,
            Tick: self._on_tick,
            Flushed: self._on_flushed,
            EndpointsBound: self._on_endpoints_bound,
            VotersChanged: self._on_voters_changed,
            Resign: self._on_resign,
            VoteRequested: electing.on_vote_requested,
            VoteAnswered: electing.on_vote_answered,
            BeginEpochRequested: following.on_begin_epoch,
            EndEpochRequested: following.on_end_epoch,
            EpochAnswered: self._on_epoch_answered,
            FetchRequested: leading.on_fetch_requested,
            FetchAnswered: following.on_fetch_answered,
            VoterUpdateRequested: updates.on_requested,
            VoterUpdateAnswered: updates.on_answered,
            LogTruncated: following.on_log_truncated,
            SnapshotRequested: leading.on_snapshot_requested,
            SnapshotInstalled: following.on_snapshot_installed,
            SnapshotPieceFetched: following.on_snapshot_piece_fetched,
            RequestFailed: self._on_request_failed,
        }

    def step(self, event: Event, now_ms: float) -> list[Effect]:
        """Process one event. Returns: the effects to carry out, in order."""
        replica = self._replica
        replica.now_ms = now_ms
        replica.effects = []
        self._handlers[type(event)](event)
        replica.persist()
        return replica.effects

    def next_deadline_ms(self) -> float | None:
        """Return when to `step(Tick())` next; None if the core waits for no deadline."""
        deadlines = (*self._replica.state.deadlines(), self._voter_updates.deadline_ms())
        return min((time for time in deadlines if time is not None), default=None)

    # --- public state -------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self._replica.state.role

    @property
    def epoch(self) -> int:
        return self._replica.epoch

    @property
    def leader_id(self) -> int | None:
        return self._replica.leader_id

    @property
    def active_leader_id(self) -> int | None:
        """The current leader; None if unknown, or if this node was the leader and no longer
        leads."""
        return self._replica.active_leader_id

    @property
    def voted(self) -> ReplicaKey | None:
        return self._replica.voted

    @property
    def voters(self) -> VoterSet:
        return self._replica.voters

    @property
    def is_voter(self) -> bool:
        return self._replica.is_voter

    @property
    def must_flush(self) -> bool:
        """True if the log's end counts only once it is durable. A broker's counts at once, and
        `Flushed` then reports that the log was written."""
        return self._replica.must_flush

    @property
    def is_leader(self) -> bool:
        return self._replica.is_leader

    @property
    def high_watermark(self) -> int | None:
        return self._replica.high_watermark

    @property
    def shown_high_watermark(self) -> int | None:
        """The high watermark that this node may expose as the leader (M9)."""
        return self._leading.shown_high_watermark()

    @property
    def replicas(self) -> Mapping[ReplicaKey, Progress]:
        """The leader's view of the other replicas; empty if this node does not lead."""
        state = self._replica.state
        return state.replicas if isinstance(state, LeaderState) else {}

    @property
    def endpoints(self) -> Endpoints:
        """This node's controller listeners; empty for a broker."""
        return self._replica.endpoints

    def endpoint_of(self, node_id: int) -> VoterEndpoint | None:
        """Return a controller's endpoint on our controller listener, None if unknown."""
        return self._discovery.endpoint_of(node_id)

    def awaits(self, fetch_id: int) -> bool:
        """Return whether the result of that fetch is still wanted."""
        return self._following.awaits(fetch_id)

    def validate(self) -> None:
        """Raise InvariantViolated unless state and role agree (M2, M16)."""
        replica, state = self._replica, self._replica.state
        replica.validate()
        if isinstance(state, LeaderState):
            invariant(replica.leader_id == replica.node.id, "a leader that follows another")
        elif isinstance(state, FollowerState):
            invariant(replica.leader_id == state.leader_id, "a follower without its leader")
            invariant(
                (state.role is Role.FOLLOWER) == self.is_voter, "role and membership disagree"
            )
        elif isinstance(state, ElectionState):
            invariant(self.is_voter, "election of a non-voter")
            if state.role is Role.CANDIDATE:
                invariant(replica.voted == replica.node, "a candidate must vote for itself")

    # --- events for several parts -------------------------------------------------------------

    def _on_start(self, event: Start) -> None:
        replica = self._replica
        self._voter_updates.start()
        if replica.log.last_epoch > replica.epoch:
            # The log has records of an epoch that the state file does not have: use the log's
            # epoch.
            replica.epoch, replica.leader_id, replica.voted = replica.log.last_epoch, None, None
        if replica.voters.is_only_voter(replica.node):
            replica.leader_id = None
            self._electing.stand(Cause.ELECTION_TIMEOUT)
        elif replica.leader_id == replica.node.id:
            replica.state = ResignedState(replica.election_deadline())
        elif replica.leader_id is not None and replica.leader_endpoints():
            self._following.follow(replica.leader_id, replica.epoch)
        else:
            replica.leader_id = None
            replica.state = UnattachedState(replica.election_deadline() if self.is_voter else None)
            self._following.look_for_leader()

    def _on_tick(self, event: Tick) -> None:
        replica, state = self._replica, self._replica.state
        if isinstance(state, LeaderState):
            self._leading.tick(state)
        elif state.deadline_ms is not None and replica.now_ms >= state.deadline_ms:
            self._timed_out(state)
        elif isinstance(state, ElectionState):
            self._electing.tick(state)
        elif isinstance(state, FollowerState | UnattachedState):
            self._following.tick(state.fetch)
        self._voter_updates.tick()

    def _timed_out(
        self, state: UnattachedState | ElectionState | FollowerState | ResignedState
    ) -> None:
        if isinstance(state, FollowerState):
            if state.role is Role.FOLLOWER:
                self._electing.stand(Cause.FETCH_TIMEOUT)
            else:
                self._following.leader_lost(state)
        elif self.is_voter:
            self._electing.stand(Cause.ELECTION_TIMEOUT)
        else:
            self._following.detach(Cause.HIGHER_EPOCH, self.epoch)

    def _on_resign(self, event: Resign) -> None:
        state = self._replica.state
        if isinstance(state, LeaderState):
            self._leading.resign(state, Cause.RESIGN)

    def _on_flushed(self, event: Flushed) -> None:
        replica, state = self._replica, self._replica.state
        invariant(
            event.end_offset <= replica.log.end_offset,
            f"flushed to {event.end_offset}, beyond the log end {replica.log.end_offset}",
        )
        replica.flushed_end = event.end_offset
        if isinstance(state, LeaderState):
            self._leading.advance_high_watermark(state)
        self._following.on_flushed()

    def _on_endpoints_bound(self, event: EndpointsBound) -> None:
        self._replica.endpoints = event.endpoints

    def _on_voters_changed(self, event: VotersChanged) -> None:
        replica, state = self._replica, self._replica.state
        replica.voters = event.voters
        replica.voters_in_log = True
        if isinstance(state, FollowerState):
            self._following.voters_changed(state)
        elif isinstance(state, ElectionState):
            self._electing.voters_changed(state)
        elif isinstance(state, LeaderState):
            self._leading.voters_changed(state)

    def _on_epoch_answered(self, event: EpochAnswered) -> None:
        if not self._following.observe(event.epoch, event.leader_id):
            self._leading.on_epoch_answered(event)

    def _on_request_failed(self, event: RequestFailed) -> None:
        if event.kind in (RequestKind.FETCH, RequestKind.FETCH_SNAPSHOT):
            self._following.fetch_failed(event)
        elif event.kind is RequestKind.BEGIN_EPOCH:
            self._leading.begin_epoch_failed(event)
        elif event.kind is RequestKind.VOTE:
            self._electing.vote_failed(event)
        elif event.kind is RequestKind.UPDATE_VOTER:
            self._voter_updates.failed()
