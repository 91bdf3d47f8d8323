"""ApiVersions 5 for another cluster or node (KIP-1242), and UnregisterController (KIP-1312)."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.unregister_controller import UnregisterControllerRequest
from testkit.memory.node import CLUSTER_ID
from testkit.processes.peer import Target

OWN = 1
LONG = "x" * 32_767


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "expected"),
    [
        (None, -1, E.NONE),
        (CLUSTER_ID, OWN, E.NONE),
        (CLUSTER_ID, -1, E.INVALID_REQUEST),
        (None, OWN, E.INVALID_REQUEST),
        (None, -2, E.INVALID_REQUEST),
        ("", -1, E.INVALID_REQUEST),
        ("", OWN, E.REBOOTSTRAP_REQUIRED),
        (LONG, OWN, E.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, -2, E.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, 2**31 - 1, E.REBOOTSTRAP_REQUIRED),
    ],
)
def test_api_versions_5_with_cluster_and_node_gets_kafkas_code(
    target: Target, cluster_id: str | None, node_id: int, expected: E
) -> None:
    """A refusal lists no API, and the connection stays usable."""
    request = ApiVersionsRequest(
        client_software_name="test",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,
    )
    with target.connect() as peer:
        answer = peer.ask(request, 5)
        assert E(answer.error_code) is expected
        assert bool(answer.api_keys) is (expected is E.NONE)
        assert answer.throttle_time_ms == 0
        peer.works()


@pytest.mark.parametrize(
    ("controller_id", "expected"),
    [
        (-1, E.CONTROLLER_ID_NOT_REGISTERED),
        (-(2**31), E.CONTROLLER_ID_NOT_REGISTERED),
        (2**31 - 1, E.CONTROLLER_ID_NOT_REGISTERED),
        (OWN, E.INVALID_REQUEST),
    ],
)
def test_unregister_controller_refuses_active_and_unknown_ids(
    target: Target, controller_id: int, expected: E
) -> None:
    """The active controller is checked before the registration; twice gives the same code."""
    request = UnregisterControllerRequest(controller_id=controller_id)
    with target.connect() as peer:
        for _ in range(2):
            answer = peer.ask(request, 0)
            assert E(answer.error_code) is expected
            assert answer.error_message
        peer.works()


def test_pipelined_unregister_controller_is_answered_in_order(target: Target) -> None:
    """A hundred refusals and a Metadata request behind them."""
    with target.connect() as peer:
        for number in range(100):
            peer.ask_later(UnregisterControllerRequest(controller_id=1000 + number), 0)
        peer.ask_later(MetadataRequest(topics=[]), 12)
        for _ in range(100):
            _, answer = peer.answer(ApiKey.UNREGISTER_CONTROLLER, 0)
            assert E(answer.error_code) is E.CONTROLLER_ID_NOT_REGISTERED
        assert peer.answer(ApiKey.METADATA, 12)[1].topics == []
