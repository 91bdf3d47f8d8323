"""Inter-broker endpoints of brokers, as candidates for connections from a controller.

A broker's registration does not mark its inter-broker listener. A controller that has no
`inter.broker.listener.name` tries all listeners with the inter-broker security protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from metalog.image.values import BrokerImage, Endpoint
from runtime.config import NodeConfig, keys_security, keys_server
from serving.listeners import SECURITY_PROTOCOL_IDS


def endpoints_for_nodes(config: NodeConfig, broker: BrokerImage) -> Sequence[Endpoint]:
    """Return the endpoints to try; one named like its security protocol comes first."""
    named = broker.endpoint(config.inter_broker_listener_name)
    if config[keys_server.INTER_BROKER_LISTENER_NAME] is not None:
        return () if named is None else (named,)
    protocol = SECURITY_PROTOCOL_IDS.get(config[keys_security.SECURITY_INTER_BROKER_PROTOCOL])
    same = [e for e in broker.endpoints if e.security_protocol == protocol]
    return sorted(same, key=lambda e: e != named)
