"""Leadership of an epoch: the high watermark, check-quorum, and responses to fetches."""

from __future__ import annotations

from metalog.quorum.core.messages import (
    AppendLeaderChange,
    EpochAnswered,
    FetchRequested,
    OffsetAndEpoch,
    ReplyFetch,
    RequestFailed,
    SendBeginEpoch,
    SendEndEpoch,
    SnapshotRequested,
    VoterGone,
)
from metalog.quorum.core.replica import Replica
from metalog.quorum.core.roles import Cause, LeaderState, Progress, ResignedState
from metalog.quorum.core.voters import ReplicaKey
from protocol.errors import ErrorCode
from runtime.marks import mark

CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns if no majority has fetched within this many fetch timeouts."""
OBSERVER_FORGOTTEN_MS = 300_000.0
"""A non-voter that has not fetched for this time is no longer listed."""
OBSERVERS_MAX = 1_000
"""Limit of listed non-voters: memory stays bounded, whatever ids requests contain."""


class Leading:
    """Leadership of a replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def begin(self, granting_ids: tuple[int, ...]) -> None:
        """Lead the epoch in which this replica was elected."""
        replica = self._replica
        others = replica.voters.others(replica.node)
        state = LeaderState(replica.log.end_offset, {voter.id for voter in others})
        if others:
            state.check_deadline_ms = self._check_quorum_deadline()
        replica.enter(Cause.VOTE_WON, state)
        # As in Kafka, the leader's vote for itself is not stored: its leadership implies it.
        replica.leader_id, replica.voted = replica.node.id, None
        replica.persist_state()
        replica.effects.append(
            AppendLeaderChange(
                epoch=replica.epoch,
                leader_id=replica.node.id,
                voter_ids=replica.voters.ids,
                granting_ids=granting_ids,
                write_voters=not replica.voters_in_log,
            )
        )
        self._send_begin_epoch(state)

    def _check_quorum_deadline(self) -> float:
        return self._replica.now_ms + self._replica.timing.fetch_timeout_ms * CHECK_QUORUM_FACTOR

    def _send_begin_epoch(self, state: LeaderState) -> None:
        replica = self._replica
        state.begin_at_ms = replica.now_ms + replica.timing.fetch_timeout_ms / 2
        for node_id in sorted(state.begin_pending):
            replica.effects.append(SendBeginEpoch(node_id, replica.epoch))

    def tick(self, state: LeaderState) -> None:
        now_ms = self._replica.now_ms
        if state.check_deadline_ms is not None and now_ms >= state.check_deadline_ms:
            mark("quorum.leader-resigns-alone")
            self.resign(state, Cause.QUORUM_LOST)
        elif state.begin_pending and now_ms >= state.begin_at_ms:
            self._send_begin_epoch(state)

    def resign(self, state: LeaderState, cause: Cause) -> None:
        replica = self._replica
        others = replica.voters.others(replica.node)
        successors = sorted(others, key=lambda v: (-self._replica_end(state, v.key), v.id))
        preferred = tuple(voter.key for voter in successors)
        replica.enter(cause, ResignedState(replica.election_deadline()))
        for voter in others:
            replica.effects.append(SendEndEpoch(voter.id, replica.epoch, preferred))

    def on_epoch_answered(self, event: EpochAnswered) -> None:
        state = self._replica.state
        if event.ok and event.begin and isinstance(state, LeaderState):
            state.begin_pending.discard(event.voter_id)

    def begin_epoch_failed(self, event: RequestFailed) -> None:
        if event.refused and self._replica.is_leader:
            self._replica.effects.append(VoterGone(event.node_id))

    # --- liveness of voters -------------------------------------------------------------------

    def on_snapshot_requested(self, event: SnapshotRequested) -> None:
        if isinstance(self._replica.state, LeaderState):
            self._voter_fetched(self._replica.state, event.replica)

    def _voter_fetched(self, state: LeaderState, key: ReplicaKey) -> None:
        """Note that a voter fetched: the leader is not cut off from it.

        A request with the leader's own key does not count, even if another node sent it.
        """
        replica = self._replica
        if key.matches(replica.node) or not replica.voters.is_voter(key):
            return
        state.begin_pending.discard(key.id)
        state.fetched_voters.add(key.id)
        if len(state.fetched_voters) + replica.is_voter >= replica.voters.majority:
            state.fetched_voters.clear()
            state.check_deadline_ms = self._check_quorum_deadline()

    def voters_changed(self, state: LeaderState) -> None:
        replica = self._replica
        others = {voter.id for voter in replica.voters.others(replica.node)}
        state.begin_pending &= others
        state.fetched_voters &= others
        if others and state.check_deadline_ms is None:
            state.check_deadline_ms = self._check_quorum_deadline()
        elif not others:
            state.check_deadline_ms = None
        self.advance_high_watermark(state)

    # --- the high watermark -------------------------------------------------------------------

    def shown_high_watermark(self) -> int | None:
        """Return the high watermark that a leader may expose, None before its first record is
        committed (M9).

        The one that it knew as a follower may be behind what other followers know.
        """
        state, mark = self._replica.state, self._replica.high_watermark
        if isinstance(state, LeaderState) and mark is not None and mark > state.epoch_start_offset:
            return mark
        return None

    def advance_high_watermark(self, state: LeaderState) -> None:
        replica = self._replica
        ends: list[int] = []
        for voter in replica.voters:
            if voter.key.matches(replica.node):
                ends.append(replica.flushed_end)
            else:
                ends.append(self._replica_end(state, voter.key))
        ends.sort(reverse=True)
        committed = ends[replica.voters.majority - 1]
        if committed > state.epoch_start_offset:
            replica.commit_below(committed)

    def _replica_end(self, state: LeaderState, key: ReplicaKey) -> int:
        """Return the log end of the voter's directory that fetches; -1 if none has in this
        epoch."""
        return min((p.end_offset for k, p in state.replicas.items() if k.matches(key)), default=-1)

    # --- fetches ------------------------------------------------------------------------------

    def on_fetch_requested(self, event: FetchRequested) -> None:
        replica, state = self._replica, self._replica.state
        error = ErrorCode.NONE
        diverging = snapshot = None
        if event.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
            mark("quorum.fetch-fenced")
        elif event.epoch > replica.epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not isinstance(state, LeaderState):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            diverging, snapshot = self._check_position(event)
            self._voter_fetched(state, event.replica)
            if diverging is not None or snapshot is not None:
                self._voter_lost_end(state, event.replica)
            elif event.replica.id >= 0:
                self._replica_fetched(state, event)
        replica.effects.append(
            ReplyFetch(
                event.token,
                error,
                replica.epoch,
                replica.active_leader_id,
                event.fetch_offset,
                diverging,
                snapshot,
            )
        )

    def _check_position(
        self, event: FetchRequested
    ) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
        """Check a fetch position against the log.

        Returns: (the divergence point, the snapshot to load), both None for a position in the log.
        """
        log = self._replica.log
        offset, epoch, start = event.fetch_offset, event.last_epoch, log.start_offset
        if offset == 0 and start == 0 and epoch == 0:
            return None, None
        latest = log.latest_snapshot
        # The log does not have epochs before its start; the snapshot covers them.
        before = offset < start or epoch < log.start_epoch
        if latest is not None and (before or (offset == start > 0 and epoch != log.start_epoch)):
            return None, latest
        end = log.end_offset_for_epoch(epoch)
        if end.epoch != epoch or offset > end.offset:
            mark("quorum.fetch-diverges")
            return end, None
        return None, None

    def _replica_fetched(self, state: LeaderState, event: FetchRequested) -> None:
        replica = self._replica
        progress = state.replicas.get(event.replica)
        earlier_end = None
        if progress is None:
            self._forget_observers(state)
            earlier_end = self._replace_directory(state, event.replica)
            progress = state.replicas[event.replica] = Progress()
        progress.fetched(event.fetch_offset, replica.log.end_offset, replica.now_ms)
        if earlier_end is not None:
            # A late fetch of the replaced directory must not count for the new one. The current
            # directory fetches again, and its progress counts in full from then on.
            progress.end_offset = min(progress.end_offset, earlier_end)
        if replica.voters.is_voter(event.replica):
            self.advance_high_watermark(state)

    def _voter_lost_end(self, state: LeaderState, key: ReplicaKey) -> None:
        """Reset the progress of a voter that fetches from a position that this log does not have.

        Its disk was wiped or its log truncated; its next valid fetch shows how far it has come
        (M8).
        """
        voter = self._replica.voters.get(key.id)
        if voter is not None and voter.key.matches(key):
            for known, progress in state.replicas.items():
                if known.matches(voter.key):
                    progress.end_offset = -1

    def _replace_directory(self, state: LeaderState, key: ReplicaKey) -> int | None:
        """Drop the other directories of the voter `key`: it has one at a time (M8).

        With static voters any directory of the id is the voter, also one on an empty disk.

        Returns: the log end of the directory that is replaced, None without one.
        """
        voter = self._replica.voters.get(key.id)
        if voter is None or not voter.key.matches(key):
            return None
        earlier = [known for known in state.replicas if known.matches(voter.key)]
        return min((state.replicas.pop(known).end_offset for known in earlier), default=None)

    def _forget_observers(self, state: LeaderState) -> None:
        """Drop non-voters that no longer fetch, or else the one with the oldest fetch, to bound
        their number."""
        horizon_ms = self._replica.now_ms - OBSERVER_FORGOTTEN_MS
        observers = {
            key: progress.fetch_ms or 0.0
            for key, progress in state.replicas.items()
            if not self._replica.voters.is_voter(key)
        }
        gone = [key for key, fetch_ms in observers.items() if fetch_ms < horizon_ms]
        if not gone and len(observers) >= OBSERVERS_MAX:
            gone = [min(observers, key=observers.__getitem__)]
        for key in gone:
            del state.replicas[key]
