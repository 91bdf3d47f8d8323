"""Limits of what a registration adds to the metadata for good (KIP-631, KIP-919).

Kafka has none beyond the size of a batch: one client could register brokers without end, each with
thousands of listeners. Every node keeps all of them in memory, and every Metadata response names
the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Final

from metalog.image.values import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest

NODES_MAX: Final = 5_000
"""Limit of registered brokers, and of registered controllers."""
LISTED_MAX: Final = 100
"""Limit of listeners, of features, and of log directories of a node."""
TEXT_MAX: Final = 1_000
"""Limit of characters in a name, a host and a rack; a DNS name has at most 255."""


def check_broker_limits(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    """Check the size of a broker's registration.

    Raises:
        ApiError: INVALID_REGISTRATION.
    """
    brokers = image.cluster.brokers
    problem = (
        _nodes_problem("brokers", brokers, request.broker_id in brokers)
        or _problem("listeners", request.listeners)
        or _problem("features", request.features)
        or _problem("log directories", request.log_dirs)
        or _text_problem([request.rack or "", *_texts(request)])
    )
    if problem:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def check_controller_limits(image: MetadataImage, request: ControllerRegistrationRequest) -> None:
    """Check the size of a controller's registration.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    controllers = image.cluster.controllers
    problem = (
        _nodes_problem("controllers", controllers, request.controller_id in controllers)
        or _problem("listeners", request.listeners)
        or _problem("features", request.features)
        or _text_problem(_texts(request))
    )
    if problem:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _nodes_problem(kind: str, known: Sized, is_known: bool) -> str | None:
    if is_known or len(known) < NODES_MAX:
        return None
    return f"the metadata has {len(known)} {kind}; at most {NODES_MAX} are allowed"


def _problem(kind: str, named: Sized) -> str | None:
    if len(named) <= LISTED_MAX:
        return None
    return f"the registration has {len(named)} {kind}; at most {LISTED_MAX} are allowed"


def _texts(request: BrokerRegistrationRequest | ControllerRegistrationRequest) -> Iterable[str]:
    for listener in request.listeners:
        yield listener.name
        yield listener.host
    for feature in request.features:
        yield feature.name


def _text_problem(texts: Iterable[str]) -> str | None:
    longest = max(map(len, texts), default=0)
    if longest <= TEXT_MAX:
        return None
    return f"a name has {longest} characters; at most {TEXT_MAX} are allowed"
