"""Shell: Broker of a node: composition, start and stop of its parts in order.

Start: open the logs; follow the metadata image (partitions are created and deleted with it); bind
the addresses; register with the controller; send heartbeats until it has unfenced this broker. The
addresses refuse connections until the broker requests to be unfenced, since clients and brokers may
be directed here from then on. Connections wait until the broker's own image shows it to clients, as
with Kafka: the first Metadata request lists this broker, and the first CreateTopics finds it.

Stop: request the controller to move leaderships away, stop answering, flush and close the logs, and
write the marker of a clean shutdown with the broker epoch. With that epoch the next registration
proves that no data was lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.admin.auto_topics import AutoTopicSettings, TopicCreator
from broker.api_table import build_table
from broker.context import BrokerContext
from broker.controller_link.channel import ChannelPool, ControllerChannel
from broker.controller_link.lifecycle import BrokerLifecycle, LifecycleTimes
from broker.controller_link.membership import Membership
from broker.controller_link.registration import registration_request
from broker.coordinators.cached_topics import CachedTopics
from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.coordinators.replicated_log import ReplicatedCoordinatorLog
from broker.faults import plant_faults
from broker.maintenance import Maintenance
from broker.metadata.cache import MetadataCache
from broker.metadata.lost_brokers import LostBrokers
from broker.metadata.topic_settings import TopicSettingsTable
from broker.metrics.families import BrokerMetrics
from broker.metrics.groups import GroupMetrics
from broker.quota.enforcer import QuotaEnforcer
from broker.quota.metrics import QuotaMetrics
from broker.quota.quotas import ClientQuotas
from broker.replica_images import ReplicaBacklog, ReplicaImages
from broker.replication.appends.held_batches import HeldBatches
from broker.replication.durability.epoch_saver import EpochSaver
from broker.replication.durability.flusher import Flusher
from broker.replication.reading.time_lookups import TimeLookups
from broker.replication.replicas.collaborators import Collaborators
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.replicas.tier_listener import NoTier
from broker.replication.service import Replication
from broker.replication.sessions.fetch_session import FetchSessionCache
from broker.replication.settings import ReplicationSettings
from broker.replication.throttle import ReplicationThrottles
from broker.replication.waiting.waiting_requests import WaitingRequests
from broker.request_log import RequestLog
from broker.settings import BrokerSettings
from metalog.image.delta import MetadataDelta
from metalog.image.values import MetadataImage
from metalog.loader import MetadataLoader
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.topic_name import CONSUMER_OFFSETS_TOPIC
from protocol.transport.admission import ConnectionGate
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import Clock
from runtime.config import ConfigError, NodeConfig, keys_quorum, keys_remote
from runtime.errors import StartupRefused
from runtime.log import get_logger
from runtime.metrics import Metrics
from runtime.slices import SharedSlices, in_slices
from runtime.tasks import Supervisor
from serving.listener_settings import connection_limits, server_limits
from serving.listeners import Listeners
from storage.files import Files
from storage.log.cleaning.cleaner import CleanerSettings, LogCleaner
from storage.log.cleaning.workers import worker_for
from storage.log.config import LogConfig
from storage.log.directory import MetaProperties, read_meta
from storage.log.errors import BadLogDirectory
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.manager_settings import LogManagerSettings

if TYPE_CHECKING:
    from broker.tiering.tier import ObjectsFactory, Tier

CONTROLLED_SHUTDOWN_MS: Final = 30_000.0
CLOSE_GRACE_MS: Final = 5_000.0

_log = get_logger("broker.assembly")


class BrokerServer:
    """The broker of a process, one per process with the broker role."""

    def __init__(  # noqa: PLR0913 - by keyword, all that a broker has from outside
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        rng: random.Random,
        files: Files,
        cluster_id: str,
        loader: MetadataLoader,
        controller_endpoint: Callable[[], tuple[str, int] | None],
        supervisor: Supervisor,
        metrics: Metrics,
        incarnation_id: bytes,
        open_objects: ObjectsFactory | None = None,
    ) -> None:
        """Build the parts that need no open logs. The caller has locked the log directory and
        verified that it belongs to this node.

        `incarnation_id` is the process's, used in the broker's registration. `open_objects` opens
        the object store of tiered storage, if it is enabled; None: as its settings specify.
        """
        self.config = config
        self._static = BrokerSettings.of(config)
        self._replication_settings = ReplicationSettings.of(config)
        self._clock = clock
        self._rng = rng
        self._files = files
        self._loader = loader
        self._controller_endpoint = controller_endpoint
        self._supervisor = supervisor
        self._metrics = metrics
        self._incarnation_id = incarnation_id
        self._open_objects = open_objects
        self.metadata = MetadataCache(config.node_id, cluster_id, rng)
        self.settings = TopicSettingsTable(config)
        self.lifecycle = BrokerLifecycle(LifecycleTimes.of(config), lambda: rng.uniform(0.8, 1.2))
        self.logs = LogManager(
            files,
            config.log_dir,
            clock=clock,
            rng=rng,
            config_for=self._config_while_loading,
            settings=LogManagerSettings.of(config),
            on_failure=self._log_failed,
        )
        self.cleaner = LogCleaner(
            self.logs,
            worker_for(files, clock),
            clock=clock,
            settings=lambda: CleanerSettings.of(self.settings.effective_node),
        )
        self.replicas = ReplicaManager(
            node_id=config.node_id,
            logs=self.logs,
            settings=self.settings,
            metadata=self.metadata,
            clock=clock,
            on_storage_failure=self._storage_failed,
            on_unforeseen=supervisor.survive,
        )
        self.quotas = ClientQuotas.of(config)
        self._gate = ConnectionGate(connection_limits(config), ip_rate=self.quotas.ip_rate)
        self._listeners = Listeners(
            clock=clock, supervisor=supervisor, limits=server_limits(config), gate=self._gate
        )
        self.context: BrokerContext | None = None
        self._enforcer: QuotaEnforcer | None = None
        self.coordinator: GroupCoordinator | None = None
        self.replication: Replication | None = None
        self._membership: Membership | None = None
        self._maintenance = Maintenance(supervisor)
        self._logs_open = False
        self._stopped = False

    # --- life cycle ---------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if the broker is registered, caught up and unfenced."""
        return self.lifecycle.ready and not self.lifecycle.fenced

    @property
    def servers(self) -> Sequence[Server]:
        """The listeners, for metrics that join those of all roles."""
        return self._listeners.servers

    @property
    def bound_listeners(self) -> Mapping[str, tuple[str, int]]:
        """Host and port by name, once they are known."""
        return self._listeners.bound

    async def start(self) -> None:
        """Start, and return once the controller has unfenced this broker and its own image shows
        it.

        Raises:
            BadLogDirectory, CorruptLog, OSError: the logs cannot be opened, or a port is in use.
            StartupRefused: the controller refuses this broker for good, or the configuration names
                no store that tiered storage could use.
        """
        controller = self._channel("forwarding")
        creator = self._build_creator(controller)
        tier = self._build_tier(creator)
        await self._open_logs()
        membership = self._membership = self._build_membership()
        context = self.context = self._build_context(controller, tier)
        replication = self.replication = self._build_replication(context)
        self.replicas.connect(self._collaborators(context, replication))
        self._images = ReplicaImages(
            self.replicas,
            membership,
            tier=tier,
            tiered_storage=self.config[keys_remote.REMOTE_LOG_STORAGE_SYSTEM_ENABLE],
        )
        self._loader.add_publisher(self._publish)
        groups = GroupConfig.of(self.config)
        offsets = ReplicatedCoordinatorLog(
            CONSUMER_OFFSETS_TOPIC,
            replicas=self.replicas,
            metadata=self.metadata,
            creator=creator,
            codec=groups.offsets_topic_codec,
        )
        self.coordinator = GroupCoordinator(
            config=groups,
            clock=self._clock,
            rng=self._rng,
            log=offsets,
            supervisor=self._supervisor,
            topics=CachedTopics(self.metadata),
        )
        self._table = build_table(
            context,
            creator=creator,
            coordinator=self.coordinator,
            offsets=offsets,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
        )
        plant_faults(self._table, self.config)
        if self._static.log_requests:
            self._table.add_stage(RequestLog(self._clock))
        self._enforcer = QuotaEnforcer(self.quotas, self._table, self._clock)
        self._enforcer.publish(self.metadata.image.client_quotas)
        self._metrics.register(BrokerMetrics(context, self.lifecycle, self.replication).collect)
        self._metrics.register(GroupMetrics(self.coordinator.collect).collect)
        self._metrics.register(self.cleaner.collect)
        self._metrics.register(self.logs.collect)
        self._metrics.register(QuotaMetrics(self.quotas, self._clock).collect)
        if context.tier is not None:
            self._metrics.register(context.tier.metrics.collect)
        await self._bind()
        self.coordinator.start()
        self.replication.start()
        self._maintenance.start(self.logs.chores.jobs(), self.cleaner)
        await membership.join(
            self._registration,
            lead_nothing=self.replicas.lead_nothing,
            listen=self._listeners.listen,
        )
        self._gate.release(self._clock.monotonic_ms())

    async def stop(self, timeout_ms: float = CONTROLLED_SHUTDOWN_MS) -> None:
        """Leave the cluster with a controlled shutdown and stop. Safe on a broker whose start
        failed."""
        if self._stopped:
            return
        self._stopped = True
        if self._membership is not None:
            controlled = self._static.controlled_shutdown
            await self._membership.leave(timeout_ms if controlled else 0.0)
        if self.coordinator is not None:
            self.coordinator.close()
        await self._listeners.close(CLOSE_GRACE_MS)
        await self._maintenance.stop()
        await self.cleaner.close()
        if self.replication is not None:
            await self.replication.close()
        if self.context is not None:
            self.context.held_batches.close()
            self.context.waits.close()
            await self.context.controller.close()
            await self.context.elections.close()
            if self.context.tier is not None:
                await self.context.tier.close()
        if self._membership is not None:
            await self._membership.close()
        if self._logs_open or self.logs.loading:
            clean = await self.logs.close(self.lifecycle.broker_epoch)
            _log.info("broker stopped", clean=clean)

    def controller_moved(self) -> None:
        """Note that the quorum has another leader, or none: requests to the former one are
        repeated."""
        if self.context is not None:
            self.context.controller.controller_moved()
            self.context.elections.controller_moved()
        if self.replication is not None:
            self.replication.controller_moved()
        if self._membership is not None:
            is_known = self._controller_endpoint() is not None
            self._membership.controller_moved(is_known=is_known)

    # --- start, step by step ------------------------------------------------------------------

    def _config_while_loading(self, topic: str) -> LogConfig:
        """Return a topic's settings before the metadata is read, with tiering on: it is unknown
        which topics are tiered. So each log keeps its information on a part that only the remote
        store has."""
        return replace(self.settings.of(topic).log, remote_storage_enable=True)

    async def _open_logs(self) -> None:
        await in_slices(self.logs.load_steps(), self._clock)
        self._logs_open = True
        self.cleaner.start()
        report = self.logs.report
        _log.info(
            "logs are open",
            clean=report.clean,
            loaded=report.loaded,
            recovered=report.recovered,
        )
        for problem in report.problems:
            _log.warning("while opening logs", problem=problem)

    def _channel(self, purpose: str) -> ControllerChannel:
        return ControllerChannel(
            self._controller_endpoint,
            client_id=f"broker-{self.config.node_id}-{purpose}",
            clock=self._clock,
            rng=self._rng,
        )

    def _build_creator(self, controller: ControllerChannel) -> TopicCreator:
        return TopicCreator(
            settings=AutoTopicSettings.of(self.config),
            metadata=self.metadata,
            controller=controller,
            supervisor=self._supervisor,
            clock=self._clock,
        )

    def _build_tier(self, creator: TopicCreator) -> Tier | None:
        if not self.config[keys_remote.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
            return None
        # Imported only here: a node without tiered storage saves the time and memory.
        from broker.tiering.settings import RemoteSettings
        from broker.tiering.tier import Tier
        from storage.objects import ObjectRefused, open_objects

        try:
            return Tier(
                RemoteSettings.of(self.config),
                open_objects=self._open_objects or open_objects,
                replicas=self.replicas,
                topic_settings=self.settings,
                creator=creator,
                supervisor=self._supervisor,
                clock=self._clock,
                rng=self._rng,
            )
        except (ConfigError, ObjectRefused, ImportError) as error:
            raise StartupRefused(f"tiered storage: {error}") from error

    def _build_membership(self) -> Membership:
        return Membership(
            self.lifecycle,
            self._channel("heartbeat"),
            node_id=self.config.node_id,
            incarnation_id=self._incarnation_id,
            supervisor=self._supervisor,
            clock=self._clock,
        )

    def _build_context(self, controller: ControllerChannel, tier: Tier | None) -> BrokerContext:
        config, clock = self.config, self._clock
        return BrokerContext(
            node_id=config.node_id,
            cluster_id=self.metadata.cluster_id,
            config=config,
            static=self._static,
            clock=clock,
            rng=self._rng,
            files=self._files,
            metadata=self.metadata,
            lost=LostBrokers(self.metadata, config[keys_quorum.BROKER_SESSION_TIMEOUT_MS]),
            settings=self.settings,
            replicas=self.replicas,
            sessions=FetchSessionCache(self._static.fetch_sessions_max, self._rng),
            waits=WaitingRequests(clock),
            flusher=Flusher(
                self._supervisor, self.replicas.storage_failed, self.replicas.carry_out
            ),
            time_lookups=TimeLookups(self._files),
            slices=SharedSlices(clock),
            held_batches=HeldBatches(
                self.replicas, files=self._files, clock=clock, supervisor=self._supervisor
            ),
            controller=controller,
            elections=ChannelPool(lambda: self._channel("elections")),
            supervisor=self._supervisor,
            quotas=self.quotas,
            throttles=ReplicationThrottles(
                self._replication_settings.throttle_window_count,
                self._replication_settings.throttle_window_ms,
            ),
            kraft_version=lambda: self._loader.kraft_version,
            tier=tier,
        )

    def _collaborators(self, context: BrokerContext, replication: Replication) -> Collaborators:
        replicas = self.replicas
        saver = EpochSaver(
            self._files, self._supervisor, replicas.storage_failed, replicas.carry_out
        )
        return Collaborators(
            schedule=ReplicaBacklog(replicas, context.held_batches).schedule,
            flush=context.flusher.want,
            save_epochs=saver.want,
            propose=replication.isr_changes.propose,
            report=replication.isr_changes.report,
            begin_reports=replication.begin_reports,
            role_given=replication.role_given,
            fetchers=replication.fetchers,
            tier=NoTier() if context.tier is None else context.tier.roles,
        )

    def _build_replication(self, context: BrokerContext) -> Replication:
        return Replication(
            settings=self._replication_settings,
            directory=self._meta().directory_id,
            metadata=self.metadata,
            lost=context.lost,
            replicas=self.replicas,
            flusher=context.flusher,
            throttles=context.throttles,
            channel=self._channel("alter-partition"),
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            clock=self._clock,
            supervisor=self._supervisor,
            tier=None if context.tier is None else context.tier.beginnings,
        )

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self.context is not None
        assert self._membership is not None
        self.metadata.publish(delta, image)
        self.context.lost.published(self._clock.monotonic_ms())
        if self.coordinator is not None and (gone := delta.deleted_topics):
            self.coordinator.topics_deleted({topic.name for topic in gone})
        node = self.settings.effective_node
        changed = self.settings.publish(delta, image)
        if self.settings.effective_node is not node:
            self._follow(self.settings.effective_node)
        if self._enforcer is not None and image.client_quotas is not delta.before.client_quotas:
            self._enforcer.publish(image.client_quotas)
        registered = image.cluster.brokers.get(self.config.node_id)
        is_own = self._membership.is_own(registered)
        self._images.publish(delta, image, changed, is_own=is_own)
        self.context.held_batches.roles_changed()
        self.context.sessions.followers_registered(delta.brokers, image.cluster.brokers)
        if self.replication is not None:
            self.replication.published(delta)
        if self.context.tier is not None:
            self.context.tier.published()
        lacks = self.replication is not None and self.replication.lacks_directories(image)
        self._membership.published(image.provenance.offset, registered, lacks_directories=lacks)

    def _follow(self, effective: NodeConfig) -> None:
        """Apply changed dynamic values that are not part of topics' settings."""
        self._gate.set_limits(connection_limits(effective), self._clock.monotonic_ms())
        self.logs.reconfigure(LogManagerSettings.of(effective))
        if self.replication is not None:
            self.replication.reconfigure(ReplicationSettings.of(effective))
        if self.context is not None and self.context.tier is not None:
            self.context.tier.follow(effective)

    async def _bind(self) -> None:
        self._gate.hold()
        memory = RequestMemory(self._static.request_memory_bytes)
        protected = self.config.inter_broker_listener_name
        alone = len(self.config.broker_listeners) == 1
        for listener in self.config.broker_listeners:
            bounded = listener.name != protected or alone
            await self._listeners.bind(listener, self._table, memory=memory if bounded else None)

    def _meta(self) -> MetaProperties:
        meta = read_meta(self._files, self.config.log_dir)
        if meta is None:
            raise BadLogDirectory(f"{self.config.log_dir} has lost its meta.properties")
        return meta

    def _registration(self) -> BrokerRegistrationRequest:
        return registration_request(
            broker_id=self.config.node_id,
            cluster_id=self.metadata.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=self._listeners.advertised(self.config.advertised_listeners),
            rack=self._static.rack,
            directory_id=self._meta().directory_id,
            previous_broker_epoch=self.logs.previous_broker_epoch,
        )

    # --- while running ------------------------------------------------------------------------

    def _log_failed(self, log: Log, error: BaseException) -> None:
        partition = self.replicas.get(log.topic, log.partition)
        if partition is not None:
            self.replicas.storage_failed(partition, error)
        else:
            self._storage_failed(f"log of {log.topic}-{log.partition}", error)

    def _storage_failed(self, what: str, error: BaseException) -> None:
        # There is one log directory: without it, this broker has nothing left to serve.
        self._supervisor.report(what, error)
