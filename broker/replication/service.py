"""Shell: Replication of a running broker: fetchers, ISR changes, the check for laggards,
reports of the replicas' directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.controller_link.channel import ControllerChannel
from broker.metadata.cache import MetadataCache
from broker.replication.alter_partition_sender import IsrChanges
from broker.replication.directory_reports import DirectoryReports
from broker.replication.fetcher import FetcherSettings
from broker.replication.fetcher_connections import FetcherContext, Fetchers
from broker.replication.flusher import Flusher
from broker.replication.offset_resets import ListOffsetsReset
from broker.replication.replica_manager import ReplicaManager
from broker.replication.throttle import ReplicationThrottles
from metalog.image.delta import MetadataDelta
from runtime.clock import Clock
from runtime.config import NodeConfig, keys_replication
from runtime.tasks import Supervisor


class Replication:
    """Make it inside a running loop, before the first image is applied."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        directory: bytes | None,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        flusher: Flusher,
        throttles: ReplicationThrottles,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        """`channel` is for AlterPartition and AssignReplicasToDirs alone. `directory` is the id of
        the log directory, None for one that was formatted before there were any."""
        self._metadata = metadata
        self._throttles = throttles
        self._replicas = replicas
        self._supervisor = supervisor
        self._lag_max_ms = config[keys_replication.REPLICA_LAG_TIME_MAX_MS]
        self._expiry: asyncio.Task[None] | None = None
        listener = config.inter_broker_listener_name

        def endpoint(broker_id: int) -> tuple[str, int] | None:
            broker = metadata.image.cluster.brokers.get(broker_id)
            found = None if broker is None else broker.endpoint(listener)
            return None if found is None else (found.host, found.port)

        shared = FetcherContext(
            node_id=config.node_id,
            endpoint=endpoint,
            broker_epoch=broker_epoch,
            clock=clock,
            supervisor=supervisor,
            flusher=flusher,
            resets=ListOffsetsReset(config.node_id),
            storage_failed=replicas.storage_failed,
            timeout_ms=config[keys_replication.REPLICA_SOCKET_TIMEOUT_MS],
            throttle=throttles.fetching,
        )
        self.fetchers = Fetchers(
            shared, _fetcher_settings(config), config[keys_replication.NUM_REPLICA_FETCHERS]
        )
        self._channel = channel
        self.isr_changes = IsrChanges(
            node_id=config.node_id,
            broker_epoch=broker_epoch,
            channel=channel,
            clock=clock,
            supervisor=supervisor,
        )
        self._directories: DirectoryReports | None = None
        if directory is not None:
            self._directories = DirectoryReports(
                directory,
                node_id=config.node_id,
                broker_epoch=broker_epoch,
                metadata=metadata,
                channel=channel,
                clock=clock,
                supervisor=supervisor,
            )
            replicas.on_role_given(self._directories.look)
        replicas.on_follow(self.fetchers)
        replicas.on_isr_proposed(self.isr_changes.propose)

    def start(self) -> None:
        """Begins to look for laggards."""
        self._expiry = self._supervisor.spawn("ISR expiry", self._expire_isrs())

    def published(self, delta: MetadataDelta, node: NodeConfig) -> None:
        """The replicas follow the newest image; `node` is the configuration in force."""
        if delta.configs:
            self._throttles.set_rates(
                self._metadata.broker_overrides(), self._metadata.cluster_overrides()
            )
        self.fetchers.resize(node[keys_replication.NUM_REPLICA_FETCHERS])
        for broker_id in sorted(delta.brokers):
            self.fetchers.leader_registered(broker_id)
        self.fetchers.close_idle()

    def controller_moved(self) -> None:
        self._channel.controller_moved()

    async def close(self) -> None:
        self.fetchers.close()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._directories is not None:
            self._directories.close()
        self.isr_changes.close()
        await self._channel.close()

    async def _expire_isrs(self) -> None:
        """Twice per `replica.lag.time.max.ms`: a laggard stays at most half as long again."""
        while True:
            await asyncio.sleep(self._lag_max_ms / 2000.0)
            for _ in self._replicas.expire_isr_steps(self._lag_max_ms):
                await asyncio.sleep(0)


def _fetcher_settings(config: NodeConfig) -> FetcherSettings:
    return FetcherSettings(
        wait_max_ms=config[keys_replication.REPLICA_FETCH_WAIT_MAX_MS],
        min_bytes=config[keys_replication.REPLICA_FETCH_MIN_BYTES],
        response_max_bytes=config[keys_replication.REPLICA_FETCH_RESPONSE_MAX_BYTES],
        max_bytes=config[keys_replication.REPLICA_FETCH_MAX_BYTES],
        backoff_ms=config[keys_replication.REPLICA_FETCH_BACKOFF_MS],
    )
