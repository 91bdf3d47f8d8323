"""One partition as this broker holds it: role, in-sync replicas, high watermark, who waits for it.

The leader's rules:

- The high watermark is the smallest log end among the maximal ISR (the committed ISR together with
  what an unanswered AlterPartition proposes), and it moves only while the committed ISR has the
  effective minimum of members: min(min.insync.replicas, replication factor). It never goes back.
- A new leader may know a high watermark below the start of its own epoch. Until that has passed,
  nothing that needs a monotone high watermark is answered (OFFSET_NOT_AVAILABLE).
- A follower's fetch moves its log end only if it comes from the broker's current epoch, so that a
  request delayed from before a restart cannot make an empty replica look complete (KIP-903).
- "Caught up" is a time, not a number of messages (KIP-16): a fetch that reached the log end at the
  read was caught up now; one that reached the log end of the fetch before was caught up then.

All methods are plain functions and leave the partition whole; nothing here does I/O but the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from broker.replication.waits import CommitWaiter, FetchWait
from protocol.batch.validate import AppendRules
from protocol.errors import ApiError, ErrorCode
from runtime.errors import InvariantViolated

if TYPE_CHECKING:
    from storage.log.log import AppendInfo, Log

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class Role(Enum):
    """What this broker is for a partition."""

    FOLLOWER = auto()
    LEADER = auto()
    OFFLINE = auto()  # its log failed: nothing is read or written until the node restarts
    DELETED = auto()


TRANSITIONS: Final = frozenset(
    {
        (Role.FOLLOWER, Role.FOLLOWER),
        (Role.FOLLOWER, Role.LEADER),
        (Role.FOLLOWER, Role.OFFLINE),
        (Role.FOLLOWER, Role.DELETED),
        (Role.LEADER, Role.LEADER),
        (Role.LEADER, Role.FOLLOWER),
        (Role.LEADER, Role.OFFLINE),
        (Role.LEADER, Role.DELETED),
        (Role.OFFLINE, Role.OFFLINE),
        (Role.OFFLINE, Role.DELETED),
    }
)


class RemoteReplica:
    """What the leader knows about one follower, from its fetches alone."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetch_ms",
        "leader_end_at_fetch",
        "log_end",
        "log_start",
    )

    def __init__(self) -> None:
        self.log_end = -1  # unknown until it fetched in this leader epoch
        self.log_start = -1
        self.broker_epoch = -1
        self.fetch_ms = float("-inf")
        self.leader_end_at_fetch = -1
        self.caught_up_ms = float("-inf")

    def fetched(
        self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: float
    ) -> None:
        """The follower asked for `offset` while the leader's log ended at `leader_end`."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.log_end = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = now_ms


class PartitionCounters:
    """Plain integers that a scrape reads; bumped once per batch or read."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetches = 0
        self.failed_produces = 0
        self.fetches = 0
        self.messages_in = 0
        self.produces = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: PartitionCounters) -> None:
        """Takes over what another partition has counted."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.bytes_rejected += other.bytes_rejected
        self.failed_fetches += other.failed_fetches
        self.failed_produces += other.failed_produces
        self.fetches += other.fetches
        self.messages_in += other.messages_in
        self.produces += other.produces
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out

    def copy(self) -> PartitionCounters:
        copied = PartitionCounters()
        copied.add(self)
        return copied


class Partition:
    """A replica on this broker. The replica manager makes it and applies metadata to it."""

    __slots__ = (
        "_commit_waits",
        "_fetch_waits",
        "_flush_wanted",
        "_replica_fetch_waits",
        "_uncommitted",
        "counters",
        "index",
        "isr",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "log",
        "maximal_isr",
        "min_isr",
        "node_id",
        "partition_epoch",
        "remote",
        "replicas",
        "role",
        "rules",
        "topic",
        "topic_id",
        "truncations_below_high_watermark",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        *,
        node_id: int,
        log: Log,
        flush_wanted: Callable[[Partition], None] = lambda partition: None,
    ) -> None:
        """`flush_wanted` is called when nothing more can be committed before a flush; it has
        `maybe_advance_high_watermark` called after one."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.node_id = node_id
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = 0
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        self.maximal_isr: frozenset[int] = frozenset()
        self.min_isr = 1
        self.rules = AppendRules()
        self.remote: dict[int, RemoteReplica] = {}
        self.counters = PartitionCounters()
        self.truncations_below_high_watermark = 0
        self._flush_wanted = flush_wanted
        self._commit_waits: deque[tuple[int, CommitWaiter, Any]] = deque()
        # Dictionaries as ordered sets, for a reproducible order.
        self._fetch_waits: dict[FetchWait, None] = {}
        self._replica_fetch_waits: dict[FetchWait, None] = {}
        # (end offset, size) of appended batches above the high watermark.
        self._uncommitted: deque[tuple[int, int]] = deque()

    # --- facts --------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def effective_min_isr(self) -> int:
        """No topic can ask for more in-sync replicas than it has replicas."""
        return min(self.min_isr, max(1, len(self.replicas)))

    @property
    def under_min_isr(self) -> bool:
        """Whether a leader may not take appends with acks=all."""
        return (
            # No need to know the effective minimum where the plain one is reached.
            len(self.isr) < self.min_isr
            and self.role is Role.LEADER
            and len(self.isr) < self.effective_min_isr
        )

    @property
    def at_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) == self.effective_min_isr

    @property
    def under_replicated(self) -> bool:
        return self.is_leader and len(self.isr) < len(self.replicas)

    @property
    def flush_due(self) -> bool:
        """Whether what was appended has reached `flush.messages`."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    @property
    def high_watermark_settled(self) -> bool:
        """False while a new leader's high watermark may still lie below its predecessor's."""
        return self.log.high_watermark >= self.leader_epoch_start

    @property
    def low_watermark(self) -> int:
        """The smallest log start among this leader and the followers heard of."""
        starts = [self.log.log_start_offset]
        starts += [
            remote.log_start for replica_id, remote in self.remote.items() if replica_id in self.isr
        ]
        return min(starts)

    def check_epoch(self, client_epoch: int) -> None:
        """Fences a client by its view of the leader epoch; -1 is no view (KIP-320).

        Raises:
            ApiError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if client_epoch < 0 or client_epoch == self.leader_epoch:
            return
        if client_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, None)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, None)

    def require_leader(self, client_epoch: int = -1) -> Log:
        """The log, for a request that only the leader may answer.

        Raises:
            ApiError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER or
                KAFKA_STORAGE_ERROR.
        """
        if self.role is Role.LEADER and (client_epoch < 0 or client_epoch == self.leader_epoch):
            return self.log
        if self.role is Role.OFFLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, None)
        self.check_epoch(client_epoch)
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    # --- leadership ---------------------------------------------------------------------------

    def become_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: Iterable[int],
        now_ms: float,
    ) -> bool:
        """Leads under `leader_epoch`, or takes a new ISR within it. True if the epoch is new."""
        new_epoch = leader_epoch != self.leader_epoch or self.role is not Role.LEADER
        self._check_epochs(leader_epoch, partition_epoch)
        self._enter(Role.LEADER)
        self.leader_id = self.node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = self.maximal_isr = frozenset(isr)
        followers = [replica_id for replica_id in replicas if replica_id != self.node_id]
        if new_epoch:
            self.log.note_leader_epoch(leader_epoch)
            self.leader_epoch_start = self.log.log_end_offset
            self._uncommitted.clear()
            # Nothing a follower told an earlier leader counts.
            self.remote = {replica_id: RemoteReplica() for replica_id in followers}
            for remote in self.remote.values():
                # The ISR is given the benefit of the doubt once: replica.lag.time.max.ms begins.
                remote.caught_up_ms = now_ms
        else:
            self.remote = {
                replica_id: self.remote.get(replica_id) or RemoteReplica()
                for replica_id in followers
            }
        if new_epoch:
            self._interrupt_fetches()
        self.maybe_advance_high_watermark()
        return new_epoch

    def become_follower(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: Iterable[int],
    ) -> bool:
        """Follows `leader_id` (-1: nobody). True if the leader or its epoch is new."""
        changed = leader_epoch != self.leader_epoch or leader_id != self.leader_id
        self._check_epochs(leader_epoch, partition_epoch)
        self._enter(Role.FOLLOWER)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = self.maximal_isr = frozenset(isr)
        self.remote = {}
        if changed:
            # An epoch that began here without a record is no history: nobody else knows it.
            self.log.truncate_to(self.log.log_end_offset)
            self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return changed

    def become_offline(self) -> None:
        """The log failed. Nothing more is appended: a second write could hide the first's loss."""
        self._enter(Role.OFFLINE)
        self._release(ErrorCode.KAFKA_STORAGE_ERROR)

    def become_deleted(self) -> None:
        """The topic is gone or the replica moved away."""
        self._enter(Role.DELETED)
        self._release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- appending ----------------------------------------------------------------------------

    def appended(self, info: AppendInfo, size_bytes: int) -> None:
        """The leader's log has taken a batch; moves the high watermark and wakes fetchers."""
        self._uncommitted.append((info.last_offset + 1, size_bytes))
        if self._replica_fetch_waits:
            for wait in list(self._replica_fetch_waits):
                wait.more_bytes(size_bytes)
        self.maybe_advance_high_watermark()

    def wait_for_commit(self, end_offset: int, waiter: CommitWaiter, slot: Any) -> bool:
        """Registers for the high watermark to reach `end_offset`; False if it has already."""
        if self.log.high_watermark >= end_offset:
            return False
        self._commit_waits.append((end_offset, waiter, slot))
        return True

    def maybe_advance_high_watermark(self) -> bool:
        """Moves the high watermark as far as the maximal ISR allows; True if it moved."""
        log = self.log
        if len(self.isr) < self.min_isr and len(self.isr) < self.effective_min_isr:
            return False
        target = log.log_end_offset
        if target - log.recovery_point >= log.config.flush_messages:
            # A topic that flushes shows nothing that a power cut could take back.
            target = max(log.recovery_point, log.high_watermark)
            self._flush_wanted(self)
        if len(self.maximal_isr) > 1 or self.node_id not in self.maximal_isr:
            for replica_id in self.maximal_isr:
                remote = self.remote.get(replica_id)
                if remote is not None and remote.log_end < target:
                    target = remote.log_end
        if target <= log.high_watermark:
            return False
        log.update_high_watermark(target)
        self._high_watermark_moved(target)
        return True

    def _high_watermark_moved(self, high_watermark: int) -> None:
        uncommitted = self._uncommitted
        size_bytes = 0
        while uncommitted and uncommitted[0][0] <= high_watermark:
            size_bytes += uncommitted.popleft()[1]
        waits = self._commit_waits
        if waits:
            # The ISR may have shrunk below the minimum since the append was admitted.
            error = (
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                if len(self.isr) < self.effective_min_isr
                else ErrorCode.NONE
            )
            while waits and waits[0][0] <= high_watermark:
                _, waiter, slot = waits.popleft()
                waiter.resolved(slot, error)
        if self._fetch_waits:
            for wait in list(self._fetch_waits):
                wait.more_bytes(size_bytes)

    # --- following ----------------------------------------------------------------------------

    def follower_appended(self, size_bytes: int) -> None:
        """The leader's records were taken over up to the log end."""
        self._uncommitted.append((self.log.log_end_offset, size_bytes))

    def follow_high_watermark(self, high_watermark: int) -> None:
        """The leader's high watermark, as far as the own log reaches; wakes consumers here."""
        self.log.update_high_watermark(high_watermark)
        self._high_watermark_moved(high_watermark)

    # --- followers' fetches -------------------------------------------------------------------

    def follower_fetched(
        self,
        replica_id: int,
        *,
        offset: int,
        log_start: int,
        broker_epoch: int,
        now_ms: float,
    ) -> bool:
        """A follower has everything below `offset`. True if the high watermark moved.

        The caller has checked that `broker_epoch` is the follower's current one.
        """
        remote = self.remote.get(replica_id)
        if remote is None or broker_epoch < remote.broker_epoch:
            return False
        before = remote.log_end
        remote.fetched(offset, log_start, broker_epoch, self.log.log_end_offset, now_ms)
        return offset != before and self.maybe_advance_high_watermark()

    # --- waiting fetches ----------------------------------------------------------------------

    def add_fetch_wait(self, wait: FetchWait, *, replica: bool) -> None:
        """A replica's fetch is woken by appends, a consumer's by the high watermark."""
        (self._replica_fetch_waits if replica else self._fetch_waits)[wait] = None
        wait.places.append(self)

    def remove_fetch_wait(self, wait: FetchWait) -> None:
        self._fetch_waits.pop(wait, None)
        self._replica_fetch_waits.pop(wait, None)

    # --- within -------------------------------------------------------------------------------

    def _release(self, error: ErrorCode) -> None:
        waits, self._commit_waits = self._commit_waits, deque()
        self._uncommitted.clear()
        for _, waiter, slot in waits:
            waiter.resolved(slot, error)
        self._interrupt_fetches()

    def _interrupt_fetches(self) -> None:
        for wait in [*self._fetch_waits, *self._replica_fetch_waits]:
            wait.interrupt()

    def _check_epochs(self, leader_epoch: int, partition_epoch: int) -> None:
        if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:
            raise InvariantViolated(
                f"{self.topic}-{self.index}: epochs went back from "
                f"{self.leader_epoch}/{self.partition_epoch} to {leader_epoch}/{partition_epoch}"
            )

    def _enter(self, role: Role) -> None:
        if (self.role, role) not in TRANSITIONS:
            raise InvariantViolated(f"{self.topic}-{self.index}: {self.role.name} -> {role.name}")
        self.role = role

    def validate(self) -> None:
        """Checks what must hold between any two steps; raises InvariantViolated."""
        log = self.log
        holds: Mapping[str, bool] = {
            "log start <= high watermark": log.log_start_offset <= log.high_watermark,
            "high watermark <= log end": log.high_watermark <= log.log_end_offset,
            "ISR within the maximal ISR": self.isr <= self.maximal_isr,
            "a leader is a replica": not self.is_leader or self.node_id in self.replicas,
            "no commit wait below the high watermark": all(
                end > log.high_watermark for end, _, _ in self._commit_waits
            ),
        }
        for promise, kept in holds.items():
            if not kept:
                raise InvariantViolated(f"{self.topic}-{self.index}: not {promise}")
