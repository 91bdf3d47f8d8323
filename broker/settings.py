"""Settings of a broker as a whole, from its static configuration; its packages have their own."""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.reading.replica_selector import RACK_AWARE
from runtime.config import (
    NodeConfig,
    keys_kraftbox,
    keys_quorum,
    keys_replication,
    keys_server,
)


class BrokerSettings(NamedTuple):
    """Settings of handlers and the assembly, constant for the life of the process."""

    unstable_versions: bool
    log_requests: bool
    partition_metrics: str
    fetch_bytes_max: int
    rack_aware: bool
    local_log_aware: bool
    fetch_sessions_max: int
    described_partitions_max: int
    request_memory_bytes: int
    request_bytes_max: int
    controlled_shutdown: bool
    rack: str | None

    @classmethod
    def of(cls, node: NodeConfig) -> BrokerSettings:
        return cls(
            unstable_versions=node[keys_quorum.UNSTABLE_API_VERSIONS_ENABLE],
            log_requests=node[keys_kraftbox.KRAFTBOX_LOG_REQUESTS],
            partition_metrics=node[keys_kraftbox.KRAFTBOX_METRICS_PARTITIONS],
            fetch_bytes_max=node[keys_server.FETCH_MAX_BYTES],
            rack_aware=node[keys_replication.REPLICA_SELECTOR_CLASS] == RACK_AWARE,
            local_log_aware=node[keys_kraftbox.KRAFTBOX_REPLICA_SELECTOR_LOCAL_LOG_ENABLE],
            fetch_sessions_max=node[keys_server.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
            described_partitions_max=node[keys_server.MAX_REQUEST_PARTITION_SIZE_LIMIT],
            request_bytes_max=node[keys_server.SOCKET_REQUEST_MAX_BYTES],
            request_memory_bytes=node[keys_server.QUEUED_MAX_REQUEST_BYTES],
            controlled_shutdown=node[keys_replication.CONTROLLED_SHUTDOWN_ENABLE],
            rack=node[keys_server.BROKER_RACK],
        )
