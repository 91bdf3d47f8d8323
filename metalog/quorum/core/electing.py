"""Elections: pre-vote, vote, and what replicas tell each other when an epoch begins or ends."""

from __future__ import annotations

from metalog.quorum.core.leading import LeadingReplica
from metalog.quorum.core.messages import (
    BeginEpochAsked,
    EndEpochAsked,
    OffsetAndEpoch,
    ReplyEpoch,
    ReplyVote,
    SendVote,
    VoteAnswered,
    VoteAsked,
)
from metalog.quorum.core.replica import ELECTION_BACKOFF_FIRST_MS
from metalog.quorum.core.roles import Cause, Election, Following, Leading, Role, Unattached
from metalog.quorum.core.voters import ReplicaKey
from protocol.errors import ErrorCode


class ElectingReplica(LeadingReplica):
    """A replica that can take part in elections."""

    def _start_election(self, cause: Cause, role: Role) -> None:
        election = Election(role, self._election_deadline())
        if role is Role.CANDIDATE:
            self._epoch += 1
            self._leader_id = None
            self._voted = self.node
        election.answers[self.node.id] = True
        self._enter(cause, election)
        self._persist()
        if self._count_votes(election):
            return
        self._ask_for_votes(election, [voter.id for voter in self.voters.others(self.node)])

    def _ask_for_votes(self, election: Election, voter_ids: list[int]) -> None:
        last = OffsetAndEpoch(self._log.end_offset, self._log.last_epoch)
        pre_vote = election.role is Role.PROSPECTIVE
        for voter_id in voter_ids:
            self._effects.append(SendVote(voter_id, self._epoch, last, pre_vote))

    def _vote_failed(self, voter_id: int) -> None:
        """No answer: ask again soon, if the election still goes on."""
        state = self._state
        if isinstance(state, Election) and voter_id not in state.answers:
            state.ask_again.add(voter_id)
            if state.ask_again_ms is None:
                state.ask_again_ms = self._now_ms + self._timing.retry_backoff_ms
            self._count_votes(state)

    def _tick_election(self, election: Election) -> None:
        if election.ask_again_ms is not None and self._now_ms >= election.ask_again_ms:
            voter_ids = sorted(election.ask_again - set(election.answers))
            election.ask_again.clear()
            election.ask_again_ms = None
            self._ask_for_votes(election, voter_ids)

    def _count_votes(self, election: Election) -> bool:
        """Move on if the election is decided; True if it was won."""
        if len(election.granting_ids) >= self.voters.majority:
            if election.role is Role.PROSPECTIVE:
                self._start_election(Cause.PRE_VOTE_WON, Role.CANDIDATE)
            else:
                self._lead(election.granting_ids)
            return True
        # Who cannot be reached will hardly grant in time: two candidates beside a dead voter must
        # not wait for it.
        hopeless = election.rejecting_count + len(election.ask_again - set(election.answers))
        if not election.lost and len(self.voters) - hopeless < self.voters.majority:
            election.lost = True
            refused = len(self.voters) - election.rejecting_count < self.voters.majority
            known = self._leader_id not in (None, self.node.id)
            if election.role is Role.PROSPECTIVE and known and refused:
                assert self._leader_id is not None
                # The others know that the leader lives; ours was only slow to us.
                self._follow(self._leader_id, self._epoch)
            else:
                election.deadline_ms = self._now_ms + 1 + self._backoff_ms()
        return False

    def _backoff_ms(self) -> int:
        bound = min(
            self._timing.election_backoff_max_ms, ELECTION_BACKOFF_FIRST_MS << self._defeats
        )
        self._defeats = min(self._defeats + 1, 10)
        return self._jitter(max(1, bound))

    def _on_vote_asked(self, event: VoteAsked) -> None:
        error, granted = ErrorCode.NONE, False
        if event.voter is not None and not event.voter.matches(self.node):
            error = ErrorCode.INVALID_VOTER_KEY
        elif event.candidate.id < 0 or self._is_leap(event.epoch):
            error = ErrorCode.INVALID_REQUEST
        elif event.epoch < self._epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            if event.epoch > self._epoch:
                self._detach(Cause.HIGHER_EPOCH, event.epoch)
            granted = self._may_grant(event)
            if granted and not event.pre_vote and self._voted is None:
                self._voted = event.candidate
                deadline_ms = self._election_deadline() if self.is_voter else None
                self._enter(Cause.VOTE_GRANTED, Unattached(deadline_ms))
                self._persist()
                self._look_for_leader()
        self._persist()
        self._effects.append(
            ReplyVote(event.token, error, self._epoch, self.active_leader_id, granted)
        )

    def _may_grant(self, event: VoteAsked) -> bool:
        own = (self._log.last_epoch, self._log.end_offset)
        up_to_date = (event.last.epoch, event.last.offset) >= own
        state = self._state
        if event.pre_vote:
            leader_lives = isinstance(state, Leading) or (
                isinstance(state, Following) and state.fetched
            )
            return up_to_date and not leader_lives
        if not isinstance(state, Unattached) and state.role is not Role.PROSPECTIVE:
            return False
        if self._leader_id is not None:
            return False
        if self._voted is not None:
            return self._voted == event.candidate
        return up_to_date

    def _on_vote_answered(self, event: VoteAnswered) -> None:
        if self._observe(event.epoch, event.leader_id) or event.epoch < self._epoch:
            return
        state = self._state
        pre_vote = isinstance(state, Election) and state.role is Role.PROSPECTIVE
        if not isinstance(state, Election) or pre_vote != event.pre_vote:
            return
        if self.voters.get(event.voter_id) is None or event.voter_id in state.answers:
            return
        state.answers[event.voter_id] = event.granted
        self._count_votes(state)

    def _hurry(self, preferred: tuple[ReplicaKey, ...]) -> None:
        """The leader has gone: the best successor tries at once, the others in turn."""
        state = self._state
        if not isinstance(state, Following) or state.role is not Role.FOLLOWER:
            return
        place = next((i for i, key in enumerate(preferred) if key.matches(self.node)), None)
        if place == 0:
            state.deadline_ms = self._now_ms
        else:
            rank = len(preferred) if place is None else place
            bound = min(self._timing.retry_backoff_ms * 2**rank, self._timing.election_timeout_ms)
            state.deadline_ms = self._now_ms + bound + self._jitter(max(1, bound))
        state.fetched = False

    def _on_begin_epoch(self, event: BeginEpochAsked) -> None:
        error = ErrorCode.NONE
        if event.voter is not None and not event.voter.matches(self.node):
            error = ErrorCode.INVALID_VOTER_KEY
        elif event.leader_id < 0 or self._is_leap(event.epoch):
            error = ErrorCode.INVALID_REQUEST
        elif event.epoch < self._epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif event.leader_id == self.node.id or (
            event.epoch == self._epoch and self._leader_id not in (None, event.leader_id)
        ):
            error = ErrorCode.INVALID_REQUEST
        elif event.epoch > self._epoch or self._leader_id is None:
            self._follow(event.leader_id, event.epoch, event.endpoints)
        elif isinstance(self._state, Following) and event.endpoints:
            self._state.endpoints = event.endpoints
        self._reply_epoch(event.token, error)

    def _on_end_epoch(self, event: EndEpochAsked) -> None:
        error = ErrorCode.NONE
        if event.leader_id < 0 or self._is_leap(event.epoch):
            error = ErrorCode.INVALID_REQUEST
        elif event.epoch < self._epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif event.leader_id == self.node.id or (
            event.epoch == self._epoch and self._leader_id not in (None, event.leader_id)
        ):
            error = ErrorCode.INVALID_REQUEST
        else:
            if event.epoch > self._epoch or self._leader_id is None:
                self._follow(event.leader_id, event.epoch)
            self._hurry(event.preferred)
        self._reply_epoch(event.token, error)

    def _reply_epoch(self, token: int, error: ErrorCode) -> None:
        self._persist()
        self._effects.append(ReplyEpoch(token, error, self._epoch, self.active_leader_id))
