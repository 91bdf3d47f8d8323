"""Faults that a configuration plants in a broker, for tests that must find them.

They wrap the handlers of the table; no handler depends on them.
"""

from __future__ import annotations

from typing import Any

from broker.replication.replicas.appender import ALL_REPLICAS
from protocol.api_keys import ApiKey
from protocol.transport.dispatch import Handler, HandlerTable, Reply, RequestContext
from runtime.config import NodeConfig, keys_kraftbox

LEADER_ALONE = 1


def plant_faults(table: HandlerTable, config: NodeConfig) -> None:
    """Wrap the handlers according to the keys `kraftbox.fault.*`."""
    if config[keys_kraftbox.KRAFTBOX_FAULT_ACKS] == "leader":
        table.wrap(ApiKey.PRODUCE, early_acks)


def early_acks(produce: Handler) -> Handler:
    """Wrap Produce so that acks=all is treated as acks=1: answered when the leader has the
    records."""

    def handle(context: RequestContext, request: Any) -> Reply:
        if request.acks == ALL_REPLICAS:
            request = request.replace(acks=LEADER_ALONE)
        return produce(context, request)

    return handle
