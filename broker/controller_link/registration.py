"""The request that registers a broker."""

from __future__ import annotations

from collections.abc import Iterable

from metalog.supported import SUPPORTED_FEATURES
from protocol.messages.broker_registration import BrokerRegistrationRequest
from runtime.config import Listener
from serving.listeners import SECURITY_PROTOCOL_IDS


def registration_request(
    *,
    broker_id: int,
    cluster_id: str,
    incarnation_id: bytes,
    listeners: Iterable[Listener],
    rack: str | None,
    directory_id: bytes | None,
    previous_broker_epoch: int,
) -> BrokerRegistrationRequest:
    """Return the registration of a broker with the features that this build supports.

    Args:
        listeners: as advertised to clients and brokers.
        directory_id: of the log directory; None if it has no id.
        previous_broker_epoch: the one of the last clean shutdown, else -1. With it the controller
            knows that no data was lost.
    """
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            BrokerRegistrationRequest.Listener(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=SECURITY_PROTOCOL_IDS[listener.protocol],
            )
            for listener in listeners
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name,
                min_supported_version=levels.min_level,
                max_supported_version=levels.max_level,
            )
            for name, levels in sorted(SUPPORTED_FEATURES.items())
        ],
        rack=rack,
        log_dirs=[] if directory_id is None else [directory_id],
        previous_broker_epoch=previous_broker_epoch,
    )
