"""Settings of a quorum replica, from a node's configuration."""

from __future__ import annotations

from typing import NamedTuple

from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.log import MetadataLogConfig
from runtime.config import NodeConfig, keys_quorum


class QuorumConfig(NamedTuple):
    """Settings of a quorum replica.

    voters: the static ones; empty if the voter set is in the log. votes: this node is a controller
    and may be a voter.
    """

    node: ReplicaKey
    cluster_id: str
    log_dir: str
    voters: VoterSet = VoterSet()
    addresses: Addresses = Addresses()
    timing: Timing = Timing()
    log: MetadataLogConfig = MetadataLogConfig()
    fetch_max_bytes: int = 1 << 20
    fetch_wait_ms_max: int = 500
    fetch_snapshot_max_bytes: int = 1 << 20
    votes: bool = True

    @classmethod
    def from_node_config(
        cls, config: NodeConfig, *, cluster_id: str, directory_id: bytes
    ) -> QuorumConfig:
        """Return the settings; `directory_id` is that of the metadata log directory
        (meta.properties)."""
        listener = config.controller_listener_names[0]
        return cls(
            node=ReplicaKey(config.node_id, directory_id),
            cluster_id=cluster_id,
            log_dir=config.metadata_log_dir,
            voters=VoterSet(
                Voter(ReplicaKey(v.node_id), ((listener, VoterEndpoint(v.host, v.port)),))
                for v in config.quorum_voters
            ),
            addresses=Addresses(
                endpoints=tuple(
                    (listener.name, VoterEndpoint(listener.host, listener.port))
                    for listener in config.advertised_controller_listeners
                ),
                listener_names=config.controller_listener_names,
                bootstrap_servers=tuple(
                    VoterEndpoint(server.host, server.port)
                    for server in config.quorum_bootstrap_servers
                ),
            ),
            timing=Timing(
                election_timeout_ms=config[keys_quorum.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS],
                fetch_timeout_ms=config[keys_quorum.CONTROLLER_QUORUM_FETCH_TIMEOUT_MS],
                election_backoff_max_ms=config[
                    keys_quorum.CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS
                ],
                retry_backoff_ms=config[keys_quorum.CONTROLLER_QUORUM_RETRY_BACKOFF_MS],
                request_timeout_ms=config[keys_quorum.CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS],
            ),
            log=_log_config(config),
            fetch_max_bytes=config[keys_quorum.CONTROLLER_QUORUM_FETCH_MAX_BYTES],
            fetch_snapshot_max_bytes=config[keys_quorum.CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES],
            votes=config.is_controller,
        )


def _log_config(config: NodeConfig) -> MetadataLogConfig:
    segment_bytes = config[keys_quorum.INTERNAL_METADATA_LOG_SEGMENT_BYTES]
    return MetadataLogConfig(
        segment_bytes=segment_bytes or config[keys_quorum.METADATA_LOG_SEGMENT_BYTES],
        segment_ms=config[keys_quorum.METADATA_LOG_SEGMENT_MS],
        retention_bytes=config[keys_quorum.METADATA_MAX_RETENTION_BYTES],
        retention_ms=config[keys_quorum.METADATA_MAX_RETENTION_MS],
        max_bytes_between_snapshots=config[
            keys_quorum.METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS
        ],
        max_snapshot_interval_ms=config[keys_quorum.METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS],
    )
