"""The handler table of a controller: all its APIs, served by each of its listeners.

`serving/controller_apis.py` lists the same APIs for both roles; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.apis import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    elect_leaders,
    envelope,
    explain_election,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    unregister_controller,
    update_features,
)
from controller.writer.writer import Controller
from metalog.quorum.apis import register_quorum_apis
from metalog.quorum.node import QuorumNode
from protocol.api_keys import ApiKey
from protocol.transport.dispatch import Features, HandlerTable, own_peers
from protocol.transport.long_requests import LongRequests
from runtime.clock import Clock
from runtime.slices import SharedSlices
from serving import no_authorizer
from serving.long_lists import FEW, RULES

DECIDING_APIS = (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    elect_leaders,
    envelope,
    explain_election,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    unregister_controller,
    update_features,
)
"""APIs with a module in `controller.apis`. The quorum's and the shared ones are added below."""


def build_table(
    controller: Controller,
    quorum: QuorumNode,
    *,
    unstable: bool,
    features: Callable[[], Features],
    clock: Clock,
) -> HandlerTable:
    """Return the handler table for a controller's listeners."""
    table = HandlerTable(unstable=unstable, own_kind=own_peers())
    for api in DECIDING_APIS:
        api.register(table, controller)
    no_authorizer.register(table)
    register_quorum_apis(table, quorum)
    # A Fetch to a controller reads the single partition of the quorum.
    LongRequests(clock, SharedSlices(clock)).guard(table, {**RULES, ApiKey.FETCH: FEW})
    table.serve_api_versions(features)
    return table
