"""One replica of the metadata quorum as a pure state machine (KIP-595, KIP-853, KIP-996).

`step(event, now_ms)` is the only way in; what it returns is the only way out. The core holds no
log and no socket: it reads the log's ends through `LogView` and says what to append, truncate,
persist and send. Time and the jitter of timeouts are arguments.

Rules that the code below keeps (numbers: reliability notes)
- A vote or a new epoch is persisted by an effect that stands before the effect that tells (M3).
- The leader counts its own log only as far as it is flushed, and only if it is a voter (M8); the
  high watermark never falls (M7) and first appears with the leader's own record (M9).
- A replica never truncates below its high watermark; being asked to is a broken quorum (M10).
- A leader that restarts does not lead the same epoch again: it starts resigned (KAFKA-10527).
- Whoever is its own majority asks nobody: pre-vote, vote and leadership follow in one step, and
  check-quorum does not apply to it (KAFKA-16144).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metalog.quorum.core.electing import ElectingReplica
from metalog.quorum.core.messages import (
    BeginEpochAsked,
    Effect,
    EndEpochAsked,
    EpochAnswered,
    Event,
    FetchAnswered,
    FetchAsked,
    Flushed,
    LogTruncated,
    QuorumState,
    ReplicaHeard,
    RequestFailed,
    RequestKind,
    Resign,
    SnapshotInstalled,
    SnapshotPieceFetched,
    Start,
    Tick,
    VoteAnswered,
    VoteAsked,
    VotersChanged,
)
from metalog.quorum.core.roles import (
    Cause,
    Election,
    Following,
    Leading,
    Resigned,
    Role,
    Unattached,
)
from runtime.errors import InvariantViolated, invariant


class QuorumCore(ElectingReplica):
    """One replica. See the module."""

    def next_deadline_ms(self) -> float | None:
        """When to `step(Tick())` next; None when nothing is waited for."""
        state = self._state
        if isinstance(state, Leading):
            times = [state.check_deadline_ms, state.begin_at_ms if state.begin_pending else None]
        else:
            times = [state.deadline_ms, self._fetch_retry_ms]
            if isinstance(state, Election):
                times.append(state.ask_again_ms)
        return min((time for time in times if time is not None), default=None)

    def step(self, event: Event, now_ms: float) -> list[Effect]:
        """Take one event; returns what to do, in order."""
        self._now_ms = now_ms
        self._effects = []
        _HANDLERS[type(event)](self, event)
        self._persist()
        return self._effects

    def validate(self) -> None:
        """Raises `InvariantViolated` unless state and role agree (M2, M16)."""
        state = self._state
        current = QuorumState(self._epoch, self._leader_id, self._voted)
        # The text costs more than the comparison, and simulations ask after every event.
        if self._persisted != current:
            raise InvariantViolated(f"persisted {self._persisted}, in memory {current}")
        if isinstance(state, Leading):
            invariant(self._leader_id == self.node.id, "a leader that follows another")
        elif isinstance(state, Following):
            invariant(self._leader_id == state.leader_id, "a follower without its leader")
            invariant(
                (state.role is Role.FOLLOWER) == self.is_voter, "role and membership disagree"
            )
        elif isinstance(state, Election):
            invariant(self.is_voter, "an election of a non-voter")
            if state.role is Role.CANDIDATE:
                invariant(self._voted == self.node, "a candidate that voted for another")

    def _on_start(self, event: Start) -> None:
        if self._log.last_epoch > self._epoch:
            # Records of an epoch that the state file never saw: the log is right.
            self._epoch, self._leader_id, self._voted = self._log.last_epoch, None, None
        if self.voters.is_only_voter(self.node):
            self._leader_id = None
            self._start_alone()
        elif self._leader_id == self.node.id:
            self._state = Resigned(self._election_deadline(), set())
        elif self._leader_id is not None and self.leader_endpoints():
            self._follow(self._leader_id, self._epoch)
        else:
            self._leader_id = None
            self._state = Unattached(self._election_deadline() if self.is_voter else None)
            self._look_for_leader()

    def _start_alone(self) -> None:
        self._state = Unattached(None)
        self._start_election(Cause.ELECTION_TIMEOUT, Role.PROSPECTIVE)

    def _on_tick(self, event: Tick) -> None:
        state = self._state
        if isinstance(state, Leading):
            self._tick_leading(state)
            return
        if state.deadline_ms is not None and self._now_ms >= state.deadline_ms:
            if isinstance(state, Following):
                self._fetch_timed_out(state)
            elif self.is_voter:
                self._start_election(Cause.ELECTION_TIMEOUT, Role.PROSPECTIVE)
            else:
                self._detach(Cause.HIGHER_EPOCH, self._epoch)
        elif isinstance(state, Election):
            self._tick_election(state)
        elif self._fetch_retry_ms is not None and self._now_ms >= self._fetch_retry_ms:
            self._fetch_retry_ms = None
            if isinstance(state, Following):
                self._fetch()
            else:
                self._look_for_leader()

    def _on_request_failed(self, event: RequestFailed) -> None:
        if event.kind in (RequestKind.FETCH, RequestKind.FETCH_SNAPSHOT):
            self._fetch_failed(event.fetch_id, refused=event.refused)
        elif event.kind is RequestKind.VOTE:
            self._vote_failed(event.node_id)

    def _fetch_timed_out(self, state: Following) -> None:
        if state.role is Role.FOLLOWER:
            self._start_election(Cause.FETCH_TIMEOUT, Role.PROSPECTIVE)
        else:
            self._note_lost(state)
            self._detach(Cause.FETCH_TIMEOUT, self._epoch)

    def _on_flushed(self, event: Flushed) -> None:
        invariant(
            event.end_offset <= self._log.end_offset,
            f"flushed to {event.end_offset}, the log ends at {self._log.end_offset}",
        )
        self._flushed_end = event.end_offset
        if isinstance(self._state, Leading):
            self._advance_high_watermark()
        else:
            self._follow_high_watermark(self._leader_high_watermark)
        if self._fetch_after_flush and self._flushed_end == self._log.end_offset:
            self._fetch_after_flush = False
            self._fetch()
            self._look_for_leader()

    def _on_voters_changed(self, event: VotersChanged) -> None:
        self.voters = event.voters
        self._voters_in_log = True
        state = self._state
        if isinstance(state, Following):
            self._membership_changed(state)
        elif isinstance(state, Election) and not self.is_voter:
            self._leader_id = None
            self._enter(Cause.LEFT_VOTERS, Unattached(None))
            self._look_for_leader()
        elif isinstance(state, Leading):
            others = {voter.id for voter in self.voters.others(self.node)}
            state.begin_pending &= others
            state.heard_from &= others
            if others and state.check_deadline_ms is None:
                state.check_deadline_ms = self._check_quorum_deadline()
            elif not others:
                state.check_deadline_ms = None
            self._advance_high_watermark()


_HANDLERS: dict[type[Any], Callable[[QuorumCore, Any], None]] = {
    Start: QuorumCore._on_start,
    Tick: QuorumCore._on_tick,
    Flushed: QuorumCore._on_flushed,
    VotersChanged: QuorumCore._on_voters_changed,
    Resign: QuorumCore._on_resign,
    VoteAsked: QuorumCore._on_vote_asked,
    VoteAnswered: QuorumCore._on_vote_answered,
    BeginEpochAsked: QuorumCore._on_begin_epoch,
    EndEpochAsked: QuorumCore._on_end_epoch,
    EpochAnswered: QuorumCore._on_epoch_answered,
    FetchAsked: QuorumCore._on_fetch_asked,
    FetchAnswered: QuorumCore._on_fetch_answered,
    LogTruncated: QuorumCore._on_log_truncated,
    ReplicaHeard: QuorumCore._on_replica_heard,
    SnapshotInstalled: QuorumCore._on_snapshot_installed,
    SnapshotPieceFetched: QuorumCore._on_snapshot_piece_fetched,
    RequestFailed: QuorumCore._on_request_failed,
}
