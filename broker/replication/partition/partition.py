"""One partition as this broker holds it: role, ISR, high watermark, and waiting requests.

The leader's rules:

- The high watermark is the smallest log end among the maximal ISR (the committed ISR together with
  the members of an unanswered AlterPartition proposal). It moves only while the committed ISR has
  the effective minimum of members: min(min.insync.replicas, replication factor). It never goes
  back.
- The controller judges an ISR by its own min ISR, which may be higher already. Any replica that it
  then counts as an eligible leader must have all committed records (KIP-966). If an accepted
  proposal shrinks the ISR or changes one below the minimum, an ELR may exist. The high watermark
  then waits until this broker's metadata has that partition epoch, and thus all earlier
  configurations.
- A new leader's high watermark may be below the start of its own epoch. Until it has passed that,
  no request that needs a monotone high watermark is answered (OFFSET_NOT_AVAILABLE).
- A follower's fetch moves its log end only if it comes from the broker's current epoch. A delayed
  request from before a restart thus cannot make an empty replica look complete (KIP-903).
- "Caught up" is a time, not a number of messages (KIP-16). A fetch that reached the log end at the
  read was caught up now. One that reached the log end of the previous fetch was caught up then.

All methods are plain functions and leave the partition in a consistent state; nothing here does I/O
but the log. Work for other components is returned as effects, see
`broker.replication.partition.effects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.replication.partition.effects import (
    EPOCHS_UNSAVED,
    FLUSH_WANTED,
    INTERRUPTED,
    ISR_CHANGED,
    LOCAL_LOGS_MOVED,
    NOTHING,
    Effects,
    Elected,
    Followed,
    Propose,
    Resigned,
    Stopped,
)
from broker.replication.partition.isr import (
    ROLLED_BACK,
    IsrMember,
    IsrProposal,
    PartitionStateNow,
    asks_again,
    outlasting,
)
from broker.replication.partition.local_logs import (
    MemberLocalLog,
    own_stats,
    start_ms_of,
)
from broker.replication.partition.remote_replica import (
    NEVER_MS,
    FetchTimes,
    RemoteReplica,
    laggards,
)
from broker.replication.partition.role import TRANSITIONS, ReplicaRole
from broker.replication.partition.state import NO_EPOCH, ReplicaState
from broker.replication.subscriptions.notifications import (
    Committed,
    LowWatermarkMoved,
    Readable,
    Released,
)
from broker.replication.subscriptions.subscriptions import Watch, WatchKey
from broker.replication.waiting.waits import CommitWaiter
from metalog.image.local_log import LocalLogStats
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from runtime.marks import mark

if TYPE_CHECKING:
    from storage.log.append import AppendInfo


class Partition(ReplicaState):
    """A replica on this broker. The replica manager creates it and applies metadata to it."""

    __slots__ = ()

    # --- leadership ---------------------------------------------------------------------------

    def become_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: Iterable[int],
        now_ms: float,
    ) -> Effects:
        """Lead in `leader_epoch`, or apply a new ISR within it."""
        effects: Effects = NOTHING
        new_epoch = leader_epoch != self.leader_epoch or self.role is not ReplicaRole.LEADER
        self._check_epochs(leader_epoch, partition_epoch)
        self._enter(ReplicaRole.LEADER)
        self._unread_isr = False
        wanted: IsrProposal | None = None
        if new_epoch or partition_epoch != self.partition_epoch:
            # By now any proposal was accepted or refused, except an ISR change that outlasts a
            # report.
            goes_past = self.local_logs is not None or self.proposal is self._past_reports
            now = frozenset(isr)
            if goes_past and not new_epoch and now == self.isr:
                wanted = outlasting(self.proposal, partition_epoch, now, replicas)
            self.proposal = None
            effects = self._set_isr(now, counted=not new_epoch)
            if self.local_logs is not None:
                self.local_logs.in_flight = None
        self.leader_id = self.node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        if new_epoch:
            self.log.note_leader_epoch(leader_epoch)
            self._unshown = 0
            self.leads_since_ms = now_ms
            self.leader_epoch_start = self.log.log_end_offset
            self._uncommitted.clear()
            self.remote = {}  # values that followers reported to an earlier leader do not count
            if self.local_logs is not None:
                self.local_logs.begin()
        self.remote = {
            replica_id: self.remote.get(replica_id)
            or RemoteReplica(now_ms if replica_id in self.isr else NEVER_MS)
            for replica_id in replicas
            if replica_id != self.node_id
        }
        if new_epoch:
            # As in Kafka, coordinators keep their loaded state: the log is still this broker's own.
            effects += (*INTERRUPTED, Elected())
        elif self.subscriptions.followers:
            effects += ISR_CHANGED
        if wanted is not None:
            effects += self._goes_on(wanted)
        elif self.local_logs is not None:
            effects += LOCAL_LOGS_MOVED
        return effects + self.maybe_advance_high_watermark()

    def become_follower(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: Iterable[int],
    ) -> Effects:
        """Follow `leader_id`, or no leader if it is -1."""
        led = self.is_leader
        changed = leader_epoch != self.leader_epoch or leader_id != self.leader_id
        self._check_epochs(leader_epoch, partition_epoch)
        self._enter(ReplicaRole.FOLLOWER)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.proposal = None
        self._unread_isr = False
        self.isr = self.maximal_isr = frozenset(isr)
        self.remote = {}
        if changed:
            self._unshown = 0
            # Drop the epoch that starts at the log end: this broker led in it without appending, so
            # no other replica has it.
            self.log.truncate_to(self.log.log_end_offset)
            effects = self._released(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return effects + ((Resigned(leader_epoch), Followed()) if led else (Followed(),))
        return NOTHING

    def become_offline(self) -> Effects:
        """Take the replica offline after its log failed. Nothing more is appended: a second write
        could hide the loss of the first."""
        self._enter(ReplicaRole.OFFLINE)
        return (*self._released(ErrorCode.KAFKA_STORAGE_ERROR), Stopped())

    def become_deleted(self) -> Effects:
        """Stop the replica: the topic was deleted or the replica moved away."""
        led = self.is_leader
        self._enter(ReplicaRole.DELETED)
        effects = self._released(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return effects + ((Resigned(None), Stopped()) if led else (Stopped(),))

    # --- appending ----------------------------------------------------------------------------

    def appended(self, info: AppendInfo, size_bytes: int) -> Effects:
        """Note a batch that the leader's log has accepted; advance the high watermark and wake
        fetches."""
        self._uncommitted.append((info.last_offset + 1, size_bytes))
        if not self.subscriptions.followers:
            return self.maybe_advance_high_watermark()
        for remote in self.remote.values():
            if remote.resting is not None:
                remote.wake()
        return (Readable(size_bytes),) + self.maybe_advance_high_watermark()

    def wait_for_commit(self, end_offset: int, waiter: CommitWaiter, slot: Any) -> bool:
        """Register a wait for the high watermark to reach `end_offset`; return False if it already
        has."""
        if self.log.high_watermark >= end_offset:
            return False
        self.subscriptions.commit_waits.add(end_offset, waiter, slot)
        return True

    def maybe_advance_high_watermark(self) -> Effects:
        """Advance the high watermark as far as the maximal ISR allows."""
        log = self.log
        if self._unread_isr or (
            len(self.isr) < self.min_isr and len(self.isr) < self.effective_min_isr
        ):
            return NOTHING
        effects = NOTHING
        target = log.log_end_offset
        if target > log.high_watermark and target >= log.epoch_file.limit:
            # No record is visible before its epoch is in the file (see `epoch_saver`). If a
            # partition receives writes when its epoch begins, the epoch is in the file before its
            # first record.
            effects = self._epochs_unsaved()
            target = min(target, log.epoch_file.limit)
        if target - log.recovery_point >= log.config.flush_messages:
            # A topic that flushes makes nothing visible that a power failure could remove.
            target = max(log.recovery_point, log.high_watermark)
            effects += FLUSH_WANTED
        if len(self.maximal_isr) > 1 or self.node_id not in self.maximal_isr:
            for replica_id in self.maximal_isr:
                remote = self.remote.get(replica_id)
                if remote is not None and remote.log_end < target:
                    target = remote.log_end
        if target > log.high_watermark:
            log.update_high_watermark(target)
            return self._high_watermark_moved(target) + effects
        return effects

    def _high_watermark_moved(self, high_watermark: int) -> Effects:
        uncommitted = self._uncommitted
        size_bytes = 0
        while uncommitted and uncommitted[0][0] <= high_watermark:
            size_bytes += uncommitted.popleft()[1]
        to = self.subscriptions
        if to.consumers or to.followers or to.commit_waits:
            return (Committed(high_watermark, size_bytes),)
        return NOTHING

    # --- the in-sync set ----------------------------------------------------------------------

    def sends(self, proposal: IsrProposal) -> bool:
        """Return whether this leader still wants `proposal`, when a request is built. If so, the
        proposal is sent, and stays as it is until its answer."""
        if self.proposal is not proposal:
            return False
        self._sent = proposal
        return True

    def expire_isr(self, now_ms: float, lag_max_ms: float) -> Effects:
        """Propose an ISR without its laggards. A leader alone in its ISR that is still recovering
        proposes that ISR as recovered. Call it every half `replica.lag.time.max.ms`."""
        if self.role is not ReplicaRole.LEADER or self.proposal is not None:
            return NOTHING
        if len(self.isr) < 2:
            return self._propose(self.isr) if self.recovering else NOTHING
        out = laggards(
            self.remote,
            self.isr,
            leader_end=self.log.log_end_offset,
            now_ms=now_ms,
            lag_max_ms=lag_max_ms,
        )
        # A member that is no longer a replica does not belong in the ISR (KAFKA-9672).
        out |= self.isr.difference(self.replicas)
        if not out:
            return NOTHING
        mark("replication.isr-shrinks")
        return self._propose(self.isr - out)

    def isr_answered(
        self, proposal: IsrProposal, error: ErrorCode, state: PartitionStateNow
    ) -> Effects:
        """Apply the controller's answer to a proposal. See `broker.replication.partition.isr`."""
        if self.proposal is not proposal:
            return NOTHING  # a newer image has already settled this proposal
        if error is ErrorCode.NONE:
            if (
                state.leader_epoch == self.leader_epoch
                and state.partition_epoch >= self.partition_epoch
            ):
                self.proposal = None
                self.recovering = False  # every proposal marks the leader as recovered
                isr = frozenset(state.isr)
                if state.partition_epoch > self.partition_epoch:
                    shrinks = not self.isr <= isr
                    self._unread_isr |= shrinks or len(self.isr) < self.effective_min_isr
                self.partition_epoch = state.partition_epoch
                effects = self._set_isr(isr, counted=True) + ISR_CHANGED
                if self.local_logs is not None:
                    effects += LOCAL_LOGS_MOVED
                return effects + self.maybe_advance_high_watermark()
            return NOTHING
        self.counters.failed_isr_updates += 1
        if error in ROLLED_BACK:
            mark("replication.isr-rolled-back")
            self.proposal = None
            self.maximal_isr = self.isr
            # A proposed follower may be at rest: it joins at the next check if it is eligible then.
            return ISR_CHANGED + self.maybe_advance_high_watermark()
        if asks_again(error):
            mark("replication.isr-retried")
            return NOTHING
        mark("replication.isr-superseded")
        self._refused = proposal
        return (
            self._goes_on(proposal) if proposal.partition_epoch < self.partition_epoch else NOTHING
        )

    def _maybe_expand(self, replica_id: int, remote: RemoteReplica) -> Effects:
        """Propose a follower that has caught up. A proposal that is not yet sent takes it in: of
        ten thousand partitions with a new leader, most wait long enough for all their followers."""
        proposal = self.proposal
        if (proposal is None or proposal is not self._sent) and remote.may_join(
            self.log.high_watermark, self.leader_epoch_start
        ):
            wanted = self.isr if proposal is None else proposal.broker_ids
            return self._propose(wanted | {replica_id})
        return NOTHING

    def _proposal_of(self, members: frozenset[int]) -> IsrProposal:
        epochs = {replica_id: remote.broker_epoch for replica_id, remote in self.remote.items()}
        return IsrProposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple(IsrMember(member, epochs.get(member, NO_EPOCH)) for member in sorted(members)),
        )

    def _propose(self, members: frozenset[int]) -> Effects:
        proposal = self._proposal_of(members)
        self.proposal = proposal
        self.maximal_isr = self.isr | members
        return (Propose(proposal),)

    def _goes_on(self, proposal: IsrProposal) -> Effects:
        """Keep `proposal` after a report has moved the partition epoch: unchanged if the controller
        may still accept it, otherwise proposed again in the present epoch."""
        if proposal is self._sent and proposal is not self._refused:
            self.proposal = proposal
            self.maximal_isr = self.isr | proposal.broker_ids
            return NOTHING
        mark("replication.isr-behind-report")
        return self._propose(proposal.broker_ids)

    def _set_isr(self, isr: frozenset[int], *, counted: bool) -> Effects:
        if counted:
            self.counters.isr_shrinks += not self.isr.issubset(isr)
            self.counters.isr_expands += not self.isr.issuperset(isr)
        self.isr = self.maximal_isr = isr
        return self._low_watermark_moved()

    # --- local logs (KIP-1303) ----------------------------------------------------------------

    def follower_stated(
        self,
        replica_id: int,
        *,
        broker_epoch: int,
        local_start_ms: int,
        local_bytes: int,
        own_epoch: Callable[[], int],
    ) -> Effects:
        """Note the local-log stats in a follower's fetch that was accepted. `own_epoch` returns
        this broker's epoch."""
        logs, remote, log = self.local_logs, self.remote.get(replica_id), self.log
        if (
            logs is None
            or remote is None
            or not remote.stated(broker_epoch, local_start_ms, local_bytes)
        ):
            return NOTHING
        if logs.is_settled(
            replica_id, broker_epoch, remote.local_start_ms, remote.local_bytes
        ) and logs.is_settled(self.node_id, own_epoch(), start_ms_of(log), log.size_bytes):
            return NOTHING
        return LOCAL_LOGS_MOVED

    def members_local_logs(self, members: Iterable[int], own_epoch: int) -> list[MemberLocalLog]:
        """Return the local-log stats of members: the leader's read from its log now, a follower's
        as last reported in a Fetch."""
        found = []
        for member in sorted(members):
            remote = self.remote.get(member)
            if remote is not None:
                stats = LocalLogStats(remote.local_start_ms, remote.local_bytes)
                found.append(MemberLocalLog(member, remote.broker_epoch, stats))
            elif member == self.node_id:
                found.append(MemberLocalLog(member, own_epoch, own_stats(self.log)))
        return found

    def has_enough_locally(self, follower: int, wall_ms: int) -> bool:
        """Return whether a follower has as much locally as its topic requires, according to its
        last report."""
        logs, remote = self.local_logs, self.remote.get(follower)
        if logs is None or remote is None:
            return True
        return logs.is_enough(LocalLogStats(remote.local_start_ms, remote.local_bytes), wall_ms)

    def report_due(
        self, now_ms: float, wall_ms: int, own_epoch: int, *, sweep: bool = False
    ) -> bool:
        """Return whether to report the members' local logs to the controller now, without an ISR
        change: at once, or in a `sweep` because the interval is over. A partition with one replica
        never reports, as no other replica could be preferred."""
        logs = self.local_logs
        if (
            logs is None
            or self.role is not ReplicaRole.LEADER
            or self.proposal is not None
            or len(self.replicas) < 2
            or not logs.may_report(now_ms)
        ):
            return False
        members = self.members_local_logs(self.isr, own_epoch)
        return any(logs.crosses(member, wall_ms) for member in members) or (
            sweep and logs.is_due(members, now_ms)
        )

    def report(self) -> IsrProposal | None:
        """Return the report to send now, or None if an ISR change, which contains the same values,
        came first. The caller must call `report_answered` afterwards."""
        logs = self.local_logs
        if (
            logs is None
            or logs.in_flight is not None
            or self.role is not ReplicaRole.LEADER
            or self.proposal is not None
        ):
            return None
        logs.in_flight = self._proposal_of(self.isr)
        return logs.in_flight

    def to_tell(self, proposal: IsrProposal, now_ms: float, own_epoch: int) -> list[MemberLocalLog]:
        """Return the local-log stats to send with `proposal`, whose request is being built."""
        logs = self.local_logs
        if logs is None:
            return []
        self._past_reports = proposal
        members = self.members_local_logs(proposal.broker_ids, own_epoch)
        return logs.tell(proposal.members, members, own_epoch, now_ms)

    def report_answered(
        self, report: IsrProposal, error: ErrorCode | None, state: PartitionStateNow, now_ms: float
    ) -> Effects:
        """Apply the controller's answer to a report; `error`: None without an answer. The ISR
        stays, and so does a change of it that was proposed in the meantime."""
        logs = self.local_logs
        if logs is None or logs.in_flight is not report:
            return NOTHING  # a newer image has already settled this report
        accepted = error is ErrorCode.NONE and state.leader_epoch == self.leader_epoch
        logs.over(now_ms, accepted=accepted)
        if not accepted:
            mark("replication.report-refused")
        if (
            accepted
            and state.partition_epoch > self.partition_epoch
            and self.isr == frozenset(state.isr)
        ):
            self.partition_epoch = state.partition_epoch
            self._unread_isr |= len(self.isr) < self.effective_min_isr
            if self.proposal is not None:
                return self._goes_on(self.proposal)
        return LOCAL_LOGS_MOVED

    # --- following ----------------------------------------------------------------------------

    def follower_appended(self, size_bytes: int) -> Effects:
        """Note that the leader's records were appended up to the log end."""
        log = self.log
        self._uncommitted.append((log.log_end_offset, size_bytes))
        return self._epochs_unsaved() if log.log_end_offset > log.epoch_file.limit else NOTHING

    def follow_high_watermark(self, high_watermark: int) -> Effects:
        """Apply the leader's high watermark, limited to the local log end; wake consumers here.

        As on the leader, it waits for an epoch's file.
        """
        effects = NOTHING
        if high_watermark > self.log.epoch_file.limit:
            self._unshown = high_watermark
            high_watermark = self.log.epoch_file.limit
            effects = self._epochs_unsaved()
        if high_watermark > self.log.high_watermark:
            self.log.update_high_watermark(high_watermark)
            return self._high_watermark_moved(high_watermark) + effects
        return effects

    def _epochs_unsaved(self) -> Effects:
        """Return the effect that saves the log's epochs, if the file lacks any. A log that is about
        to begin behind the tier waits for more than its file."""
        return EPOCHS_UNSAVED if self.log.epoch_file.unsaved else NOTHING

    def epochs_saved(self) -> Effects:
        """Advance the high watermark after the log's epochs were written to their file."""
        if self.role is ReplicaRole.LEADER:
            return self.maybe_advance_high_watermark()
        if self.role is ReplicaRole.FOLLOWER:
            unshown = min(self._unshown, self.log.log_end_offset)
            if unshown > self.log.high_watermark:
                return self.follow_high_watermark(unshown)
        return NOTHING

    # --- followers' fetches -------------------------------------------------------------------

    def watch(self, watch: Watch, key: WatchKey) -> None:
        """Subscribe a reader, which refers to this partition as `key`."""
        self.subscriptions.add(watch, key)

    def unwatch(self, watch: Watch) -> None:
        """Remove a subscription when its session ends or no longer covers this partition. A
        follower at rest had read to the log end at the session's last fetch: note that time now,
        because it cannot be determined after the next append."""
        self.subscriptions.remove(watch)
        if watch.replica:
            for remote in self.remote.values():
                if remote.rests_by(watch):
                    remote.wake()

    def follower_fetched(
        self,
        replica_id: int,
        *,
        offset: int,
        log_start: int,
        broker_epoch: int,
        now_ms: float,
        may_join: bool = False,
        times: FetchTimes | None = None,
    ) -> Effects:
        """Note that a follower has everything below `offset`.

        The caller has checked that `broker_epoch` is the follower's current one. `may_join` applies
        to a follower outside the maximal ISR: its broker is unfenced and not shutting down
        (KIP-841). `times` are those of its fetch session.
        """
        remote = self.remote.get(replica_id)
        if remote is None:
            return NOTHING
        if broker_epoch < remote.broker_epoch:
            mark("replication.fetch-of-earlier-life")
            return NOTHING
        before, start_before = remote.log_end, remote.log_start
        remote.fetched(offset, log_start, broker_epoch, self.log.log_end_offset, now_ms, times)
        effects = NOTHING
        if may_join and replica_id not in self.maximal_isr:
            effects = self._maybe_expand(replica_id, remote)
        if log_start != start_before:
            effects += self._low_watermark_moved()
        return effects if offset == before else effects + self.maybe_advance_high_watermark()

    def wait_for_low_watermark(self, offset: int, waiter: CommitWaiter, slot: Any) -> bool:
        """Register a wait for all in-sync replicas to begin at `offset` or later; return False if
        they do."""
        if self.low_watermark >= offset:
            return False
        self.subscriptions.low_watermark_waits.add(offset, waiter, slot)
        return True

    def _low_watermark_moved(self) -> Effects:
        return (
            (LowWatermarkMoved(self.low_watermark),)
            if self.subscriptions.low_watermark_waits
            else NOTHING
        )

    # --- internals ----------------------------------------------------------------------------

    def _released(self, error: ErrorCode) -> Effects:
        self._uncommitted.clear()
        return (Released(error),)

    def _check_epochs(self, leader_epoch: int, partition_epoch: int) -> None:
        if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:
            raise InvariantViolated(
                f"{self.topic}-{self.index}: epochs went back from "
                f"{self.leader_epoch}/{self.partition_epoch} to {leader_epoch}/{partition_epoch}"
            )

    def _enter(self, role: ReplicaRole) -> None:
        if (self.role, role) not in TRANSITIONS:
            raise InvariantViolated(f"{self.topic}-{self.index}: {self.role.name} -> {role.name}")
        self.role = role

    def validate(self) -> None:
        """Check the invariants between any two steps. Raises InvariantViolated if one does not
        hold."""
        log = self.log
        holds: Mapping[str, bool] = {
            "log start <= high watermark": log.log_start_offset <= log.high_watermark,
            "high watermark <= log end": log.high_watermark <= log.log_end_offset,
            "ISR within the maximal ISR": self.isr <= self.maximal_isr,
            "a leader is a replica": not self.is_leader or self.node_id in self.replicas,
            "no commit wait below the high watermark": all(
                end > log.high_watermark for end, _, _ in self.subscriptions.commit_waits
            ),
        }
        for promise, kept in holds.items():
            if not kept:
                raise InvariantViolated(f"{self.topic}-{self.index}: not {promise}")
