"""Following or finding a leader: fetch, log reconciliation, and the high watermark.

A replica has one fetch in flight. It appends the result, and a possible voter also flushes it,
before it sends the next one: a fetch offset promises the leader that this replica will not lose the
records below. A change of role or leader abandons the fetch in flight; of its response only leader,
epoch and endpoints are still used.
"""

from __future__ import annotations

from metalog.quorum.core.discovery import Discovery
from metalog.quorum.core.messages import (
    AppendFetched,
    BeginEpochRequested,
    EndEpochRequested,
    FetchAnswered,
    FindLeader,
    InstallSnapshot,
    LogTruncated,
    OffsetAndEpoch,
    ReplyEpoch,
    RequestFailed,
    SendFetch,
    SnapshotInstalled,
    SnapshotPieceFetched,
    TruncateLog,
)
from metalog.quorum.core.patience import Patience
from metalog.quorum.core.replica import Replica
from metalog.quorum.core.roles import (
    Cause,
    FollowerState,
    LeaderState,
    PendingFetch,
    ResignedState,
    Role,
    UnattachedState,
)
from metalog.quorum.core.voters import Endpoints, ReplicaKey
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated, invariant
from runtime.marks import mark


class Following:
    """Following of a leader by a replica."""

    def __init__(self, replica: Replica, discovery: Discovery) -> None:
        self._replica = replica
        self._discovery = discovery
        self._leader_high_watermark = -1
        self._fetches = 0
        self._fetch_after_flush = False
        self.patience = Patience(replica)

    def _pending(self) -> PendingFetch | None:
        state = self._replica.state
        return state.fetch if isinstance(state, FollowerState | UnattachedState) else None

    def awaits(self, fetch_id: int) -> bool:
        """Return whether the result of that fetch is still wanted."""
        pending = self._pending()
        return pending is not None and pending.id == fetch_id

    # --- whom to follow -----------------------------------------------------------------------

    def detach(self, cause: Cause, epoch: int) -> None:
        """Become UNATTACHED in `epoch`; a new epoch clears leader and vote."""
        replica = self._replica
        replica.raise_epoch(epoch)
        replica.leader_id = None
        deadline_ms = replica.election_deadline() if replica.is_voter else None
        replica.enter(cause, UnattachedState(deadline_ms))
        replica.persist()
        self.look_for_leader()

    def follow(self, leader_id: int, epoch: int, endpoints: Endpoints = ()) -> None:
        replica = self._replica
        invariant(leader_id != replica.node.id, "a leader cannot follow itself")
        replica.raise_epoch(epoch)
        replica.leader_id = leader_id
        role = Role.FOLLOWER if replica.is_voter else Role.OBSERVER
        cause = Cause.LEADER_FOUND if role is Role.FOLLOWER else Cause.LEADER_OBSERVED
        if not endpoints:
            voter = replica.voters.get(leader_id)
            endpoints = () if voter is None else voter.endpoints
        deadline_ms = replica.now_ms + self.patience.first_timeout_ms(role, leader_id)
        replica.enter(cause, FollowerState(role, leader_id, endpoints, deadline_ms))
        replica.persist()
        self._fetch()

    def leader_lost(self, state: FollowerState) -> None:
        """Note that the leader of a non-voter has not answered in time, and look for a leader."""
        mark("quorum.observer-lost-leader")
        self.patience.leader_lost(state.leader_id)
        self.detach(Cause.FETCH_TIMEOUT, self._replica.epoch)

    def observe(self, epoch: int, leader_id: int | None) -> bool:
        """Note an epoch and leader from a peer's message. Returns: True if they were new."""
        replica = self._replica
        if leader_id == replica.node.id:
            leader_id = None
        if replica.is_too_far(epoch):
            return False
        if epoch > replica.epoch:
            if leader_id is None:
                self.detach(Cause.HIGHER_EPOCH, epoch)
            else:
                self.follow(leader_id, epoch)
            return True
        if epoch == replica.epoch and leader_id is not None and replica.leader_id is None:
            own = isinstance(replica.state, LeaderState | ResignedState)
            invariant(not own, f"epoch {epoch} has two leaders: this replica and {leader_id}")
            self.follow(leader_id, epoch)
            return True
        return False

    def voters_changed(self, state: FollowerState) -> None:
        """Change from follower to observer or back, if this replica left or joined the voters."""
        replica = self._replica
        if (state.role is Role.FOLLOWER) == replica.is_voter:
            return
        role, cause = (
            (Role.FOLLOWER, Cause.JOINED_VOTERS)
            if replica.is_voter
            else (Role.OBSERVER, Cause.LEFT_VOTERS)
        )
        changed = FollowerState(role, state.leader_id, state.endpoints, state.deadline_ms)
        changed.fetch, changed.fetched, changed.refused = state.fetch, state.fetched, state.refused
        replica.enter(cause, changed)

    # --- requests of a leader -----------------------------------------------------------------

    def on_begin_epoch(self, event: BeginEpochRequested) -> None:
        replica, state = self._replica, self._replica.state
        error = self._leader_error(event)
        if event.voter is not None and not event.voter.matches(replica.node):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE:
            if event.epoch > replica.epoch or replica.leader_id is None:
                self.follow(event.leader_id, event.epoch, event.endpoints)
            elif isinstance(state, FollowerState) and event.endpoints:
                state.endpoints = event.endpoints
        self._reply_epoch(event.token, error)

    def on_end_epoch(self, event: EndEpochRequested) -> None:
        replica = self._replica
        error = self._leader_error(event)
        if error is ErrorCode.NONE:
            if event.epoch > replica.epoch or replica.leader_id is None:
                self.follow(event.leader_id, event.epoch)
            self._stand_early(event.preferred)
        self._reply_epoch(event.token, error)

    def _leader_error(self, event: BeginEpochRequested | EndEpochRequested) -> ErrorCode:
        """Return why the sender cannot lead or have led its epoch, else NONE."""
        replica = self._replica
        if event.leader_id < 0 or replica.is_too_far(event.epoch):
            return ErrorCode.INVALID_REQUEST
        if event.epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        another = event.epoch == replica.epoch and replica.leader_id not in (None, event.leader_id)
        if event.leader_id == replica.node.id or another:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _reply_epoch(self, token: int, error: ErrorCode) -> None:
        replica = self._replica
        replica.persist()
        replica.effects.append(ReplyEpoch(token, error, replica.epoch, replica.active_leader_id))

    def _stand_early(self, preferred: tuple[ReplicaKey, ...]) -> None:
        """Start an election early, after the leader has resigned: the best successor at once, the
        others in turn."""
        replica, state = self._replica, self._replica.state
        if not isinstance(state, FollowerState) or state.role is not Role.FOLLOWER:
            return
        place = next((i for i, key in enumerate(preferred) if key.matches(replica.node)), None)
        if place == 0:
            mark("quorum.stands-early")
            state.deadline_ms = replica.now_ms
        else:
            timing = replica.timing
            rank = len(preferred) if place is None else place
            bound = min(timing.retry_backoff_ms * 2**rank, timing.election_timeout_ms)
            state.deadline_ms = replica.now_ms + bound + replica.jitter(max(1, bound))
        state.fetched = False

    # --- fetching -----------------------------------------------------------------------------

    def on_fetch_answered(self, event: FetchAnswered) -> None:
        replica, pending = self._replica, self._pending()
        self._discovery.learn(event.endpoints)
        wanted = pending is not None and pending.id == event.fetch_id
        if wanted:
            assert pending is not None
            pending.id = None
            if isinstance(replica.state, UnattachedState):
                self._discovery.answered()
        if self.observe(event.epoch, event.leader_id) or not wanted:
            return
        state = replica.state
        foreign = not isinstance(state, FollowerState) or event.node_id != state.leader_id
        if foreign or event.error is not ErrorCode.NONE:
            self._retry_fetch()
            return
        assert isinstance(state, FollowerState)
        state.fetched, state.refused = True, False
        self.patience.leader_answered()
        replica.lost_elections = 0
        state.deadline_ms = replica.now_ms + self.patience.fetch_timeout_ms()
        if event.snapshot is not None:
            mark("quorum.snapshot-fetched")
            state.fetch.id = event.fetch_id
            replica.effects.append(
                InstallSnapshot(event.fetch_id, state.leader_id, replica.epoch, event.snapshot)
            )
        elif event.diverging is not None:
            self._truncate(event.diverging)
        elif event.size_bytes:
            self._fetch_after_flush = True
            replica.effects.append(AppendFetched(event.node_id))
            self._follow_high_watermark(event.high_watermark)
        else:
            self._follow_high_watermark(event.high_watermark)
            self._fetch()

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """Truncate the log to the point where it agrees with the leader's (KIP-595, log
        reconciliation)."""
        replica, log = self._replica, self._replica.log
        own = log.end_offset_for_epoch(diverging.epoch)
        if own.epoch == diverging.epoch:
            end_offset = min(own.offset, diverging.offset)
        else:
            end_offset = own.offset
        end_offset = min(end_offset, log.end_offset)
        if end_offset < (replica.high_watermark or 0):
            raise InvariantViolated(
                f"the leader of epoch {replica.epoch} requests truncation to "
                f"{end_offset}, below the high watermark {replica.high_watermark}"
            )
        replica.flushed_end = min(replica.flushed_end, end_offset)
        mark("quorum.truncation")
        replica.effects.append(TruncateLog(end_offset))

    def on_log_truncated(self, event: LogTruncated) -> None:
        self._fetch()

    def on_flushed(self) -> None:
        replica = self._replica
        if not replica.is_leader:
            self._follow_high_watermark(self._leader_high_watermark)
        if self._fetch_after_flush and replica.flushed_end == replica.log.end_offset:
            self._fetch_after_flush = False
            self._fetch()
            self.look_for_leader()

    def _follow_high_watermark(self, offset: int) -> None:
        """Commit what is below the leader's high watermark and durable here."""
        self._leader_high_watermark = max(self._leader_high_watermark, offset)
        self._replica.commit_below(min(self._leader_high_watermark, self._replica.flushed_end))

    def on_snapshot_piece_fetched(self, event: SnapshotPieceFetched) -> None:
        """Extend the leader's deadline: a leader that sends a snapshot is alive, however long it
        takes."""
        state = self._replica.state
        if self.awaits(event.fetch_id) and isinstance(state, FollowerState):
            state.deadline_ms = self._replica.now_ms + self.patience.fetch_timeout_ms()

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        replica, state = self._replica, self._replica.state
        replica.flushed_end = replica.log.end_offset
        self._follow_high_watermark(event.id.offset)
        self.patience.snapshot_stored()
        if isinstance(state, FollowerState):
            state.fetch.id = None
            state.deadline_ms = replica.now_ms + self.patience.fetch_timeout_ms()
            self._fetch()

    def fetch_failed(self, event: RequestFailed) -> None:
        pending = self._pending()
        if event.fetch_id is None or pending is None or pending.id != event.fetch_id:
            return
        pending.id = None
        if event.refused:
            mark("quorum.leader-gone")
            self._leader_refused()
        self._retry_fetch()
        if event.not_stored:
            mark("quorum.not-stored")
            pending.retry_ms = self._replica.now_ms + self.patience.disk_pause_ms()

    def _leader_refused(self) -> None:
        """Start a pre-vote early, because the leader's port refuses connections.

        Its process has ended, and a new process at that port does not lead this epoch again
        (KAFKA-10527). So this replica need not wait for the fetch timeout. It is only a pre-vote:
        voters that still reach the leader refuse it, and nothing changes. This replica then waits
        twice as long the next time.
        """
        replica, state = self._replica, self._replica.state
        if not isinstance(state, FollowerState) or state.refused:
            return
        state.refused, state.fetched = True, False
        at_ms = replica.now_ms + self.patience.refused_wait_ms()
        state.deadline_ms = min(state.deadline_ms, at_ms)

    def _retry_fetch(self) -> None:
        """Schedule the next fetch; the role must be one that fetches."""
        pending = self._pending()
        assert pending is not None
        pending.retry_ms = self._replica.now_ms + self._replica.timing.retry_backoff_ms

    def tick(self, pending: PendingFetch) -> None:
        if pending.retry_ms is not None and self._replica.now_ms >= pending.retry_ms:
            pending.retry_ms = None
            self._fetch()
            self.look_for_leader()

    def _fetch(self) -> None:
        """Fetch from the leader what follows the local log, one request at a time."""
        replica, log, state = self._replica, self._replica.log, self._replica.state
        if isinstance(state, FollowerState) and self._may_send(state.fetch):
            patient = not self.patience.has_lost_leader
            fetch_id = self._sent(state.fetch)
            replica.effects.append(
                SendFetch(
                    fetch_id,
                    state.leader_id,
                    replica.epoch,
                    log.end_offset,
                    log.last_epoch,
                    patient,
                )
            )

    def look_for_leader(self) -> None:
        """Query one of the nodes that may know the leader."""
        replica, log, state = self._replica, self._replica.log, self._replica.state
        if not isinstance(state, UnattachedState) or not self._may_send(state.fetch):
            return
        queried = self._discovery.next_to_query()
        if queried is None:
            self._retry_fetch()
            return
        fetch_id = self._sent(state.fetch)
        replica.effects.append(
            FindLeader(fetch_id, *queried, replica.epoch, log.end_offset, log.last_epoch)
        )

    def _may_send(self, pending: PendingFetch) -> bool:
        """Return whether no fetch is in flight and the log is flushed."""
        if pending.id is not None:
            return False
        if self._replica.flushed_end < self._replica.log.end_offset:
            self._fetch_after_flush = True
            return False
        return True

    def _sent(self, pending: PendingFetch) -> int:
        self._fetches += 1
        pending.id = self._fetches
        return self._fetches
