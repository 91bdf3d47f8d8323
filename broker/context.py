"""Parts of a broker that its handlers share, by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.metadata.cache import MetadataCache
from broker.metadata.lost_brokers import LostBrokers
from broker.metadata.topic_settings import TopicSettingsTable
from broker.quota.quotas import ClientQuotas
from broker.replication.appends.held_batches import HeldBatches
from broker.replication.durability.flusher import Flusher
from broker.replication.reading.time_lookups import TimeLookups
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.sessions.fetch_session import FetchSessionCache
from broker.replication.throttle import ReplicationThrottles
from broker.replication.waiting.waiting_requests import WaitingRequests
from broker.settings import BrokerSettings
from protocol.messages.fetch import FetchRequest
from runtime.clock import Clock
from runtime.config import NodeConfig
from runtime.slices import SharedSlices
from runtime.tasks import Supervisor

if TYPE_CHECKING:
    from broker.controller_link.channel import ChannelPool, ControllerChannel
    from broker.tiering.tier import Tier
    from storage.files.port import Files


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """One broker's parts. Frozen: parts change their state, but are never replaced."""

    node_id: int
    cluster_id: str
    config: NodeConfig
    static: BrokerSettings
    clock: Clock
    rng: random.Random
    files: Files
    metadata: MetadataCache
    lost: LostBrokers
    settings: TopicSettingsTable
    replicas: ReplicaManager
    sessions: FetchSessionCache[FetchRequest.FetchPartition]
    waits: WaitingRequests
    flusher: Flusher
    held_batches: HeldBatches
    time_lookups: TimeLookups
    slices: SharedSlices
    """For requests that take more than a slice of an event-loop iteration."""
    controller: ControllerChannel
    elections: ChannelPool
    """Channels to the same controller. An election may wait for brokers to come back: no other
    request must wait behind it, including other elections."""
    supervisor: Supervisor
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    throttles: ReplicationThrottles = field(default_factory=ReplicationThrottles)
    kraft_version: Callable[[], int] = lambda: 0
    """The quorum's version, which is not part of the metadata records."""
    tier: Tier | None = None
    """Tiered storage, if the node has it."""
