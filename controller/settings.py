"""Settings of the controller, resolved once at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.heartbeats import SessionTimeouts
from metalog.image.values import VersionRange
from runtime.config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Static settings of one controller.

    features: what every node of this build supports, by feature name, as it is advertised.
    incarnation_id: this process; its broker, if it has one, registers with the same.
    config: the whole static configuration, for what topics fall back to.
    """

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    features: Mapping[str, VersionRange]
    session_timeout_ms: int
    num_partitions: int
    default_replication_factor: int
    delete_topic_enable: bool
    min_insync_replicas: int
    unclean_election: bool
    max_idle_interval_ms: int
    connection_loss_fence_ms: int
    quorum_fetch_timeout_ms: int
    rebalance: bool
    rebalance_interval_ms: int
    unclean_election_interval_ms: int
    config: NodeConfig

    @property
    def session_timeouts(self) -> SessionTimeouts:
        """How long brokers may be silent."""
        loss_ms = self.connection_loss_fence_ms
        if not loss_ms:
            return SessionTimeouts(self.session_timeout_ms)
        # A live broker misses a leader that hangs as late as within the fetch timeout, finds the
        # next one, and has then as long to speak over a new connection as at any other loss.
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
        """The settings that a node's configuration gives."""
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            features=features,
            session_timeout_ms=config["broker.session.timeout.ms"],
            num_partitions=config["num.partitions"],
            default_replication_factor=config["default.replication.factor"],
            delete_topic_enable=config["delete.topic.enable"],
            min_insync_replicas=config["min.insync.replicas"],
            unclean_election=config["unclean.leader.election.enable"],
            max_idle_interval_ms=config["metadata.max.idle.interval.ms"],
            connection_loss_fence_ms=config["kraftbox.broker.connection.loss.fence.ms"],
            quorum_fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
            rebalance=config["auto.leader.rebalance.enable"],
            rebalance_interval_ms=config["leader.imbalance.check.interval.seconds"] * 1000,
            unclean_election_interval_ms=config["unclean.leader.election.interval.ms"],
            config=config,
        )
