"""Settings of the controller, resolved once at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.heartbeats import SessionTimeouts
from metalog.image.values import VersionRange
from runtime.config import (
    NodeConfig,
    keys_kraftbox,
    keys_log,
    keys_quorum,
    keys_replication,
    keys_server,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Static settings of one controller.

    features: supported levels of this build by feature name, as advertised. incarnation_id: of this
    process; its broker, if it has one, registers with the same id. static_voters: ids in
    `controller.quorum.voters`, none in a dynamic quorum. recovery_strategy: None if not
    configured; it then follows from `unclean_election`. config: the whole static configuration, for
    defaults of topics.
    """

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    features: Mapping[str, VersionRange]
    static_voters: frozenset[int]
    session_timeout_ms: int
    num_partitions: int
    default_replication_factor: int
    delete_topic_enable: bool
    min_insync_replicas: int
    unclean_election: bool
    last_known_leader_election: bool
    recovery_strategy: str | None
    recovery_manager: bool
    recovery_timeout_ms: int
    max_idle_interval_ms: int
    connection_loss_fence_ms: int
    quorum_fetch_timeout_ms: int
    rebalance: bool
    rebalance_interval_ms: int
    unclean_election_interval_ms: int
    unstable_versions: bool
    request_memory_bytes: int
    mutation_window_count: int
    mutation_window_ms: float
    config: NodeConfig

    @property
    def session_timeouts(self) -> SessionTimeouts:
        """Session timeouts of brokers, in ms."""
        loss_ms = self.connection_loss_fence_ms
        if not loss_ms:
            return SessionTimeouts(self.session_timeout_ms)
        # A live broker notices a hung leader at the latest after the fetch timeout. It then finds
        # the next one, and has the same time for its first heartbeat as after any lost connection.
        first_ms = self.quorum_fetch_timeout_ms + loss_ms
        return SessionTimeouts(self.session_timeout_ms, loss_ms, first_ms)

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        *,
        cluster_id: str,
        incarnation_id: bytes,
        features: Mapping[str, VersionRange],
    ) -> ControllerSettings:
        """Return the settings from a node's configuration."""
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            features=features,
            static_voters=frozenset(voter.node_id for voter in config.quorum_voters),
            session_timeout_ms=config[keys_quorum.BROKER_SESSION_TIMEOUT_MS],
            num_partitions=config[keys_server.NUM_PARTITIONS],
            default_replication_factor=config[keys_replication.DEFAULT_REPLICATION_FACTOR],
            delete_topic_enable=config[keys_server.DELETE_TOPIC_ENABLE],
            min_insync_replicas=config[keys_log.MIN_INSYNC_REPLICAS],
            unclean_election=config[keys_log.UNCLEAN_LEADER_ELECTION_ENABLE],
            recovery_strategy=config[keys_log.UNCLEAN_RECOVERY_STRATEGY]
            if config.is_set(keys_log.UNCLEAN_RECOVERY_STRATEGY)
            else None,
            recovery_manager=config[keys_log.UNCLEAN_RECOVERY_MANAGER_ENABLED],
            recovery_timeout_ms=config[keys_log.UNCLEAN_RECOVERY_TIMEOUT_MS],
            last_known_leader_election=config[
                keys_kraftbox.KRAFTBOX_LAST_KNOWN_LEADER_ELECTION_ENABLE
            ],
            max_idle_interval_ms=config[keys_quorum.METADATA_MAX_IDLE_INTERVAL_MS],
            connection_loss_fence_ms=config[keys_kraftbox.KRAFTBOX_BROKER_CONNECTION_LOSS_FENCE_MS],
            quorum_fetch_timeout_ms=config[keys_quorum.CONTROLLER_QUORUM_FETCH_TIMEOUT_MS],
            rebalance=config[keys_quorum.AUTO_LEADER_REBALANCE_ENABLE],
            rebalance_interval_ms=config[keys_quorum.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            * 1000,
            unclean_election_interval_ms=config[keys_quorum.UNCLEAN_LEADER_ELECTION_INTERVAL_MS],
            unstable_versions=config[keys_quorum.UNSTABLE_API_VERSIONS_ENABLE],
            request_memory_bytes=config[keys_server.QUEUED_MAX_REQUEST_BYTES],
            mutation_window_count=config[keys_quorum.CONTROLLER_QUOTA_WINDOW_NUM],
            mutation_window_ms=config[keys_quorum.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000.0,
            config=config,
        )
