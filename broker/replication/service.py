"""Shell: Replication of a running broker: fetchers, ISR changes, laggards, directory reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.controller_link.channel import ControllerChannel
from broker.metadata.cache import MetadataCache
from broker.metadata.lost_brokers import LostBrokers
from broker.peers.pool import PeerPool
from broker.replication.durability.flusher import Flusher
from broker.replication.fetching.connections import FetcherContext, Fetchers
from broker.replication.fetching.offset_resets import ListOffsetsReset, TierStart, may_skip_tiered
from broker.replication.partition.partition import Partition
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.replicas.upkeep import expire_isr_steps, report_steps
from broker.replication.requests.alter_partition_sender import IsrChanges
from broker.replication.requests.directory_reports import DirectoryReports
from broker.replication.settings import ReplicationSettings
from broker.replication.throttle import ReplicationThrottles
from metalog.image.delta import MetadataDelta
from metalog.image.values import MetadataImage, PartitionImage
from runtime.clock import Clock
from runtime.tasks import Supervisor


class Replication:
    """Replication of a running broker. Create it inside a running loop, before the first image is
    applied."""

    def __init__(  # noqa: PLR0913 - by keyword, all that replication has from outside
        self,
        *,
        settings: ReplicationSettings,
        directory: bytes | None,
        metadata: MetadataCache,
        lost: LostBrokers,
        replicas: ReplicaManager,
        flusher: Flusher,
        throttles: ReplicationThrottles,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        clock: Clock,
        supervisor: Supervisor,
        tier: TierStart | None = None,
    ) -> None:
        """Connect the parts. `channel` is for AlterPartition and AssignReplicasToDirs alone.
        `directory` is the id of the log directory, None for one that was formatted before
        directories had ids."""
        self._metadata = metadata
        self._throttles = throttles
        self._replicas = replicas
        self._clock = clock
        self._supervisor = supervisor
        self._lag_max_ms = settings.lag_max_ms
        self.skips_tiered = settings.skips_tiered
        self._expiry: asyncio.Task[None] | None = None
        listener = settings.inter_broker_listener

        def endpoint(broker_id: int) -> tuple[str, int] | None:
            broker = metadata.image.cluster.brokers.get(broker_id)
            found = None if broker is None else broker.endpoint(listener)
            return None if found is None else (found.host, found.port)

        self._peers = PeerPool(metadata, listener=listener)
        shared = FetcherContext(
            node_id=settings.node_id,
            endpoint=endpoint,
            peers=self._peers,
            broker_epoch=broker_epoch,
            clock=clock,
            supervisor=supervisor,
            flusher=flusher,
            resets=ListOffsetsReset(settings.node_id, tier, skips_tiered=self._skips),
            storage_failed=replicas.storage_failed,
            carry_out=replicas.carry_out,
            timeout_ms=settings.answer_timeout_ms,
            throttle=throttles.fetching,
            lost=lost,
        )
        self.fetchers = Fetchers(shared, settings.fetcher, settings.fetchers_per_leader)
        self._channel = channel
        self.isr_changes = IsrChanges(
            node_id=settings.node_id,
            broker_epoch=broker_epoch,
            channel=channel,
            clock=clock,
            supervisor=supervisor,
            carry_out=replicas.carry_out,
        )
        self._directories: DirectoryReports | None = None
        if directory is not None:
            self._directories = DirectoryReports(
                directory,
                node_id=settings.node_id,
                broker_epoch=broker_epoch,
                metadata=metadata,
                channel=channel,
                clock=clock,
                supervisor=supervisor,
            )
        self._report_interval_ms = settings.local_log_report_interval_ms
        self._reporting: asyncio.Task[None] | None = None

    def role_given(self, partition: Partition, wanted: PartitionImage) -> None:
        """Check the recorded directory of a replica that has just received its role."""
        if self._directories is not None:
            self._directories.look(partition, wanted)

    def start(self) -> None:
        """Start the periodic check for laggards."""
        self._expiry = self._supervisor.spawn("ISR expiry", self._expire_isrs())

    def reconfigure(self, settings: ReplicationSettings) -> None:
        """Apply other settings, as far as they can change at run time."""
        self.fetchers.resize(settings.fetchers_per_leader)
        self.skips_tiered = settings.skips_tiered

    def _skips(self, partition: Partition) -> bool:
        """Return whether that replica, if it is empty, begins behind all that the tier has
        (KIP-1023)."""
        level = self._metadata.image.metadata_version
        return self.skips_tiered and may_skip_tiered(level, partition.log.config)

    def published(self, delta: MetadataDelta) -> None:
        """Apply a new image's rates, leaders and registrations. Called after the replicas have."""
        if delta.configs:
            self._throttles.set_rates(
                self._metadata.broker_overrides(), self._metadata.cluster_overrides()
            )
        if delta.brokers:
            self._peers.published()
        for broker_id in sorted(delta.brokers):
            self.fetchers.leader_registered(broker_id)
        self.fetchers.close_idle()
        if self._directories is not None:
            self._directories.published(delta.before, self._replicas)

    def lacks_directories(self, image: MetadataImage) -> bool:
        """Return whether this broker, which has a directory, must name it in a registration."""
        return self._directories is not None and self._directories.lacks_directories(image)

    def controller_moved(self) -> None:
        self._channel.controller_moved()

    async def close(self) -> None:
        self.fetchers.close()
        self._peers.close()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._reporting is not None:
            self._reporting.cancel()
        if self._directories is not None:
            self._directories.close()
        self.isr_changes.close()
        await self._channel.close()

    def begin_reports(self) -> None:
        """Start the periodic check for due reports of local logs, unless it runs already."""
        if self._reporting is None:
            self._reporting = self._supervisor.spawn("local logs", self._report_local_logs())

    async def _report_local_logs(self) -> None:
        """Check for due reports twice per interval, so that none is over half an interval late."""
        while True:
            await asyncio.sleep(self._report_interval_ms / 2000.0)
            for _ in report_steps(self._replicas):
                await asyncio.sleep(0)

    async def _expire_isrs(self) -> None:
        """Check for laggards twice per `replica.lag.time.max.ms`: a laggard stays at most half that
        time longer."""
        while True:
            await asyncio.sleep(self._lag_max_ms / 2000.0)
            for _ in expire_isr_steps(self._replicas, self._clock, self._lag_max_ms):
                await asyncio.sleep(0)
