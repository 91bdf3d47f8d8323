"""Table of all APIs of a broker, served by all its listeners.

ApiVersions is computed from this table: an API that is not registered here does not exist.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.admin import forwarding
from broker.admin.auto_topics import TopicCreator
from broker.apis import (
    alter_configs,
    delete_records,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_user_scram_credentials,
    fetch,
    get_replica_log_info,
    incremental_alter_configs,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from broker.apis.coordinator_table import register_coordinator_apis
from broker.context import BrokerContext
from broker.controller_link.channel import producer_id_blocks
from broker.controller_link.producer_id_blocks import ProducerIds
from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.transport.dispatch import HandlerTable, own_peers
from protocol.transport.long_requests import LongRequests
from protocol.transport.node_identity import NodeIdentity
from serving import no_authorizer
from serving.features import features_of
from serving.long_lists import RULES


def build_table(
    broker: BrokerContext,
    *,
    creator: TopicCreator,
    coordinator: GroupCoordinator,
    offsets: CoordinatorLog,
    broker_epoch: Callable[[], int],
) -> HandlerTable:
    """Build the table of a broker's listeners."""
    table = HandlerTable(
        unstable=broker.static.unstable_versions,
        own_kind=own_peers(broker.config.inter_broker_listener_name),
    )
    for api in (
        produce,
        fetch,
        list_offsets,
        offset_for_leader_epoch,
        describe_topic_partitions,
        describe_user_scram_credentials,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_log_dirs,
        describe_producers,
        delete_records,
        list_config_resources,
    ):
        api.register(table, broker)
    get_replica_log_info.register(table, broker, broker_epoch)
    metadata.register(table, broker, creator)
    forwarder = forwarding.Forwarder(broker)
    alter_configs.register(table, broker, forwarder)
    incremental_alter_configs.register(table, broker, forwarder)
    no_authorizer.register(table)
    register_coordinator_apis(
        table,
        coordinator=coordinator,
        log=offsets,
        metadata=broker.metadata,
        producer_ids=ProducerIds(
            producer_id_blocks(broker.controller, broker.node_id, broker_epoch, broker.clock),
            broker.supervisor,
        ),
        clock=broker.clock,
    )
    forwarding.register(table, forwarder)
    LongRequests(broker.clock, broker.slices).guard(table, RULES)
    table.serve_api_versions(
        lambda: features_of(broker.metadata.image, broker.kraft_version()),
        NodeIdentity(broker.cluster_id, broker.node_id),
    )
    return table
