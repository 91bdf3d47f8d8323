"""Updates of the voter set: this voter's own entry, and requests of other voters (KIP-853).

With kraft.version 1 the voters' endpoints are in the log. A voter whose endpoints or supported
kraft.versions have changed sends them to the leader. A leader updates its own entry itself. An
update that is refused or not answered is retried after the fetch timeout.
"""

from __future__ import annotations

from metalog.image.features import KRAFT
from metalog.quorum.core.messages import (
    AppendVoters,
    ReplyVoterUpdate,
    SendVoterUpdate,
    VoterUpdateAnswered,
    VoterUpdateRequested,
)
from metalog.quorum.core.replica import Replica
from metalog.quorum.core.roles import LeaderState
from metalog.quorum.core.voters import Voter
from protocol.errors import ErrorCode


class VoterUpdates:
    """Changes of the voter set by a replica.

    A voter without the listener `listener_name` could not be reached, so its update is refused.
    """

    def __init__(self, replica: Replica, listener_name: str) -> None:
        self._replica = replica
        self._listener_name = listener_name
        self._next_ms = 0.0
        self._asking = False

    def start(self) -> None:
        self._wait()

    def _wait(self) -> None:
        self._asking = False
        self._next_ms = self._replica.now_ms + self._replica.timing.fetch_timeout_ms

    # --- the own entry ------------------------------------------------------------------------

    def deadline_ms(self) -> float | None:
        """Return when to update this node's entry; None if it is current or cannot be updated
        now."""
        return None if self._wanted() is None or not self._is_taken() else self._next_ms

    def tick(self) -> None:
        replica, entry = self._replica, self._wanted()
        if entry is None or not self._is_taken() or replica.now_ms < self._next_ms:
            return
        if replica.is_leader:
            self._append(entry)
            self._wait()
        else:
            assert replica.leader_id is not None, "it takes an update"
            self._asking = True
            replica.effects.append(SendVoterUpdate(replica.leader_id, replica.epoch, entry))

    def on_answered(self, event: VoterUpdateAnswered) -> None:
        self._wait()

    def failed(self) -> None:
        self._wait()

    def _wanted(self) -> Voter | None:
        """Return the updated entry of this node; None if the entry is current or does not exist."""
        replica = self._replica
        if replica.log.kraft_version == 0 or not replica.endpoints:
            return None
        entry = replica.voters.get(replica.node.id)
        if entry is None or entry.key != replica.node:
            return None
        wanted = Voter(replica.node, replica.endpoints, 0, KRAFT.max_level)
        return None if wanted == entry else wanted

    def _is_taken(self) -> bool:
        state = self._replica.state
        if isinstance(state, LeaderState):
            return not self._change_pending(state)
        return self._replica.active_leader_id is not None and not self._asking

    # --- changes of the set -------------------------------------------------------------------

    def on_requested(self, event: VoterUpdateRequested) -> None:
        replica = self._replica
        error, appended = ErrorCode.NONE, False
        if event.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif event.epoch > replica.epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not isinstance(replica.state, LeaderState):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif replica.log.kraft_version:  # static voters have no entry to change
            error = self._error(replica.state, event.voter)
            appended = error is ErrorCode.NONE
        if appended:
            self._append(event.voter)
        replica.effects.append(
            ReplyVoterUpdate(event.token, error, replica.epoch, replica.active_leader_id, appended)
        )

    def _error(self, state: LeaderState, voter: Voter) -> ErrorCode:
        replica = self._replica
        entry = replica.voters.get(voter.id)
        if entry is None or entry.key != voter.key:
            return ErrorCode.VOTER_NOT_FOUND
        kraft_version = replica.log.kraft_version
        version_fits = voter.kraft_version_min <= kraft_version <= voter.kraft_version_max
        if voter.endpoint(self._listener_name) is None or not version_fits:
            return ErrorCode.INVALID_REQUEST
        if self._change_pending(state):
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE

    def _change_pending(self, state: LeaderState) -> bool:
        """Return whether this leader's epoch start or the last change of the set is not committed
        yet."""
        replica = self._replica
        changed_at = max(state.epoch_start_offset, replica.log.voters_offset)
        return (replica.high_watermark or 0) <= changed_at

    def _append(self, voter: Voter) -> None:
        replica = self._replica
        replica.effects.append(AppendVoters(replica.epoch, replica.voters.with_voter(voter)))
