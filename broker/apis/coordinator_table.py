"""The group coordinator's APIs in a broker's handler table."""

from __future__ import annotations

from broker.apis import (
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from broker.apis.find_coordinator import FindCoordinator
from broker.controller_link.producer_id_blocks import ProducerIds
from broker.coordinators.cached_topics import CachedTopics
from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.metadata.cache import MetadataCache
from protocol.transport.dispatch import HandlerTable
from runtime.clock import Clock


def register_coordinator_apis(
    table: HandlerTable,
    *,
    coordinator: GroupCoordinator,
    log: CoordinatorLog,
    metadata: MetadataCache,
    producer_ids: ProducerIds,
    clock: Clock,
) -> None:
    """Register all APIs of groups and offsets, FindCoordinator and InitProducerId."""
    topics = CachedTopics(metadata)
    find_coordinator.register(table, FindCoordinator(log, topics, clock))
    join_group.register(table, coordinator)
    sync_group.register(table, coordinator)
    heartbeat.register(table, coordinator)
    leave_group.register(table, coordinator)
    offset_commit.register(table, coordinator, topics)
    offset_fetch.register(table, coordinator, topics)
    offset_delete.register(table, coordinator, topics)
    list_groups.register(table, coordinator)
    describe_groups.register(table, coordinator)
    delete_groups.register(table, coordinator)
    init_producer_id.register(table, producer_ids)
    consumer_group_heartbeat.register(table, clock)
