"""One partition as this broker holds it: its values, and those that follow from them.

Its decisions are functions of a partition, by topic:

    leadership         role, leader epoch and ISR, as the metadata give them
    high_watermark     appends and the high watermark, on leaders and followers
    isr_changes        proposals of an ISR, and the controller's answers
    followers          followers' fetches
    local_log_reports  local logs that followers report, and the leader's reports (KIP-1303)

All are plain functions and leave the partition in a consistent state; nothing here does I/O but the
log. Work for other components is returned as effects, see `broker.replication.partition.effects`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.replication.partition.counters import PartitionCounters
from broker.replication.partition.isr import IsrProposal
from broker.replication.partition.local_logs import LocalLogs
from broker.replication.partition.remote_replica import NEVER_MS, RemoteReplica
from broker.replication.partition.role import ReplicaRole
from broker.replication.subscriptions.stable_bytes import StableBytes
from broker.replication.subscriptions.subscriptions import Subscriptions, Watch, WatchKey
from broker.replication.waiting.waits import CommitWaiter
from protocol.batch.validate import AppendRules
from protocol.errors import ApiError, ErrorCode
from runtime.errors import InvariantViolated
from runtime.marks import mark

if TYPE_CHECKING:
    from storage.log.log import Log

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class Partition:
    """A replica on this broker. The replica manager creates it and applies metadata to it. On a
    follower, the leader's values (ISR, remote replicas) are those of the metadata, or empty."""

    __slots__ = (
        "reporting_proposal",
        "refused_proposal",
        "sent_proposal",
        "uncommitted",
        "unread_isr",
        "unshown",
        "adding",
        "counters",
        "elr",
        "follower_throttled",
        "index",
        "isr",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "leader_throttled",
        "leads_since_ms",
        "led_until_ms",
        "local_logs",
        "log",
        "maximal_isr",
        "min_isr",
        "node_id",
        "partition_epoch",
        "proposal",
        "recovering",
        "remote",
        "removing",
        "replicas",
        "role",
        "rules",
        "stable_bytes",
        "subscriptions",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        *,
        node_id: int,
        log: Log,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.node_id = node_id
        self.log = log
        self.role = ReplicaRole.FOLLOWER
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = 0
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        # Of an ongoing reassignment; no decision here depends on them.
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.elr: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        self.maximal_isr: frozenset[int] = frozenset()
        self.proposal: IsrProposal | None = None
        # The newest proposals: sent in a request; sent with local logs; refused by the controller
        # because the partition has changed.
        self.sent_proposal: IsrProposal | None = None
        self.reporting_proposal: IsrProposal | None = None
        self.refused_proposal: IsrProposal | None = None
        self.recovering = False
        """True if this leader, elected uncleanly, has yet to report to the controller that it has
        recovered (KIP-704): its log is the partition's log."""
        self.min_isr = 1
        self.rules = AppendRules()
        self.remote: dict[int, RemoteReplica] = {}
        self.counters = PartitionCounters()
        self.subscriptions = Subscriptions()
        self.led_until_ms = NEVER_MS
        """Last time this replica led, if it led immediately before the leader that it follows now;
        monotonic milliseconds."""
        self.leads_since_ms = NEVER_MS
        """When this replica began to lead in its newest epoch as a leader; monotonic milliseconds.
        """
        self.leader_throttled = False
        self.follower_throttled = False
        self.local_logs: LocalLogs | None = None
        # The leader's high watermark while the local one must wait, see `follow_high_watermark`.
        self.unshown = 0
        # True if the high watermark waits for the metadata that follows an accepted proposal.
        self.unread_isr = False
        # (end offset, size) of appended batches above the high watermark.
        self.uncommitted: deque[tuple[int, int]] = deque()
        self.stable_bytes = StableBytes()

    @property
    def is_leader(self) -> bool:
        return self.role is ReplicaRole.LEADER

    def leads_in(self, leader_epoch: int) -> bool:
        """Return whether this broker leads the partition, and still in that epoch. Code that
        appended or began to read in an epoch checks this after every wait. Another leader, or this
        one in a later epoch, may have another batch at the same offset."""
        return self.role is ReplicaRole.LEADER and self.leader_epoch == leader_epoch

    @property
    def is_readable(self) -> bool:
        """Return whether consumers may read here."""
        return self.role is ReplicaRole.LEADER or self.role is ReplicaRole.FOLLOWER

    @property
    def effective_min_isr(self) -> int:
        """The minimum ISR, limited to the number of replicas."""
        return min(self.min_isr, max(1, len(self.replicas)))

    @property
    def under_min_isr(self) -> bool:
        """Return whether a leader must refuse appends with acks=all."""
        return (
            # The effective minimum is not needed if the plain one is reached.
            len(self.isr) < self.min_isr
            and self.role is ReplicaRole.LEADER
            and len(self.isr) < self.effective_min_isr
        )

    @property
    def at_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) == self.effective_min_isr

    @property
    def under_replicated(self) -> bool:
        return self.is_leader and len(self.isr) < len(self.replicas)

    @property
    def electable_count(self) -> int:
        """Number of replicas that can be elected without loss: ISR and ELR (KIP-966). After a
        proposal's answer the ISR may be newer than the ELR, which comes from the metadata."""
        return len(self.isr) + sum(member not in self.isr for member in self.elr)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def flush_due(self) -> bool:
        """Return whether the unflushed records have reached `flush.messages`."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    @property
    def high_watermark_settled(self) -> bool:
        """False while a new leader's high watermark may still lie below its predecessor's."""
        return self.log.high_watermark >= self.leader_epoch_start

    @property
    def low_watermark(self) -> int:
        """The smallest log start among this leader and the in-sync followers that have fetched."""
        heard = (one.log_start for member, one in self.remote.items() if member in self.isr)
        return min((self.log.log_start_offset, *heard))

    def check_epoch(self, client_epoch: int) -> None:
        """Fence a client by its view of the leader epoch; -1 is no view (KIP-320).

        Raises:
            ApiError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if client_epoch == -1 or client_epoch == self.leader_epoch:
            return
        if client_epoch < self.leader_epoch:
            mark("replication.epoch-fenced")
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, None)
        mark("replication.epoch-unknown")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, None)

    def require_leader(self, client_epoch: int = -1) -> Log:
        """Return the log, for a request that only the leader may answer.

        Raises:
            ApiError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER or
                KAFKA_STORAGE_ERROR.
        """
        if self.role is ReplicaRole.LEADER and (
            client_epoch == -1 or client_epoch == self.leader_epoch
        ):
            return self.log
        if self.role is ReplicaRole.OFFLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, None)
        self.check_epoch(client_epoch)
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    def require_readable(self, client_epoch: int = -1) -> Log:
        """Return the log, for a consumer that may read from a follower (KIP-392).

        Raises:
            ApiError: as `require_leader`; NOT_LEADER_OR_FOLLOWER for a replica that is being
                removed, or that is about to begin behind the tier.
        """
        if self.role is ReplicaRole.FOLLOWER:
            self.check_epoch(client_epoch)
            if self.log.bounds.bootstrapping:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
            return self.log
        return self.require_leader(client_epoch)

    # --- readers and waiting requests ---------------------------------------------------------

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

    def wait_for_commit(self, end_offset: int, waiter: CommitWaiter, slot: Any) -> bool:
        """Register a wait for the high watermark to reach `end_offset`; return False if it already
        has."""
        if self.log.high_watermark >= end_offset:
            return False
        self.subscriptions.commit_waits.add(end_offset, waiter, slot)
        return True

    def wait_for_low_watermark(self, offset: int, waiter: CommitWaiter, slot: Any) -> bool:
        """Register a wait for all in-sync replicas to begin at `offset` or later; return False if
        they do."""
        if self.low_watermark >= offset:
            return False
        self.subscriptions.low_watermark_waits.add(offset, waiter, slot)
        return True

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
