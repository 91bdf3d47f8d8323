"""Fetch 19 and AlterPartition 4 (KIP-1303), offered to our own brokers only."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from broker.apis import fetch
from controller import api_table
from metalog.quorum.apis import register_quorum_apis
from protocol.api_keys import ApiKey
from protocol.transport.dispatch import CloseConnection, Features, HandlerTable, own_peers
from protocol.transport.own_names import (
    BROKER_SOFTWARE_NAME,
    CONTROLLER_SOFTWARE_NAME,
    TOOL_SOFTWARE_NAME,
)
from runtime.clock import ManualClock
from testkit.memory.broker import LISTENER, Harness, Peer

STRANGERS = ("", "apache-kafka-java", "librdkafka", TOOL_SOFTWARE_NAME, CONTROLLER_SOFTWARE_NAME)
"""Kafka's own brokers and controllers are `apache-kafka-java`."""


def last_offered(table: HandlerTable, api: ApiKey, name: str, listener: str = LISTENER) -> int:
    """Return the last version in the answer to ApiVersions; a higher one closes the connection."""
    peer = Peer()
    peer.software_name, peer.listener = name, listener
    answer = table.api_versions_response(4, own=table.own_kind(peer))
    (last,) = [one.max_version for one in answer.api_keys if one.api_key == api]
    assert table.find(api, last, peer) is table.entries[api]
    with pytest.raises(CloseConnection):
        table.find(api, last + 1, peer)
    return last


@pytest.mark.parametrize("unstable", [False, True])
async def test_fetch_of_a_broker(unstable: bool) -> None:
    table = HandlerTable(unstable=unstable, own_kind=own_peers(LISTENER))
    fetch.register(table, Harness().context)
    assert last_offered(table, ApiKey.FETCH, BROKER_SOFTWARE_NAME) == 19
    assert {last_offered(table, ApiKey.FETCH, name) for name in STRANGERS} == {18}
    # The name alone is not enough: clients have listeners of their own.
    assert last_offered(table, ApiKey.FETCH, BROKER_SOFTWARE_NAME, "CLIENTS") == 18


@pytest.mark.parametrize("unstable", [False, True])
def test_a_controller(unstable: bool) -> None:
    table = api_table.build_table(
        Mock(), Mock(), unstable=unstable, features=Features, clock=ManualClock()
    )
    assert last_offered(table, ApiKey.ALTER_PARTITION, BROKER_SOFTWARE_NAME) == 4
    assert {last_offered(table, ApiKey.ALTER_PARTITION, name) for name in STRANGERS} == {3}


@pytest.mark.parametrize("unstable", [False, True])
def test_raft_fetches_as_before(unstable: bool) -> None:
    table = HandlerTable(unstable=unstable, own_kind=own_peers())
    register_quorum_apis(table, Mock())
    for name in (*STRANGERS, BROKER_SOFTWARE_NAME):
        assert last_offered(table, ApiKey.FETCH, name) == 18
