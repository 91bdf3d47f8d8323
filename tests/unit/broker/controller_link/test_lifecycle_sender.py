"""The sender of a broker's lifecycle, with a controller that refuses the registration."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.controller_link.channel import ControllerChannel
from broker.controller_link.lifecycle import BrokerLifecycle, LifecycleTimes
from broker.controller_link.lifecycle_sender import LifecycleSender
from protocol.errors import ErrorCode
from protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from runtime.clock import SystemClock
from runtime.errors import StartupRefused
from runtime.log import captured
from runtime.tasks import Supervisor


class RefusingChannel:
    """A controller of a cluster with levels that this broker does not support."""

    finalised_features = {"metadata.version": 99, "kraft.version": 1, "share.version": 2}

    async def request(self, *_: Any) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


def registration() -> BrokerRegistrationRequest:
    ranges = {"metadata.version": (7, 33), "kraft.version": (0, 1)}
    return BrokerRegistrationRequest(
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in ranges.items()
        ]
    )


async def listen() -> None:
    return None


async def test_refused_broker_names_feature_level_and_own_range() -> None:
    """The response has only UNSUPPORTED_VERSION: operators need the feature, the cluster's level
    and the broker's range."""
    supervisor = Supervisor()
    sender = LifecycleSender(
        BrokerLifecycle(LifecycleTimes(), lambda: 1.0),
        node_id=1,
        incarnation_id=bytes(16),
        registration=registration,
        lead_nothing=lambda: None,
        listen=listen,
        channel=cast(ControllerChannel, RefusingChannel()),
        supervisor=supervisor,
        clock=SystemClock(),
    )
    sender.start()
    with captured() as lines:
        await sender.run()
    with pytest.raises(StartupRefused) as refused:
        await sender.ready
    for text in (str(refused.value), str(list(lines))):
        assert "metadata.version" in text
        assert "99" in text
        assert "share.version" in text
        assert "kraft.version" not in text
    assert "metadata.version at level 99 (this node supports 7 to 33)" in str(refused.value)
