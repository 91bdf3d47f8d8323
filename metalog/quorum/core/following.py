"""Following a leader, or looking for one: fetch, reconcile, learn the high watermark.

One fetch is waited for at a time. What it brings is appended and flushed before the next one is
sent, because the offset of a fetch tells the leader what this replica will not lose. A change of
role or leader gives up the fetch under way; its answer, should it come, says only who leads.
"""

from __future__ import annotations

from metalog.quorum.core.messages import (
    AppendFetched,
    FetchAnswered,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LogTruncated,
    OffsetAndEpoch,
    SendFetch,
    SnapshotInstalled,
    SnapshotPieceFetched,
    TruncateLog,
)
from metalog.quorum.core.replica import DOUBT_MS, Replica
from metalog.quorum.core.roles import Cause, Following, Leading, Resigned, Role, Unattached
from metalog.quorum.core.voters import Endpoint
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated


class FollowingReplica(Replica):
    """A replica that can follow."""

    def _detach(self, cause: Cause, epoch: int) -> None:
        """UNATTACHED in `epoch`; a new epoch forgets leader and vote."""
        if epoch > self._epoch:
            self._epoch, self._voted = epoch, None
        self._leader_id = None
        self._enter(cause, Unattached(self._election_deadline() if self.is_voter else None))
        self._persist()
        self._look_for_leader()

    def _follow(
        self, leader_id: int, epoch: int, endpoints: tuple[tuple[str, Endpoint], ...] = ()
    ) -> None:
        if leader_id == self.node.id:
            raise InvariantViolated(f"{leader_id} follows itself")
        if epoch > self._epoch:
            self._epoch, self._voted = epoch, None
        self._leader_id = leader_id
        role = Role.FOLLOWER if self.is_voter else Role.OBSERVER
        cause = Cause.LEADER_FOUND if role is Role.FOLLOWER else Cause.LEADER_OBSERVED
        if not endpoints:
            voter = self.voters.get(leader_id)
            endpoints = () if voter is None else voter.endpoints
        patience_ms = self._patience_ms()
        if self._lost != (leader_id, self._epoch):
            self._lost = None
        elif role is Role.OBSERVER:
            patience_ms = min(patience_ms, DOUBT_MS * 2.0**self._lost_times)
        self._enter(cause, Following(role, leader_id, endpoints, self._now_ms + patience_ms))
        self._persist()
        self._fetch()

    def _patience_ms(self) -> float:
        """How long the leader may be silent. A leader answers its followers all at once: without
        a little chance in it they would all stand for election at once, too."""
        timeout_ms = self._timing.fetch_timeout_ms
        return timeout_ms + self._jitter(max(1, timeout_ms // 8))

    def _note_lost(self, state: Following) -> None:
        """The leader has not answered in time."""
        lost = (state.leader_id, self._epoch)
        self._lost_times = min(self._lost_times + 1, 10) if lost == self._lost else 0
        self._lost = lost

    def _observe(self, epoch: int, leader_id: int | None) -> bool:
        """Take note of an epoch and leader that a peer told of; True if they were news."""
        if leader_id == self.node.id:
            leader_id = None
        if self._is_leap(epoch):
            return False
        if epoch > self._epoch:
            if leader_id is None:
                self._detach(Cause.HIGHER_EPOCH, epoch)
            else:
                self._follow(leader_id, epoch)
            return True
        if epoch == self._epoch and leader_id is not None and self._leader_id is None:
            if isinstance(self._state, Leading | Resigned):
                raise InvariantViolated(f"epoch {epoch} has two leaders: us and {leader_id}")
            self._follow(leader_id, epoch)
            return True
        return False

    def _membership_changed(self, state: Following) -> None:
        if (state.role is Role.FOLLOWER) == self.is_voter:
            return
        role, cause = (
            (Role.FOLLOWER, Cause.JOINED_VOTERS)
            if self.is_voter
            else (Role.OBSERVER, Cause.LEFT_VOTERS)
        )
        changed = Following(role, state.leader_id, state.endpoints, state.deadline_ms)
        changed.fetched, changed.refused = state.fetched, state.refused
        fetch_id, retry_ms = self._fetch_id, self._fetch_retry_ms
        self._enter(cause, changed)
        self._fetch_id, self._fetch_retry_ms = fetch_id, retry_ms

    def _on_fetch_answered(self, event: FetchAnswered) -> None:
        wanted = self.awaits(event.fetch_id)
        if wanted:
            self._fetch_id = None
        if self._observe(event.epoch, event.leader_id) or not wanted:
            return
        state = self._state
        if not isinstance(state, Following) or event.node_id != state.leader_id:
            self._retry_fetch()
            return
        if event.error is not ErrorCode.NONE:
            self._retry_fetch()
            return
        state.fetched, state.refused = True, False
        self._lost, self._defeats, self._refusals = None, 0, 0
        state.deadline_ms = self._now_ms + self._patience_ms()
        if event.snapshot is not None:
            self._fetch_id = event.fetch_id
            self._effects.append(
                InstallSnapshot(event.fetch_id, state.leader_id, self._epoch, event.snapshot)
            )
        elif event.diverging is not None:
            self._truncate(event.diverging)
        elif event.size_bytes:
            self._fetch_after_flush = True
            self._effects.append(AppendFetched(event.node_id))
            self._follow_high_watermark(event.high_watermark)
        else:
            self._follow_high_watermark(event.high_watermark)
            self._fetch()

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """Cut back to where our log and the leader's agree (KIP-595, log reconciliation)."""
        own = self._log.end_offset_for_epoch(diverging.epoch)
        if own.epoch == diverging.epoch:
            end_offset = min(own.offset, diverging.offset)
        else:
            end_offset = own.offset
        end_offset = min(end_offset, self._log.end_offset)
        if end_offset < (self.high_watermark or 0):
            raise InvariantViolated(
                f"the leader of epoch {self._epoch} asks to truncate to {end_offset}, below the "
                f"high watermark {self.high_watermark}"
            )
        self._flushed_end = min(self._flushed_end, end_offset)
        self._effects.append(TruncateLog(end_offset))

    def _on_log_truncated(self, event: LogTruncated) -> None:
        self._fetch()

    def _follow_high_watermark(self, offset: int) -> None:
        """What is below the leader's mark and durable here is committed for this replica."""
        self._leader_high_watermark = max(self._leader_high_watermark, offset)
        committed = min(self._leader_high_watermark, self._flushed_end)
        if committed > (self.high_watermark or 0):
            self.high_watermark = committed
            self._effects.append(HighWatermarkAdvanced(committed))

    def _on_snapshot_piece_fetched(self, event: SnapshotPieceFetched) -> None:
        """A leader that sends a snapshot lives, however long all of it takes."""
        if self.awaits(event.fetch_id) and isinstance(self._state, Following):
            self._state.deadline_ms = self._now_ms + self._patience_ms()

    def _on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        self._fetch_id = None
        self._flushed_end = self._log.end_offset
        self._follow_high_watermark(event.id.offset)
        if isinstance(self._state, Following):
            self._state.deadline_ms = self._now_ms + self._patience_ms()
            self._fetch()

    def _fetch_failed(self, fetch_id: int | None, *, refused: bool) -> None:
        if fetch_id is not None and self.awaits(fetch_id):
            self._fetch_id = None
            if refused:
                self._leader_refused()
            self._retry_fetch()

    def _leader_refused(self) -> None:
        """Nobody listens where the leader did: its process has ended, and whoever comes back there
        does not lead this epoch again (KAFKA-10527). So this replica need not wait for the fetch
        timeout. It is only a pre-vote that it stands for: where others still hear of the leader,
        they refuse and nothing changes. Then it waits twice as long the next time."""
        state = self._state
        if not isinstance(state, Following) or state.refused:
            return
        state.refused, state.fetched = True, False
        first_ms = self._timing.retry_backoff_ms
        times, self._refusals = self._refusals, min(self._refusals + 1, 10)
        bound_ms = min(first_ms << times, self._timing.fetch_timeout_ms)
        # The first time all followers have just lost it: who asks first finds the others in doubt.
        at_ms = self._now_ms + bound_ms - first_ms + self._jitter(max(1, bound_ms))
        state.deadline_ms = min(state.deadline_ms, at_ms)

    def _retry_fetch(self) -> None:
        if isinstance(self._state, Following | Unattached):
            self._fetch_retry_ms = self._now_ms + self._timing.retry_backoff_ms

    def _fetch(self) -> None:
        """Ask the leader for what follows our log, one request at a time."""
        state = self._state
        if isinstance(state, Following):
            self._send_fetch(state.leader_id)

    def _look_for_leader(self) -> None:
        """Ask anybody: the answer says who leads."""
        if isinstance(self._state, Unattached):
            self._send_fetch(None)

    def _send_fetch(self, to: int | None) -> None:
        if self._fetch_id is not None:
            return
        end_offset = self._log.end_offset
        if self._flushed_end < end_offset:
            self._fetch_after_flush = True
            return
        self._fetches += 1
        self._fetch_id = self._fetches
        last_epoch = self._log.last_epoch
        patient = self._lost is None
        self._effects.append(
            SendFetch(self._fetch_id, to, self._epoch, end_offset, last_epoch, patient)
        )
