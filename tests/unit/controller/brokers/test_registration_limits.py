"""Registrations stay in the metadata for good, so their size and number have limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controller.brokers import registration_limits
from controller.brokers.registration import decide_register_broker, decide_register_controller
from controller.brokers.registration_limits import LISTED_MAX, TEXT_MAX
from protocol.errors import ApiError, ErrorCode
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from testkit.memory.controller import Cluster, directory, registration

Request = type[BrokerRegistrationRequest] | type[ControllerRegistrationRequest]


def listeners(request: Request, count: int, text: str = "L") -> Sequence[Any]:
    return [request.Listener(name=text, host="h", port=1)] * count


def features(request: Request, count: int, text: str = "f") -> Sequence[Any]:
    return [request.Feature(name=f"{text}{n}") for n in range(count)]


def refused_broker(cluster: Cluster, broker_id: int = 1, **fields: Any) -> bool:
    request = registration(broker_id, **fields)
    try:
        decide_register_broker(cluster.view(), request)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_REGISTRATION
        return True
    return False


def refused_controller(cluster: Cluster, controller_id: int = 200, **fields: Any) -> bool:
    request = ControllerRegistrationRequest(
        controller_id=controller_id, incarnation_id=b"c" * 16, **fields
    )
    try:
        decide_register_controller(cluster.view(), request)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_REQUEST
        return True
    return False


def test_registration_of_a_broker_with_too_many_listeners_features_or_directories_is_refused() -> (
    None
):
    cluster, request = Cluster(), BrokerRegistrationRequest
    known = registration(1).features
    assert not refused_broker(cluster, listeners=listeners(request, LISTED_MAX))
    assert refused_broker(cluster, listeners=listeners(request, LISTED_MAX + 1))
    most = LISTED_MAX - len(known)
    assert not refused_broker(cluster, features=[*known, *features(request, most)])
    assert refused_broker(cluster, features=[*known, *features(request, most + 1)])
    directories = [directory(n) for n in range(1, LISTED_MAX + 2)]
    assert not refused_broker(cluster, log_dirs=directories[:LISTED_MAX])
    assert refused_broker(cluster, log_dirs=directories)


def test_registration_of_a_controller_with_too_many_listeners_or_features_is_refused() -> None:
    cluster, request = Cluster(), ControllerRegistrationRequest
    assert not refused_controller(cluster, listeners=listeners(request, LISTED_MAX))
    assert refused_controller(cluster, listeners=listeners(request, LISTED_MAX + 1))
    assert not refused_controller(cluster, features=features(request, LISTED_MAX))
    assert refused_controller(cluster, features=features(request, LISTED_MAX + 1))


def test_registration_with_a_long_name_is_refused() -> None:
    cluster, long = Cluster(), "x" * (TEXT_MAX + 1)
    assert not refused_broker(cluster, rack=long[1:])
    assert refused_broker(cluster, rack=long)
    assert refused_broker(cluster, listeners=listeners(BrokerRegistrationRequest, 1, long))
    assert refused_controller(cluster, listeners=listeners(ControllerRegistrationRequest, 1, long))
    assert refused_controller(cluster, features=features(ControllerRegistrationRequest, 1, long))


def test_new_nodes_beyond_the_limit_are_refused_and_known_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.register(1)
    cluster.register(2)
    request = ControllerRegistrationRequest(controller_id=200, incarnation_id=b"c" * 16)
    cluster.run(lambda view: decide_register_controller(view, request))
    monkeypatch.setattr(registration_limits, "NODES_MAX", 2)
    assert refused_broker(cluster, 3)
    assert not refused_broker(cluster, 2, life=2)
    monkeypatch.setattr(registration_limits, "NODES_MAX", 1)
    assert refused_controller(cluster, 201)
    assert not refused_controller(cluster, 200)
