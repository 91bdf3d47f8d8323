"""Leading an epoch: the high watermark, check-quorum, and answering fetches."""

from __future__ import annotations

from metalog.quorum.core.following import FollowingReplica
from metalog.quorum.core.messages import (
    AppendLeaderChange,
    EpochAnswered,
    FetchAsked,
    HighWatermarkAdvanced,
    OffsetAndEpoch,
    PersistState,
    QuorumState,
    ReplicaHeard,
    ReplyFetch,
    Resign,
    SendBeginEpoch,
    SendEndEpoch,
)
from metalog.quorum.core.replica import CHECK_QUORUM_FACTOR, OBSERVER_FORGOTTEN_MS
from metalog.quorum.core.roles import Cause, Leading, Progress, Resigned
from metalog.quorum.core.voters import ReplicaKey
from protocol.errors import ErrorCode


class LeadingReplica(FollowingReplica):
    """A replica that can lead."""

    def _lead(self, granting_ids: tuple[int, ...]) -> None:
        others = self.voters.others(self.node)
        leading = Leading(self._log.end_offset, granting_ids, {voter.id for voter in others})
        if others:
            leading.check_deadline_ms = self._check_quorum_deadline()
        self._enter(Cause.VOTE_WON, leading)
        self._lost, self._defeats = None, 0
        # As Kafka writes it: the leader's own vote is not kept, that it leads says as much.
        self._leader_id, self._voted = self.node.id, None
        state = QuorumState(self._epoch, self._leader_id, None)
        self._persisted = state
        self._effects.append(PersistState(state))
        self._effects.append(
            AppendLeaderChange(
                epoch=self._epoch,
                leader_id=self.node.id,
                voter_ids=self.voters.ids,
                granting_ids=granting_ids,
                write_voters=not self._voters_in_log,
            )
        )
        self._send_begin_epoch(leading)

    def _check_quorum_deadline(self) -> float:
        return self._now_ms + self._timing.fetch_timeout_ms * CHECK_QUORUM_FACTOR

    def _send_begin_epoch(self, state: Leading) -> None:
        state.begin_at_ms = self._now_ms + self._timing.fetch_timeout_ms / 2
        for node_id in sorted(state.begin_pending):
            self._effects.append(SendBeginEpoch(node_id, self._epoch))

    def _tick_leading(self, state: Leading) -> None:
        if state.check_deadline_ms is not None and self._now_ms >= state.check_deadline_ms:
            self._resign(Cause.QUORUM_LOST)
        elif state.begin_pending and self._now_ms >= state.begin_at_ms:
            self._send_begin_epoch(state)

    def _heard_from(self, state: Leading, key: ReplicaKey) -> None:
        """A voter fetched: the leader is not cut off from it. Its own key, whoever sends that, says
        nothing."""
        if key.matches(self.node) or not self.voters.is_voter(key):
            return
        state.begin_pending.discard(key.id)
        if state.check_deadline_ms is None:
            return
        state.heard_from.add(key.id)
        if len(state.heard_from) + self.is_voter >= self.voters.majority:
            state.heard_from.clear()
            state.check_deadline_ms = self._check_quorum_deadline()

    def _advance_high_watermark(self) -> None:
        state = self._state
        if not isinstance(state, Leading) or not len(self.voters):
            return
        ends: list[int] = []
        for voter in self.voters:
            if voter.key.matches(self.node):
                ends.append(self._flushed_end)
            else:
                ends.append(self._replica_end(state, voter.key))
        ends.sort(reverse=True)
        committed = ends[self.voters.majority - 1]
        if committed <= state.epoch_start_offset:
            return
        if self.high_watermark is None or committed > self.high_watermark:
            self.high_watermark = committed
            self._effects.append(HighWatermarkAdvanced(committed))

    @staticmethod
    def _replica_end(state: Leading, key: ReplicaKey) -> int:
        return max((p.end_offset for k, p in state.replicas.items() if k.matches(key)), default=-1)

    def _resign(self, cause: Cause) -> None:
        state = self._state
        assert isinstance(state, Leading)
        others = self.voters.others(self.node)
        successors = sorted(others, key=lambda v: (-self._replica_end(state, v.key), v.id))
        preferred = tuple(voter.key for voter in successors)
        self._enter(cause, Resigned(self._election_deadline(), {v.id for v in others}))
        for voter in others:
            self._effects.append(SendEndEpoch(voter.id, self._epoch, preferred))

    def _on_resign(self, event: Resign) -> None:
        if isinstance(self._state, Leading):
            self._resign(Cause.RESIGN)

    def _on_fetch_asked(self, event: FetchAsked) -> None:
        state = self._state
        error = ErrorCode.NONE
        diverging = snapshot = None
        if event.epoch < self._epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif event.epoch > self._epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not isinstance(state, Leading):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            diverging, snapshot = self._check_position(event)
            self._heard_from(state, event.replica)
            if diverging is None and snapshot is None and event.replica.id >= 0:
                self._replica_fetched(state, event)
        self._effects.append(
            ReplyFetch(
                event.token,
                error,
                self._epoch,
                self.active_leader_id,
                event.fetch_offset,
                diverging,
                snapshot,
            )
        )

    def _check_position(
        self, event: FetchAsked
    ) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
        """(where the logs part, the snapshot to load), both None for a position in our log."""
        log = self._log
        offset, epoch, start = event.fetch_offset, event.last_epoch, log.start_offset
        if offset == 0 and start == 0 and epoch == 0:
            return None, None
        latest = log.latest_snapshot
        # Of an epoch before the log's start nothing is known here but that the snapshot covers it.
        before = offset < start or epoch < log.start_epoch
        if latest is not None and (before or (offset == start > 0 and epoch != log.start_epoch)):
            return None, latest
        end = log.end_offset_for_epoch(epoch)
        if end.epoch != epoch or offset > end.offset:
            return end, None
        return None, None

    def _replica_fetched(self, state: Leading, event: FetchAsked) -> None:
        progress = state.replicas.get(event.replica)
        if progress is None:
            self._forget_observers(state)
            progress = state.replicas[event.replica] = Progress()
        progress.fetched(event.fetch_offset, self._log.end_offset, self._now_ms)
        if self.voters.is_voter(event.replica):
            self._advance_high_watermark()

    def _forget_observers(self, state: Leading) -> None:
        """Drop non-voters that have gone, so that the books stay bounded."""
        horizon_ms = self._now_ms - OBSERVER_FORGOTTEN_MS
        for key, progress in list(state.replicas.items()):
            gone = progress.fetch_ms is None or progress.fetch_ms < horizon_ms
            if gone and not self.voters.is_voter(key):
                del state.replicas[key]

    def _on_epoch_answered(self, event: EpochAnswered) -> None:
        if self._observe(event.epoch, event.leader_id):
            return
        state = self._state
        if event.ok and event.begin and isinstance(state, Leading):
            state.begin_pending.discard(event.voter_id)
        elif event.ok and not event.begin and isinstance(state, Resigned):
            state.unacknowledged.discard(event.voter_id)

    def _on_replica_heard(self, event: ReplicaHeard) -> None:
        if isinstance(self._state, Leading):
            self._heard_from(self._state, event.replica)
