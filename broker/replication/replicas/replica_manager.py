"""All partitions on this broker: lookup by name or id, and changes from the metadata log.

`apply` receives each new image. One role change is cheap and done at once. Thousands of them are
not, nor is creating logs: those go into a backlog that `advance` works off in slices. It always
uses the newest image, not the one that queued the change. Until then a partition is not led here
yet, and clients retry. A former leader commits nothing in that time, because its followers have
left.

A broker that has lost its registration no longer leads or follows (`lead_nothing`): later images
describe another process with its id.

A disk error takes the partition offline and is reported once to `on_storage_failure`, which stops
the node: there is one log directory, so nothing is left to serve from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from broker.metadata.cache import MetadataCache
from broker.metadata.topic_settings import TopicSettings, TopicSettingsTable
from broker.replication.partition.counters import PartitionCounters
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.leadership import (
    become_deleted,
    become_follower,
    become_leader,
    become_offline,
)
from broker.replication.partition.local_log_reports import report_due
from broker.replication.partition.local_logs import LocalLogs
from broker.replication.partition.partition import NO_EPOCH, Partition
from broker.replication.partition.remote_replica import NEVER_MS
from broker.replication.partition.role import ReplicaRole
from broker.replication.replicas.appender import Appender, Survive
from broker.replication.replicas.backlog import Backlog
from broker.replication.replicas.collaborators import Collaborators, LeadershipListener
from broker.replication.replicas.effect_table import EffectTable
from broker.replication.replicas.partition_table import PartitionTable
from broker.replication.throttle import throttles
from metalog.image.delta import Change, MetadataDelta
from metalog.image.local_log import NO_LOCAL_LOGS, LocalLogThresholds
from metalog.image.values import (
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from protocol.topic_name import topic_name_problem
from runtime.clock import Clock
from runtime.config import keys_kraftbox
from runtime.errors import InvariantViolated
from runtime.log import get_logger

if TYPE_CHECKING:
    from storage.log.log import Log
    from storage.log.manager import LogManager

_log = get_logger("broker.replicas")

AT_ONCE_MAX: Final = 200
"""Maximum number of role changes while an image is published: a few milliseconds. The others go
into the backlog."""


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        *,
        node_id: int,
        logs: LogManager,
        settings: TopicSettingsTable,
        metadata: MetadataCache,
        clock: Clock,
        on_storage_failure: Callable[[str, BaseException], None],
        on_unforeseen: Survive,
    ) -> None:
        self.node_id = node_id
        self.logs = logs
        self.metadata = metadata
        self._settings = settings
        self._clock = clock
        self._on_storage_failure = on_storage_failure
        self.deleted_counters = PartitionCounters()
        """Counts of replicas that were removed."""
        self._backlog = Backlog()
        self._strays: dict[tuple[str, int], None] = {}
        self._leads_nothing = False
        self._at_once = AT_ONCE_MAX
        self._effects = EffectTable(self._local_logs_moved)
        self.carry_out = self._effects.carry_out
        self._table = table = PartitionTable(metadata)
        self._appender = appender = Appender(
            carry_out=self.carry_out,
            storage_failed=self.storage_failed,
            on_unforeseen=on_unforeseen,
        )
        # The parts' entry points, so that a request costs no extra call.
        self.get, self.known = table.get, table.known
        self.find, self.find_by_id = table.find, table.find_by_id
        self.check, self.append = appender.check, appender.append
        self.append_valid, self.append_own = appender.append_valid, appender.append_own
        self.batch_failed = appender.batch_failed
        logs.trimmed = self.local_log_trimmed
        logs.log_start_moved = self.log_start_moved

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._table)

    @property
    def collaborators(self) -> Collaborators:
        """The components that act on what replicas decide."""
        return self._effects.to

    def connect(self, collaborators: Collaborators) -> None:
        """Set all collaborators. Call it once, before the first image: most of them need this
        manager, so its constructor cannot take them."""
        self._effects.to = collaborators

    def storage_failed(self, partition: Partition, error: BaseException) -> None:
        """Take the partition offline after a disk operation on its log failed, and report the
        failure."""
        _log.error(
            "disk error, partition goes offline",
            topic=partition.topic,
            partition=partition.index,
            error=str(error),
        )
        if partition.role is not ReplicaRole.DELETED:
            self.carry_out(partition, become_offline(partition))
        self._on_storage_failure(f"log of {partition.topic}-{partition.index}", error)

    # --- effects ------------------------------------------------------------------------------

    def may_join_isr(self, replica_id: int, broker_epoch: int) -> bool:
        """Return whether that broker, with that epoch, is unfenced and not shutting down (KIP-841,
        KIP-903)."""
        broker = self.metadata.image.cluster.brokers.get(replica_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and broker.epoch == broker_epoch
        )

    def broker_epoch(self) -> int:
        """Return this broker's present epoch, or -1 if it is not in the metadata yet."""
        broker = self.metadata.image.cluster.brokers.get(self.node_id)
        return NO_EPOCH if broker is None else broker.epoch

    def _local_logs_moved(self, partition: Partition) -> None:
        report = self._effects.to.report
        if report is not None and self.is_report_due(partition):
            report(partition)

    def is_report_due(self, partition: Partition, *, sweep: bool = False) -> bool:
        """Return whether to report the local logs of a partition's replicas now."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        return report_due(partition, now_ms, wall_ms, self.broker_epoch(), sweep=sweep)

    # --- metadata -----------------------------------------------------------------------------

    def local_log_trimmed(self, log: Log) -> None:
        """Report the change of a log that has lost segments, if its topic compares replicas by
        their local logs."""
        partition = self.get(log.topic, log.partition)
        if partition is None or partition.local_logs is None or partition.log is not log:
            return
        if partition.is_leader:
            self._local_logs_moved(partition)
        else:
            self._effects.to.fetchers.restate(partition)

    def log_start_moved(self, log: Log) -> None:
        """Notify the readers of a partition after its log start has moved."""
        partition = self.get(log.topic, log.partition)
        if partition is not None and partition.log is log:
            partition.subscriptions.log_start_moved()

    def add_leadership_listener(self, topic: str, listener: LeadershipListener) -> None:
        """Register a listener for roles in `topic`; the partitions led already are reported at
        once."""
        self._effects.listeners.setdefault(topic, []).append(listener)
        for partition in self._table.by_name.get(topic, {}).values():
            if partition.is_leader:
                listener.elected(partition.index, partition.leader_epoch)

    def reconfigure(self, topics: Iterable[str]) -> None:
        """Apply changed settings of these topics.

        Replicas of a deleted topic keep their settings until they are removed: a lower min ISR
        would make their waiting batches visible and acknowledged.
        """
        for topic in topics:
            found = self.metadata.image.topics.by_name.get(topic)
            for partition in self._table.by_name.get(topic, {}).values():
                if found is not None and found.id == partition.topic_id:
                    self._configure(partition, self._settings.of(topic))
                    self._effects.to.tier.configured(partition)

    def apply(self, delta: MetadataDelta) -> None:
        """Apply the newest image, which `metadata` and the settings contain already.

        Must not be called for an image older than this broker's logs. A topic that was created
        again would be mistaken for the deleted one, and its log for a leftover.
        """
        if self._leads_nothing:
            return
        self._at_once = AT_ONCE_MAX
        for topic_id, change in delta.topics.items():
            self._apply_topic(topic_id, change, delta)
        if self._backlog or self._strays:
            self._effects.to.schedule()

    def lead_nothing(self) -> None:
        """Stop every replica at once and for good; the logs stay as they are."""
        self._leads_nothing = True
        self._backlog = Backlog()
        self._strays = {}
        for partition in self:
            self._stop_replica(partition)

    def set_strays_aside(self, image: MetadataImage) -> list[str]:
        """Queue logs for renaming to `-stray` that `image` does not assign to this broker; return
        their names. `advance` renames each before a log with its name is created.

        For the start, once the image has caught up: these partitions were deleted or moved away
        while this broker was down.
        """

        def belongs(topic: str, index: int, topic_id: bytes | None) -> bool:
            found = image.topics.by_name.get(topic)
            wanted = None if found is None else found.partitions.get(index)
            if found is None or wanted is None or self.node_id not in wanted.replicas:
                return False
            return topic_id is None or topic_id == found.id

        self._strays = dict.fromkeys(
            (log.topic, log.partition) for log in self.logs.find_strays(belongs)
        )
        names = [f"{topic}-{index}" for topic, index in self._strays]
        if names:
            self._effects.to.schedule()
        return names

    def _set_aside(self, topic: str, index: int) -> None:
        del self._strays[topic, index]
        self._keep_folder(topic, index)

    def _keep_folder(self, topic: str, index: int) -> None:
        log = self.logs.get(topic, index)
        try:
            path = self.logs.set_aside(topic, index)
        except OSError as error:
            self._on_storage_failure(f"log of {topic}-{index}", error)
            return
        if log is not None and path is not None:
            self._effects.to.tier.folder_kept(topic, index, log.topic_id, path)

    def _apply_topic(
        self, topic_id: bytes, change: Change[TopicImage], delta: MetadataDelta
    ) -> None:
        topic = change.after
        hosted = self._table.by_id.get(topic_id, {})
        if topic is None:
            for index in list(hosted):
                self._backlog.add((topic_id, index), urgent=False)
                self._stop_replica(hosted[index])
            if change.before is not None:
                for index in change.before.partitions:
                    self._leave(change.before, index)
            return
        for index in delta.changed_in(topic, change.before):
            wanted, partition = topic.partitions[index], hosted.get(index)
            if partition is not None and self.node_id in wanted.replicas:
                self._at_once -= 1
                if self._at_once >= 0:
                    self._assign_role(partition, wanted)
                else:
                    self._backlog.add((topic_id, index), urgent=wanted.leader == self.node_id)
            elif partition is not None or self.node_id in wanted.replicas:
                self._backlog.add((topic_id, index), urgent=wanted.leader == self.node_id)
                if partition is not None:
                    self._stop_replica(partition)
            else:
                self._leave(topic, index)

    def _leave(self, topic: TopicImage, index: int) -> None:
        """Handle a partition without a replica here. If its log of an earlier process was not yet
        opened for a replica, it is renamed to `-stray`, as are those of partitions removed while
        this broker was down."""
        log = self.logs.get(topic.name, index)
        if log is None or log.topic_id not in (None, topic.id):
            return
        if index not in self._table.by_id.get(topic.id, {}):
            self._strays[topic.name, index] = None

    def advance(self, budget_ms: float) -> bool:
        """Work off the backlog for about `budget_ms`; return True if some of it is left."""
        deadline_ms = self._clock.monotonic_ms() + budget_ms
        while self._strays or self._backlog:
            if self._strays:
                self._set_aside(*next(iter(self._strays)))
            else:
                self._settle(*self._backlog.take())
            if self._clock.monotonic_ms() >= deadline_ms:
                break
        return bool(self._strays or self._backlog)

    def _settle(self, topic_id: bytes, index: int) -> None:
        """Create or delete the replica, according to the newest image."""
        image = self.metadata.image
        topic = image.topics.by_id.get(topic_id)
        wanted = None if topic is None else topic.partitions.get(index)
        partition = self._table.by_id.get(topic_id, {}).get(index)
        if topic is None or wanted is None or self.node_id not in wanted.replicas:
            if partition is not None:
                self._delete_replica(partition)
            return
        if partition is not None and partition.role is ReplicaRole.DELETED:
            # Moved away and back again before its old log was deleted.
            self._delete_replica(partition)
            partition = None
        if partition is None:
            partition = self._create(topic, index)
        if partition is not None:
            self._assign_role(partition, wanted)

    def _create(self, topic: TopicImage, index: int) -> Partition | None:
        problem = topic_name_problem(topic.name)
        if problem is not None:
            raise InvariantViolated(f"topic {topic.name!r} in the metadata log: {problem}")
        namesake = self.get(topic.name, index)
        if namesake is not None:
            # The topic was deleted and created again: the old log must leave the folder first.
            self._delete_replica(namesake)
        settings = self._settings.of(topic.name)
        try:
            log = self.logs.get_or_create(topic.name, index, topic.id, settings.log)
        except OSError as error:
            self._on_storage_failure(f"log of {topic.name}-{index}", error)
            return None
        partition = Partition(
            topic.name,
            topic.id,
            index,
            node_id=self.node_id,
            log=log,
        )
        self._configure(partition, settings)
        self._table.add(partition)
        return partition

    def _configure(self, partition: Partition, settings: TopicSettings) -> None:
        partition.rules = settings.rules
        partition.min_isr = settings.min_isr
        partition.log.configure(settings.log)
        partition.leader_throttled = bool(settings.leader_throttled) and throttles(
            settings.leader_throttled, partition.index, self.node_id
        )
        partition.follower_throttled = bool(settings.follower_throttled) and throttles(
            settings.follower_throttled, partition.index, self.node_id
        )
        self._ask_for_local_logs(partition, settings.local_log)
        if partition.is_leader:
            # A lower minimum may allow the high watermark to advance.
            self.carry_out(partition, maybe_advance_high_watermark(partition))

    def _ask_for_local_logs(self, partition: Partition, wanted: LocalLogThresholds) -> None:
        """Begin or end to compare the partition's replicas by their local logs."""
        if partition.local_logs is None and wanted.on:
            interval_ms = self._settings.effective_node[
                keys_kraftbox.KRAFTBOX_LOCAL_LOG_REPORT_INTERVAL_MS
            ]
            topics = self.metadata.image.topics
            image = topics.partition(partition.topic_id, partition.index)
            known = NO_LOCAL_LOGS if image is None else image.local_logs
            partition.local_logs = LocalLogs(wanted, interval_ms, known)
            self._effects.to.fetchers.restate(partition)
            self._effects.to.begin_reports()
        elif partition.local_logs is not None and not wanted.on:
            partition.local_logs = None
        elif partition.local_logs is not None:
            partition.local_logs.thresholds = wanted

    def _assign_role(self, partition: Partition, wanted: PartitionImage) -> None:
        if partition.role in (ReplicaRole.OFFLINE, ReplicaRole.DELETED):
            if partition.role is ReplicaRole.DELETED:
                self._backlog.add((partition.topic_id, partition.index), urgent=True)
            return
        if wanted.partition_epoch < partition.partition_epoch:
            return  # the controller's answer to a proposal arrived before this image
        partition.adding, partition.removing = wanted.adding, wanted.removing
        partition.elr = wanted.elr
        if partition.local_logs is not None:
            partition.local_logs.known = wanted.local_logs
        if wanted.leader == self.node_id:
            self._lead(partition, wanted)
        else:
            self._follow(partition, wanted)
        self._effects.to.role_given(partition, wanted)

    def _lead(self, partition: Partition, wanted: PartitionImage) -> None:
        partition.recovering = wanted.recovery_state == LeaderRecoveryState.RECOVERING
        effects = become_leader(
            partition,
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
            now_ms=self._clock.monotonic_ms(),
        )
        self.carry_out(partition, effects)

    def _follow(self, partition: Partition, wanted: PartitionImage) -> None:
        if partition.is_leader:
            partition.led_until_ms = self._clock.monotonic_ms()
        elif wanted.leader_epoch != partition.leader_epoch:
            partition.led_until_ms = NEVER_MS  # another broker has led since
        effects = become_follower(
            partition,
            leader_id=wanted.leader,
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
        )
        self.carry_out(partition, effects)

    def _stop_replica(self, partition: Partition) -> None:
        """Stop serving the replica; its files are removed when the backlog reaches it."""
        if partition.role is not ReplicaRole.DELETED:
            self.carry_out(partition, become_deleted(partition))

    def _delete_replica(self, partition: Partition) -> None:
        """Remove the replica from all tables, and delete or rename its files."""
        self._stop_replica(partition)
        self.deleted_counters.add(partition.counters)
        self._table.remove(partition)
        if self._effects.to.tier.keeps_folder(partition):
            self._keep_folder(partition.topic, partition.index)
            return
        try:
            self.logs.delete(partition.topic, partition.index)
        except OSError as error:
            self._on_storage_failure(f"log of {partition.topic}-{partition.index}", error)
