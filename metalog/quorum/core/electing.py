"""Elections: pre-votes and votes, requested and granted."""

from __future__ import annotations

from metalog.quorum.core.following import Following
from metalog.quorum.core.leading import Leading
from metalog.quorum.core.messages import (
    OffsetAndEpoch,
    ReplyVote,
    RequestFailed,
    SendVote,
    VoteAnswered,
    VoteRequested,
)
from metalog.quorum.core.replica import Replica
from metalog.quorum.core.roles import (
    Cause,
    ElectionState,
    FollowerState,
    LeaderState,
    Role,
    UnattachedState,
)
from protocol.errors import ErrorCode
from runtime.marks import mark

ELECTION_BACKOFF_FIRST_MS = 100
"""Bound of the first backoff after a lost election; it doubles with each one in a row."""


class Electing:
    """Participation of a replica in elections.

    A winner begins to lead. A candidate that loses against a live leader follows it again.
    """

    def __init__(self, replica: Replica, following: Following, leading: Leading) -> None:
        self._replica = replica
        self._following = following
        self._leading = leading

    # --- standing for election ----------------------------------------------------------------

    def stand(self, cause: Cause) -> None:
        """Start a pre-vote: query whether the other voters would vote for this replica
        (KIP-996)."""
        self._begin(cause, Role.PROSPECTIVE)

    def _begin(self, cause: Cause, role: Role) -> None:
        replica = self._replica
        election = ElectionState(role, replica.election_deadline())
        if role is Role.CANDIDATE:
            replica.epoch += 1
            replica.leader_id = None
            replica.voted = replica.node
        election.answers[replica.node.id] = True
        replica.enter(cause, election)
        replica.persist()
        if not self._count_votes(election):
            others = replica.voters.others(replica.node)
            self._ask_for_votes(election, [voter.id for voter in others])

    def _ask_for_votes(self, election: ElectionState, voter_ids: list[int]) -> None:
        replica, log = self._replica, self._replica.log
        last = OffsetAndEpoch(log.end_offset, log.last_epoch)
        pre_vote = election.role is Role.PROSPECTIVE
        for voter_id in voter_ids:
            replica.effects.append(SendVote(voter_id, replica.epoch, last, pre_vote))

    def on_vote_answered(self, event: VoteAnswered) -> None:
        replica = self._replica
        if self._following.observe(event.epoch, event.leader_id) or event.epoch < replica.epoch:
            return
        state = replica.state
        pre_vote = isinstance(state, ElectionState) and state.role is Role.PROSPECTIVE
        if not isinstance(state, ElectionState) or pre_vote != event.pre_vote:
            return
        if replica.voters.get(event.voter_id) is None or event.voter_id in state.answers:
            return
        state.answers[event.voter_id] = event.granted
        self._count_votes(state)

    def vote_failed(self, event: RequestFailed) -> None:
        """Schedule another request to a voter that did not answer, if the election is still open.

        A request may time out when the next election has begun. It does not count in that one.
        """
        replica, state = self._replica, self._replica.state
        if not isinstance(state, ElectionState):
            return
        poll = replica.epoch, state.role is Role.PROSPECTIVE
        if event.poll == poll and event.node_id not in state.answers:
            state.request_again.add(event.node_id)
            if state.request_again_ms is None:
                state.request_again_ms = replica.now_ms + replica.timing.retry_backoff_ms
            self._count_votes(state)

    def tick(self, election: ElectionState) -> None:
        if (
            election.request_again_ms is not None
            and self._replica.now_ms >= election.request_again_ms
        ):
            voter_ids = sorted(election.request_again - set(election.answers))
            election.request_again.clear()
            election.request_again_ms = None
            self._ask_for_votes(election, voter_ids)

    def _count_votes(self, election: ElectionState) -> bool:
        """Continue if the election is decided. Returns: True if it was won."""
        replica, voters = self._replica, self._replica.voters
        if len(election.granting_ids) >= voters.majority:
            if election.role is Role.PROSPECTIVE:
                self._begin(Cause.PRE_VOTE_WON, Role.CANDIDATE)
            else:
                self._win(election)
            return True
        # An unreachable voter will hardly grant its vote in time: two candidates must not wait for
        # a dead third voter.
        hopeless = election.rejecting_count + len(election.request_again - set(election.answers))
        if not election.lost and len(voters) - hopeless < voters.majority:
            election.lost = True
            refused = len(voters) - election.rejecting_count < voters.majority
            known = replica.leader_id not in (None, replica.node.id)
            if election.role is Role.PROSPECTIVE and known and refused:
                assert replica.leader_id is not None
                # The other voters know that the leader is alive; it was only slow to this replica.
                mark("quorum.pre-vote-back-to-leader")
                self._following.follow(replica.leader_id, replica.epoch)
            else:
                mark("quorum.election-lost")
                election.deadline_ms = replica.now_ms + 1 + self._backoff_ms()
        return False

    def _win(self, election: ElectionState) -> None:
        self._replica.lost_elections = 0
        self._following.patience.forget_lost_leader()
        self._leading.begin(election.granting_ids)

    def _backoff_ms(self) -> int:
        replica = self._replica
        bound = min(
            replica.timing.election_backoff_max_ms,
            ELECTION_BACKOFF_FIRST_MS << replica.lost_elections,
        )
        replica.lost_elections = min(replica.lost_elections + 1, 10)
        return replica.jitter(max(1, bound))

    def voters_changed(self, state: ElectionState) -> None:
        """Leave the election if this replica is no longer a voter."""
        replica = self._replica
        if not replica.is_voter:
            replica.leader_id = None
            replica.enter(Cause.LEFT_VOTERS, UnattachedState(None))
            self._following.look_for_leader()

    # --- voting -------------------------------------------------------------------------------

    def on_vote_requested(self, event: VoteRequested) -> None:
        replica = self._replica
        error, granted = ErrorCode.NONE, False
        if event.voter is not None and not event.voter.matches(replica.node):
            error = ErrorCode.INVALID_VOTER_KEY
        elif event.candidate.id < 0 or replica.is_too_far(event.epoch):
            error = ErrorCode.INVALID_REQUEST
        elif event.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
            mark("quorum.vote-fenced")
        else:
            if event.epoch > replica.epoch:
                self._following.detach(Cause.HIGHER_EPOCH, event.epoch)
            granted = self._may_grant(event)
            if granted and not event.pre_vote and replica.voted is None:
                self._vote_for(event)
        replica.persist()
        replica.effects.append(
            ReplyVote(event.token, error, replica.epoch, replica.active_leader_id, granted)
        )

    def _vote_for(self, event: VoteRequested) -> None:
        replica = self._replica
        replica.voted = event.candidate
        deadline_ms = replica.election_deadline() if replica.is_voter else None
        replica.enter(Cause.VOTE_GRANTED, UnattachedState(deadline_ms))
        replica.persist()
        self._following.look_for_leader()

    def _may_grant(self, event: VoteRequested) -> bool:
        replica, log, state = self._replica, self._replica.log, self._replica.state
        up_to_date = (event.last.epoch, event.last.offset) >= (log.last_epoch, log.end_offset)
        if event.pre_vote:
            leader_lives = isinstance(state, LeaderState) or (
                isinstance(state, FollowerState) and state.fetched
            )
            if leader_lives:
                mark("quorum.pre-vote-refused-leader-lives")
            elif not up_to_date:
                mark("quorum.pre-vote-refused-log-behind")
            return up_to_date and not leader_lives
        if not isinstance(state, UnattachedState) and state.role is not Role.PROSPECTIVE:
            return False
        if replica.leader_id is not None:
            return False
        if replica.voted is not None:
            if replica.voted != event.candidate:
                mark("quorum.vote-refused-voted")
            return replica.voted == event.candidate
        if not up_to_date:
            mark("quorum.vote-refused-log-behind")
        return up_to_date
