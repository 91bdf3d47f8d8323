"""Shell: Tiered storage of one broker (KIP-405): composition, start and stop.

It exists only if `remote.log.storage.system.enable` is true. Otherwise, `BrokerContext.tier` has
the value None, and this module is not imported.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol, TypeAlias

from broker.metadata.topic_settings import TopicSettingsTable
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.tiering.following import TierBeginnings
from broker.tiering.index_cache import IndexCache
from broker.tiering.journal import Journal
from broker.tiering.metrics import TierMetrics
from broker.tiering.reader import RemoteReader
from broker.tiering.removal import Remover
from broker.tiering.roles import Roles
from broker.tiering.settings import MetadataTopicSettings, RemoteSettings
from broker.tiering.tasks import TierTasks
from broker.tiering.topic_link import TopicLink
from protocol.messages.create_topics import CreateTopicsRequest
from runtime.clock import Clock
from runtime.config import NodeConfig, keys_topic
from runtime.tasks import Supervisor
from storage.objects import Objects, StoreSettings
from storage.tiered.records import METADATA_TOPIC
from storage.tiered.segment_store import SegmentStore
from storage.tiered.values import RemotePartition

ObjectsFactory: TypeAlias = Callable[[StoreSettings], Objects]


class TopicCreation(Protocol):
    """Creator of topics through the controller."""

    async def ensure_as(self, wish: CreateTopicsRequest.CreatableTopic) -> None:
        """Return when the topic exists. Raises ApiError if it cannot be created."""


class Tier:
    """The parts of a broker that handle remote segments."""

    def __init__(
        self,
        settings: RemoteSettings,
        *,
        open_objects: ObjectsFactory,
        replicas: ReplicaManager,
        topic_settings: TopicSettingsTable,
        creator: TopicCreation,
        supervisor: Supervisor,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """Build the parts. Must be called on the running loop of a process that does not fork any
        more."""
        self.settings = settings
        self.store = SegmentStore(open_objects(settings.store))
        self._replicas = replicas
        self._supervisor, self._clock, self._rng = supervisor, clock, rng
        self.journal = Journal(
            TopicLink(replicas.metadata, listener=settings.metadata.listener),
            create_topic=lambda: creator.ensure_as(metadata_topic(settings.metadata)),
            consume_wait_ms=settings.metadata.consume_wait_ms,
            supervisor=supervisor,
            clock=clock,
            rng=rng,
        )
        self.reader = self._build_reader()
        self.journal.subscribe(self._metadata_changed)
        self._remover = self._build_remover()
        self.roles = self._build_roles(topic_settings)
        self.beginnings = TierBeginnings(
            ready=self.journal.ready,
            cache_of=self.journal.cache,
            store=self.store,
            at_once=lambda: self.settings.tasks.builds_at_once,
            save_log_starts=replicas.logs.checkpoints.save_log_starts,
            carry_out=replicas.carry_out,
        )
        self.tasks = self._build_tasks()
        self.metrics = TierMetrics(
            self.tasks,
            reads=lambda: self.reader.counters,
            builds=lambda: self.beginnings.counters,
            removals=lambda: len(self.journal.removals()),
        )
        self.journal.subscribe(self.tasks.changed)
        self.roles.add(self.tasks)
        replicas.add_leadership_listener(METADATA_TOPIC, self._remover)

    def _build_reader(self) -> RemoteReader:
        logs = self._replicas.logs
        indexes = IndexCache(
            logs.files,
            logs.directory,
            self.store,
            self._supervisor,
            monotonic_ms=self._clock.monotonic_ms,
            max_bytes=lambda: self.settings.reads.index_cache_bytes,
            ttl_ms=lambda: self.settings.reads.index_cache_ttl_ms,
        )
        indexes.load()
        return RemoteReader(
            self.store,
            indexes,
            self.journal.cache,
            settings=lambda: self.settings.reads,
            quota=lambda: self.settings.fetch_quota,
            files=logs.files,
            supervisor=self._supervisor,
            clock=self._clock,
        )

    def _build_remover(self) -> Remover:
        return Remover(
            node_id=self._replicas.node_id,
            journal=self.journal,
            store=self.store,
            save_log_starts=self._replicas.logs.checkpoints.save_log_starts,
            at_once=lambda: self.settings.tasks.expirations_at_once,
            supervisor=self._supervisor,
            clock=self._clock,
            rng=self._rng,
        )

    def _build_roles(self, topic_settings: TopicSettingsTable) -> Roles:
        return Roles(
            node_id=self._replicas.node_id,
            journal=self.journal,
            remover=self._remover,
            settings=topic_settings.of,
            metadata=self._replicas.metadata,
            logs=self._replicas.logs,
            supervisor=self._supervisor,
            clock=self._clock,
            rng=self._rng,
        )

    def _build_tasks(self) -> TierTasks:
        return TierTasks(
            node_id=self._replicas.node_id,
            metadata=self.journal,
            store=self.store,
            settings=lambda: self.settings,
            save_log_starts=self._replicas.logs.checkpoints.save_log_starts,
            supervisor=self._supervisor,
            clock=self._clock,
            rng=self._rng,
        )

    def caught_up(self) -> None:
        """Check the `-stray` folders, once the image is newer than this broker's start: topics
        missing in it were deleted."""
        self.roles.look_at_strays(list(self._replicas.logs.strays))

    def follow(self, node: NodeConfig) -> None:
        """Apply changed dynamic settings to all parts."""
        self.settings = RemoteSettings.of(node)
        self.beginnings.turns.reconfigured()
        self._remover.turns.reconfigured()
        self.reader.reconfigured()
        self.tasks.reconfigured()

    def _metadata_changed(self, partition: RemotePartition) -> None:
        cache = self.journal.cache(partition)
        if cache is not None:
            self.reader.indexes.retain(cache)

    def published(self) -> None:
        """Process a new metadata image, after the replicas have applied it."""
        self.journal.published()

    async def close(self) -> None:
        """Stop all parts and release the connections."""
        await self.tasks.close()
        await self.roles.close()
        await self._remover.close()
        await self.journal.close()
        self.reader.close()
        await self.store.objects.close()


def metadata_topic(settings: MetadataTopicSettings) -> CreateTopicsRequest.CreatableTopic:
    """Return the settings with which `__remote_log_metadata` is created."""
    configs = {
        keys_topic.CLEANUP_POLICY.name: "delete",
        keys_topic.RETENTION_MS.name: str(settings.retention_ms),
        keys_topic.MIN_INSYNC_REPLICAS.name: str(settings.min_isr),
        keys_topic.REMOTE_STORAGE_ENABLE.name: "false",
    }
    return CreateTopicsRequest.CreatableTopic(
        name=METADATA_TOPIC,
        num_partitions=settings.partitions,
        replication_factor=settings.replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in configs.items()
        ],
    )
